"""Whatever a page tells operators to set can be deployed, by a name in the context, and reaches the functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.settings import PREFIX, Settings
from infra.environments import ENGINE, environment_of, settings
from infra.fields import BadEnvironment
from tests.infra.resources import Resources

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FUNCTIONS = ("api", "streaming", "sealer", "indexer", "relay", "folder")
# What no operator sets on a deployment, each with the reason.
NOT_DEPLOYED = {
    "HEADRACE_ALLOW_INSECURE_NO_AUTH": "a deployment always has keys",
    "HEADRACE_ALLOWED_HOSTS": "of a server without keys",
    "HEADRACE_ALLOW_RESET": "of a server for development",
    "HEADRACE_API_KEYS": "a deployment has them in its secret",
    "HEADRACE_COLD": "for tests",
    "HEADRACE_CONTRACT_URL": "for tests",
    "HEADRACE_HOST": "of a server that listens itself",
    "HEADRACE_MACHINE": "of a single machine",
    "HEADRACE_METRICS_FILE": "outside of Lambda",
    "HEADRACE_SIGNING_KEYS": "a deployment has them in its secret",
    "HEADRACE_WEBHOOK_LOOPBACK": "only of the emulator",
}
# A worker gives these to the commands that it runs, and its own shell those of the client.
OF_CLIENTS = {
    *(f"HEADRACE_{name}" for name in ("QUEUE", "SEQ", "TAG", "DELIVERIES", "LEASE_ID")),
    *(
        f"HEADRACE_{name}"
        for name in ("CONSUMER", "STREAM", "OFFSET", "NEXT_OFFSET", "RECORDS", "INDEX", "CONTENT_TYPE")
    ),
    *("HEADRACE_API_KEY", "HEADRACE_CONTEXT", "HEADRACE_URL"),
}
# Commands tell of these, too; they are settings by other names.
BY_ANOTHER_NAME = {"HEADRACE_SSE_SECONDS": "streaming_seconds", "HEADRACE_STACK": "name"}


def _named() -> set[str]:
    """Returns every variable that a page names."""
    return {name for page in PAGES for name in re.findall(r"\bHEADRACE_[A-Z_]*[A-Z]\b", page.read_text())}


def _wired(resources: Resources) -> set[str]:
    """Returns the variables that every deployment sets by itself."""
    functions = [resources.function(name)["Environment"]["Variables"] for name in FUNCTIONS]
    return {name for variables in functions for name in variables if name.startswith(PREFIX)}


def test_every_variable_that_a_page_names_is_set_by_the_deployment_or_by_context(resources: Resources) -> None:
    by_context = {f"{PREFIX}{name.upper()}" for name in ENGINE}
    unknown = _named() - _wired(resources) - by_context - NOT_DEPLOYED.keys() - BY_ANOTHER_NAME.keys() - OF_CLIENTS
    assert not unknown, "a page tells operators to set what they cannot deploy"
    assert set(BY_ANOTHER_NAME.values()) <= {one.name for one in settings()}


def test_every_number_of_the_engine_is_named_by_the_page_of_operators() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    assert not [name for name in ENGINE if f"`{PREFIX}{name.upper()}`" not in page]


def test_every_name_that_a_page_gives_in_the_context_is_one() -> None:
    known = {one.name for one in settings()} | set(ENGINE)
    named = {name for page in PAGES for name in re.findall(r"headrace:([a-z_]+)\b", page.read_text())}
    assert len(named) > 10
    assert named - known == set()


def test_every_setting_of_the_engine_reaches_every_function(resources_of: Callable[..., Resources]) -> None:
    defaults = Settings()
    values = {name: getattr(defaults, name) + 1 for name in ENGINE}
    deployed = resources_of(**values)
    for function in FUNCTIONS:
        variables = deployed.function(function)["Environment"]["Variables"]
        assert {name: variables[f"{PREFIX}{name.upper()}"] for name in ENGINE} == {
            name: str(value) for name, value in values.items()
        }, function
        given = {name: value for name, value in variables.items() if isinstance(value, str)}
        assert all(getattr(Settings.from_environment(given), name) == value for name, value in values.items())


def test_nothing_is_set_that_was_not_given(resources: Resources) -> None:
    assert not {f"{PREFIX}{name.upper()}" for name in ENGINE} & _wired(resources)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"headrace:index_age_ms": "soon"}, r"index_age_ms is not a number from 0 on: 'soon'"),
        ({"headrace:index_age_ms": -1}, r"index_age_ms is not a number from 0 on: -1"),
        ({"headrace:index_age": 1}, r"unknown value headrace:index_age: did you mean headrace:index_age_ms\?"),
        ({"headrace:trim_age_ms": 1000}, r"HEADRACE_TRIM_AGE_MS is below cached-state age plus the longest request"),
        ({"headrace:merge_segments": 1}, r"HEADRACE_MERGE_SEGMENTS is neither 0 nor at least 2"),
    ],
)
def test_what_no_function_would_start_with_fails_the_synth(given: dict[str, object], message: str) -> None:
    with pytest.raises(BadEnvironment, match=message):
        environment_of(given)
