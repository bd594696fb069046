"""The ASGI application. `uvicorn --factory functions.api.app:create_app` serves it on any port."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.routing import Route

from functions.api import monitoring
from functions.api.console import routes as console
from functions.api.context import Context, open_context
from functions.api.door.entry import Door
from functions.api.door.requests import run
from functions.api.door.routes import Resources, answer_unrouted
from functions.api.features import routes as features
from functions.api.features.calls import FEATURES
from functions.api.streams import definitions, jwks, live, observe, records, search, several, subscriptions, touch
from functions.api.streams.inspection import routes as inspection
from functions.api.streams.inspection import server
from functions.api.streams.otlp import routes as otlp
from functions.api.streams.subscriptions import SUBSCRIPTIONS
from functions.api.topics import routes as topics
from functions.api.topics.calls import TOPICS

_OPENAPI = tuple(
    Path(__file__).parent / path
    for path in (
        *("streams/openapi.json", "streams/subscriptions.json", "streams/opentelemetry.json"),
        *("topics/openapi.json", "features/openapi.json"),
    )
)
_STREAMS = replace(
    records.STREAMS,
    allowed=(*records.STREAMS.allowed, *otlp.HEADERS),
    exposed=(*records.STREAMS.exposed, *search.SEARCH_HEADERS),
    asking=search.ASKING,
    asking_at=frozenset({observe.PATH, several.PATH}),
    waiting=touch.WAITING,
    compresses=otlp.ENDS,
    compresses_at=otlp.PATHS,
    shape=otlp.shape,
    open_paths=console.OPEN_PATHS | {"/health"},
    open_under=console.OPEN_UNDER,
)


def create_app(context: Context | None = None) -> FastAPI:
    """Returns a new ASGI application with all routes, on `context` or on one made from the environment variables.

    Raises:
        SettingsError, AccessError: a setting is invalid, or the server would be open without keys.
    """
    if context is None:
        context = open_context()
    app = FastAPI(
        title="Headrace",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a slash at the end is part of a name
        lifespan=lambda _: _until_the_end(context),
    )
    console.add_routes(app)
    for part in (
        monitoring,
        topics,
        features,
        inspection,
        server,
        jwks,
        subscriptions,
        definitions,
        touch,
        search,
        several,
        observe,
        otlp,
    ):
        part.add_routes(app, context)
    for part in (live, records):
        part.add_routes(app, context)  # last: a name may hold slashes, so it would take every path below it
    app.router.routes = [Resources(cast(list[Route], app.router.routes))]
    app.add_exception_handler(HTTPException, answer_unrouted)
    app.openapi = describe  # type: ignore[method-assign]
    app.add_middleware(
        Door,
        surfaces=(TOPICS, FEATURES, SUBSCRIPTIONS, _STREAMS),
        access=context.access,
        meter=context.meter,
        traffic=context.traffic,
        ended=context.request_ended,
    )
    return app


@functools.cache
def describe() -> dict[str, Any]:
    """Returns the OpenAPI document. It is files, not generated: routes take raw requests."""
    document: dict[str, Any]
    document, *others = (json.loads(path.read_bytes()) for path in _OPENAPI)
    for other in others:
        document["paths"].update(other["paths"])
        for kind, components in other["components"].items():
            document["components"].setdefault(kind, {}).update(components)
    return document


@asynccontextmanager
async def _until_the_end(context: Context) -> AsyncIterator[None]:
    yield
    await run(context.finish)
