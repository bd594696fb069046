"""The ASGI application. `uvicorn --factory functions.api.app:create_app` serves it on any port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from functions.api.door import errors
from functions.api.door.bodies import BufferedAnswers
from functions.api.door.layers import Admission, CountTraffic, Door
from functions.api.door.waiting import run
from functions.api.parts import Parts
from functions.api.streams import openapi
from functions.api.streams.routes import (
    aggregate,
    definitions,
    health,
    inspection,
    listing,
    routing_keys,
    search,
    server,
    streams,
    touch,
)
from functions.api.streams.routes.resources import MethodNotAllowed


def create_app(parts: Parts | None = None) -> FastAPI:
    """The application on `parts`, or on what the environment names.

    Raises:
        SettingsError, AccessError: the environment makes no sense, or the server would be open to everybody.
    """
    if parts is None:
        from functions.api import components  # AWS clients: not for those who bring their own parts

        parts = components.build()
    app = FastAPI(
        title="Headrace",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a slash at the end is part of a name
        lifespan=lambda _: _until_the_end(parts),
    )
    health.add_routes(app)
    listing.add_routes(app, parts)
    server.add_routes(app, parts)
    definitions.add_routes(app, parts)
    inspection.add_routes(app, parts)
    touch.add_routes(app, parts)
    search.add_routes(app, parts)
    aggregate.add_routes(app, parts)
    routing_keys.add_routes(app, parts)
    streams.add_routes(app, parts)  # last: a name may hold slashes, so it would take every path below it
    app.add_exception_handler(HTTPException, _routing_error)
    app.openapi = openapi.document  # type: ignore[method-assign]
    app.add_middleware(BufferedAnswers)
    app.add_middleware(Admission, traffic=parts.traffic)
    app.add_middleware(Door, access=parts.access, meter=parts.meter)
    app.add_middleware(CountTraffic, traffic=parts.traffic, began=parts.request_began, ended=parts.request_ended)
    return app


@asynccontextmanager
async def _until_the_end(parts: Parts) -> AsyncIterator[None]:
    yield
    await run(parts.finish)


async def _routing_error(request: Request, error: Exception) -> Response:
    """404 and 405 of the router, in our envelope; 405 with every method of the path."""
    answer = errors.response_to(error, request.method)
    if answer.status_code == 405 and not isinstance(error, MethodNotAllowed):
        allowed = {
            method
            for route in request.app.routes
            if route.matches(request.scope)[0] is not Match.NONE
            for method in route.methods
        }
        answer.headers["Allow"] = ", ".join(sorted(allowed | {"OPTIONS"}))
    return answer
