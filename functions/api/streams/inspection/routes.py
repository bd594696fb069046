"""The resources `…/_index_status`, `…/_details` and `/v1/streams`: documents about a stream, and the list of streams.

A document is sent unless the client has it already; with `live`, the answer waits until it changes. The list has the
living streams that the key allows, in the order of their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import orjson
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from functions.access import Grant, Scope
from functions.api.context import Context
from functions.api.door.entry import grant_of
from functions.api.door.requests import Headers, query_of, run
from functions.api.door.routes import add, serve
from functions.api.streams.inspection import documents
from functions.api.streams.inspection.inspector import Inspector, Listed, Version, fan_out
from functions.api.streams.live import listening
from functions.api.streams.records import NO_STORE, PATH, STREAMS
from functions.metrics import ApiMetric
from headrace import instants
from headrace.errors import InvalidRequest, Overloaded, RequestTimeout
from headrace.json import jsontext
from headrace.log.requests import JSON
from headrace.streams.verbs import Streams


def add_routes(app: FastAPI, context: Context) -> None:
    """Adds the routes of `_index_status`, `_details` and the listing. Must be called before the routes of streams are
    added.
    """

    async def show_index_status(request: Request) -> Response:
        return await _show(request, "/_index_status", "index_status")

    async def show_details(request: Request) -> Response:
        return await _show(request, "/_details", "details")

    async def _show(request: Request, resource: str, kind: Kind) -> Response:
        name = STREAMS.allowed_name(request, Scope.READ, resource)
        return await answer(context, request, name, kind, inspection_query(request.scope))

    add(app, PATH + "/_index_status", GET=show_index_status)
    add(app, PATH + "/_details", GET=show_details)

    @serve(app, "/v1/streams", "GET")
    async def list_streams(request: Request) -> Response:
        grant = grant_of(request)
        grant.require(Scope.READ)
        query = list_query(request.scope)
        found = await run(_find_listed, context.logs(), context.inspector(), grant, query)
        context.meter.add(ApiMetric.Lists)
        headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
        return Response(orjson.dumps([_descriptor(listed) for listed in found]), headers=headers)


Kind = Literal["details", "index_status"]


class _Answer(NamedTuple):
    """A document, its entity tag, and the version of the stream that it shows."""

    version: Version
    etag: str
    body: bytes


async def answer(context: Context, request: Request, name: str, kind: Kind, query: InspectionQuery) -> Response:
    """Returns a 200 response with the document. If the client has it already (If-None-Match), returns 304: at once or,
    with `live`, if it did not change until the wait was over.

    Raises:
        RequestTimeout: the requested wait is longer than a request may take, and nothing changed.
        HeadraceError: there is no such stream, or it was deleted meanwhile.
    """
    headers = Headers(request.scope)
    logs, inspector = context.logs(), context.inspector()
    if not query.live:
        found = await run(_build, inspector, name, kind)
        return _response(found, changed=not headers.matches(found.etag))
    settings = context.settings
    asked_ms = settings.live_timeout_ms if query.timeout_ms is None else query.timeout_ms
    deadline = context.clock.monotonic() + min(asked_ms, settings.request_timeout_ms) / 1000
    with listening(logs, name) as waiter:
        found = await run(_build, inspector, name, kind)
        while headers.matches(found.etag):
            left_s = deadline - context.clock.monotonic()
            if left_s <= 0:
                if asked_ms > settings.request_timeout_ms:
                    raise RequestTimeout
                return _response(found, changed=False)
            await waiter.pause(left_s)
            if await request.is_disconnected():
                return _response(found, changed=False)
            if await run(inspector.version, name) != found.version:
                found = await run(_build, inspector, name, kind)
    return _response(found, changed=True)


def _build(inspector: Inspector, name: str, kind: Kind) -> _Answer:
    version, seen = inspector.look(name)
    found = (
        documents.details(seen, inspector.requests(version.log_id))
        if kind == "details"
        else documents.index_status(seen)
    )
    return _Answer(version, documents.etag(kind, found), jsontext.dumps(found))


def _response(found: _Answer, *, changed: bool) -> Response:
    headers = {"ETag": found.etag, "Cache-Control": NO_STORE}
    if not changed:
        return Response(None, 304, headers)
    return Response(found.body, 200, {"Content-Type": JSON, **headers})


_KNOWN = frozenset({"live", "timeout", "timeout_ms"})
_LIVE = {"true": True, "1": True, "long-poll": True, "false": False, "0": False}


class InspectionQuery(NamedTuple):
    """The query parameters of an inspection: whether to wait for a change, and how long (None: the default)."""

    live: bool
    timeout_ms: int | None


def inspection_query(scope: Mapping[str, Any]) -> InspectionQuery:
    """Parses the query string of an inspection.

    Raises:
        InvalidRequest: a parameter is malformed or repeated.
    """
    given = query_of(scope, _KNOWN)
    live = _LIVE.get(given.get("live", "false"))
    if live is None:
        raise InvalidRequest("live must be long-poll, true or false")
    if "timeout" in given and "timeout_ms" in given:
        raise InvalidRequest("timeout and timeout_ms exclude each other")
    timeout = given.get("timeout", given.get("timeout_ms"))
    return InspectionQuery(live, None if timeout is None else instants.timeout_ms(timeout, "timeout"))


class ListQuery(NamedTuple):
    """The query parameters of a list: at most `limit` names above `after` that begin with `prefix`; the first `skip` of
    them are left out.
    """

    limit: int
    skip: int
    after: str
    prefix: str


_LIST = frozenset({"limit", "offset", "after", "prefix"})
_MAX_LIMIT = 1000
_MAX_SKIP = 10_000  # rows are read to be skipped; `after` pages without that
_MAX_GONE = 2000  # rows that one list reads for nothing: streams that expired since the last sweep, or are damaged
_SWEEP_S = 60


def list_query(scope: Mapping[str, Any]) -> ListQuery:
    """Parses the query string of a list.

    Raises:
        InvalidRequest: a number is malformed or out of range, or a parameter is repeated.
    """
    given = query_of(scope, _LIST)
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


def _find_listed(logs: Streams, inspector: Inspector, grant: Grant, query: ListQuery) -> list[Listed]:
    """Returns a page of the list. Rows of streams that turn out to have ended, or to be damaged, are left out, and others
    take their place.

    The catalog is only queried for the page and what it skips; its rows are then inspected in parallel. All of it runs
    within the deadline of one request.

    Raises:
        Overloaded: too many streams have ended or expired that the sweep has yet to take out of the list, or are damaged.
        StoreTimeout, StoreThrottled: the store did not answer, or the request's time was over.
    """
    found: list[Listed] = []
    skip, gone = query.skip, 0
    with logs.in_time():
        for prefix in grant.within(query.prefix):  # no prefix covers another, and they come in order
            after = query.after
            while len(found) < query.limit:
                wanted = skip + query.limit - len(found)
                rows = logs.list(after=after, prefix=prefix, limit=wanted)
                listed = [one for one in fan_out(inspector.listed, rows[skip:]) if one is not None]
                found += listed
                gone += len(rows[skip:]) - len(listed)
                if gone > _MAX_GONE:
                    raise Overloaded(
                        f"too many streams of the list have ended, or are damaged: seen={gone}", _SWEEP_S
                    )
                skip = max(0, skip - len(rows))
                if len(rows) < wanted:
                    break
                after = rows[-1].name
    return found


def _descriptor(listed: Listed) -> dict[str, Any]:
    config = listed.config
    return {
        "name": config.name,
        "created_at": instants.text_of(config.created_ms),
        "expires_at": None if listed.deadline_ms is None else instants.text_of(listed.deadline_ms),
        "epoch": listed.incarnation,
        "next_offset": str(listed.next_offset),
        "sealed_through": str(listed.sealed_through),
        "uploaded_through": str(listed.sealed_through),
        "content_type": config.content_type,
        "profile": listed.profile,
    }
