"""The paths and methods of feature tables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from functions.api.context import Context
from functions.api.door import routes
from functions.api.door.entry import key_id_of
from functions.api.features import exports, pushes, reads, registrations, search
from functions.api.features.calls import PREFIX, Call

Route = Callable[[Call], Awaitable[Response]]

_ROUTES: dict[str, tuple[str, Route]] = {
    "/register": ("POST", registrations.register),
    "/registry": ("GET", registrations.show_registry),
    "/reset": ("POST", registrations.reset),
    "/ping": ("POST", registrations.ping),
    "/ready": ("GET", registrations.ready),
    "/push": ("POST", pushes.push),
    "/push-sync": ("POST", pushes.push),
    "/push/{event}": ("POST", pushes.push_data),
    "/push-sync/{event}": ("POST", pushes.push_data),
    "/push/{event}/batch": ("POST", pushes.push_batch),
    "/get": ("POST", reads.get),
    "/batch_get": ("POST", reads.batch_get),
    "/get/{name}/{key:path}": ("GET", reads.legacy_get),
    "/search": ("POST", search.search),
    "/backfill": ("POST", exports.backfill),
    "/snapshot": ("POST", exports.snapshot),
    "/training-set": ("POST", exports.training_set),
    "/jobs/{job_id}": ("GET", exports.show_job),
}


def add_routes(app: FastAPI, context: Context) -> None:
    """Adds all routes of the surface, each also below a namespace. Any other method is answered with 405."""

    def called(route: Route, path: str) -> routes.Handler:
        async def handle(request: Request) -> Response:
            with context.in_flight.request(key_id_of(request)):
                return await route(Call(context, request, path))

        return handle

    for path, (method, route) in _ROUTES.items():
        handler = called(route, path)
        routes.add(app, path, **{method: handler})
        # the document says by `servers` that there is a prefix
        routes.add(app, PREFIX + "{namespace}" + path, False, **{method: handler})
