"""Routes: the paths and methods that a surface serves, the answers to all others, and the path as the client sent it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from urllib.parse import quote, unquote

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from functions.api.door.entry import SURFACE, Surface

_FUNCTION_URL = ".lambda-url."
_METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"})

Handler = Callable[[Request], Awaitable[Response]]


class MethodNotAllowed(HTTPException):
    """The resource exists, but not this method; the answer lists those that do."""


class TruePath:
    """An ASGI layer that restores the path as the client sent it, `raw_path` and `path`, for requests of an HTTP API
    (payload 2.0) or a Function URL. Mangum provides a path that was decoded once too often.

    A Function URL passes the path still encoded. An HTTP API passes it decoded once already (and cut at a decoded `?`),
    so it is encoded again here: decoding it as it comes would turn the name `100%25` into `100%`, then into an error.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        event = scope["aws.event"]
        path = str(event["rawPath"])
        if _FUNCTION_URL not in event["requestContext"].get("domainName", ""):
            path = quote(path)
        await self._app({**scope, "raw_path": path.encode(), "path": unquote(path)}, receive, send)


class Resources(BaseRoute):
    """All routes as one. It compares a path only with routes that begin and end with the path's own first and last
    segment, or with a parameter there: a dozen in place of two hundred, whose patterns cost more CPU than an append.

    Attributes:
        routes: in the order in which they are tried.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = list(routes)
        ends = [(route, *_ends(route.path)) for route in self.routes]
        self._firsts, self._lasts = {first for _, first, _ in ends}, {last for _, _, last in ends}
        self._tried = {
            (first, last): [route for route, *own in ends if own[0] in (first, None) and own[1] in (last, None)]
            for first in {*self._firsts, None}
            for last in {*self._lasts, None}
        }

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Returns how well the best route matches, and what the scope becomes."""
        first, last = _ends(scope["path"])
        partial: tuple[Match, Scope] = Match.NONE, {}
        for route in self._tried[first if first in self._firsts else None, last if last in self._lasts else None]:
            match, found = route.matches(scope)
            if match is Match.FULL:
                return match, {**found, _ROUTE: route}
            if match is Match.PARTIAL and partial[0] is Match.NONE:
                partial = match, {**found, _ROUTE: route}
        return partial

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Has the route answer that `matches` found."""
        await scope[_ROUTE].handle(scope, receive, send)


_ROUTE = "headrace.route"


def _ends(path: str) -> tuple[str | None, str | None]:
    """Returns the first and the last segment of a path; of a route's, None where a parameter is."""
    below = path.removeprefix("/")
    first, last = below.partition("/")[0], below.rpartition("/")[2]
    return None if "{" in first else first, None if "{" in last else last


def serve(app: FastAPI, path: str, *methods: str, is_described: bool = True) -> Callable[[Handler], Handler]:
    """Returns a decorator that adds a route: the handler reads the request itself and builds the whole response.

    The route is one of Starlette, because FastAPI's own would resolve parameters and models that no handler has, which
    costs more CPU than an append.

    Args:
        is_described: whether the OpenAPI document describes it.
    """

    def add(handler: Handler) -> Handler:
        route = Route(path, handler, methods=list(methods), include_in_schema=is_described)
        route.methods = set(methods)  # without the HEAD that Starlette adds to each GET
        app.router.routes.append(route)
        return handler

    return add


def add(app: FastAPI, path: str, is_described: bool = True, /, **handlers: Handler) -> None:
    """Adds a resource: each method has its handler, and all other methods are answered with 405. The OpenAPI document
    describes it, unless `is_described` is false.

    Must be called before more general routes are added that match this path, too, since a name may contain slashes.
    """
    allowed = ", ".join(sorted({*handlers, "OPTIONS"}))

    async def refuse(_: Request) -> Response:
        raise MethodNotAllowed(405, "method not allowed", {"Allow": allowed})

    for method, handler in handlers.items():
        serve(app, path, method, is_described=is_described)(handler)
    serve(app, path, *(_METHODS - handlers.keys()), is_described=False)(refuse)


async def answer_unrouted(request: Request, error: Exception) -> Response:
    """Returns the router's 404 or 405 as the error response of the request's surface; a 405 lists every method of the
    path.
    """
    surface: Surface = request.scope[SURFACE]
    answer = surface.response_to(error, request.method, request.scope)
    if answer.status_code == 405 and not isinstance(error, MethodNotAllowed):
        (resources,) = request.app.routes
        allowed = {
            method
            for route in resources.routes
            if route.matches(request.scope)[0] is not Match.NONE
            for method in route.methods
        }
        answer.headers["Allow"] = ", ".join(sorted(allowed | {"OPTIONS"}))
    return answer
