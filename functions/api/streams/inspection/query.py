"""What a request for a stream's documents asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from functions.api.door import times
from functions.api.streams.queries import parse
from headrace.errors import InvalidRequest

_KNOWN = frozenset({"live", "timeout", "timeout_ms"})
_LIVE = {"true": True, "1": True, "long-poll": True, "false": False, "0": False}


class InspectionQuery(NamedTuple):
    """Whether to wait for a change, and how long (None: the default)."""

    live: bool
    timeout_ms: int | None


def inspection_query(scope: Mapping[str, Any]) -> InspectionQuery:
    """What the query string says.

    Raises:
        InvalidRequest: a parameter is malformed or repeated.
    """
    given = parse(scope, _KNOWN)
    live = _LIVE.get(given.get("live", "false"))
    if live is None:
        raise InvalidRequest("live must be long-poll, true or false")
    if "timeout" in given and "timeout_ms" in given:
        raise InvalidRequest("timeout and timeout_ms exclude each other")
    timeout = given.get("timeout", given.get("timeout_ms"))
    return InspectionQuery(live, None if timeout is None else times.timeout_ms(timeout, "timeout"))
