"""The paths and methods of topics and queues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from functions.api.context import Context
from functions.api.door import routes
from functions.api.door.entry import Surface, key_id_of
from functions.api.topics import aggregates, appends, health, jobs, routers, search, topics, watch, work
from functions.api.topics.calls import PREFIX, TOPICS, Call

_NAME = PREFIX + "{name}"

_STREAMS = (work.work, watch.stream)  # they have slots

Route = Callable[[Call], Awaitable[Response]]


async def upgrade(call: Call) -> Response:
    """Refuses a request for a WebSocket that came as plain HTTP (§ 7.9), and says where there is one."""
    url = call.context.settings.sockets_url
    where = f"connect to {url}" if url else "send the handshake of a WebSocket"
    raise HTTPException(426, f"this is a WebSocket: {where}", {"Upgrade": "websocket"})


def refusing(surface: Surface) -> Route:
    """Returns a route that refuses a path below a surface's prefix that no other route has: with 400 if it would be a
    name, else with 404.
    """

    async def refuse(call: Call) -> Response:
        raw = surface.after_prefix(call.request.scope)
        if b"/" not in raw:
            surface.decode_name(raw)  # it is no name, or another route had matched
        raise HTTPException(404)

    return refuse


def add_routes(app: FastAPI, context: Context) -> None:
    """Adds all routes of the surface. Any method but those named is answered with 405."""
    own: dict[str, dict[str, Route]] = {
        "/v0/topics": {"GET": topics.list_topics},
        _NAME: {"PUT": topics.put, "GET": topics.show, "DELETE": topics.remove, "POST": appends.append},
        _NAME + "/diff": {"POST": appends.diff},
        _NAME + "/delete": {"POST": appends.delete},
        _NAME + "/claim": {"POST": jobs.claim},
        _NAME + "/ack": {"POST": jobs.ack},
        _NAME + "/nack": {"POST": jobs.nack},
        _NAME + "/extend": {"POST": jobs.extend},
        _NAME + "/leases": {"GET": jobs.list_leases},
        _NAME + "/work": {"GET": work.work},
        "/v0/watch": {"POST": watch.create},
        watch.PATH + "{wid}": {"GET": watch.stream},
        _NAME + "/search": {"POST": search.search, "GET": search.show, "PUT": search.configure},
        _NAME + "/aggregate": {"POST": aggregates.aggregate},
        _NAME + "/timings": {"POST": aggregates.timings},
        "/v0/routers": {"GET": routers.list_routers},
        routers.PREFIX + "{router}": {"PUT": routers.put, "GET": routers.show, "DELETE": routers.remove},
        "/v0/ws": {"GET": upgrade},
        "/v0/health": {"GET": health.health},
        "/healthz": {"GET": health.health},
        "/v0/ready": {"GET": health.ready},
        "/readyz": {"GET": health.ready},
        "/v0/metrics": {"GET": health.metrics},
    }

    def called(route: Route) -> routes.Handler:
        async def handle(request: Request) -> Response:
            with context.in_flight.request("" if route in _STREAMS else key_id_of(request)):
                return await route(Call(context, request))

        return handle

    for path, handlers in own.items():
        routes.add(app, path, **{method: called(route) for method, route in handlers.items()})
    for surface in (TOPICS, routers.ROUTERS):
        rest = routes.serve(app, surface.prefix + "{rest:path}", "GET", "PUT", "POST", "DELETE", is_described=False)
        rest(called(refusing(surface)))
