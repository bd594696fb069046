"""The committed template is what the code says, and says no more than it."""

from __future__ import annotations

from typing import Any

from infra.synth import TEMPLATE
from tests.infra.resources import Resources

# What the emulator creates itself from the template, and what it therefore reads from it.
EMULATED_OUTPUTS = {
    "WalTableName",
    "CatalogTableName",
    "WatermarksTableName",
    "ProducersTableName",
    "JobsTableName",
    "BucketName",
    "DelayQueueUrl",
    "DelayDeadLetterQueueUrl",
    "StreamDeadLetterQueueUrl",
    "IndexQueueUrl",
    "IndexDeadLetterQueueUrl",
    "WalStreamArn",
}


def test_the_committed_template_is_fresh(synthesized: str) -> None:
    assert TEMPLATE.read_text() == synthesized, "stale: run `uv run --frozen python -m infra.synth`"


def test_the_emulator_finds_what_it_reads(resources: Resources) -> None:
    assert set(resources.outputs) >= EMULATED_OUTPUTS


def test_each_artifact_is_shipped_once_and_the_two_doors_share_one(resources: Resources) -> None:
    keys = {name: resources.function(name)["Code"]["S3Key"] for name in ("api", "streaming", "sealer", "indexer")}
    assert keys["api"] == keys["streaming"]
    assert len(set(keys.values())) == 3


def test_what_outlives_the_stack_is_exactly_the_data_and_its_key(resources: Resources) -> None:
    retained = {r["Type"] for r in resources.by_id.values() if r.get("DeletionPolicy") == "Retain"}
    assert retained == {"AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::KMS::Key"}


def test_no_resource_waits_for_itself(resources: Resources) -> None:
    """CloudFormation would refuse the stack: a queue's policy, a bucket and its notification are easily tied in a ring."""
    waits = {key: _named(part) & resources.by_id.keys() for key, part in resources.by_id.items()}
    done: set[str] = set()
    while ready := {key for key, others in waits.items() if key not in done and others <= done}:
        done |= ready
    assert set(waits) - done == set()


def _named(value: Any) -> set[str]:
    """Returns the logical ids that a part of the template refers to."""
    if isinstance(value, list):
        return set().union(*map(_named, value))
    if not isinstance(value, dict):
        return set()
    found = set().union(*map(_named, value.values()))
    if isinstance(value.get("Ref"), str):
        found.add(value["Ref"])
    if isinstance(value.get("Fn::GetAtt"), list):
        found.add(value["Fn::GetAtt"][0])
    if isinstance(value.get("DependsOn"), list):
        found |= set(value["DependsOn"])
    return found
