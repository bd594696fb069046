"""The route that searches the events of an event's lanes, by the fields of its schema and by when they arrived."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson
from starlette.responses import Response

from functions.access import Scope
from functions.api.features.calls import Call, parse
from functions.metrics import ApiMetric
from headrace.clock import Threads, within_deadline
from headrace.errors import InvalidRequest
from headrace.features.define import search_of
from headrace.features.pipeline.nodes import EventNode
from headrace.features.pipeline.text import show
from headrace.features.values import lane
from headrace.query.language.search_request import timeout_ms

if TYPE_CHECKING:  # at run time it would cost every process the import of numpy and pyarrow
    from headrace.query.engine.search import Hit, SearchAnswer

_LANES = Threads(4, "search")  # each holds what it scans


async def search(call: Call) -> Response:
    """Searches the events of one kind, in all its lanes. The body is that of a stream's search, and names the event. If the
    time was over, the answer has what was found, and `timed_out` says so.
    """
    body = parse(await call.read())
    event = body.get("event") if isinstance(body, dict) else None
    if not isinstance(event, str):
        raise InvalidRequest(f"the body must be an object with the name `event` and the text `q`, not {show(body)}")
    call.require_event(Scope.READ, event)
    meter, began = call.context.meter, call.context.clock.monotonic()
    meter.add(ApiMetric.Searches)
    document = await call.run(_search, call, event, body)
    took_ms = call.context.ms_since(began)
    meter.add(ApiMetric.SearchMs, took_ms)
    meter.add(ApiMetric.SearchTimeouts, int(document["timed_out"]))
    meter.add(ApiMetric.SearchHits, len(document["hits"]))
    return await call.reply({"event": event, "took_ms": took_ms, **document})


def _search(call: Call, name: str, body: dict[str, Any]) -> dict[str, Any]:
    event = call.features.event(call.namespace, name)
    if not event.search:
        raise InvalidRequest(f"event '{name}' is not searched: register it with \"search\": true")
    places = _places(event, body)
    if event.lanes > 1 and not body.get("sort"):  # offsets of different lanes tell no order
        body = {**body, "sort": [f"{search_of(event).primary_timestamp_field}:desc"]}
    engine = call.context.lane_engine()  # the first call imports what follows
    from headrace.query.engine.search import REQUEST_MS
    from headrace.query.engine.search import search as search_one

    timeout, began = timeout_ms(body.get("timeout_ms")), call.context.clock.monotonic()

    def search_lane(number: int) -> SearchAnswer:
        left = max(0, timeout - call.context.ms_since(began))  # a lane that is late says what it left out
        asked = {**body, "search_after": places[number], "timeout_ms": left}
        return search_one(engine, lane(call.namespace, name, number), asked)

    with call.context.query(), within_deadline(REQUEST_MS):
        answers = _LANES.map(search_lane, range(event.lanes))
    return {"timeout_ms": timeout, **_merge(answers, places)}


def _places(event: EventNode, body: dict[str, Any]) -> Sequence[Any]:
    """Returns where the page begins in each lane: `search_after` is the place in the only lane, or an array with a place
    for each. Raises InvalidRequest.
    """
    after = body.get("search_after")
    if event.lanes == 1:
        return [after]
    if after is None:
        return [None] * event.lanes
    if not isinstance(after, list) or len(after) != event.lanes:
        raise InvalidRequest(f"search_after must have an element for each lane: expected={event.lanes}")
    return after


def _merge(answers: Sequence[SearchAnswer], places: Sequence[Any]) -> dict[str, Any]:
    """Returns the members of the answer from those of all lanes: the first hits of all. The next page begins in each lane
    after its last hit on this one.
    """
    from headrace.query.engine import several

    request = answers[0].request
    page = several.first_hits(answers, by_offset=True)
    ends = {number: answers[number].place_of(hit) for number, hit in page}
    after = [ends.get(number, place) for number, place in enumerate(places)]
    document = {
        **several.summary(answers),
        "next_search_after": None if len(page) < request.size else after if len(places) > 1 else after[0],
        "hits": [_hit(number, answers[number], hit) for number, hit in page],
    }
    return {**document, "explain": [answer.explained for answer in answers]} if request.explain else document


def _hit(number: int, answer: SearchAnswer, hit: Hit) -> dict[str, Any]:
    snippet = answer.snippet_of(hit)
    columns = hit.document.columns
    assert columns is not None, "an event is searched by when it arrived"
    return {
        "lane": number,
        "offset": hit.candidate.offset,
        "arrived_ms": columns.time_ms,
        **({} if snippet is None else {"snippet": snippet}),
        "data": orjson.Fragment(hit.document.data),
    }
