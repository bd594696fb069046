"""What an operator may tune: each value does something, and a wrong one fails before anything is deployed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from functions.indexer.runs import submission
from headrace.settings import Settings
from infra.app import build_app
from infra.environments import (
    DEV,
    PROD,
    RESERVATIONS,
    SPARK_DRIVER_VCPUS,
    SPARK_EXECUTOR_VCPUS,
    environment_of,
    settings,
    table,
)
from infra.fields import BadEnvironment
from tests.infra.resources import Resources
from tests.infra.synths import synthesize

Synth = Callable[..., Resources]
DOCS = Path(__file__).parents[2] / "docs"


def test_operations_has_the_table_of_values() -> None:
    page = (DOCS / "operations.md").read_text()
    assert table() in page, "stale: run `uv run --frozen python -m infra.environments`"
    assert all(len(one.metadata["meaning"]) > 10 for one in settings())


def test_the_walk_through_has_every_value_by_its_task() -> None:
    page = (DOCS / "deploy.md").read_text()
    assert not [one.name for one in settings() if f"`headrace:{one.name}`" not in page]


def test_the_context_names_a_preset_and_replaces_its_values() -> None:
    assert environment_of({}) == DEV
    assert environment_of({"environment": "prod", "aws:cdk:bundling-stacks": []}) == PROD
    from_text = {"headrace:request_burst": " 800 ", "headrace:streaming_door": "False", "headrace:name": "eu-prod"}
    expected = replace(PROD, request_burst=800, streaming_door=False, name="eu-prod")
    assert environment_of({"environment": "prod", **from_text}) == expected
    from_json = {"headrace:request_burst": 800, "headrace:streaming_door": False, "headrace:name": "eu-prod"}
    assert environment_of({"environment": "prod", **from_json}) == expected


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"environment": "staging"}, r"unknown environment: expected=\['dev', 'prod'\] actual=staging"),
        (
            {"headrace:request_brust": 1},
            r"unknown value headrace:request_brust: did you mean headrace:request_burst\?",
        ),
        ({"headrace:colour": 1}, r"unknown value headrace:colour: known=name,log_retention_days,"),
        ({"headrace:request_burst": "many"}, r"request_burst is not 1 to 100,000: 'many'"),
        ({"headrace:request_burst": 0}, r"request_burst is not 1 to 100,000: 0"),
        ({"headrace:request_burst": -5}, r"request_burst is not"),
        ({"headrace:request_burst": "1.5"}, r"request_burst is not"),
        ({"headrace:request_burst": True}, r"request_burst is not 1 to 100,000: True"),
        ({"headrace:streaming_door": "yes"}, r"streaming_door is not true or false: 'yes'"),
        ({"headrace:streaming_door": 1}, r"streaming_door is not true or false: 1"),
        ({"headrace:streaming_seconds": 871}, r"streaming_seconds is not 1 to 870: 871"),
        ({"headrace:log_retention_days": 8}, r"log_retention_days is not one of 1, 3, 5, 7, .*: 8"),
        ({"headrace:name": ""}, r"name is not a name: ''"),
        ({"headrace:name": "prod-data"}, r"name ends in -data, which the stack with the data does: 'prod-data'"),
        ({"headrace:name": "Prod_1"}, r"name is not a name"),
        ({"headrace:domain_name": "https://a.example"}, r"domain_name is not a domain"),
        ({"headrace:domain_name": "a.example"}, r"domain_name and certificate_arn go together"),
        ({"headrace:certificate_arn": "arn:aws:iam::1:x"}, r"certificate_arn is not an ARN"),
        ({"headrace:hosted_zone_id": "Z1"}, r"hosted_zone_id is for a domain_name"),
        (
            {
                "environment": "prod",
                "headrace:api_reserved_concurrency": 5,
                "headrace:api_provisioned_concurrency": 6,
            },
            r"api_provisioned_concurrency is above api_reserved_concurrency: 6 > 5",
        ),
        ({"environment": "prod", "headrace:keep_data": "false"}, r"keep_data=false is for a stack without"),
        ({"headrace:canary_minutes": 7}, r"canary_minutes is not one of 0, 5, 10, 15, 30: 7"),
        ({"headrace:earlier_version_days": 0}, r"earlier_version_days is not 1 to 365: 0"),
        ({"headrace:tags": "team"}, r"tags is not name=value,…: 'team'"),
        ({"headrace:tags": "aws:team=data"}, r"tags is not name=value"),
        ({"headrace:notify_email": "ops"}, r"notify_email is not an e-mail address: 'ops'"),
        ({"headrace:notify_email": "a@b.example"}, r"notify_email is for notify or monthly_budget_usd"),
        ({"headrace:monthly_budget_usd": 5}, r"monthly_budget_usd is told to notify_email, and there is none"),
        ({"headrace:spark_warm_executors": 4}, r"spark_warm_executors need more than spark_maximum_vcpus: 17 > 16"),
    ],
)
def test_a_wrong_value_is_refused_by_name(context: dict[str, Any], message: str) -> None:
    with pytest.raises(BadEnvironment, match=message):
        environment_of(context)


def test_the_app_reads_the_context(tmp_path: Path) -> None:
    with pytest.raises(BadEnvironment, match=r"actual=staging"):
        build_app(context={"environment": "staging"}, outdir=str(tmp_path))
    with pytest.raises(BadEnvironment, match=r"did you mean"):
        build_app(context={"headrace:nmae": "x"}, outdir=str(tmp_path))


def test_readers_that_stay_are_bounded_and_the_sealer_has_instances_of_its_own(resources_of: Synth) -> None:
    production = resources_of()
    assert production.function("streaming")["ReservedConcurrentExecutions"] == 300
    assert production.function("sealer")["ReservedConcurrentExecutions"] == 100
    for name in ("api", "indexer"):
        assert "ReservedConcurrentExecutions" not in production.function(name)


def test_nothing_is_reserved_where_the_accounts_limit_is_too_low_for_it() -> None:
    """New accounts have 10, and Lambda would refuse the first deployment."""
    reserved = [name for name in RESERVATIONS if getattr(PROD, name)]
    assert reserved
    for limit in (10, 499):
        found = environment_of({"environment": "prod", "headrace:account_concurrency": limit})
        assert not [name for name in RESERVATIONS if getattr(found, name)]
    assert not [name for name in RESERVATIONS if getattr(DEV, name)]
    message = "leave fewer than 100 of account_concurrency: 5 of 10"
    with pytest.raises(BadEnvironment, match=message):
        environment_of({"headrace:streaming_reserved_concurrency": 5})
    with pytest.raises(BadEnvironment, match="leave fewer than 100 of account_concurrency: 400 of 499"):
        replace(PROD, account_concurrency=499)


def test_numbers_reach_the_resources(resources_of: Synth) -> None:
    found = resources_of(
        log_retention_days=14,
        noncurrent_version_days=3,
        requests_per_second=7,
        request_burst=9,
        spark_maximum_vcpus=40,
        spark_warm_executors=2,
    )
    assert {group["Properties"]["RetentionInDays"] for group in found.of("Logs::LogGroup").values()} == {14}
    rules = found.one("S3::Bucket")[1]["LifecycleConfiguration"]["Rules"]
    assert 3 in [rule.get("NoncurrentVersionExpiration", {}).get("NoncurrentDays") for rule in rules]
    stages = [stage["Properties"]["DefaultRouteSettings"] for stage in found.of("ApiGatewayV2::Stage").values()]
    assert stages == [{"ThrottlingRateLimit": 7, "ThrottlingBurstLimit": 9}] * 2
    _, spark = found.one("EMRServerless::Application")
    assert spark["MaximumCapacity"]["Cpu"] == "40 vCPU"
    warm = {one["Key"]: one["Value"] for one in spark["InitialCapacity"]}
    assert {key: value["WorkerCount"] for key, value in warm.items()} == {"Driver": 1, "Executor": 2}


def test_warm_workers_are_as_large_as_those_that_jobs_ask_for(resources_of: Synth) -> None:
    """EMR Serverless gives a job none that is smaller."""
    parameters = submission("j", Settings(), "eu-central-1")["jobDriver"]["sparkSubmit"]["sparkSubmitParameters"]
    asked = dict(re.findall(r"--conf (\S+?)=(\S+)", parameters))
    _, spark = resources_of(spark_warm_executors=1).one("EMRServerless::Application")
    overhead = {
        "driver": 1.1,
        "executor": 1 + float(asked["spark.executor.memoryOverheadFactor"]),
    }  # Spark's own: 0.1
    for key, role, vcpus in (
        ("Driver", "driver", SPARK_DRIVER_VCPUS),
        ("Executor", "executor", SPARK_EXECUTOR_VCPUS),
    ):
        (worker,) = [one["Value"]["WorkerConfiguration"] for one in spark["InitialCapacity"] if one["Key"] == key]
        assert worker["Cpu"] == f"{vcpus} vCPU"
        assert int(asked[f"spark.{role}.cores"]) == vcpus
        memory_gb = int(asked[f"spark.{role}.memory"].removesuffix("g")) * overhead[role]
        assert memory_gb <= int(worker["Memory"].removesuffix(" GB")) < 2 * memory_gb


def test_a_sandbox_pays_for_no_key_snapshot_alarm_or_dashboard_unless_it_asks(resources_of: Synth) -> None:
    paid = {"AWS::KMS::Key", "AWS::CloudWatch::Alarm", "AWS::CloudWatch::Dashboard"}
    sandbox = Resources.parse(synthesize("dev"))
    assert not paid & {resource["Type"] for resource in sandbox.by_id.values()}
    assert "SnapStart" not in sandbox.function("api")
    assert not [s for s in sandbox.statements("api") if any(action.startswith("kms:") for action in s.actions)]
    _, bucket = sandbox.one("S3::Bucket")
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
    asked = synthesize("dev", customer_key=True, alarms=True, dashboard=True, snap_start=True, memory_mb=2048)
    found = Resources.parse(asked)
    assert paid <= {resource["Type"] for resource in found.by_id.values()}
    assert found.function("api")["SnapStart"] == {"ApplyOn": "PublishedVersions"}
    assert {found.function(name)["MemorySize"] for name in ("api", "sealer", "indexer")} == {2048}


def test_data_go_with_the_stack_only_where_that_was_asked_for(resources_of: Synth) -> None:
    found = resources_of(keep_data=False, termination_protection=False)
    kept = {resource["Type"] for resource in found.by_id.values() if resource.get("DeletionPolicy") == "Retain"}
    assert kept == {"AWS::S3::Bucket"}
    tables = found.of("DynamoDB::Table").values()
    assert not any(table["Properties"].get("DeletionProtectionEnabled") for table in tables)
