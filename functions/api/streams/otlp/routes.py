"""The routes of OTLP/HTTP: `…/_otlp/v1/traces` of a stream of spans, and `…/_otlp/v1/logs` of a stream of events.

`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is the whole URL of the first, so exporters need no configuration but that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from functions.access import Scope
from functions.api.context import Context
from functions.api.door import requests
from functions.api.door.requests import Headers, run
from functions.api.door.routes import add
from functions.api.streams.otlp import export
from functions.api.streams.otlp.records import events_of, spans_of
from functions.api.streams.records import NO_STORE, PATH, STREAMS, count_append
from headrace.batch import Batch
from headrace.errors import InvalidRequest, PayloadTooLarge
from headrace.json import jsontext
from headrace.limits import MAX_APPEND_BYTES, MAX_RECORDS_PER_APPEND
from headrace.log.requests import JSON
from headrace.streams import profiles
from headrace.streams.profiles import spans
from headrace.streams.values import Appended, AppendRequest
from headrace.streams.verbs import Streams

ENDS = ("/_otlp/v1/traces", "/_otlp/v1/logs")
_MAX_TEXT_BYTES = 2 * MAX_APPEND_BYTES  # of all records: each has a copy of its resource


class Kind(NamedTuple):
    """A signal that a stream takes.

    Attributes:
        profile: the profile that the stream must have.
        read: yields the records of a request.
        check: raises InvalidRequest for a record that the profile would refuse.
    """

    signal: export.Signal
    profile: str
    read: Callable[[Mapping[str, Any]], Iterator[dict[str, Any]]]
    check: Callable[[Mapping[str, Any]], None]


TRACES = Kind(export.TRACES, "otel-traces", spans_of, spans.check)
LOGS = Kind(export.LOGS, "evlog", events_of, lambda _: None)


class Accepted(NamedTuple):
    """The records of a request that a stream takes, how many it does not, and why the first of them."""

    records: list[bytes]
    rejected: int
    reason: str


def add_routes(app: FastAPI, context: Context) -> None:
    """Adds the routes of OTLP. Must be called before the routes of streams are added."""

    def serve(end: str, kind: Kind) -> None:
        async def export_to_stream(request: Request) -> Response:
            name = STREAMS.allowed_name(request, Scope.WRITE, end)
            content_type = export.check_content_type(Headers(request.scope).content_type)
            body = await requests.read(request)
            began = context.clock.monotonic()
            accepted, asked, appended = await run(_append, context.logs(), name, kind, content_type, body)
            told = {"Content-Type": content_type, "Cache-Control": NO_STORE}
            if appended is not None:
                count_append(context, asked, appended, context.ms_since(began))
                told["Stream-Next-Offset"] = appended.next_offset
            text = export.answer(kind.signal, content_type, accepted.rejected, accepted.reason)
            return Response(text, 200, told)

        add(app, PATH + end, POST=export_to_stream)

    for end, kind in zip(ENDS, (TRACES, LOGS), strict=True):
        serve(end, kind)


def _append(
    logs: Streams, name: str, kind: Kind, content_type: str, body: bytes
) -> tuple[Accepted, AppendRequest, Appended | None]:
    """Appends what a request holds with one write. If there is nothing, the stream is looked at, which must exist and have
    the profile.
    """
    accepted = accept(kind, export.parse(kind.signal, content_type, body))
    request = AppendRequest(content_type=JSON, records=Batch.of(accepted.records), profile=kind.profile)
    if accepted.records:
        return accepted, request, logs.append(name, request)
    profiles.check_kind(logs.definition(name), kind.profile)
    return accepted, request, None


def accept(kind: Kind, document: Mapping[str, Any]) -> Accepted:
    """Returns the records of a request. Rejected are those that the profile would refuse, and those above the records of an
    append.

    Raises:
        InvalidRequest: the request is malformed.
        PayloadTooLarge: the records are too large together.
    """
    records: list[bytes] = []
    rejected, reason, size = 0, "", 0
    for record in kind.read(document):
        try:
            if len(records) == MAX_RECORDS_PER_APPEND:
                raise InvalidRequest(f"too many records: limit={MAX_RECORDS_PER_APPEND}")
            kind.check(record)
        except InvalidRequest as exc:
            rejected, reason = rejected + 1, reason or str(exc)
            continue
        text = jsontext.dumps(record)
        size += len(text)
        if size > _MAX_TEXT_BYTES:
            raise PayloadTooLarge(f"the records are too large: limit={_MAX_TEXT_BYTES}")
        records.append(text)
    return Accepted(records, rejected, reason)
