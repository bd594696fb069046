"""`…/_aggregate`: the groups of a rollup over a window of time, and how much of the stream they were made from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from headrace import instants
from headrace import offset as offsets
from headrace.errors import PayloadTooLarge
from headrace.json import jsontext
from headrace.log.requests import JSON
from headrace.query.language.rollup_request import ADVICE

if TYPE_CHECKING:  # at run time it would cost every process the import of numpy and pyarrow
    from headrace.query.engine.aggregate import Aggregated

MAX_BODY_BYTES = 1024 * 1024


def add_routes(app: FastAPI, parts: Parts) -> None:
    """Adds the resource. To be called before the routes of streams."""

    async def aggregate(request: Request) -> Response:
        name = paths.stream_name(request.scope, "/_aggregate")
        require(request, Scope.READ, name)
        asked = jsontext.loads(await bodies.read(request, MAX_BODY_BYTES))
        began = parts.clock.monotonic()
        parts.meter.add(ApiMetric.Aggregates)
        body = await run(_answer, parts, name, asked)
        parts.meter.add(ApiMetric.AggregateMs, parts.ms_since(began))
        if bodies.is_buffered(request.scope) and not bodies.fits(body, JSON):
            raise PayloadTooLarge(
                f"the answer is too large for a buffered response: limit={bodies.ANSWER_BYTES} bytes={len(body)}: "
                + ADVICE
            )
        return Response(body, 200, {"Content-Type": JSON, "Cache-Control": pages.NO_STORE})

    resources.add(app, "/_aggregate", POST=aggregate)


def _answer(parts: Parts, name: str, asked: Any) -> bytes:
    engine = parts.engine()  # the first call imports what follows
    from headrace.query.engine.aggregate import aggregate

    with parts.query():
        return body_of(name, aggregate(engine, name, asked, parts.settings.request_timeout_ms))


def body_of(name: str, answer: Aggregated) -> bytes:
    """The answer as JSON. Its buckets are in print already."""
    request = answer.request
    coverage = {
        **answer.coverage.members(lambda position: offsets.encode(answer.head.incarnation, position)),
        "used_rollups": answer.used_rollups,
        "indexed_segments": answer.indexed_segments,
        "scanned_segments": answer.scanned_segments,
        "scanned_tail_docs": answer.scanned_tail_documents,
        "index_families_used": list(answer.families),
    }
    members: dict[str, Any] = {
        "stream": name,
        "rollup": request.rollup.name,
        "from": instants.render(request.window.start_ms),
        "to": instants.render(request.window.end_ms),
        "interval": request.interval,
        "coverage": coverage,
    }
    if answer.explain is not None:
        members["explain"] = answer.explain
    return b'%b,"buckets":[%b]}' % (jsontext.dumps(members)[:-1], ",".join(answer.buckets).encode())
