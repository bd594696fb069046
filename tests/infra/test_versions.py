"""A deployment can be taken back: each function is called through an alias, and the version before stays for a while."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from moto import mock_aws

from functions.versions.handler import MAX_REMOVED, handler, removable
from infra.environments import PROD
from tests.infra.resources import Resources
from tests.infra.synths import synthesize

Synth = Callable[..., Resources]
FUNCTIONS = ("api", "streaming", "sockets", "sealer", "indexer", "relay", "folder", "webhook")
CALLERS = {
    "Events::Rule": "Targets",
    "Lambda::EventSourceMapping": "FunctionName",
    "ApiGatewayV2::Integration": "IntegrationUri",
    "Lambda::EventInvokeConfig": "Qualifier",
}
NOW = datetime(2026, 1, 31, tzinfo=UTC)


@pytest.fixture(scope="module", params=["dev", "prod"])
def deployed(request: pytest.FixtureRequest) -> Resources:
    """Returns the resources of each environment in turn."""
    return Resources.parse(synthesize(request.param))


def test_each_function_has_an_alias_of_its_newest_version(deployed: Resources) -> None:
    aliases = [alias["Properties"] for alias in deployed.of("Lambda::Alias").values()]
    assert {alias["FunctionName"]["Ref"] for alias in aliases} == deployed.serving.keys()
    assert len(aliases) == len(FUNCTIONS)
    for alias in aliases:
        version = deployed.by_id[alias["FunctionVersion"]["Fn::GetAtt"][0]]["Properties"]
        assert (alias["Name"], version["FunctionName"]) == ("live", alias["FunctionName"])


def test_nothing_calls_a_function_but_through_its_alias(deployed: Resources) -> None:
    """What calls the newest code goes on calling it when the alias was put back."""
    serving = deployed.serving.keys()
    for kind, name in CALLERS.items():
        for key, caller in deployed.of(kind).items():
            text = json.dumps(caller["Properties"][name])
            assert not [function for function in serving if f'"{function}"' in text and "Versions" not in key], key
    for key, permission in deployed.of("Lambda::Permission").items():
        assert permission["Properties"]["FunctionName"].keys() == {"Ref"} or key.startswith("Versions"), key
    assert deployed.one("Lambda::Url")[1]["Qualifier"] == "live"


def test_a_change_publishes_a_version_and_the_one_before_stays(resources: Resources, resources_of: Synth) -> None:
    """CloudFormation removes what a template no longer has, unless it is to be retained. It must not stay if the deployment
    that made it is rolled back: Lambda would publish no second one for the same code.
    """
    changed = resources_of(index_age_ms=60_000)
    before, after = (found.of("Lambda::Version") for found in (resources, changed))
    assert len(before) == len(after) == len(FUNCTIONS)
    (same,) = before.keys() & after.keys()
    assert same.startswith("Webhook"), "no number of the engine means anything to it"
    assert {version["DeletionPolicy"] for version in before.values()} == {"RetainExceptOnCreate"}
    assert resources.of("Lambda::Alias").keys() == changed.of("Lambda::Alias").keys()


def test_how_often_lambda_repeats_a_run_is_said_of_the_alias(resources: Resources) -> None:
    """Lambda keeps it by what is invoked: said of the function, it is for the newest code alone."""
    configured = {
        resources.called(one["Properties"]["Qualifier"])["Handler"]: one["Properties"]["MaximumRetryAttempts"]
        for one in resources.of("Lambda::EventInvokeConfig").values()
    }
    repeats = {"sealer": 0, "indexer": 2, "relay": 0}
    assert configured == {f"functions.{name}.handler.handler": most for name, most in repeats.items()}


def test_production_shifts_its_doors_by_a_canary_that_alarms_end(resources: Resources) -> None:
    groups = resources.of("CodeDeploy::DeploymentGroup")
    aliases = resources.of("Lambda::Alias")
    shifted = {
        alias["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"]["DeploymentGroupName"]["Ref"]: name
        for name, alias in aliases.items()
        if "UpdatePolicy" in alias
    }
    assert shifted.keys() == groups.keys()
    assert sorted(name[:-12] for name in shifted.values()) == ["Api", "Streaming"]
    watched = {name for name in resources.of("CloudWatch::Alarm") if name.startswith("Canary")}
    for group in groups.values():
        properties = group["Properties"]
        assert (
            properties["DeploymentConfigName"]
            == f"CodeDeployDefault.LambdaCanary10Percent{PROD.canary_minutes}Minutes"
        )
        assert {alarm["Name"]["Ref"] for alarm in properties["AlarmConfiguration"]["Alarms"]} == watched
        assert properties["AlarmConfiguration"]["Enabled"] is True
        assert "DEPLOYMENT_STOP_ON_ALARM" in properties["AutoRollbackConfiguration"]["Events"]
    assert 0 < len(watched) <= 10, "CodeDeploy takes no more"
    for alarm in watched:
        properties = resources.by_id[alarm]["Properties"]
        assert properties["EvaluationPeriods"] < PROD.canary_minutes, "it would come too late"


def test_workers_move_when_the_canary_is_over(resources: Resources) -> None:
    doors = {name for name in resources.of("Lambda::Alias") if name.startswith(("Api", "Streaming"))}
    for name, alias in resources.of("Lambda::Alias").items():
        assert doors <= {*alias.get("DependsOn", ()), *doors} and (name in doors or doors <= {*alias["DependsOn"]})


@pytest.mark.parametrize("minutes", [0, 30])
def test_a_canary_is_as_long_as_the_context_says(resources_of: Synth, minutes: int) -> None:
    found = resources_of(canary_minutes=minutes)
    kinds = {resource["Type"] for resource in found.by_id.values()}
    if not minutes:
        assert not [kind for kind in kinds if "CodeDeploy" in kind]
        assert not [alias for alias in found.of("Lambda::Alias").values() if "UpdatePolicy" in alias]
        return
    configurations = {
        one["Properties"]["DeploymentConfigName"] for one in found.of("CodeDeploy::DeploymentGroup").values()
    }
    assert configurations == {f"CodeDeployDefault.LambdaCanary10Percent{minutes}Minutes"}


def test_code_deploy_may_move_the_doors_aliases_and_read_alarms(resources: Resources) -> None:
    allowed = resources.allowed_to_role("CanaryRole")
    assert allowed.keys() == {
        *("lambda:GetAlias", "lambda:UpdateAlias", "lambda:GetProvisionedConcurrencyConfig"),
        "cloudwatch:DescribeAlarms",
    }
    for target in allowed["lambda:UpdateAlias"]:
        assert "ApiFunction" in target or "StreamingFunction" in target
        assert "*" not in target


def test_old_versions_are_removed_daily_and_nothing_else_of_a_function(resources: Resources) -> None:
    allowed = resources.allowed_to_role("VersionsRole")
    assert {action for action in allowed if action.startswith("lambda:")} == {
        *("lambda:ListVersionsByFunction", "lambda:GetAlias", "lambda:DeleteFunction")
    }
    for target in allowed["lambda:DeleteFunction"]:
        assert json.loads(target)["Fn::Join"][1][1] == ":*", "it could delete the function"
    _, rule = resources.one("Events::Rule", "VersionsDaily")
    assert rule["ScheduleExpression"] == "rate(1 day)"
    joined = json.dumps(rule["Targets"][0]["Input"])
    assert {name for name in resources.serving if name in joined} == resources.serving.keys()
    assert rf"\"kept_days\":{PROD.earlier_version_days}" in joined
    assert len(resources.of("Lambda::Function")) == len(FUNCTIONS) + 1


def ages(*days: float) -> dict[int, datetime]:
    """Returns versions from 1 on, published so many days ago."""
    return {number: NOW - timedelta(days=age) for number, age in enumerate(days, 1)}


@pytest.mark.parametrize(
    ("published", "live", "removed"),
    [
        ((), (), []),
        ((1,), (1,), []),
        ((9, 1), (2,), []),
        ((9, 8, 7, 1), (4,), [1, 2]),
        ((9, 8, 1), (2,), [1]),  # rolled back: what it was rolled back from stays
        ((9, 8, 0), (2, 3), []),  # a canary is under way
        ((9, 8, 7, 0), (3, 4), [1]),
        ((9, 8, 7, 0), (3,), [1, 2]),  # published, and not called yet
        ((90, 14), (2,), [1]),  # nobody rolls back what was well for two weeks
        ((90, 13.9), (2,), []),
        ((90, 80), (1,), [2]),
    ],
)
def test_what_is_live_and_one_version_more_stay(
    published: tuple[float, ...], live: tuple[int, ...], removed: list[int]
) -> None:
    assert removable(ages(*published), live, kept_days=14, now=NOW) == removed


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yields a client of an imitated Lambda."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with mock_aws():
        yield boto3.client("lambda")


def deploy(client: Any, function: str, text: str) -> str:
    """Publishes code and makes it live; returns its version."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("index.py", text)
    published: str = client.update_function_code(FunctionName=function, ZipFile=file.getvalue(), Publish=True)[
        "Version"
    ]
    client.update_alias(FunctionName=function, Name="live", FunctionVersion=published)
    return published


def make(client: Any, function: str) -> None:
    """Creates a function with its first version."""
    role = boto3.client("iam").create_role(RoleName=function, AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    client.create_function(
        FunctionName=function,
        Runtime="python3.13",
        Role=role,
        Handler="index.handler",
        Code={"ZipFile": b""},
        Publish=True,
    )
    client.create_alias(FunctionName=function, Name="live", FunctionVersion="1")


def versions(client: Any, function: str) -> set[str]:
    """Returns the numbers of a function's versions."""
    found = client.list_versions_by_function(FunctionName=function)["Versions"]
    return {version["Version"] for version in found} - {"$LATEST"}


def test_a_run_removes_all_versions_but_two_of_each_function(client: Any) -> None:
    event: dict[str, Any] = {"functions": ["one", "other"], "alias": "live", "kept_days": 14}
    for function in event["functions"]:
        make(client, function)
    newest = [deploy(client, "one", f"x = {number}") for number in range(3)][-1]
    found = versions(client, "one")
    assert len(found) == 4
    removed = handler(event)
    assert versions(client, "one") == {newest, str(int(newest) - 1)}
    assert {str(number) for number in removed["one"]} == found - versions(client, "one")
    assert removed["other"] == []
    assert versions(client, "other") == {"1"}
    client.get_function(FunctionName="one")
    assert handler(event) == {"one": [], "other": []}


def test_one_run_is_bounded_and_the_next_one_goes_on() -> None:
    assert len(removable(ages(*[1.0] * 200), [200], kept_days=14, now=NOW)) > MAX_REMOVED
