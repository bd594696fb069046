"""`…/touch/*`: who waits for changes of a state-protocol stream."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from functions.api.door import bodies, paths
from functions.api.door.access import Scope
from functions.api.door.layers import require
from functions.api.door.waiting import run
from functions.api.parts import Parts
from functions.api.streams.queries import parse
from functions.api.streams.routes import resources
from functions.api.streams.routes.definitions import document
from functions.api.streams.touching import TouchCounters, activate_templates, show_meta, wait_for_touch
from headrace.json import jsontext
from headrace.profiles.touch import meta

MAX_BODY_BYTES = 1024 * 1024


def add_routes(app: FastAPI, parts: Parts) -> None:
    """Adds the three routes."""
    counters = TouchCounters()

    async def show(request: Request) -> Response:
        name = _name(request, "/touch/meta", Scope.READ)
        given = parse(request.scope, frozenset({"settle", "timeoutMs"}))
        meta.parse_meta(given.get("settle"), given.get("timeoutMs"))  # nothing is ever pending here
        return document(await run(show_meta, parts.logs(), name, counters, parts.clock.now_ms()))

    async def wait(request: Request) -> Response:
        name = _name(request, "/touch/wait", Scope.READ)
        body = await _body(request)
        if isinstance(body, dict) and body.get("declareTemplates"):
            require(request, Scope.WRITE, name)  # it changes what is kept of the stream
        return document(await wait_for_touch(parts, parts.logs(), request, name, body, counters))

    async def activate(request: Request) -> Response:
        name = _name(request, "/touch/templates/activate", Scope.WRITE)
        body = await _body(request)
        return document(await run(activate_templates, parts.logs(), name, body, parts.clock.now_ms()))

    resources.add(app, "/touch/meta", GET=show)
    resources.add(app, "/touch/wait", POST=wait)
    resources.add(app, "/touch/templates/activate", POST=activate)


def _name(request: Request, resource: str, scope: Scope) -> str:
    name = paths.stream_name(request.scope, resource)
    require(request, scope, name)
    return name


async def _body(request: Request) -> Any:
    return jsontext.loads(await bodies.read(request, MAX_BODY_BYTES))
