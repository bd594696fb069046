"""`/health`: this process answers, and which release it is. Says nothing about the stores."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from functions.api.streams.routes.resources import serve
from headrace import VERSION


def add_routes(app: FastAPI) -> None:
    """Adds the liveness route."""

    @serve(app, "/health", "GET", "HEAD")
    async def health(_: Request) -> Response:
        headers = {"Content-Type": "application/json", "Cache-Control": "no-store", "Headrace-Version": VERSION}
        return Response(b'{"status":"ok"}', headers=headers)
