"""A release is taken back by the commands of docs/operations.md, and nothing that either release wrote is lost."""

from __future__ import annotations

import copy
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.contract.client import Api, Stream, expect
from tests.deployed.conftest import open_api, wait_for_snapshot
from tests.deployed.deploy import Stack, update
from tests.deployed.template import Reduced

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
SECTION = "### Rolling back at once"
FUNCTIONS = ("Api", "Streaming", "Sockets", "Sealer", "Indexer", "Relay", "Folder", "Webhook")
# What tells the second release from the first: it has keys of its own, where the first reads the secret.
VARIABLE, ITS_KEY = "HEADRACE_API_KEYS", "a-key-that-only-the-second-release-has"


def commands() -> dict[str, str]:
    """Returns the commands of the runbook by what they do."""
    section = OPERATIONS.read_text().partition(f"{SECTION}\n")[2].partition("\n##")[0]
    found = re.findall(r"^    (aws lambda (\S+) .*)$", section, re.MULTILINE)
    return {operation: command for command, operation in found}


def run(client: Any, command: str, **values: str) -> Any:
    """Calls Lambda as `command` does, with each `<name>` in it replaced by its value."""
    words = shlex.split(re.sub(r"<(\w+)>", lambda found: values[found[1]], command))
    assert words[:2] == ["aws", "lambda"]
    options = ["".join(part.capitalize() for part in word.strip("-").split("-")) for word in words[3::2]]
    return getattr(client, words[2].replace("-", "_"))(**dict(zip(options, words[4::2], strict=True)))


def next_release(template: dict[str, Any], variables: Mapping[str, str], number: int) -> dict[str, Any]:
    """Returns the template as a synth writes it when variables of all functions changed: with new versions in the place of
    the ones before (`infra/test_versions.py::test_a_change_publishes_a_version_and_the_one_before_stays`).
    """
    changed = copy.deepcopy(template)
    versions = [id_ for id_, one in template["Resources"].items() if one["Type"] == "AWS::Lambda::Version"]
    for resource in changed["Resources"].values():
        if resource["Type"] == "AWS::Lambda::Function" and "Environment" in resource["Properties"]:
            resource["Properties"]["Environment"]["Variables"] |= variables
    text = json.dumps(changed)
    for id_ in versions:
        text = text.replace(f'"{id_}"', f'"{id_}Release{number}"')
    found: dict[str, Any] = json.loads(text)
    return found


def functions_of(stack: Stack) -> dict[str, str]:
    """Returns the names of the functions that have versions."""
    return {name: stack.physical("AWS::Lambda::Function", holding=f"{name}Function") for name in FUNCTIONS}


def live(client: Any, functions: dict[str, str]) -> dict[str, str]:
    """Returns the versions that the aliases name, by function."""
    command = commands()["get-alias"]
    return {one: run(client, command, function=one)["FunctionVersion"] for one in functions.values()}


def versions(client: Any, function: str) -> set[str]:
    """Returns the numbers of a function's versions."""
    found = run(client, commands()["list-versions-by-function"], function=function)["Versions"]
    return {version["Version"] for version in found} - {"$LATEST"}


def move(client: Any, wanted: dict[str, str]) -> None:
    """Points every alias at the version that is wanted of its function."""
    for function, version in wanted.items():
        run(client, commands()["update-alias"], function=function, version=version)


def serves(api: Api, *, second: bool) -> None:
    """Checks which release answers: the key of the deployment is good in both, the other one in the second."""
    expect(api.get("/v1/streams", limit="1"), 200)
    expect(api.with_key(ITS_KEY).get("/v1/streams", limit="1"), 200 if second else 401)


@pytest.mark.timeout(300)
def test_a_release_is_taken_back_and_put_forward_by_the_runbook(
    reduced: tuple[Reduced, Reduced], stack: Stack, findings: dict[str, Any]
) -> None:
    client, functions = stack.emulator.client("lambda"), functions_of(stack)
    template = reduced[1].template
    with open_api(stack) as api:
        stream = api.stream()
        expect(stream.append([{"by": "first"}]), 204)
        serves(api, second=False)

        first = live(client, functions)
        update(stack, next_release(template, {VARIABLE: f"{api.key},{ITS_KEY}"}, 2))
        wait_for_snapshot(stack)
        second = live(client, functions)
        for function in functions.values():
            assert int(second[function]) > int(first[function])
            assert {first[function], second[function]} <= versions(client, function), "the one before stays"
        serves(api, second=True)
        expect(stream.append([{"by": "second"}]), 204)

        move(client, first)
        assert live(client, functions) == first
        serves(api, second=False)
        expect(stream.append([{"by": "first again"}]), 204)
        assert stream.records() == [{"by": "first"}, {"by": "second"}, {"by": "first again"}]
        for name, event in (
            ("Sealer", {"verb": "sweep"}),
            ("Indexer", {"verb": "tick"}),
            ("Relay", {"verb": "sweep"}),
        ):
            payload = json.dumps(event)
            done = client.invoke(FunctionName=functions[name], Qualifier="live", Payload=payload)
            ran = (done["ExecutedVersion"], done.get("FunctionError"))
            assert ran == (first[functions[name]], None), done["Payload"].read()

        move(client, second)
        serves(api, second=True)
        assert len(stream.records()) == 3
    findings["rolled_back"] = {"functions": sorted(functions), "from": second, "to": first}


@pytest.mark.timeout(300)
def test_one_earlier_version_stays_and_the_next_deployment_goes_on_from_there(
    reduced: tuple[Reduced, Reduced], stack: Stack
) -> None:
    """What removes the others is the deployed function, called as its schedule does."""
    client, functions = stack.emulator.client("lambda"), functions_of(stack)
    with open_api(stack) as api:
        stream: Stream = api.stream()
        expect(stream.append([{"n": 1}]), 204)
        before = live(client, functions)
        update(stack, next_release(reduced[1].template, {VARIABLE: f"{api.key}"}, 3))
        wait_for_snapshot(stack)
        newest = live(client, functions)
        older = {one: versions(client, one) - {before[one], newest[one]} for one in functions.values()}
        assert all(older.values())
        serves(api, second=False)

        rule = stack.physical("AWS::Events::Rule", holding="VersionsDaily")
        (target,) = stack.emulator.client("events").list_targets_by_rule(Rule=rule)["Targets"]
        done = client.invoke(FunctionName=target["Arn"], Payload=target["Input"])
        removed = json.loads(done["Payload"].read())
        assert {one: {str(number) for number in numbers} for one, numbers in removed.items()} == older
        assert {one: versions(client, one) for one in functions.values()} == {
            one: {before[one], newest[one]} for one in functions.values()
        }

        move(client, before)
        serves(api, second=True)
        move(client, newest)
        serves(api, second=False)
        assert stream.records() == [{"n": 1}]
