"""The route `/v1/observe/request`, which joins what a stream of events and a stream of spans tell of one request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from functions.access import Scope
from functions.api.context import Context
from functions.api.door import compression, requests
from functions.api.door.requests import Headers, run
from functions.api.door.routes import add
from functions.api.streams.records import STREAMS
from functions.api.streams.search import MAX_BODY_BYTES
from functions.metrics import ApiMetric
from headrace.clock import within_deadline
from headrace.errors import InvalidRequest
from headrace.json import jsontext
from headrace.query.language.search_request import MAX_SIZE, MAX_TIMEOUT_MS
from headrace.streams import profiles
from headrace.streams.observe.lookup import LOOKUPS, Found, Hit, Lookup, Search, look_up, parse
from headrace.streams.observe.view import view

PATH = "/v1/observe/request"
_ORDERS = {"evlog": ["timestamp:desc"], "otel-traces": ["timestamp:asc"]}
_TEXTS = {
    "events": "streams",
    "traces": "streams",
    **dict.fromkeys(LOOKUPS, "lookup"),
    "from": "time",
    "to": "time",
}
_NUMBERS = {"paddingMs": ("time", "paddingMs"), "maxEvents": ("limits", "events"), "maxSpans": ("limits", "spans")}
_PARTS = ("events", "trace", "timeline", "raw")
_PARAMETERS = frozenset({*_TEXTS, *_NUMBERS, "include"})


def add_routes(app: FastAPI, context: Context) -> None:
    """Adds the route. Must be called before the routes of streams are added."""

    async def show_by_query(request: Request) -> Response:
        return await _show(request, asked_of(requests.query_of(request.scope, _PARAMETERS)))

    async def show_by_body(request: Request) -> Response:
        return await _show(request, jsontext.loads(await requests.read(request, MAX_BODY_BYTES)))

    async def _show(request: Request, asked: Any) -> Response:
        document = await run(_view, context, request, parse(asked))
        return await compression.answer(Headers(request.scope), jsontext.dumps(document))

    add(app, PATH, GET=show_by_query, POST=show_by_body)


def asked_of(given: Mapping[str, str]) -> dict[str, Any]:
    """Converts the parameters of a GET to the form of a request body.

    Raises:
        InvalidRequest: a number is malformed, or a part is unknown.
    """
    asked: dict[str, dict[str, Any]] = {"streams": {}, "lookup": {}, "time": {}, "limits": {}, "include": {}}
    for name, value in given.items():
        if name in _TEXTS:
            asked[_TEXTS[name]][name] = value
        elif name in _NUMBERS:
            if not (value.isascii() and value.isdigit() and len(value) < 16):
                raise InvalidRequest(f"{name} must be a whole number that is not negative")
            section, member = _NUMBERS[name]
            asked[section][member] = int(value)
    if "include" in given:
        parts = [part.strip() for part in given["include"].split(",")]
        if unknown := [part for part in parts if part not in _PARTS]:
            raise InvalidRequest(f"include has an unknown part: {unknown[0][:64]}")
        asked["include"] = {part: part in parts for part in _PARTS}
    return asked


def _view(context: Context, request: Request, asked: Lookup) -> dict[str, Any]:
    logs, checked = context.logs(), dict[str, Any]()

    def definition(role: str, name: str) -> Any:
        name = checked[role] = STREAMS.check(name)
        STREAMS.require(request, Scope.READ, name)
        found = logs.definition(name)
        profiles.check_kind(found, "evlog" if role == "events" else "otel-traces", f"streams.{role}")
        return found

    asked = _paired(asked, definition)
    deadline_ms = context.clock.monotonic() * 1000 + MAX_TIMEOUT_MS

    def search(role: str) -> Search | None:
        if role not in checked:
            return None
        order = _ORDERS["evlog" if role == "events" else "otel-traces"]
        return lambda query, limit: _search(context, checked[role], query, limit, order, deadline_ms)

    with context.query(), within_deadline(context.settings.request_timeout_ms):
        events, traces = look_up(asked, search("events"), search("traces"))
    return view(asked, events if "events" in checked else None, traces if "traces" in checked else None)


def _paired(asked: Lookup, definition: Any) -> Lookup:
    """Returns the request with the streams that are asked. One that is not named is the counterpart that the profile of
    the other declares.

    Raises:
        InvalidRequest: a part is wanted whose stream nothing names.
    """
    streams = {"events": asked.events, "traces": asked.traces}
    wanted = {"events": asked.shows_events, "traces": asked.shows_trace}
    given = {role: name for role, name in streams.items() if name is not None and wanted[role] is not False}
    for role, name in list(given.items()):
        pair = profiles.of(definition(role, name)).observability(name)
        other = "traces" if role == "events" else "events"
        if pair is not None and streams[other] is None and wanted[other] is not False:
            given[other] = streams[other] = pair["request"][f"{other}_stream"]
            definition(other, given[other])
    for role, part in (("events", "events"), ("traces", "trace")):
        if role not in given and wanted[role] is not False:
            raise InvalidRequest(f"streams.{role} is required unless include.{part} is false")
    return asked._replace(events=given.get("events"), traces=given.get("traces"))


def _search(context: Context, name: str, query: str, limit: int, order: list[str], deadline_ms: float) -> Found:
    """Returns up to `limit` hits of a query in one stream, page by page, within the time that is left."""
    engine = context.engine()  # the first call imports what follows
    from headrace.query.engine.search import search

    hits: list[Hit] = []
    answers = []
    after = None
    while True:
        left_ms = max(0, round(deadline_ms - context.clock.monotonic() * 1000))
        size = min(MAX_SIZE, limit - len(hits))
        asked = {"q": query, "size": size, "sort": order, "search_after": after, "timeout_ms": left_ms}
        began = context.clock.monotonic()
        answer = search(engine, name, asked)
        context.meter.add(ApiMetric.Searches)
        context.meter.add(ApiMetric.SearchMs, context.ms_since(began))
        answers.append(answer)
        hits += [Hit(answer.cursor(hit.candidate.offset + 1), hit.document.value) for hit in answer.hits]
        if len(answer.hits) < size or len(hits) >= limit:
            break
        after = answer.place_of(answer.hits[-1])
    total = max(one.total for one in answers)
    return Found(
        query=query,
        hits=hits,
        total=total,
        exact=answers[0].exact,
        pages=len(answers),
        complete=all(one.coverage.complete for one in answers),
        timed_out=any(one.timed_out for one in answers),
        limited=len(hits) >= limit and (total > limit or not answers[0].exact),
        families=frozenset(family for one in answers for family in one.families),
        tail=sum(one.scanned_tail for one in answers),
        segments=sum(one.scanned_segments for one in answers),
        missing=max(one.coverage.members(int)["possible_missing_events_upper_bound"] for one in answers),
    )
