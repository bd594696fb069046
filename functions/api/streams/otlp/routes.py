"""The routes of OTLP/HTTP. `/v1/traces` and `/v1/logs` are where exporters send that know only the server
(`OTEL_EXPORTER_OTLP_ENDPOINT`); a header names the stream, or it has a name by default. `…/_otlp/v1/traces` and
`…/_otlp/v1/logs` below a stream's path are whole URLs (`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`).
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
from functions.api.door.errors import Envelope, Failure, envelope, refusal
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

_MAX_TEXT_BYTES = 2 * MAX_APPEND_BYTES  # of all records: each has a copy of its resource


class Kind(NamedTuple):
    """A signal that a stream takes.

    Attributes:
        path: where exporters send it that know only the server.
        header: the header that names the stream of such a request.
        stream: the name of the stream if the header is missing.
        profile: the profile that the stream must have.
        read: yields the records of a request.
        check: raises InvalidRequest for a record that the profile would refuse.
    """

    signal: export.Signal
    path: str
    header: str
    stream: str
    profile: str
    read: Callable[[Mapping[str, Any]], Iterator[dict[str, Any]]]
    check: Callable[[Mapping[str, Any]], None]

    @property
    def end(self) -> str:
        """What follows a stream's name in the path of its own."""
        return f"/_otlp{self.path}"


TRACES = Kind(export.TRACES, "/v1/traces", "Stream-Traces", "otel-traces", "otel-traces", spans_of, spans.check)
LOGS = Kind(export.LOGS, "/v1/logs", "Stream-Logs", "otel-logs", "evlog", events_of, lambda _: None)
_KINDS = (TRACES, LOGS)
HEADERS = tuple(kind.header for kind in _KINDS)
PATHS = frozenset(kind.path for kind in _KINDS)
ENDS = tuple(kind.end for kind in _KINDS)


class Accepted(NamedTuple):
    """The records of a request that a stream takes, how many it does not, and why the first of them."""

    records: list[bytes]
    rejected: int
    reason: str


def add_routes(app: FastAPI, context: Context) -> None:
    """Adds the routes of OTLP. Must be called before the routes of streams are added."""

    def serve(path: str, kind: Kind, name_of: Callable[[Request, Kind], str]) -> None:
        async def export_to_stream(request: Request) -> Response:
            name = name_of(request, kind)
            content_type = export.check_content_type(Headers(request.scope).content_type)
            body = await requests.read(request)
            began = context.clock.monotonic()
            accepted, asked, appended = await run(_append, context.logs(), name, kind, content_type, body)
            told = {"Content-Type": content_type, "Cache-Control": NO_STORE}
            if appended is not None:
                count_append(context, asked, appended, context.ms_since(began))
                told["Stream-Next-Offset"] = appended.next_offset
            text = export.encode_answer(kind.signal, content_type, accepted.rejected, accepted.reason)
            return Response(text, 200, told)

        add(app, path, POST=export_to_stream)

    for kind in _KINDS:
        serve(kind.path, kind, _name_in_header)
        serve(PATH + kind.end, kind, _name_in_path)


def _name_in_path(request: Request, kind: Kind) -> str:
    return STREAMS.allowed_name(request, Scope.WRITE, kind.end)


def _name_in_header(request: Request, kind: Kind) -> str:
    given = Headers(request.scope).get(kind.header.lower())
    name = kind.stream if given is None else STREAMS.decode_name(given.encode())
    STREAMS.require(request, Scope.WRITE, name)
    return name


def shape(scope: Mapping[str, Any]) -> Envelope:
    """Returns what builds the error responses of a request: for OTLP they are a `google.rpc.Status` in the request's form,
    which in JSON has the usual `error`, too.
    """
    if scope["path"] not in PATHS and not scope["path"].endswith(ENDS):
        return envelope
    content_type = (Headers({**scope}).get("content-type") or "").partition(";")[0].strip().lower()

    def answer(failure: Failure) -> Response:
        if content_type == export.PROTOBUF:
            told = {"Content-Type": export.PROTOBUF, "Cache-Control": NO_STORE, **failure.headers}
            return Response(export.encode_status(failure.message), failure.status, told)
        return refusal(failure.status, {"message": failure.message, "error": failure.error}, failure.headers)

    return answer


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
