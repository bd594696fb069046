"""`…/_routing_keys`: the distinct routing keys of a stream, a page at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from functions.api.door import paths
from functions.api.door.access import Scope
from functions.api.door.layers import require
from functions.api.door.waiting import run
from functions.api.parts import Parts
from functions.api.streams import pages, queries
from functions.api.streams.routes import resources
from functions.metrics import ApiMetric
from headrace.errors import InvalidRequest
from headrace.json import jsontext
from headrace.log.requests import JSON

if TYPE_CHECKING:  # at run time it would cost every process the import of numpy and pyarrow
    from headrace.query.engine.routing_keys import KeysPage

DEFAULT_LIMIT = 100
MAX_LIMIT = 500
_PARAMETERS = frozenset({"limit", "after"})


def add_routes(app: FastAPI, parts: Parts) -> None:
    """Adds the resource. To be called before the routes of streams."""

    async def list_keys(request: Request) -> Response:
        name = paths.stream_name(request.scope, "/_routing_keys")
        require(request, Scope.READ, name)
        limit, after = keys_query(request.scope)
        parts.meter.add(ApiMetric.RoutingKeyPages)
        began = parts.clock.monotonic()
        page = await run(_page, parts, name, limit, after)
        took_ms = round((parts.clock.monotonic() - began) * 1000)
        body = jsontext.dumps(document(name, page, took_ms))
        return Response(body, 200, {"Content-Type": JSON, "Cache-Control": pages.NO_STORE})

    resources.add(app, "/_routing_keys", GET=list_keys)


def keys_query(scope: Mapping[str, Any]) -> tuple[int, str | None]:
    """How many keys are asked for, and after which one (None: from the first).

    Raises:
        InvalidRequest: the limit is none.
    """
    given = queries.parse(scope, _PARAMETERS)
    text = given.get("limit", str(DEFAULT_LIMIT))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MAX_LIMIT):
        raise InvalidRequest(f"limit is not an integer from 1 to {MAX_LIMIT}")
    return int(text), given.get("after")


def _page(parts: Parts, name: str, limit: int, after: str | None) -> KeysPage:
    engine = parts.engine()  # the first call imports what follows
    from headrace.query.engine.routing_keys import KeysRequest, routing_keys

    with parts.query():
        return routing_keys(engine, name, KeysRequest(limit, after), parts.settings.request_timeout_ms)


def document(name: str, page: KeysPage, took_ms: int) -> dict[str, Any]:
    """The answer as JSON. A sealed segment is an uploaded one here, so nothing is ever local."""
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
