"""Where a stream's sub-resources are, such as `…/_schema`: each answers its methods, and 405 to every other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

PATH = "/v1/stream/{name:path}"
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


def add(app: FastAPI, resource: str, **handlers: Handler) -> None:
    """Serves `resource` of every stream. To be called before the routes of streams: a name may hold slashes.

    Args:
        resource: the path after the name.
        handlers: by method.
    """
    allowed = ", ".join(sorted({*handlers, "OPTIONS"}))

    async def refuse(_: Request) -> Response:
        raise MethodNotAllowed(405, "method not allowed", {"Allow": allowed})

    for method, handler in handlers.items():
        serve(app, PATH + resource, method)(handler)
    serve(app, PATH + resource, *(_METHODS - handlers.keys()), is_described=False)(refuse)
