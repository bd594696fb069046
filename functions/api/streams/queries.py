"""Query strings, parsed once into typed values. Unknown parameters are ignored, known ones come at most once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl

from functions.api.door import times
from headrace import offset as offsets
from headrace.errors import InvalidRequest
from headrace.log.requests import At, Selection

_MAX_FIELDS = 100
_CURSOR = re.compile(r"\d{1,18}", re.ASCII)
_LIVE: dict[str, Literal["", "long-poll", "sse"]] = {
    "long-poll": "long-poll",
    "true": "long-poll",
    "1": "long-poll",
    "sse": "sse",
    "false": "",
    "0": "",
}


class ReadQuery(NamedTuple):
    """What a GET asks for.

    Attributes:
        at: where to begin.
        explicit: `at` is a cursor that this server issued: neither the start, nor a time, nor the tail.
        format: as asked; None leaves it to the stream's type.
        live: "" for a catch-up read.
        timeout_ms: requested wait; None for the default.
        cursor: the `Stream-Cursor` that the client met last.
        selection: which records it wants.
    """

    at: At
    explicit: bool
    format: Literal["json", "raw"] | None
    live: Literal["", "long-poll", "sse"]
    timeout_ms: int | None
    cursor: int | None
    selection: Selection


def parse(scope: Mapping[str, Any], known: frozenset[str]) -> dict[str, str]:
    """Returns the known parameters of a request.

    Raises:
        InvalidRequest: one of them comes twice, or the query string is not percent-encoded UTF-8.
    """
    try:
        text = scope["query_string"].decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError as exc:  # UnicodeDecodeError is one
        raise InvalidRequest("query string is malformed") from exc
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found:
            raise InvalidRequest(f"parameter is repeated: name={name}")
        if name in known:
            found[name] = value
    return found


_READ = frozenset({"offset", "since", "format", "live", "timeout", "timeout_ms", "cursor", "key", "filter"})


def read_query(scope: Mapping[str, Any], key: str | None = None) -> ReadQuery:
    """Returns what a GET asks for; a `key` of the path wins over the parameter.

    Raises:
        InvalidRequest: a parameter is malformed or repeated, or a live read does not say where it begins.
    """
    given = parse(scope, _READ)
    live = given.get("live", "false")
    if live not in _LIVE:
        raise InvalidRequest("live must be long-poll, true, sse or false")
    if _LIVE[live] and "offset" not in given and "since" not in given:
        raise InvalidRequest("a live read needs offset")
    if "timeout" in given and "timeout_ms" in given:
        raise InvalidRequest("timeout and timeout_ms exclude each other")
    timeout = given.get("timeout", given.get("timeout_ms"))
    cursor = given.get("cursor", "")
    asked = given.get("format")
    if asked not in (None, "json", "raw"):
        raise InvalidRequest("format must be json or raw")
    if asked == "raw" and _LIVE[live] == "sse":
        raise InvalidRequest("format=raw has no meaning with live=sse")
    if "filter" in given and _LIVE[live] == "sse":
        raise InvalidRequest("filter is not supported with live=sse")
    at = _start(given)
    return ReadQuery(
        at=at,
        explicit=at.cursor is not None and at.cursor != offsets.BEGINNING,
        format="json" if asked == "json" else "raw" if asked == "raw" else None,
        live=_LIVE[live],
        timeout_ms=None if timeout is None else times.timeout_ms(timeout, "timeout"),
        cursor=int(cursor) if _CURSOR.fullmatch(cursor) else None,
        selection=Selection(key or given.get("key") or None, given.get("filter")),
    )


def _start(given: Mapping[str, str]) -> At:
    offset = given.get("offset")
    if offset is not None:  # wins over since
        return At() if offset == offsets.NOW else At(cursor=offsets.decode(offset))
    since = given.get("since")
    if since is not None:
        # A zone's plus sign, sent unescaped, arrives as a space.
        return At(since_ms=times.timestamp_ms(since.replace(" ", "+"), "since"))
    return At(cursor=offsets.BEGINNING)


class ListQuery(NamedTuple):
    """What a listing asks for: at most `limit` names above `after` that begin with `prefix`, `skip` of them left out."""

    limit: int
    skip: int
    after: str
    prefix: str


_LIST = frozenset({"limit", "offset", "after", "prefix"})
_MAX_LIMIT = 1000
_MAX_SKIP = 10_000  # rows are read to be skipped; `after` pages without that


def list_query(scope: Mapping[str, Any]) -> ListQuery:
    """Returns what a listing asks for.

    Raises:
        InvalidRequest: a number is malformed or out of its range.
    """
    given = parse(scope, _LIST)
    return ListQuery(
        limit=_number(given, "limit", 100, 1, _MAX_LIMIT),
        skip=_number(given, "offset", 0, 0, _MAX_SKIP),
        after=given.get("after", ""),
        prefix=given.get("prefix", ""),
    )


def _number(given: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high):
        raise InvalidRequest(f"{name} is not an integer from {low} to {high}")
    return int(text)
