"""CloudFormation makes what the template says, out of the artifacts that would be shipped."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from typing import Any

import pytest

from infra.assembly import Assembly
from tests.deployed.conftest import ALARM_TYPE, ANSWER_TYPE, CANARY_TYPES, SPARK_TYPE
from tests.deployed.deploy import Stack
from tests.deployed.template import Reduced, without

SEE_PLACEHOLDERS = ("Indexer", "Dashboard")  # the one names the Spark application, the other every alarm


def test_everything_but_spark_code_deploy_and_alarms_over_several_metrics_is_made(
    assembly: Assembly, reduced: tuple[Reduced, Reduced], stack: Stack
) -> None:
    removed = reduced[1].removed
    alarms = [id_ for id_, type_ in removed.items() if type_ == ALARM_TYPE]
    assert set(removed.values()) == {SPARK_TYPE, ANSWER_TYPE, ALARM_TYPE, *CANARY_TYPES}
    assert len(removed) == 2 + 3 + len(alarms), "of CodeDeploy an application, and a group for each door"
    for id_ in alarms:
        assert assembly.application.template["Resources"][id_]["Properties"]["Metrics"], id_
    assert ALARM_TYPE in stack.types, "alarms over one metric are made"
    assert stack.types == assembly.data.resources + assembly.application.resources - Counter(removed.values())
    assert {resource["ResourceStatus"] for resource in stack.resources.values()} == {"CREATE_COMPLETE"}


def test_only_the_indexer_and_the_dashboard_see_placeholders(reduced: tuple[Reduced, Reduced]) -> None:
    placeholders = reduced[1].placeholders
    assert placeholders
    for where in placeholders:
        assert where.startswith(SEE_PLACEHOLDERS), where


def test_what_is_kept_is_kept_as_it_is() -> None:
    gone: dict[str, Any] = {"Type": "Gone"}
    template = {"Resources": {"A": gone, "B": {"Type": "Kept", "DependsOn": ["A", "C"], "P": {"Ref": "A"}}}}
    left = without(template, lambda resource: resource["Type"] == "Gone")
    assert left.template == {"Resources": {"B": {"Type": "Kept", "DependsOn": ["C"], "P": "absenta"}}}
    assert (left.removed, left.placeholders) == ({"A": "Gone"}, {"B/P": "absenta"})
    assert template["Resources"]["A"] is gone


def test_a_reference_in_a_text_is_not_overlooked() -> None:
    template = {"Resources": {"A": {"Type": "Gone"}, "B": {"Type": "Kept", "P": {"Fn::Sub": "x-${A.Id}"}}}}
    with pytest.raises(ValueError, match="at=B/P to=A"):
        without(template, lambda resource: resource["Type"] == "Gone")


def test_functions_run_the_uploaded_artifacts(stack: Stack, reduced: tuple[Reduced, Reduced]) -> None:
    functions = stack.emulator.client("lambda")
    for id_, resource in reduced[1].template["Resources"].items():
        if resource["Type"] == "AWS::Lambda::Function" and "S3Key" in resource["Properties"]["Code"]:
            name = stack.resources[id_]["PhysicalResourceId"]
            packed = stack.emulator.scratch / resource["Properties"]["Code"]["S3Key"]
            digest = base64.b64encode(hashlib.sha256(packed.read_bytes()).digest()).decode()
            assert functions.get_function_configuration(FunctionName=name)["CodeSha256"] == digest, id_


def test_rules_are_enabled_and_lead_to_functions(stack: Stack, reduced: tuple[Reduced, Reduced]) -> None:
    events = stack.emulator.client("events")
    schedules = []
    for id_, resource in reduced[1].template["Resources"].items():
        if resource["Type"] == "AWS::Events::Rule" and not id_.startswith("KeyWatch"):  # it tells people
            name = stack.resources[id_]["PhysicalResourceId"]
            described = events.describe_rule(Name=name)
            targets = events.list_targets_by_rule(Rule=name)["Targets"]
            (wanted,) = (name for name in ("Sealer", "Indexer", "Relay", "Versions") if id_.startswith(name))
            function = stack.physical("AWS::Lambda::Function", holding=wanted)
            called = function if wanted == "Versions" else f"{function}:live"
            assert described["State"] == "ENABLED"
            assert [target["Arn"].partition(":function:")[2] for target in targets] == [called], id_
            schedules.append((wanted, described.get("ScheduleExpression", "an event")))
    assert sorted(schedules) == [
        ("Indexer", "an event"),
        ("Indexer", "rate(1 day)"),
        ("Indexer", "rate(1 minute)"),
        ("Relay", "rate(1 day)"),
        ("Relay", "rate(1 minute)"),
        ("Sealer", "rate(1 day)"),
        ("Sealer", "rate(1 hour)"),
        ("Sealer", "rate(1 minute)"),
        ("Versions", "rate(1 day)"),
    ]


def test_what_is_kept_for_ever_is_protected(stack: Stack) -> None:
    tables = stack.emulator.client("dynamodb")
    for output in ("WalTableName", "CatalogTableName", "WatermarksTableName", "ProducersTableName", "JobsTableName"):
        described = tables.describe_table(TableName=stack.outputs[output])["Table"]
        assert described["DeletionProtectionEnabled"] is True, output
    versioning = stack.emulator.client("s3").get_bucket_versioning(Bucket=stack.outputs["BucketName"])
    assert versioning["Status"] == "Enabled"
