"""Where a stream's sub-resources are, such as `…/_schema`: each answers its methods, and 405 to every other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

PATH = "/v1/stream/{name:path}"
_METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"})

Handler = Callable[[Request], Awaitable[Response]]


class MethodNotAllowed(HTTPException):
    """The resource is there and does not answer this method; says which ones it does."""


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
        app.add_api_route(PATH + resource, handler, methods=[method])
    app.add_api_route(PATH + resource, refuse, methods=sorted(_METHODS - handlers.keys()), include_in_schema=False)
