"""The path as the client sent it, out of a Lambda event. Mangum keeps a decoded one, decoded once too often."""

from __future__ import annotations

from urllib.parse import quote, unquote

from starlette.types import ASGIApp, Receive, Scope, Send

_FUNCTION_URL = ".lambda-url."


class TruePath:
    """Puts `raw_path` and `path` into the scope of an API Gateway (payload 2.0) or Function URL request.

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
