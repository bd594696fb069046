"""Routes: what a surface serves, and the answers to paths and methods that it does not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from functions.api.door import errors

_METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"})

Handler = Callable[[Request], Awaitable[Response]]


class MethodNotAllowed(HTTPException):
    """The resource is there and does not answer this method; says which ones it does."""


def serve(app: FastAPI, path: str, *methods: str, is_described: bool = True) -> Callable[[Handler], Handler]:
    """Returns a decorator that serves a path with a handler, which reads the request itself and makes the whole response.

    The route is Starlette's: FastAPI's own would resolve parameters and models that no handler has, which costs more CPU
    than an append.

    Args:
        is_described: the OpenAPI document has it.
    """

    def add(handler: Handler) -> Handler:
        route = Route(path, handler, methods=list(methods), include_in_schema=is_described)
        route.methods = set(methods)  # without the HEAD that Starlette adds to each GET
        app.router.routes.append(route)
        return handler

    return add


def add(app: FastAPI, path: str, **handlers: Handler) -> None:
    """Serves a resource that answers each method with its handler, and 405 to every other.

    To be called before the routes of whose path this one is an instance: a name may hold slashes.
    """
    allowed = ", ".join(sorted({*handlers, "OPTIONS"}))

    async def refuse(_: Request) -> Response:
        raise MethodNotAllowed(405, "method not allowed", {"Allow": allowed})

    for method, handler in handlers.items():
        serve(app, path, method)(handler)
    serve(app, path, *(_METHODS - handlers.keys()), is_described=False)(refuse)


async def answer_unrouted(request: Request, error: Exception) -> Response:
    """Answers 404 and 405 of the router, in our envelope; 405 with every method of the path."""
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
