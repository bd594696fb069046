"""The template is clean: no finding of cfn-lint or cdk-nag but those that are acknowledged, each with its reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_sqs as sqs

from infra import findings
from infra.app import DATA_STACK_ID, STACK_ID, HeadraceStack
from infra.data import DataStack
from infra.environments import DEV, ENVIRONMENTS, PROD, Environment
from tests.infra.synths import stacks

OFFLINE = {"aws:cdk:bundling-stacks": []}
Found = set[tuple[str, str]]
"""Path in the stack and rule of each finding."""


@pytest.fixture
def lint() -> Callable[..., list[Any]]:
    """Returns cfn-lint. Its import takes two seconds, which no process should spend on collecting the tests."""
    from cfnlint.api import lint

    return lint


# The environments differ in numbers and alarms; production has every resource.
@pytest.mark.parametrize(
    "environment",
    [name if name == PROD.name else pytest.param(name, marks=pytest.mark.full) for name in ENVIRONMENTS],
)
def test_no_environment_has_a_finding_that_is_not_acknowledged(
    environment: str, lint: Callable[..., list[Any]]
) -> None:
    """The synth itself raises on one of cdk-nag's."""
    for text in stacks(environment).values():
        assert [str(match) for match in lint(text, regions=["us-east-1", "eu-central-1"])] == []


@pytest.mark.parametrize("environment", [DEV, PROD], ids=lambda environment: environment.name)
def test_what_is_acknowledged_is_what_is_found(tmp_path: Path, environment: Environment) -> None:
    deployed, found = unacknowledged(tmp_path, environment)
    acknowledged = {(finding.path, finding.id(deployed)) for finding in findings.of(deployed, findings.ACKNOWLEDGED)}
    assert {(path_of(construct, acknowledged), rule) for construct, rule in found} == acknowledged


def test_a_new_finding_fails_the_synth(tmp_path: Path) -> None:
    def acknowledged_with_an_open_queue(*deployed: Stack) -> None:
        findings.acknowledge(*deployed)
        sqs.Queue(deployed[0], "Open")

    _, found = unacknowledged(tmp_path, PROD, acknowledged_with_an_open_queue)
    assert {path for path, _ in found} == {"Open/Resource"}
    assert "AwsSolutions-SQS4" in {rule for _, rule in found}, "it takes messages over plain HTTP"


def test_what_is_acknowledged_of_cfn_lint_is_what_it_finds(lint: Callable[..., list[Any]]) -> None:
    template = json.loads(stacks()["Headrace.template.json"])
    expected = set()
    for name, resource in template["Resources"].items():
        ignored = resource.get("Metadata", {}).pop("cfn-lint", {"config": {"ignore_checks": []}})
        expected |= {(rule, name) for rule in ignored["config"]["ignore_checks"]}
    assert len(expected) == len(findings.LINT_ACKNOWLEDGED)
    matches = lint(json.dumps(template), regions=["us-east-1"])
    assert {(match.rule.id, str(match.path[1])) for match in matches} == expected


def test_each_finding_has_a_reason_of_its_own_place() -> None:
    for finding in (*findings.ACKNOWLEDGED, *findings.LINT_ACKNOWLEDGED):
        assert len(finding.reason) > 20
    places = [(finding.path, finding.rule, finding.of, finding.resource) for finding in findings.ACKNOWLEDGED]
    assert len(places) == len(set(places))


def unacknowledged(
    outdir: Path, environment: Environment, also: Callable[..., None] = lambda *deployed: None
) -> tuple[tuple[Stack, ...], Found]:
    """Synthesizes an environment; returns its stacks, and the findings that its synth failed on."""
    app = App(context=OFFLINE, outdir=str(outdir))
    data = DataStack(app, DATA_STACK_ID, environment=environment)
    deployed = (data, HeadraceStack(app, STACK_ID, environment=environment, data=data))
    also(*deployed)
    findings.check(app)
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()
    (report,) = json.loads((outdir / "validation-report.json").read_text())["pluginReports"]
    assert report["conclusion"] == "failure"
    return deployed, {
        (construct["constructPath"].partition("/")[2], violation["ruleName"])
        for violation in report["violations"]
        for construct in violation["violatingConstructs"]
    }


def path_of(construct: str, acknowledged: Found) -> str:
    """Returns where a construct's finding is acknowledged: at the construct, or above it."""
    places = [path for path, _ in acknowledged if construct == path or construct.startswith(f"{path}/")]
    return max(places, key=len, default=construct)
