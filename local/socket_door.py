"""The emulated WebSocket API: holds the sockets of clients at `/v0/ws`, and produces API Gateway's events for the function
behind it: `$connect`, `$default` for each message, `$disconnect`.

It is an ASGI layer in an API process, and calls the function there, in threads. The messages of one socket are handled
one after the other; API Gateway may handle them at the same time. What the function answers to a message goes back to the
client. All else comes through `/@connections/{id}` of the emulated AWS (`local.connections`), where each open socket is
attached.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import json
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from uuid import uuid4

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from local.access_calls import API, STAGE
from local.connections import MAX_MESSAGE_BYTES, PATH

log = logging.getLogger("headrace.sockets")

SOCKET_PATH = "/v0/ws"
IDLE_S = 600.0
LIFE_S = 7200.0
TIMEOUT_S = 29.0  # of an integration of API Gateway
_THREADS = 32
_GOING_AWAY = 1001
_NORMAL = 1000

Json = dict[str, Any]
Handler = Callable[[Json, Any], Any]


class Invocation:
    """What a function is told about its invocation."""

    def __init__(self) -> None:
        self.aws_request_id = str(uuid4())
        self._ends = time.monotonic() + TIMEOUT_S

    def get_remaining_time_in_millis(self) -> int:
        """Returns how many milliseconds are left of the function's time."""
        return max(0, round((self._ends - time.monotonic()) * 1000))


class SocketDoor:
    """The ASGI layer.

    Args:
        app: the application that serves everything else.
        handler: the function, as `module.name`; imported when the first socket is opened.
        endpoint: the URL of the emulated AWS.
        idle_s, life_s: how long a socket stays open without any message, and at all.
    """

    def __init__(
        self, app: Any, handler: str, endpoint: str, *, idle_s: float = IDLE_S, life_s: float = LIFE_S
    ) -> None:
        self._app = app
        self._name = handler
        self._attach_url = endpoint.replace("http://", "ws://", 1) + PATH
        self._idle_s = idle_s
        self._life_s = life_s
        self._threads = ThreadPoolExecutor(_THREADS, "socket")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves one connection, or passes a request on."""
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
        elif scope["path"] == SOCKET_PATH:
            await self._serve(scope, receive, send)
        else:
            await receive()
            await _refuse(send, 404)

    @cached_property
    def _handler(self) -> Handler:
        module, _, name = self._name.rpartition(".")
        found: Handler = getattr(importlib.import_module(module), name)
        return found

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        socket = _Socket(scope, send)
        async with connect(self._attach_url + socket.id, proxy=None, max_size=MAX_MESSAGE_BYTES) as attached:
            answer = await self._invoke(socket.event("$connect"))
            status = answer.get("statusCode", 500) if isinstance(answer, dict) else 500
            if not 200 <= status < 300:
                await _refuse(send, status)
                return
            await send({"type": "websocket.accept"})
            code = _GOING_AWAY
            tasks: list[asyncio.Future[Any]] = [
                asyncio.ensure_future(self._receive(socket, receive)),
                asyncio.ensure_future(_push(socket, attached)),
                asyncio.ensure_future(self._expire(socket)),
            ]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if tasks[0] in done:
                    code = tasks[0].result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                if tasks[0] not in done:
                    await socket.close(_GOING_AWAY)
                await self._invoke(socket.event("$disconnect", code=code))

    async def _receive(self, socket: _Socket, receive: Any) -> int:
        """Handles the client's messages one after the other. Returns the code with which it closed the socket."""
        while (message := await receive())["type"] == "websocket.receive":
            socket.touch()
            event = socket.event("$default", text=message.get("text"), data=message.get("bytes"))
            answer = await self._invoke(event)
            if answer is None:
                failed = {"message": "Internal server error", "connectionId": socket.id}
                await socket.send(json.dumps({**failed, "requestId": event["requestContext"]["requestId"]}))
            elif isinstance(answer, dict) and answer.get("body"):
                await socket.send(answer["body"])
        return int(message.get("code") or _NORMAL)

    async def _expire(self, socket: _Socket) -> None:
        """Returns when the socket has been open, or silent, for too long."""
        while (left_s := min(socket.opened + self._life_s, socket.used + self._idle_s) - time.monotonic()) > 0:
            await asyncio.sleep(left_s)

    async def _invoke(self, event: Json) -> Any:
        """Calls the function, and returns its answer; None if it failed."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, lambda: self._handler(event, Invocation()))
        except Exception:
            log.exception("function failed: route=%s", event["requestContext"]["routeKey"])
            return None


class _Socket:
    """An open socket of a client."""

    def __init__(self, scope: Any, send: Any) -> None:
        self.id = base64.urlsafe_b64encode(uuid4().bytes[:11]).decode()
        self.opened = self.used = time.monotonic()
        self._connected_ms = time.time_ns() // 1_000_000
        self._send = send
        self._one_at_a_time = asyncio.Lock()
        self._client = (scope.get("client") or ("127.0.0.1", 0))[0]
        self._headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            self._headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))

    def touch(self) -> None:
        """Takes note that the socket is in use."""
        self.used = time.monotonic()

    async def send(self, text: str) -> None:
        """Sends a message to the client; none if it has left."""
        self.touch()
        async with self._one_at_a_time:
            with suppress(OSError):
                await self._send({"type": "websocket.send", "text": text})

    async def close(self, code: int) -> None:
        """Closes the socket."""
        with suppress(OSError, RuntimeError):  # the client has left
            await self._send({"type": "websocket.close", "code": code})

    def event(self, route: str, *, text: str | None = None, data: bytes | None = None, code: int = 0) -> Json:
        """Returns the event of a route, as the function gets it from API Gateway.

        Args:
            text, data: a message, as text or binary.
            code: the code with which the socket was closed.
        """
        now = datetime.now(UTC)
        context: Json = {
            "routeKey": route,
            "eventType": {"$connect": "CONNECT", "$disconnect": "DISCONNECT"}.get(route, "MESSAGE"),
            "extendedRequestId": str(uuid4()),
            "requestId": str(uuid4()),
            "requestTime": now.strftime("%d/%b/%Y:%H:%M:%S +0000"),
            "requestTimeEpoch": int(now.timestamp() * 1000),
            "messageDirection": "IN",
            "stage": STAGE,
            "connectedAt": self._connected_ms,
            "identity": {"sourceIp": self._client},
            "domainName": f"{API}.execute-api.us-east-1.amazonaws.com",
            "connectionId": self.id,
            "apiId": API,
        }
        event: Json = {"requestContext": context, "isBase64Encoded": data is not None}
        if route == "$default":
            context["messageId"] = str(uuid4())
            event["body"] = text if data is None else base64.b64encode(data).decode()
        else:
            event["headers"] = {name: values[-1] for name, values in self._headers.items()}
            event["multiValueHeaders"] = self._headers
        if route == "$disconnect":
            context |= {"disconnectStatusCode": code, "disconnectReason": ""}
        return event


async def _push(socket: _Socket, attached: ClientConnection) -> None:
    """Passes on to the client what is posted to its connection, until that is closed."""
    with suppress(ConnectionClosed):
        while True:
            await socket.send(str(await attached.recv()))


async def _refuse(send: Any, status: int) -> None:
    """Refuses the handshake with a status of HTTP and no body."""
    headers = [(b"content-length", b"0")]
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": b""})
