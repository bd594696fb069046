"""The committed template is what the code says, and says no more than it."""

from __future__ import annotations

from infra.synth import TEMPLATE
from tests.infra.resources import Resources

# What the emulator creates itself from the template, and what it therefore reads from it.
EMULATED_OUTPUTS = {
    "WalTableName",
    "CatalogTableName",
    "WatermarksTableName",
    "ProducersTableName",
    "BucketName",
    "DelayQueueUrl",
    "DelayDeadLetterQueueUrl",
    "StreamDeadLetterQueueUrl",
    "WalStreamArn",
}


def test_the_committed_template_is_fresh(synthesized: str) -> None:
    assert TEMPLATE.read_text() == synthesized, "stale: run `uv run --frozen python -m infra.synth`"


def test_the_emulator_finds_what_it_reads(resources: Resources) -> None:
    assert set(resources.outputs) >= EMULATED_OUTPUTS


def test_each_function_ships_its_own_code(resources: Resources) -> None:
    keys = [f["Properties"]["Code"]["S3Key"] for f in resources.of("Lambda::Function").values()]
    assert len(keys) == len(set(keys)) == 2


def test_what_outlives_the_stack_is_exactly_the_data_and_its_key(resources: Resources) -> None:
    retained = {r["Type"] for r in resources.by_id.values() if r.get("DeletionPolicy") == "Retain"}
    assert retained == {"AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::KMS::Key"}
