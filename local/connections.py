"""The emulated `@connections` of a WebSocket API: `POST /@connections/{id}` sends a message to a client, and `DELETE`
closes its connection, as the API Gateway Management API does.

A connection is held by an API process (`local.socket_door`), which attaches it here for as long as it is open: by a
WebSocket of its own to the same path. What is posted passes through that.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from local.access_calls import Call, connection_call

PATH = "/@connections/"
MAX_MESSAGE_BYTES = 128 * 1024  # https://docs.aws.amazon.com/apigateway/latest/developerguide/limits.html
Answer = tuple[int, list[tuple[bytes, bytes]], bytes]
_GOING_AWAY = 1001


class Connections:
    """The connections that are open now."""

    def __init__(self) -> None:
        self._open: dict[str, Callable[[dict[str, Any]], Awaitable[None]]] = {}

    async def attach(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves the WebSocket of an API process (ASGI `websocket`) until it ends. Its path names the connection."""
        await receive()
        found = connection_id(scope["path"])
        if found is None or found in self._open:
            await send({"type": "websocket.close"})
            return
        await send({"type": "websocket.accept"})
        self._open[found] = send
        try:
            while (await receive())["type"] != "websocket.disconnect":
                pass
        finally:
            del self._open[found]

    async def answer(self, method: str, path: str, body: bytes) -> Answer:
        """Sends a posted message on, or closes the connection. Returns the answer to the request."""
        send = self._open.get(connection_id(path) or "")
        if send is None:
            return _answer(410, "GoneException")
        if method == "POST" and len(body) > MAX_MESSAGE_BYTES:
            return _answer(413, "PayloadTooLargeException")
        try:
            if method == "POST":
                await send({"type": "websocket.send", "text": body.decode()})
            elif method == "DELETE":
                await send({"type": "websocket.close", "code": _GOING_AWAY})
            else:
                return _answer(405, "MethodNotAllowedException")
        except OSError:  # the process that held it has just ended
            return _answer(410, "GoneException")
        return _answer(200 if method == "POST" else 204)


def connection_id(path: str) -> str | None:
    """Returns the connection that a path names; None for any other path."""
    found = unquote(path).removeprefix(PATH)
    return found if path.startswith(PATH) and found and "/" not in found else None


def calls(method: str, path: str) -> list[Call]:
    """Returns what IAM must allow for a request to this path."""
    return [connection_call(method, connection_id(path) or "")]


def _answer(status: int, error: str = "") -> Answer:
    body = b"" if not error else json.dumps({"message": None}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if error:
        headers.append((b"x-amzn-errortype", error.encode()))
    return status, headers, body
