"""`cdk destroy` leaves what the template says is kept, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.deployed.deploy import Stack, remove
from tests.deployed.template import Reduced

KEPT_TYPES = {"AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::KMS::Key"}


def test_data_stay_and_the_rest_goes(stack: Stack, reduced: Reduced, findings: dict[str, Any]) -> None:
    resources = reduced.template["Resources"]
    kept = {id_ for id_, resource in resources.items() if resource.get("DeletionPolicy") == "Retain"}
    assert {resources[id_]["Type"] for id_ in kept} == KEPT_TYPES
    cloud = stack.emulator
    remove(stack)

    names = {id_: stack.resources[id_]["PhysicalResourceId"] for id_ in kept}
    tables = cloud.client("dynamodb").list_tables()["TableNames"]
    buckets = [bucket["Name"] for bucket in cloud.client("s3").list_buckets()["Buckets"]]
    for id_, name in names.items():
        type_ = resources[id_]["Type"]
        if type_ == "AWS::DynamoDB::Table":
            assert name in tables
        elif type_ == "AWS::S3::Bucket":
            assert name in buckets
        else:
            assert cloud.client("kms").describe_key(KeyId=name)["KeyMetadata"]["KeyState"] == "Enabled"
    assert cloud.client("lambda").list_functions()["Functions"] == []
    assert cloud.client("lambda").list_event_source_mappings()["EventSourceMappings"] == []
    assert cloud.client("events").list_rules()["Rules"] == []
    assert cloud.client("sqs").list_queues().get("QueueUrls", []) == []
    assert cloud.client("apigatewayv2").get_apis()["Items"] == []
    assert cloud.client("secretsmanager").list_secrets()["SecretList"] == []
    assert cloud.client("iam").list_roles()["Roles"] == []
    findings["kept"] = sorted(names)


def test_a_table_that_stayed_refuses_to_be_deleted(stack: Stack) -> None:
    with pytest.raises(ClientError, match=r"[Dd]eletion protection"):
        stack.emulator.client("dynamodb").delete_table(TableName=stack.outputs["WalTableName"])
