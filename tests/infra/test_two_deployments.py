"""Two deployments in one account share nothing that is named: not in one region, and not under one name in two."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from functions.metrics import NAMESPACE, STACK_DIMENSION
from tests.infra.resources import Resources
from tests.infra.synths import synthesize

NAMES = ("prod", "prod-eu")  # one begins as the other


@pytest.fixture(scope="module")
def deployments() -> list[Resources]:
    """Returns the resources of two deployments."""
    return [Resources.parse(synthesize(name=name)) for name in NAMES]


def test_each_metric_of_ours_is_that_of_one_stack(deployments: list[Resources]) -> None:
    for name, deployment in zip(NAMES, deployments, strict=True):
        alarms = [alarm["Properties"] for alarm in deployment.of("CloudWatch::Alarm").values()]
        metrics = [metric for alarm in alarms for metric in _metrics(alarm) if metric["Namespace"] == NAMESPACE]
        assert len(metrics) > 20
        for metric in metrics:
            dimensions = {one["Name"]: one["Value"] for one in metric["Dimensions"]}
            assert dimensions[STACK_DIMENSION] == f"headrace-{name}", metric
        _, dashboard = deployment.one("CloudWatch::Dashboard")
        body = json.dumps(dashboard["DashboardBody"])
        assert body.count(rf"\"{NAMESPACE}\",") == body.count(rf"\"{STACK_DIMENSION}\",\"headrace-{name}\"") > 20
        for function in deployment.serving.values():
            assert function["Environment"]["Variables"]["HEADRACE_STACK"] == f"headrace-{name}"


def test_no_graph_and_no_alarm_is_of_the_whole_account(deployments: list[Resources]) -> None:
    for deployment in deployments:
        assert "AWS/Usage" not in json.dumps(deployment.by_id)


def test_names_of_alarms_begin_with_their_stack_and_no_other(deployments: list[Resources]) -> None:
    """`headrace doctor` asks for alarms by what their names start with."""
    one, other = (
        {alarm["Properties"]["AlarmName"] for alarm in deployment.of("CloudWatch::Alarm").values()}
        for deployment in deployments
    )
    assert {name.partition("/")[0] for name in one} == {"headrace-prod"}
    assert {name.partition("/")[0] for name in other} == {"headrace-prod-eu"}
    assert not [name for name in other if name.startswith("headrace-prod/")]


def test_the_dashboard_is_named_by_stack_and_region(deployments: list[Resources]) -> None:
    """Its name is the account's, not the region's."""
    named = [deployment.one("CloudWatch::Dashboard")[1]["DashboardName"] for deployment in deployments]
    assert named == [{"Fn::Join": ["", [f"headrace-{name}_", {"Ref": "AWS::Region"}]]} for name in NAMES]


def test_one_name_in_two_regions_shares_no_metric_and_no_alarm(deployments: list[Resources]) -> None:
    """CloudWatch keeps both by region; so nothing may look across regions, or name one."""
    for deployment in deployments:
        alarms = [alarm["Properties"] for alarm in deployment.of("CloudWatch::Alarm").values()]
        looked_at = [one for alarm in alarms for one in [alarm, *alarm.get("Metrics", ()), *_metrics(alarm)]]
        assert len(looked_at) > 40
        assert not [one for one in looked_at if {"AccountId", "Region"} & one.keys()]
        _, dashboard = deployment.one("CloudWatch::Dashboard")
        parts = dashboard["DashboardBody"]["Fn::Join"][1]
        regions = [then for one, then in pairwise(parts) if isinstance(one, str) and one.endswith('"region":"')]
        assert len(regions) > 5 and all(region == {"Ref": "AWS::Region"} for region in regions)
        assert not re.search(r"[a-z]{2}-[a-z]+-[0-9]", json.dumps([alarms, dashboard]))


def test_nothing_else_has_a_name_that_another_deployment_may_have(deployments: list[Resources]) -> None:
    """CloudFormation makes up all other names."""
    inside = {"AWS::Lambda::Alias", "AWS::ApiGatewayV2::Stage", "AWS::IAM::Policy"}  # of a function, an API, a role
    names = [
        json.dumps(value)
        for deployment in deployments
        for resource in deployment.by_id.values()
        for name, value in resource.get("Properties", {}).items()
        if name in ("Name", f"{resource['Type'].rpartition('::')[2]}Name") and resource["Type"] not in inside
    ]
    assert len(names) == len(set(names)) and all("headrace-" in name for name in names)
    assert not [key for key in deployments[0].of("IAM::Role").values() if "RoleName" in key["Properties"]]


def _metrics(alarm: dict[str, Any]) -> list[dict[str, Any]]:
    if "Metrics" in alarm:
        return [one["MetricStat"]["Metric"] for one in alarm["Metrics"] if "MetricStat" in one]
    return [alarm]
