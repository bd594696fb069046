"""One Lambda instance of the api: its logger, its context, its application. Made by the import, whichever door calls.

The application gets the path as the client sent it, out of the event. Mangum keeps a decoded one, decoded once too often.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from functions.api import components
from functions.api.app import create_app
from functions.observability import make_logger

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


logger = make_logger("api")
_parts = components.build()
app = TruePath(create_app(_parts))


def begin(request_id: str | None) -> None:
    """What is logged from now on belongs to this request."""
    logger.append_keys(request_id=request_id)


def end() -> None:
    """Writes what was counted since the last answer: of a request that came to none."""
    _parts.meter.flush()
