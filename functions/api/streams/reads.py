"""Reads (`GET /v1/stream/{name}`, `…/pk/{key}`): parses the request, and builds the response from a page of records:
body, entity tag, cache rules, and as many records as fit through the door. `live` has the reads that wait.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args
from urllib.parse import quote

import orjson
from starlette.responses import Response

from functions.api.door.answers import AnswerTooLarge, fits
from functions.api.door.requests import Headers, is_buffered, query_of
from functions.api.streams.records import NO_STORE
from headrace import instants
from headrace.batch import Record
from headrace.errors import InvalidRequest
from headrace.limits import FILTER_SCAN_BYTES
from headrace.log.requests import JSON, At, Head, ReadPage, Selection
from headrace.streams.values import state_of
from headrace.streams.verbs import Streams
from headrace.wal.state import BEGINNING, NOW, decode_cursor, encode_cursor

IMMUTABLE = "immutable, max-age=31536000"
REVALIDATE = "no-cache"  # may be kept, and must be asked for again: the entity tag answers that cheaply
EVENTS = "text/event-stream"
_LINE_BREAK = re.compile(rb"\r\n|\n|\r")
_CURSOR = re.compile(r"\d{1,18}", re.ASCII)
_LIVE: dict[str, Literal["", "long-poll", "sse"]] = {
    "long-poll": "long-poll",
    "true": "long-poll",
    "1": "long-poll",
    "sse": "sse",
    "false": "",
    "0": "",
}


Format: TypeAlias = Literal["json", "raw", "records"]


class ReadQuery(NamedTuple):
    """The checked parameters of a read.

    Attributes:
        at: where the read begins.
        explicit: whether `at` is a cursor that this server issued, and neither the start, nor a time, nor the tail.
        format: the requested format; None leaves it to the stream's content type.
        live: the way of waiting; empty for a catch-up read.
        timeout_ms: requested wait; None for the default.
        cursor: the last `Stream-Cursor` that the client received; None if it is missing or malformed.
        selection: which records to return.
    """

    at: At
    explicit: bool
    format: Format | None
    live: Literal["", "long-poll", "sse"]
    timeout_ms: int | None
    cursor: int | None
    selection: Selection


_READ = frozenset({"offset", "since", "format", "live", "timeout", "timeout_ms", "cursor", "key", "filter"})


def read_query(scope: Mapping[str, Any], key: str | None = None) -> ReadQuery:
    """Parses the query string of a read. A `key` in the path takes precedence over the parameter.

    Raises:
        InvalidRequest: a parameter is malformed or repeated, or a live read does not say where it begins.
    """
    given = query_of(scope, _READ)
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
    if asked not in (None, *get_args(Format)):
        raise InvalidRequest("format must be json, raw or records")
    if asked in ("raw", "records") and _LIVE[live] == "sse":
        raise InvalidRequest(f"format={asked} has no meaning with live=sse")
    if "filter" in given and _LIVE[live] == "sse":
        raise InvalidRequest("filter is not supported with live=sse")
    at = _start(given)
    return ReadQuery(
        at=at,
        explicit=at.cursor is not None and at.cursor != BEGINNING,
        format=cast("Format | None", asked),
        live=_LIVE[live],
        timeout_ms=None if timeout is None else instants.timeout_ms(timeout, "timeout"),
        cursor=int(cursor) if _CURSOR.fullmatch(cursor) else None,
        selection=Selection(key or given.get("key") or None, given.get("filter")),
    )


def _start(given: Mapping[str, str]) -> At:
    offset = given.get("offset")
    if offset is not None:  # wins over since
        return At() if offset == NOW else At(cursor=decode_cursor(offset))
    since = given.get("since")
    if since is not None:
        # A zone's plus sign, sent unescaped, arrives as a space.
        return At(since_ms=instants.timestamp_ms(since.replace(" ", "+"), "since"))
    return At(cursor=BEGINNING)


def check_format(page: ReadPage, query: ReadQuery) -> None:
    """Checks that the requested format is possible for the stream.

    Raises:
        InvalidRequest: a stream of bytes was requested as JSON.
    """
    if query.format == "json" and page.head.config.content_type != JSON:
        raise InvalidRequest("format=json needs a stream of application/json")


def body_of(page: ReadPage, query: ReadQuery) -> bytes:
    """Returns the body with the page's records: one JSON array (`[]` if there are none), or their bytes concatenated."""
    if is_array(page, query):
        first, *middle = page.data or (b"",)  # one join, not one more copy of the page for each bracket
        if not middle:
            return b"[" + first + b"]"
        last = middle.pop()
        return b",".join((b"[" + first, *middle, last + b"]"))
    return b"".join(page.data)


def describe(head: Head, record: Record) -> bytes:
    """Returns a record as a JSON object: the cursor behind it, its append time, its key, and its data: JSON as it is, any
    other bytes as base64.
    """
    about = {
        "offset": encode_cursor(head.incarnation, record.offset + 1),
        "time": instants.text_of(record.time_ms),
        "key": record.key,
    }
    is_json = head.config.content_type == JSON
    data = b'"value":' + record.data if is_json else b'"base64":"' + base64.b64encode(record.data) + b'"'
    return orjson.dumps(about)[:-1] + b"," + data + b"}"


def is_array(page: ReadPage, query: ReadQuery) -> bool:
    """Returns whether the page is sent as a JSON array: the stream is JSON, and the raw format was not requested; or
    descriptions of records were.
    """
    return query.format == "records" or (page.head.config.content_type == JSON and query.format != "raw")


def shown_type(page: ReadPage, query: ReadQuery) -> str:
    """Returns the content type of the response: the stream's, unless another form was requested."""
    if query.format == "records":
        return JSON
    content_type = page.head.config.content_type
    if content_type == JSON and query.format == "raw":
        return "application/octet-stream"  # JSON texts one after the other are no JSON text
    return content_type


def catch_up(page: ReadPage, query: ReadQuery, headers: Headers) -> Response:
    """Returns the response to a read that does not wait: 200 with the page that was read, or 304 if the client has it."""
    answer = _headers(page, query)
    if query.at.is_now:
        answer["Cache-Control"] = NO_STORE
    else:
        answer["Cache-Control"] = IMMUTABLE if _is_final(page, query) else REVALIDATE
        answer["ETag"] = etag(page, query)
        if headers.matches(answer["ETag"]):
            return Response(None, 304, answer)
    return Response(body_of(page, query), 200, answer)


def live(page: ReadPage, query: ReadQuery, cursor: int) -> Response:
    """Returns the response to a long-poll: 200 with data, 204 without."""
    answer = _headers(page, query)
    answer["Cache-Control"] = NO_STORE
    if not page.at_eof:
        answer["Stream-Cursor"] = str(cursor)
    if not page.data:
        del answer["Content-Type"]
        return Response(None, 204, answer)
    if not query.at.is_now:
        answer["ETag"] = etag(page, query)
    return Response(body_of(page, query), 200, answer)


def etag(page: ReadPage, query: ReadQuery) -> str:
    """Returns a weak entity tag, which is different whenever the body or the end of the stream is.

    The offsets include the incarnation. Key and filter are percent-encoded, since headers are ASCII. The definition is
    named, because another one shows other forms of records, or finds others by the same filter.
    """
    shown = "records" if query.format == "records" else "json" if is_array(page, query) else "raw"
    state = "closed" if page.at_eof else "tail" if page.up_to_date else "open"
    if (definition := page.head.state.definition) is not None:
        state += f":d{definition.number}-{definition.nonce}"
    key, filter_ = (quote(text or "", safe="") for text in query.selection)
    return f'W/"slice:{page.text(page.start)}:{page.text(page.next)}:key={key}:fmt={shown}:filter={filter_}:{state}"'


def _is_final(page: ReadPage, query: ReadQuery) -> bool:
    """Returns whether the response may be cached for good: the same request will have the same answer as long as the
    stream lives, and the stream has no expiry.
    """
    config = page.head.config
    cannot_grow = not page.up_to_date or page.at_eof
    lives_on = config.ttl_ms is None and config.expires_at_ms is None and state_of(page.head.state).retention is None
    unversioned = page.head.state.definition is None
    return query.explicit and not page.foreign and cannot_grow and lives_on and unversioned


def _headers(page: ReadPage, query: ReadQuery) -> dict[str, str]:
    headers = {
        "Content-Type": shown_type(page, query),
        "Stream-Next-Offset": page.text(page.next),
        "Stream-End-Offset": page.text(page.end),
    }
    if page.up_to_date:
        headers["Stream-Up-To-Date"] = "true"
    if page.at_eof:
        headers["Stream-Closed"] = "true"
    if page.scan is not None and page.scan.limit_reached:
        headers["Stream-Filter-Scan-Limit-Reached"] = "true"
        headers["Stream-Filter-Scan-Limit-Bytes"] = str(FILTER_SCAN_BYTES)
        headers["Stream-Filter-Scanned-Bytes"] = str(page.scan.bytes)
    return headers


Read = Callable[..., ReadPage]


def reader(scope: Mapping[str, Any], logs: Streams, query: ReadQuery) -> Read:
    """Returns a function like `logs.read` whose pages fit through the request's door.

    It also raises `AnswerTooLarge`, if the first record of a page does not fit.
    """
    described = partial(logs.read, describe=describe) if query.format == "records" else logs.read
    if not is_buffered(scope):
        return described

    def read(name: str, at: At, selection: Selection, **options: Any) -> ReadPage:
        page = described(name, at, selection, **options)
        while (count := count_fitting(page, query)) < len(page.data):
            # Read again, so that the page says itself where it ends: with a selection only a read knows.
            page = described(name, at, selection, **{**options, "touch": False}, max_records=max(1, count))
            if not count:
                raise AnswerTooLarge("record", {"Stream-Next-Offset": page.text(page.next)})
        return page

    return read


def count_fitting(page: ReadPage, query: ReadQuery) -> int:
    """Returns how many of the page's first records fit into an answer."""
    few, many = 0, len(page.data) + 1
    count = len(page.data)  # the first guess is nearly always right
    while many - few > 1:
        body, content_type = _answer(page._replace(data=page.data[:count]), query)
        if fits(body, content_type):
            few = count
        else:
            many = count
        count = (few + many) // 2
    return few


def _answer(page: ReadPage, query: ReadQuery) -> tuple[bytes, str]:
    if query.live == "sse":
        return data_event(page, query), EVENTS
    return body_of(page, query), shown_type(page, query)


def data_event(page: ReadPage, query: ReadQuery) -> bytes:
    """Returns the server-sent event with the records of a page."""
    payload = body_of(page, query)
    return frame_event(b"data", base64.b64encode(payload) if needs_base64(page.head.config.content_type) else payload)


def needs_base64(content_type: str) -> bool:
    return content_type != JSON and not content_type.startswith("text/")


def frame_event(event: bytes, payload: bytes) -> bytes:
    """Returns one server-sent event. A reader drops one space after the colon, so a line that begins with a space gets
    another one.
    """
    lines = [b"data:" + (b" " if line.startswith(b" ") else b"") + line for line in _LINE_BREAK.split(payload)]
    return b"event: " + event + b"\n" + b"\n".join(lines) + b"\n\n"
