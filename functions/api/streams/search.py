"""The resources `…/_search`, `…/_aggregate` and `…/_routing_keys`: answers of the query engine, with how much of the
stream they include.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from functions.access import Scope
from functions.api.context import Context
from functions.api.door import answers, requests
from functions.api.door.requests import run
from functions.api.door.routes import add
from functions.api.streams.records import NO_STORE, PATH, STREAMS
from functions.metrics import ApiMetric
from headrace import instants
from headrace.errors import InvalidRequest, PayloadTooLarge
from headrace.json import jsontext
from headrace.log.requests import JSON
from headrace.query.language.rollup_request import ADVICE
from headrace.wal.state import encode_cursor

if TYPE_CHECKING:  # at run time it would cost every process the import of numpy and pyarrow
    from headrace.query.engine.aggregate import Aggregated
    from headrace.query.engine.routing_keys import KeysPage
    from headrace.query.engine.search import Hit, SearchAnswer

ASKING = ("/_search", "/_aggregate")
MAX_BODY_BYTES = 1024 * 1024
_SINGLE = ("q", "size", "search_after", "timeout_ms", "explain", "snippet")


def add_routes(app: FastAPI, context: Context) -> None:
    """Adds the routes of `_search`, `_aggregate` and `_routing_keys`. Must be called before the routes of streams are
    added.
    """

    async def search_by_query(request: Request) -> Response:
        name = STREAMS.allowed_name(request, Scope.READ, "/_search")
        return await _search(name, asked_of(request.scope))

    async def search_by_body(request: Request) -> Response:
        name = STREAMS.allowed_name(request, Scope.READ, "/_search")
        body = jsontext.loads(await requests.read(request, MAX_BODY_BYTES))
        if not isinstance(body, dict):
            raise InvalidRequest("search request must be an object")
        return await _search(name, body)

    async def _search(name: str, asked: Mapping[str, Any]) -> Response:
        meter, began = context.meter, context.clock.monotonic()
        meter.add(ApiMetric.Searches)
        answer = await run(_found, context, name, asked)
        meter.add(ApiMetric.SearchMs, context.ms_since(began))
        meter.add(ApiMetric.SearchTimeouts, int(answer.timed_out))
        meter.add(ApiMetric.SearchHits, len(answer.hits))
        return answer_of(answer)

    add(app, PATH + "/_search", GET=search_by_query, POST=search_by_body)
    _add_aggregate(app, context)
    _add_routing_keys(app, context)


def _found(context: Context, name: str, asked: Mapping[str, Any]) -> SearchAnswer:
    engine = context.engine()  # the first call imports what follows
    from headrace.query.engine.search import search

    with context.query():
        return search(engine, name, asked)


def asked_of(scope: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the parameters of a GET to the form of a request body. `sort` becomes one list, whether it has commas or
    is repeated.

    Raises:
        InvalidRequest: a parameter is malformed or repeated.
    """
    given: dict[str, str] = {}
    asked: dict[str, Any] = {}
    sort: list[str] = []
    for name, value in requests.parameters(scope):
        if name == "sort":
            sort += [item for item in (part.strip() for part in value.split(",")) if item]
        elif name in given:
            raise InvalidRequest(f"parameter is repeated: name={name}")
        else:
            given[name] = value
    for name, value in given.items():
        asked[name] = _value(name, value) if name in _SINGLE else value
    if sort:
        asked["sort"] = sort
    return asked


def _value(name: str, text: str) -> Any:
    if name in ("size", "timeout_ms"):
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            raise InvalidRequest(f"{name} must be a whole number that is not negative")
        return int(text)
    if name == "search_after":
        try:
            value = jsontext.loads(text.encode())
        except InvalidRequest as exc:
            raise InvalidRequest("search_after must be a JSON array") from exc
        if not isinstance(value, list):
            raise InvalidRequest("search_after must be a JSON array")
        return value
    if name in ("explain", "snippet"):
        if text not in ("true", "false"):
            raise InvalidRequest(f"{name} must be true or false")
        return text == "true"
    return text


def answer_of(answer: SearchAnswer) -> Response:
    """Returns the response to a search: 200 or, if the time was over, 408 with what was found until then."""
    hits = [hit_of(answer, hit) for hit in answer.hits]
    is_full = len(hits) == answer.request.size
    head = answer.cursor(answer.snapshot.end)
    coverage = {**answer.coverage.members(answer.cursor), **_work(answer)}
    body: dict[str, Any] = {
        "stream": answer.snapshot.name,
        "snapshot_end_offset": head,
        "took_ms": round(answer.took_ms),
        "timed_out": answer.timed_out,
        "timeout_ms": answer.request.timeout_ms,
        "coverage": coverage,
        "total": {"value": answer.total, "relation": "eq" if answer.exact else "gte"},
        "hits": hits,
        "next_search_after": hits[-1]["sort"] if is_full else None,
    }
    if answer.explained is not None:
        body["explain"] = answer.explained
    status = 408 if answer.timed_out else 200
    return Response(jsontext.dumps(body), status, _headers(body, coverage))


def _work(answer: SearchAnswer) -> dict[str, Any]:
    """Returns the members that say what the answer cost, in the terms of Prisma Streams (the server whose API this is).
    Index runs are read in rounds that serve all clauses at once, so some of these times are always 0.
    """
    runs_ms = round(answer.times.runs)
    has_words = "fts" in answer.families
    return {
        "indexed_segments": answer.indexed_segments,
        "indexed_segment_time_ms": runs_ms,
        "fts_section_get_ms": runs_ms if has_words else 0,
        "fts_decode_ms": 0,
        "fts_clause_estimate_ms": 0,
        "scanned_segments": answer.scanned_segments,
        "scanned_segment_time_ms": round(answer.times.segments),
        "scanned_tail_docs": answer.scanned_tail,
        "scanned_tail_time_ms": round(answer.times.tail),
        "exact_candidate_time_ms": 0,
        "index_families_used": list(answer.families),
    }


def hit_of(answer: SearchAnswer, hit: Hit) -> dict[str, Any]:
    """Returns the members that show a hit."""
    snippet = answer.snippet_of(hit)
    return {
        "offset": answer.cursor(hit.candidate.offset + 1),
        "score": hit.score,
        "sort": answer.place_of(hit),
        "fields": answer.promoter.fields(hit.document),
        **({} if snippet is None else {"snippet": snippet}),
        "source": msgspec.Raw(hit.document.data),
    }


SEARCH_HEADERS = tuple(
    f"search-{name}"
    for name in (
        "timed-out",
        "timeout-ms",
        "took-ms",
        "total-relation",
        "coverage-complete",
        "indexed-segments",
        "indexed-segment-time-ms",
        "fts-section-get-ms",
        "fts-decode-ms",
        "fts-clause-estimate-ms",
        "scanned-segments",
        "scanned-segment-time-ms",
        "scanned-tail-docs",
        "scanned-tail-time-ms",
        "exact-candidate-time-ms",
        "index-families-used",
    )
)


def _headers(body: Mapping[str, Any], coverage: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, Any] = {
        **body,
        **coverage,
        "total_relation": body["total"]["relation"],
        "coverage_complete": coverage["complete"],
        "index_families_used": ",".join(coverage["index_families_used"]),
    }
    shown = {name: found[name.removeprefix("search-").replace("-", "_")] for name in SEARCH_HEADERS}
    texts = {name: str(value).lower() for name, value in shown.items()}
    return {"Content-Type": JSON, "Cache-Control": NO_STORE, **texts}


def _add_aggregate(app: FastAPI, context: Context) -> None:
    async def aggregate(request: Request) -> Response:
        name = STREAMS.allowed_name(request, Scope.READ, "/_aggregate")
        asked = jsontext.loads(await requests.read(request, MAX_BODY_BYTES))
        began = context.clock.monotonic()
        context.meter.add(ApiMetric.Aggregates)
        body = await run(_aggregate_answer, context, name, asked)
        context.meter.add(ApiMetric.AggregateMs, context.ms_since(began))
        if requests.is_buffered(request.scope) and not answers.fits(body, JSON):
            raise PayloadTooLarge(
                f"the answer is too large for a buffered response: limit={answers.ANSWER_BYTES} bytes={len(body)}: "
                + ADVICE
            )
        return Response(body, 200, {"Content-Type": JSON, "Cache-Control": NO_STORE})

    add(app, PATH + "/_aggregate", POST=aggregate)


def _aggregate_answer(context: Context, name: str, asked: Any) -> bytes:
    engine = context.engine()  # the first call imports what follows
    from headrace.query.engine.aggregate import aggregate

    with context.query():
        return aggregate_body(name, aggregate(engine, name, asked, context.settings.request_timeout_ms))


def aggregate_body(name: str, answer: Aggregated) -> bytes:
    """Returns the JSON body of the answer to an aggregate. The buckets in `answer` are JSON text already."""
    request = answer.request
    members: dict[str, Any] = {
        "stream": name,
        "rollup": request.rollup.name,
        "from": instants.render(request.window.start_ms),
        "to": instants.render(request.window.end_ms),
        "interval": request.interval,
        "coverage": answer.members(lambda position: encode_cursor(answer.head.incarnation, position)),
    }
    if answer.explain is not None:
        members["explain"] = answer.explain
    return b'%b,"buckets":[%b]}' % (jsontext.dumps(members)[:-1], ",".join(answer.buckets).encode())


DEFAULT_LIMIT = 100
MAX_LIMIT = 500
_KEYS_PARAMETERS = frozenset({"limit", "after"})


def _add_routing_keys(app: FastAPI, context: Context) -> None:
    async def list_keys(request: Request) -> Response:
        name = STREAMS.allowed_name(request, Scope.READ, "/_routing_keys")
        limit, after = keys_query(request.scope)
        context.meter.add(ApiMetric.RoutingKeyPages)
        began = context.clock.monotonic()
        page = await run(_keys_page, context, name, limit, after)
        took_ms = round((context.clock.monotonic() - began) * 1000)
        body = jsontext.dumps(keys_document(name, page, took_ms))
        return Response(body, 200, {"Content-Type": JSON, "Cache-Control": NO_STORE})

    add(app, PATH + "/_routing_keys", GET=list_keys)


def keys_query(scope: Mapping[str, Any]) -> tuple[int, str | None]:
    """Parses the query string of a list of routing keys. Returns the limit, and the key after which to begin (None: at
    the first).

    Raises:
        InvalidRequest: the limit is invalid, or a parameter is repeated.
    """
    given = requests.query_of(scope, _KEYS_PARAMETERS)
    text = given.get("limit", str(DEFAULT_LIMIT))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MAX_LIMIT):
        raise InvalidRequest(f"limit is not an integer from 1 to {MAX_LIMIT}")
    return int(text), given.get("after")


def _keys_page(context: Context, name: str, limit: int, after: str | None) -> KeysPage:
    engine = context.engine()  # the first call imports what follows
    from headrace.query.engine.routing_keys import KeysRequest, routing_keys

    with context.query():
        return routing_keys(engine, name, KeysRequest(limit, after), context.settings.request_timeout_ms)


def keys_document(name: str, page: KeysPage, took_ms: int) -> dict[str, Any]:
    """Returns the JSON document that lists one page of routing keys, with what was read to find them. A sealed segment
    counts as uploaded, so nothing is ever local.
    """
    coverage, timing = page.coverage, page.timing
    return {
        "stream": name,
        "source": {"kind": "routing_key", "name": ""},
        "took_ms": took_ms,
        "coverage": {
            "complete": coverage.complete,
            "indexed_segments": coverage.indexed_segments,
            "scanned_uploaded_segments": coverage.scanned_segments,
            "scanned_local_segments": 0,
            "scanned_wal_rows": coverage.scanned_records,
            "possible_missing_uploaded_segments": coverage.missing_segments,
            "possible_missing_local_segments": 0,
            "possible_missing_wal_rows": coverage.missing_records,
        },
        "timing": {
            "lexicon_run_get_ms": round(timing.runs_get_s * 1000),
            "lexicon_decode_ms": round(timing.runs_decode_s * 1000),
            "lexicon_enumerate_ms": round(timing.runs_get_s * 1000) + round(timing.runs_decode_s * 1000),
            "lexicon_merge_ms": round(timing.merge_s * 1000),
            "fallback_scan_ms": round((timing.segments_s + timing.tail_s) * 1000),
            "fallback_segment_get_ms": round(timing.segments_s * 1000),
            "fallback_wal_scan_ms": round(timing.tail_s * 1000),
            "lexicon_runs_loaded": timing.runs,
        },
        "keys": page.keys,
        "next_after": page.next_after,
    }
