"""The routes by which a whole server is monitored: `/health`, and `/metrics` with the numbers of every surface."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from functions.api.context import Context
from functions.api.door import routes
from functions.api.door.compression import answer
from functions.api.door.entry import Scope, grant_of, key_id_of
from functions.api.door.gauges import CONTENT_TYPE
from functions.api.door.requests import Headers
from functions.api.features import registrations
from functions.api.topics import calls, health
from headrace import VERSION


def add_routes(app: FastAPI, context: Context) -> None:
    """Adds the routes."""

    @routes.serve(app, "/health", "GET", "HEAD")
    async def show_health(_: Request) -> Response:
        """Answers 200 while the process is alive, without calling a store."""
        headers = {"Content-Type": "application/json", "Cache-Control": "no-store", "Headrace-Version": VERSION}
        return Response(b'{"status":"ok"}', headers=headers)

    async def show_metrics(request: Request) -> Response:
        """Shows what topics and feature tables show of themselves, as Prometheus text."""
        grant = grant_of(request)
        grant.require(Scope.READ)
        with context.in_flight.request(key_id_of(request)):
            topics = await health.text_of(calls.Call(context, request))
            features = await registrations.text_of(context, grant)
        return await answer(Headers(request.scope), (topics + features).encode(), content_type=CONTENT_TYPE)

    routes.add(app, "/metrics", GET=show_metrics)
