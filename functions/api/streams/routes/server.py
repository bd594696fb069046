"""`/v1/server/_details` and `/v1/server/_mem`: how this process is. For operators: they say nothing of other processes."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from functions.api.door import times, waiting
from functions.api.door.access import Forbidden, Scope
from functions.api.door.layers import grant_of
from functions.api.parts import Parts
from functions.api.streams import pages
from functions.api.streams.inspection import process, server
from functions.api.streams.inspection.server import Sample
from functions.api.streams.routes.resources import serve
from headrace.json import jsontext
from headrace.log.requests import JSON


def add_routes(app: FastAPI, parts: Parts) -> None:
    """Adds the two resources."""
    marks = process.HighWater()

    @serve(app, "/v1/server/_details", "GET")
    async def show_server_details(request: Request) -> Response:
        _require_operator(request)
        return _document(server.details(_sample(parts), parts.settings, marks))

    @serve(app, "/v1/server/_mem", "GET")
    async def show_server_memory(request: Request) -> Response:
        _require_operator(request)
        return _document(server.mem(_sample(parts), marks))


def _require_operator(request: Request) -> None:
    """Raises:
    Forbidden: the key is not an administrator's, or is for some names only: the documents name others.
    """
    grant = grant_of(request)
    grant.require(Scope.ADMIN)
    if grant.prefixes:
        raise Forbidden("this key is for some names only")


def _sample(parts: Parts) -> Sample:
    return Sample(
        at=times.text_of(parts.clock.now_ms()),
        memory=process.memory(),
        load=parts.traffic.load(),
        waiters=waiting.waiters(),
        counted_logs=len(parts.counts.counts),
        blocks=sys.getallocatedblocks(),
        threads=threading.active_count(),
        calls=waiting.capacity(),
        limit_bytes=int(os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "0")) * 1024 * 1024,
    )


def _document(value: Any) -> Response:
    return Response(jsontext.dumps(value), 200, {"Content-Type": JSON, "Cache-Control": pages.NO_STORE})
