"""`…/_index_status` and `…/_details`: how a stream is."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from functions.api.door import paths
from functions.api.door.access import Scope
from functions.api.door.layers import require
from functions.api.parts import Parts
from functions.api.streams.inspection.conditional import Kind, answer
from functions.api.streams.inspection.query import inspection_query
from functions.api.streams.routes import resources


def add_routes(app: FastAPI, parts: Parts) -> None:
    """Adds the two resources. To be called before the routes of streams."""

    async def show_index_status(request: Request) -> Response:
        return await _show(request, "/_index_status", "index_status")

    async def show_details(request: Request) -> Response:
        return await _show(request, "/_details", "details")

    async def _show(request: Request, resource: str, kind: Kind) -> Response:
        name = paths.stream_name(request.scope, resource)
        require(request, Scope.READ, name)
        return await answer(parts, request, name, kind, inspection_query(request.scope))

    resources.add(app, "/_index_status", GET=show_index_status)
    resources.add(app, "/_details", GET=show_details)
