"""The committed templates are what the code says, and say no more than it."""

from __future__ import annotations

import json
from typing import Any

from aws_cdk import App

from infra.app import DATA_STACK_ID
from infra.data import DataStack
from infra.environments import PROD
from infra.synth import TEMPLATES
from tests.infra.resources import Resources
from tests.infra.synths import stacks

# What the emulator creates itself from the template, and what it therefore reads from it.
EMULATED_OUTPUTS = {
    "WalTableName",
    "CatalogTableName",
    "WatermarksTableName",
    "ProducersTableName",
    "FollowsTableName",
    "SessionsTableName",
    "FeaturesTableName",
    "JobsTableName",
    "BucketName",
    "DelayQueueUrl",
    "DelayDeadLetterQueueUrl",
    "StreamDeadLetterQueueUrl",
    "IndexQueueUrl",
    "IndexDeadLetterQueueUrl",
    "RelayQueueUrl",
    "RelayDeadLetterQueueUrl",
    "RelayStreamDeadLetterQueueUrl",
    "FoldQueueUrl",
    "FoldDeadLetterQueueUrl",
    "WalStreamArn",
}


def test_the_committed_templates_are_fresh() -> None:
    committed = {path.name: path.read_text() for path in TEMPLATES.iterdir()}
    assert committed == stacks(), "stale: run `uv run --frozen python -m infra.synth`"


def test_the_emulator_finds_what_it_reads(resources: Resources) -> None:
    assert set(resources.outputs) >= EMULATED_OUTPUTS


def test_each_artifact_is_shipped_once_and_the_two_doors_share_one(resources: Resources) -> None:
    names = ("api", "streaming", "sealer", "indexer", "relay", "folder")
    keys = {name: resources.function(name)["Code"]["S3Key"] for name in names}
    assert keys["api"] == keys["streaming"]
    assert len(set(keys.values())) == 5


def test_what_outlives_the_application_is_in_a_stack_of_its_own() -> None:
    """An application that is deployed again finds tables, bucket, key, secret and waiting work as they were."""
    data, application = (json.loads(text)["Resources"].values() for text in stacks().values())
    kept = {"AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::KMS::Key", "AWS::SecretsManager::Secret"}
    assert {one["Type"] for one in data} == kept | {
        *("AWS::SQS::Queue", "AWS::SQS::QueuePolicy", "AWS::S3::BucketPolicy")
    }
    assert {one["Type"] for one in data if one.get("DeletionPolicy") == "Retain"} == kept
    assert not [one for one in application if one.get("DeletionPolicy") == "Retain"]
    assert not {one["Type"] for one in application} & {one["Type"] for one in data}


def test_the_data_need_nothing_of_the_application() -> None:
    assert "Fn::ImportValue" not in stacks()["HeadraceData.template.json"]


def test_what_the_data_export_does_not_depend_on_what_an_application_uses() -> None:
    """CloudFormation refuses to withdraw an export that the application of the release before still imports."""
    app = App(context={"aws:cdk:bundling-stacks": []})
    DataStack(app, DATA_STACK_ID, environment=PROD)
    alone = app.synth().get_stack_by_name("headrace-prod-data").template["Outputs"]
    assert alone == json.loads(stacks()["HeadraceData.template.json"])["Outputs"]


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
