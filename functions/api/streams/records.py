"""The routes of `/v1/stream/{name}`: create, append, close, describe, delete; the parsing of their headers; and what
the door must know about streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from functions.access import Scope
from functions.api.context import Context
from functions.api.door import requests
from functions.api.door.entry import Surface
from functions.api.door.errors import Row
from functions.api.door.requests import Headers, decode, run
from functions.api.door.routes import serve
from functions.metrics import ApiMetric
from headrace import instants
from headrace.batch import MAX_KEY_BYTES
from headrace.errors import BelowFloor, InvalidRequest, OutcomeUnknown
from headrace.limits import MAX_PRODUCER_ID_BYTES, MAX_SEQ_BYTES
from headrace.log.requests import Head
from headrace.streams.errors import ProducerGap, SequenceConflict, StaleProducer, StreamClosed
from headrace.streams.values import (
    Appended,
    AppendRequest,
    Created,
    CreateRequest,
    ForkRequest,
    Retention,
    check_name,
    check_writable,
    state_of,
)
from headrace.streams.verbs import Streams
from headrace.wal.state import Producer, decode_cursor, encode_cursor

PREFIX = "/v1/stream/"
PATH = PREFIX + "{name:path}"
NO_STORE = "no-store"
_PRODUCER = ("producer-id", "producer-epoch", "producer-seq")
# What pages of other origins may send and read.
_REQUEST_HEADERS = (
    *("Stream-TTL", "Stream-Expires-At", "Stream-Closed", "Stream-Seq", "Stream-Key", "Stream-Timestamp"),
    *("Stream-Retention-Age", "Stream-Retention-Bytes"),
    *("Stream-Forked-From", "Stream-Fork-Offset", "Stream-Fork-Sub-Offset"),
    *("Producer-Id", "Producer-Epoch", "Producer-Seq"),
)
_ANSWER_HEADERS = (
    *("Stream-Next-Offset", "Stream-End-Offset", "Stream-Up-To-Date", "Stream-Closed", "Stream-Cursor", "Stream-TTL"),
    *("Stream-Retention-Age", "Stream-Retention-Bytes", "Stream-Earliest-Offset"),
    *("Stream-Expires-At", "Stream-SSE-Data-Encoding", "Stream-Expected-Seq", "Stream-Received-Seq"),
    *("Producer-Epoch", "Producer-Seq", "Producer-Expected-Seq", "Producer-Received-Seq"),
)
ERRORS = (
    Row(
        OutcomeUnknown,
        408,
        message="append timed out; append outcome is unknown, check Stream-Next-Offset before retrying",
    ),
    Row(StreamClosed, 409, lambda e: {"Stream-Closed": "true", "Stream-Next-Offset": e.next_offset}, bare=True),
    Row(
        SequenceConflict,
        409,
        lambda e: {"Stream-Expected-Seq": _printable(e.expected), "Stream-Received-Seq": _printable(e.received)},
    ),
    Row(
        ProducerGap,
        409,
        lambda e: {"Producer-Expected-Seq": str(e.expected), "Producer-Received-Seq": str(e.received)},
    ),
    Row(BelowFloor, 410, lambda e: {"Stream-Earliest-Offset": e.earliest}),
    Row(StaleProducer, 403, lambda e: {"Producer-Epoch": str(e.epoch)}),
)


def _printable(value: str) -> str:
    """Returns a client's text as a header value: unchanged if it is printable ASCII, else with escapes."""
    if value.isascii() and value.isprintable():
        return value
    return value.encode("unicode_escape").decode("ascii")


STREAMS = Surface(
    noun="stream",
    prefix=PREFIX,
    check=check_name,
    check_writable=check_writable,
    allowed=_REQUEST_HEADERS,
    exposed=_ANSWER_HEADERS,
    errors=ERRORS,
)


def name_and_key(scope: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the stream's name and the routing key in a path `…/{name}/pk/{key}`; an escaped slash belongs to the key.

    Raises:
        InvalidRequest: one of them is empty or not UTF-8 when decoded, or the name is invalid.
    """
    name, found, key = STREAMS.after_prefix(scope).rpartition(b"/pk/")
    if not found or not key or b"/" in key:
        raise InvalidRequest("the path does not end with /pk/ and one key")
    return STREAMS.decode_name(name), decode(key, "routing key")


def source_name(header: str) -> str:
    """Returns the source's name in `Stream-Forked-From`, which holds the path of the source's URL, or the bare name.

    Raises:
        InvalidRequest: the header is a whole URL, has another path, or is no valid name.
    """
    if "://" in header or header.startswith("//"):
        raise InvalidRequest("Stream-Forked-From must be the path of a stream on this server")
    if header.startswith(PREFIX):
        header = header[len(PREFIX) :]
    elif header.startswith("/"):
        raise InvalidRequest(f"Stream-Forked-From does not begin with {PREFIX}")
    return STREAMS.decode_name(header.encode())


class StreamHeaders(Headers):
    """The headers of a request to a stream."""

    @property
    def closes(self) -> bool:
        """Whether `Stream-Closed` is `true`; any other value counts as missing (protocol § 4.1)."""
        return (self.get("stream-closed") or "").lower() == "true"

    @property
    def key(self) -> str | None:
        """The value of `Stream-Key`; None if it is missing or empty.

        Raises:
            InvalidRequest: the key is longer than a record's key may be.
        """
        return self.bounded("stream-key", MAX_KEY_BYTES) or None

    @property
    def seq(self) -> str | None:
        """The value of `Stream-Seq`; None if it is missing.

        Raises:
            InvalidRequest: the value is empty or too long.
        """
        value = self.bounded("stream-seq", MAX_SEQ_BYTES)
        if value == "":
            raise InvalidRequest("Stream-Seq is empty")
        return value

    @property
    def time_hint_ms(self) -> int | None:
        """The value of `Stream-Timestamp` in epoch milliseconds; None if it is missing.

        Raises:
            InvalidRequest: the value is neither RFC 3339 nor nanoseconds since 1970.
        """
        value = self.get("stream-timestamp")
        return None if value is None else instants.timestamp_ms(value, "Stream-Timestamp")

    @property
    def producer(self) -> Producer | None:
        """The producer in the three `Producer-*` headers; None if there are none.

        Raises:
            InvalidRequest: some of them are missing, the id is empty, or a number is not canonical or too large.
        """
        given = [name for name in _PRODUCER if self.get(name) is not None]
        if not given:
            return None
        if len(given) < len(_PRODUCER):
            raise InvalidRequest("Producer-Id, Producer-Epoch and Producer-Seq must come together")
        producer_id = self.bounded("producer-id", MAX_PRODUCER_ID_BYTES)
        if not producer_id:
            raise InvalidRequest("Producer-Id is empty")
        return Producer(producer_id, self.integer("producer-epoch"), self.integer("producer-seq"))

    def expiry(self) -> tuple[int | None, int | None]:
        """Returns `Stream-TTL` in milliseconds and `Stream-Expires-At` in epoch milliseconds; at most one of them is
        not None.

        Raises:
            InvalidRequest: both are given, or one is malformed.
        """
        ttl, at = self.get("stream-ttl"), self.get("stream-expires-at")
        if ttl is not None and at is not None:
            raise InvalidRequest("Stream-TTL and Stream-Expires-At exclude each other")
        if ttl is not None:
            return instants.ttl_ms(ttl, "Stream-TTL"), None
        if at is not None:
            return None, max(0, instants.rfc3339_ms(at, "Stream-Expires-At"))
        return None, None

    def retention(self) -> Retention | None:
        """Returns what `Stream-Retention-Age` and `Stream-Retention-Bytes` ask for, each `none` for no bound; None if both
        are missing. One alone means no bound for the other.

        Raises:
            InvalidRequest: one is malformed, or 0.
        """
        age, size = self.get("stream-retention-age"), self.get("stream-retention-bytes")
        if age is None and size is None:
            return None
        age_ms = None if age in (None, "none") else instants.ttl_ms(age or "", "Stream-Retention-Age")
        most = None if size in (None, "none") else self.integer("stream-retention-bytes")
        if age_ms == 0 or most == 0:
            raise InvalidRequest("a retention of 0 would keep nothing: delete the stream, or say none")
        return Retention(age_ms, most)

    def fork(self) -> ForkRequest | None:
        """Returns the fork that a create requests; None without `Stream-Forked-From`.

        Raises:
            InvalidRequest: `Stream-Fork-Offset` or `Stream-Fork-Sub-Offset` (how many records or bytes the fork point is
                past the offset) is given without that header; the latter is above 0 without an offset; or a value is
                malformed.
        """
        source, at = self.get("stream-forked-from"), self.get("stream-fork-offset")
        sub_offset = self.get("stream-fork-sub-offset")
        if source is None:
            if at is not None or sub_offset is not None:
                raise InvalidRequest("Stream-Fork-Offset and Stream-Fork-Sub-Offset need Stream-Forked-From")
            return None
        past = 0 if sub_offset is None else self.integer("stream-fork-sub-offset")
        if past and at is None:
            raise InvalidRequest("Stream-Fork-Sub-Offset needs Stream-Fork-Offset")
        cursor = None if at is None else decode_cursor(at)
        return ForkRequest(source=source_name(source), at=cursor, sub_offset=past)


def add_routes(app: FastAPI, context: Context) -> None:
    """Adds the routes that create, append to, close, describe and delete a stream."""
    meter = context.meter

    @serve(app, PATH, "PUT")
    async def create_stream(request: Request) -> Response:
        name = STREAMS.allowed_name(request, Scope.ADMIN)
        headers = StreamHeaders(request.scope)
        asked = _create_request(headers)
        if asked.fork is not None:
            STREAMS.require(request, Scope.READ, asked.fork.source)
        body = await requests.read(request)
        created = await run(_create, context.logs(), name, asked, headers, body)
        meter.add(ApiMetric.Creates, int(created.created))
        return _created(request, headers, created)

    @serve(app, PATH, "POST")
    async def append_to_stream(request: Request) -> Response:
        name = STREAMS.allowed_name(request, Scope.WRITE)
        headers = StreamHeaders(request.scope)
        body = await requests.read(request)
        began = context.clock.monotonic()
        asked, appended = await run(_append, context.logs(), name, headers, body)
        count_append(context, asked, appended, context.ms_since(began))
        return _appended(asked, appended)

    @serve(app, PATH, "HEAD")
    async def describe_stream(request: Request) -> Response:
        name = STREAMS.allowed_name(request, Scope.READ)
        head = await run(context.logs().head, name)
        return Response(None, 200, _description(head))

    @serve(app, PATH, "DELETE")
    async def delete_stream(request: Request) -> Response:
        name = STREAMS.allowed_name(request, Scope.DELETE)
        deleted = await run(context.logs().delete, name)
        meter.add(ApiMetric.Deletes, int(deleted))
        return Response(None, 204, {"Cache-Control": NO_STORE})


def _create_request(headers: StreamHeaders) -> CreateRequest:
    """Builds a create request from the headers, without its records."""
    ttl_ms, expires_at_ms = headers.expiry()
    return CreateRequest(
        content_type=headers.content_type,
        ttl_ms=ttl_ms,
        expires_at_ms=expires_at_ms,
        closed=headers.closes,
        time_hint_ms=headers.time_hint_ms,
        fork=headers.fork(),
        retention=headers.retention(),
    )


def _create(logs: Streams, name: str, asked: CreateRequest, headers: StreamHeaders, body: bytes) -> Created:
    content_type = asked.content_type
    if body and content_type is None and asked.fork is not None:
        content_type = logs.head(asked.fork.source).config.content_type  # says how to cut the body
    records = requests.records(body, content_type, headers.key)
    return logs.create(name, replace(asked, records=records))


_PRINTABLE = frozenset(range(0x21, 0x7F))


def url(scope: Mapping[str, Any], host: str) -> str:
    """Returns the request's URL without its query, in ASCII; only the path if `host` is empty or not printable ASCII."""
    path = quote(requests.raw_path(scope), safe="/%:@!$&'()*+,;=-._~")
    clean = host if host and all(ord(char) in _PRINTABLE for char in host) else ""
    return f"{scope.get('scheme', 'http')}://{clean}{path}" if clean else path


def _created(request: Request, headers: StreamHeaders, created: Created) -> Response:
    answer = _description(created.head)
    if created.created:
        answer["Location"] = url(request.scope, headers.get("host") or "")
    return Response(None, 201 if created.created else 200, answer)


def _append(logs: Streams, name: str, headers: StreamHeaders, body: bytes) -> tuple[AppendRequest, Appended]:
    content_type = None
    if body:
        content_type = headers.content_type
        if content_type is None:
            raise InvalidRequest("Content-Type is missing")
    records = requests.records(body, content_type, headers.key)
    if not records and (body or not headers.closes):
        raise InvalidRequest("body holds no records")
    asked = AppendRequest(
        content_type=content_type,
        records=records,
        seq=headers.seq,
        producer=headers.producer,
        time_hint_ms=headers.time_hint_ms,
        close=headers.closes,
    )
    return asked, logs.append(name, asked)


def count_append(context: Context, asked: AppendRequest, appended: Appended, took_ms: int) -> None:
    """Counts an append, if it was no repeat."""
    meter = context.meter
    if not appended.duplicate:
        meter.add(ApiMetric.Appends)
        meter.add(ApiMetric.AppendMs, took_ms)
        meter.add(ApiMetric.AppendedRecords, len(asked.records))
        meter.add(ApiMetric.AppendedBytes, asked.size)
        meter.add(ApiMetric.SlotRaces, appended.tries - 1)


def _appended(asked: AppendRequest, appended: Appended) -> Response:
    answer = {
        "Stream-Next-Offset": appended.next_offset,
        "Cache-Control": NO_STORE,
        "Server-Timing": f'commit;desc="tries {appended.tries}"',
    }
    if appended.closed:
        answer["Stream-Closed"] = "true"
    if appended.producer is not None:
        answer["Producer-Epoch"] = str(appended.producer.epoch)
        answer["Producer-Seq"] = str(appended.producer.seq)
    has_news = asked.producer is not None and bool(asked.records) and not appended.duplicate
    return Response(None, 200 if has_news else 204, answer)


def _description(head: Head) -> dict[str, str]:
    """Returns the headers that describe a stream and its end."""
    answer = {
        "Content-Type": head.config.content_type,
        "Stream-Next-Offset": head.next_offset,
        "Stream-End-Offset": head.next_offset,
        "Cache-Control": NO_STORE,
    }
    if head.config.ttl_ms is not None:
        answer["Stream-TTL"] = str(head.config.ttl_ms // 1000)
    if head.deadline_ms is not None:
        answer["Stream-Expires-At"] = instants.text_of(head.deadline_ms)
    if head.state.is_final:
        answer["Stream-Closed"] = "true"
    retention = state_of(head.state).retention
    if retention is not None:
        if retention.age_ms is not None:
            answer["Stream-Retention-Age"] = str(retention.age_ms // 1000)
        if retention.bytes is not None:
            answer["Stream-Retention-Bytes"] = str(retention.bytes)
    if head.state.floor:
        answer["Stream-Earliest-Offset"] = encode_cursor(head.incarnation, head.state.floor)
    return answer
