"""JSON answers of the server. Members that the client does not interpret keep the server's text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx

from cli.elements import object_members
from cli.errors import CliError, envelope_message
from cli.tables import counted

Members = dict[str, str]

_BOUND = "events_upper_bound"


def members(answer: httpx.Response, what: str) -> Members:
    """Returns the members of the JSON object in an answer, as text.

    Raises:
        CliError: the answer is not a JSON object.
    """
    try:
        return object_members(answer.content.decode())
    except (ValueError, RecursionError) as error:
        raise _no_object(what, error) from error


def document(answer: httpx.Response, what: str) -> dict[str, Any]:
    """Parses the JSON object in an answer and returns it. Raises CliError if the answer is not one."""
    try:
        found = json.loads(answer.content)
    except (ValueError, RecursionError) as error:
        raise _no_object(what, error) from error
    if not isinstance(found, dict):
        raise _no_object(what, "it is something else")
    return found


def in_time(answer: httpx.Response, what: str, hint: str) -> httpx.Response:
    """Returns the answer unchanged, unless it is a 408 without partial results.

    Raises:
        CliError: the server ran out of time.
    """
    if answer.status_code == 408 and envelope_message(answer.content):
        raise CliError(f"{what}: the server did not finish in time (408)", hint)
    return answer


def value(raw: str | None) -> Any:
    """Parses a member; returns None if the member is missing."""
    return None if raw is None else json.loads(raw)


def text(raw: str | None) -> str:
    """Returns a member for people: a string without quotes, any other value as it was sent; empty for null or a missing
    member.
    """
    if raw is None or raw == "null":
        return ""
    return str(json.loads(raw)) if raw.startswith('"') else raw


def lost(coverage: Mapping[str, Any]) -> str:
    """Returns what a coverage reports as missing from an answer, in words; empty if nothing is missing."""
    if coverage.get("complete", True):
        return ""
    missing = {
        name.removeprefix("possible_missing_"): count
        for name, count in coverage.items()
        if name.startswith("possible_missing_") and isinstance(count, int) and count
    }
    records = missing.get(_BOUND)
    if records is not None:
        missing = {"records": records}  # the other members say where these are
    shown = [f"up to {counted(count, name.replace('_', ' ').removesuffix('s'))}" for name, count in missing.items()]
    return "not everything was looked at" + (f": {', '.join(shown)} left out" if shown else "")


def _no_object(what: str, problem: object) -> CliError:
    return CliError(f"{what}: the answer is not a JSON object: {problem}", "is --url the URL of a server?")
