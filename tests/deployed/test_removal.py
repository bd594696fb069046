"""The application can be destroyed and deployed again: it finds its data. What `cdk destroy` of the data leaves is what
the template says is kept.
"""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.assembly import Assembly
from tests.conformance.contract.client import Stream, expect
from tests.deployed.conftest import open_api, wait_for_snapshot
from tests.deployed.deploy import Stack, deploy, described, remove
from tests.deployed.flow import RECORDS, Flow, record
from tests.deployed.template import Reduced

KEPT_TYPES = {"AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::KMS::Key", "AWS::SecretsManager::Secret"}


def test_the_data_refuse_to_be_deleted_while_the_application_uses_them(stack: Stack) -> None:
    cloudformation = stack.emulator.client("cloudformation")
    data, _ = stack.names
    with pytest.raises(ClientError, match="TerminationProtection is enabled"):
        cloudformation.delete_stack(StackName=data)
    cloudformation.update_termination_protection(StackName=data, EnableTerminationProtection=False)
    with pytest.raises(ClientError, match=r"Export .* is imported by stack"):
        cloudformation.delete_stack(StackName=data)
    cloudformation.update_termination_protection(StackName=data, EnableTerminationProtection=True)


@pytest.mark.timeout(300)
def test_an_application_that_is_destroyed_and_deployed_again_finds_its_data(
    assembly: Assembly, reduced: tuple[Reduced, Reduced], stack: Stack, flow: Flow, findings: dict[str, Any]
) -> None:
    """Sealed records, records of the tail, names and keys."""
    with open_api(stack) as before:
        tail = before.stream()
        expect(tail.append([{"n": 1}]), 204)
    cloud, (data, application) = stack.emulator, stack.names

    remove(cloud, application)
    alone = described(cloud, (data,))
    assert {id_: one["PhysicalResourceId"] for id_, one in alone.resources.items()}.items() <= {
        id_: one["PhysicalResourceId"] for id_, one in stack.resources.items()
    }.items()
    assert cloud.client("lambda").list_functions()["Functions"] == []
    assert cloud.client("lambda").list_event_source_mappings()["EventSourceMappings"] == []
    assert cloud.client("events").list_rules()["Rules"] == []
    assert cloud.client("apigatewayv2").get_apis()["Items"] == []
    assert cloud.client("iam").list_roles()["Roles"] == []

    again = deploy(assembly, reduced, cloud)
    wait_for_snapshot(again)
    assert {name: again.outputs[name] for name in alone.outputs} == alone.outputs
    with open_api(again) as after:
        assert after.key == before.key
        kept = Stream(after, tail.name)
        assert kept.records() == [{"n": 1}]
        sealed = Stream(after, flow.stream.name)
        found = expect(sealed.search(q="kind:k3", sort=["offset:desc"], size=1), 200).json()
        assert [hit["source"] for hit in found["hits"]] == [record(max(range(3, RECORDS, 7)))]
        expect(kept.append([{"n": 2}]), 204)
        assert kept.records() == [{"n": 1}, {"n": 2}]
    findings["redeployed"] = {"kept": sorted(alone.resources)}


def test_data_stay_when_their_stack_goes_and_the_rest_goes(
    stack: Stack, reduced: tuple[Reduced, Reduced], findings: dict[str, Any]
) -> None:
    resources = reduced[0].template["Resources"]
    kept = {id_ for id_, resource in resources.items() if resource.get("DeletionPolicy") == "Retain"}
    assert {resources[id_]["Type"] for id_ in kept} == KEPT_TYPES
    cloud, (data, application) = stack.emulator, stack.names
    remove(cloud, application)
    remove(cloud, data)

    names = {id_: stack.resources[id_]["PhysicalResourceId"] for id_ in kept}
    tables = cloud.client("dynamodb").list_tables()["TableNames"]
    buckets = [bucket["Name"] for bucket in cloud.client("s3").list_buckets()["Buckets"]]
    secrets = [secret["Name"] for secret in cloud.client("secretsmanager").list_secrets()["SecretList"]]
    for id_, name in names.items():
        match resources[id_]["Type"]:
            case "AWS::DynamoDB::Table":
                assert name in tables
            case "AWS::S3::Bucket":
                assert name in buckets
            case "AWS::SecretsManager::Secret":
                assert name in secrets
            case _:
                assert cloud.client("kms").describe_key(KeyId=name)["KeyMetadata"]["KeyState"] == "Enabled"
    assert cloud.client("sqs").list_queues().get("QueueUrls", []) == []
    findings["kept"] = sorted(names)


def test_a_table_that_stayed_refuses_to_be_deleted(stack: Stack) -> None:
    with pytest.raises(ClientError, match=r"[Dd]eletion protection"):
        stack.emulator.client("dynamodb").delete_table(TableName=stack.outputs["WalTableName"])
