"""`…/_search`: records of a stream that a query matches, and how much of the stream the answer saw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from functions.api.door import bodies, paths
from functions.api.door.access import Scope
from functions.api.door.layers import require
from functions.api.door.waiting import run
from functions.api.parts import Parts
from functions.api.streams import pages
from functions.api.streams.routes import resources
from functions.metrics import ApiMetric
from headrace.errors import InvalidRequest
from headrace.json import jsontext
from headrace.log.requests import JSON

if TYPE_CHECKING:  # at run time it would cost every process the import of numpy and pyarrow
    from headrace.query.engine.search import Hit, SearchAnswer

MAX_BODY_BYTES = 1024 * 1024
_MAX_PARAMETERS = 100
_SINGLE = ("q", "size", "search_after", "timeout_ms", "explain")


def add_routes(app: FastAPI, parts: Parts) -> None:
    """Adds the resource. To be called before the routes of streams."""

    async def search_by_query(request: Request) -> Response:
        name = _name(request)
        return await _search(name, asked_of(request.scope))

    async def search_by_body(request: Request) -> Response:
        name = _name(request)
        body = jsontext.loads(await bodies.read(request, MAX_BODY_BYTES))
        if not isinstance(body, dict):
            raise InvalidRequest("search request must be an object")
        return await _search(name, body)

    async def _search(name: str, asked: Mapping[str, Any]) -> Response:
        meter, began = parts.meter, parts.clock.monotonic()
        meter.add(ApiMetric.Searches)
        answer = await run(_found, parts, name, asked)
        meter.add(ApiMetric.SearchMs, parts.ms_since(began))
        meter.add(ApiMetric.SearchTimeouts, int(answer.timed_out))
        meter.add(ApiMetric.SearchHits, len(answer.hits))
        return answer_of(answer)

    resources.add(app, "/_search", GET=search_by_query, POST=search_by_body)


def _name(request: Request) -> str:
    name = paths.stream_name(request.scope, "/_search")
    require(request, Scope.READ, name)
    return name


def _found(parts: Parts, name: str, asked: Mapping[str, Any]) -> SearchAnswer:
    engine = parts.engine()  # the first call imports what follows
    from headrace.query.engine.search import search

    with parts.query():
        return search(engine, name, asked)


def asked_of(scope: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a GET in the form of a body. `sort` is one list, with commas or repeated.

    Raises:
        InvalidRequest: a parameter is malformed or repeated.
    """
    try:
        text = scope["query_string"].decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS)
    except ValueError as exc:  # UnicodeDecodeError is one
        raise InvalidRequest("query string is malformed") from exc
    given: dict[str, str] = {}
    asked: dict[str, Any] = {}
    sort: list[str] = []
    for name, value in pairs:
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
    if name == "explain":
        if text not in ("true", "false"):
            raise InvalidRequest("explain must be true or false")
        return text == "true"
    return text


def answer_of(answer: SearchAnswer) -> Response:
    """200 or, if the time was over, 408 with what was found until then."""
    hits = [_hit(answer, hit) for hit in answer.hits]
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
    """What the answer cost, by the contract's names: runs are read in rounds that serve all clauses at once."""
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


def _hit(answer: SearchAnswer, hit: Hit) -> dict[str, Any]:
    offset = answer.cursor(hit.candidate.offset + 1)
    sort = [
        offset if term.kind == "offset" else value
        for term, value in zip(answer.request.sort, hit.candidate.key, strict=True)
    ]
    return {
        "offset": offset,
        "score": answer.score(hit),
        "sort": sort,
        "fields": answer.promoter.fields(hit.document),
        "source": msgspec.Raw(hit.document.data),
    }


def _headers(body: Mapping[str, Any], coverage: Mapping[str, Any]) -> dict[str, str]:
    shown: dict[str, Any] = {
        "timed-out": body["timed_out"],
        "timeout-ms": body["timeout_ms"],
        "took-ms": body["took_ms"],
        "total-relation": body["total"]["relation"],
        "coverage-complete": coverage["complete"],
        "indexed-segments": coverage["indexed_segments"],
        "indexed-segment-time-ms": coverage["indexed_segment_time_ms"],
        "fts-section-get-ms": coverage["fts_section_get_ms"],
        "fts-decode-ms": coverage["fts_decode_ms"],
        "fts-clause-estimate-ms": coverage["fts_clause_estimate_ms"],
        "scanned-segments": coverage["scanned_segments"],
        "scanned-segment-time-ms": coverage["scanned_segment_time_ms"],
        "scanned-tail-docs": coverage["scanned_tail_docs"],
        "scanned-tail-time-ms": coverage["scanned_tail_time_ms"],
        "exact-candidate-time-ms": coverage["exact_candidate_time_ms"],
        "index-families-used": ",".join(coverage["index_families_used"]),
    }
    texts = {f"search-{name}": str(value).lower() for name, value in shown.items()}
    return {"Content-Type": JSON, "Cache-Control": pages.NO_STORE, **texts}
