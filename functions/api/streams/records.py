"""`/v1/stream/{name}`: create, append, close, read, follow, describe, delete."""

from __future__ import annotations

from fastapi import FastAPI
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from functions.api.context import Context, scan_until
from functions.api.door import bodies, incoming, resources, times
from functions.api.door.access import Scope
from functions.api.door.incoming import Headers, headers_of
from functions.api.door.layers import require
from functions.api.door.resources import PATH
from functions.api.door.waiting import run
from functions.api.streams import pages
from functions.api.streams.live import EventStream, long_poll
from functions.api.streams.pages import reader
from functions.api.streams.queries import ReadQuery, read_query
from functions.metrics import ApiMetric
from headrace.errors import InvalidRequest
from headrace.log.requests import Head
from headrace.streams.requests import Appended, AppendRequest, Created, CreateRequest
from headrace.streams.verbs import Streams


def add_routes(app: FastAPI, context: Context) -> None:
    """Adds the routes of streams."""
    meter = context.meter

    async def read_stream_by_key(request: Request) -> Response:
        name, key = incoming.name_and_key(request.scope)
        require(request, Scope.READ, name)
        return await _read(request, name, read_query(request.scope, key))

    resources.add(app, "/pk/{key:path}", GET=read_stream_by_key)

    @resources.serve(app, PATH, "PUT")
    async def create_stream(request: Request) -> Response:
        name = _allowed_name(request, Scope.ADMIN)
        headers = headers_of(request.scope)
        asked = _create_request(headers)
        if asked.fork is not None:
            require(request, Scope.READ, asked.fork.source)
        body = await bodies.read(request)
        created = await run(_create, context.logs(), name, asked, headers, body)
        meter.add(ApiMetric.Creates, int(created.created))
        return _created(request, headers, created)

    @resources.serve(app, PATH, "POST")
    async def append_to_stream(request: Request) -> Response:
        name = _allowed_name(request, Scope.WRITE)
        headers = headers_of(request.scope)
        body = await bodies.read(request)
        began = context.clock.monotonic()
        asked, appended = await run(_append, context.logs(), name, headers, body)
        if not appended.duplicate:
            meter.add(ApiMetric.Appends)
            meter.add(ApiMetric.AppendMs, context.ms_since(began))
            meter.add(ApiMetric.AppendedRecords, len(asked.records))
            meter.add(ApiMetric.AppendedBytes, asked.size)
            meter.add(ApiMetric.SlotRaces, appended.tries - 1)
        return _appended(asked, appended)

    @resources.serve(app, PATH, "GET")
    async def read_stream(request: Request) -> Response:
        name = _allowed_name(request, Scope.READ)
        return await _read(request, name, read_query(request.scope))

    async def _read(request: Request, name: str, query: ReadQuery) -> Response:
        logs = context.logs()
        meter.add(ApiMetric.Reads)
        if query.live == "long-poll":
            return await long_poll(context, logs, request, name, query)
        read = reader(request.scope, logs, query)
        began = context.clock.monotonic()
        page = await run(read, name, query.at, query.selection, until=scan_until(context))
        pages.check_format(page, query)
        meter.add(ApiMetric.ReadMs, context.ms_since(began))
        meter.add(ApiMetric.ReadRecords, len(page.data))
        meter.add(ApiMetric.ReadBytes, page.size)
        if query.live == "sse":
            return EventStream(context, logs, name, query, page)
        return pages.catch_up(page, query, headers_of(request.scope))

    @resources.serve(app, PATH, "HEAD")
    async def describe_stream(request: Request) -> Response:
        name = _allowed_name(request, Scope.READ)
        head = await run(context.logs().head, name)
        return Response(None, 200, _description(head))

    @resources.serve(app, PATH, "DELETE")
    async def delete_stream(request: Request) -> Response:
        name = _allowed_name(request, Scope.DELETE)
        deleted = await run(context.logs().delete, name)
        meter.add(ApiMetric.Deletes, int(deleted))
        return Response(None, 204, {"Cache-Control": pages.NO_STORE})


def _allowed_name(request: Request, scope: Scope) -> str:
    name = incoming.stream_name(request.scope)
    require(request, scope, name)
    return name


def _create_request(headers: Headers) -> CreateRequest:
    """Returns all of a create request but its records."""
    ttl_ms, expires_at_ms = headers.expiry()
    return CreateRequest(
        content_type=headers.content_type,
        ttl_ms=ttl_ms,
        expires_at_ms=expires_at_ms,
        closed=headers.closes,
        time_hint_ms=headers.time_hint_ms,
        fork=headers.fork(),
    )


def _create(logs: Streams, name: str, asked: CreateRequest, headers: Headers, body: bytes) -> Created:
    content_type = asked.content_type
    if body and content_type is None and asked.fork is not None:
        content_type = logs.head(asked.fork.source).config.content_type  # says how to cut the body
    records = bodies.records(body, content_type, headers.key)
    return logs.create(name, replace(asked, records=records))


def _created(request: Request, headers: Headers, created: Created) -> Response:
    answer = _description(created.head)
    if created.created:
        answer["Location"] = incoming.url(request.scope, headers.get("host") or "")
    return Response(None, 201 if created.created else 200, answer)


def _append(logs: Streams, name: str, headers: Headers, body: bytes) -> tuple[AppendRequest, Appended]:
    content_type = None
    if body:
        content_type = headers.content_type
        if content_type is None:
            raise InvalidRequest("Content-Type is missing")
    records = bodies.records(body, content_type, headers.key)
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


def _appended(asked: AppendRequest, appended: Appended) -> Response:
    answer = {
        "Stream-Next-Offset": appended.next_offset,
        "Cache-Control": pages.NO_STORE,
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
    """Returns what a stream is and how far it reaches, as headers."""
    answer = {
        "Content-Type": head.config.content_type,
        "Stream-Next-Offset": head.next_offset,
        "Stream-End-Offset": head.next_offset,
        "Cache-Control": pages.NO_STORE,
    }
    if head.config.ttl_ms is not None:
        answer["Stream-TTL"] = str(head.config.ttl_ms // 1000)
    if head.deadline_ms is not None:
        answer["Stream-Expires-At"] = times.text_of(head.deadline_ms)
    if head.state.closed:
        answer["Stream-Closed"] = "true"
    return answer
