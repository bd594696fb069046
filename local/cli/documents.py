"""Answers that are JSON documents. Members that nobody looks into keep the server's text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import msgspec

from local.cli.errors import CliError, envelope_message

Members = dict[str, msgspec.Raw]

_BOUND = "events_upper_bound"


def members(answer: httpx.Response, what: str) -> Members:
    """The members of the object that the server answered.

    Raises:
        CliError: it answered something else.
    """
    found: Members = _decoded(answer, what, Members)
    return found


def document(answer: httpx.Response, what: str) -> dict[str, Any]:
    """The object that the server answered. Raises as `members`."""
    found: dict[str, Any] = _decoded(answer, what, dict[str, Any])
    return found


def in_time(answer: httpx.Response, what: str, hint: str) -> httpx.Response:
    """The answer, unless it is a 408 without what was found so far.

    Raises:
        CliError: the server gave up.
    """
    if answer.status_code == 408 and envelope_message(answer.content):
        raise CliError(f"{what}: the server did not finish in time (408)", hint)
    return answer


def value(raw: msgspec.Raw | None) -> Any:
    """What a member holds; None if there is none."""
    return None if raw is None else msgspec.json.decode(raw)


def text(raw: msgspec.Raw | None) -> str:
    """A member for a person: a string's characters, everything else as it was sent; empty for null or none."""
    if raw is None:
        return ""
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return bytes(raw).decode("utf-8", "replace")
    if found is None:
        return ""
    return found if isinstance(found, str) else bytes(raw).decode("utf-8", "replace")


def lost(coverage: Mapping[str, Any]) -> str:
    """What a coverage says that is missing from an answer; empty if nothing is."""
    if coverage.get("complete", True):
        return ""
    missing = {
        name.removeprefix("possible_missing_"): count
        for name, count in coverage.items()
        if name.startswith("possible_missing_") and isinstance(count, int) and count
    }
    records = missing.get(_BOUND)
    if records is not None:
        missing = {"records": records}  # the others say where these stand
    shown = [f"up to {count:,} {name.replace('_', ' ')}" for name, count in missing.items()]
    return "not everything was looked at" + (f": {', '.join(shown)} left out" if shown else "")


def _decoded(answer: httpx.Response, what: str, type_: Any) -> Any:
    try:
        return msgspec.json.decode(answer.content, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CliError(f"{what}: the answer is no JSON object: {error}", "is --url that of a server?") from error
