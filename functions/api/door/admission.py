"""Backpressure at the door: a process that has too many writes under way takes no more until some are done."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from functions.api.door.headers import Headers
from functions.api.streams.inspection.traffic import Traffic, is_write
from headrace.errors import Overloaded


class Admission:
    """Wraps the application. Pure ASGI. Knows of a body what is announced, or else what has arrived."""

    def __init__(self, app: ASGIApp, traffic: Traffic) -> None:
        self._app = app
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_write(scope):
            await self._app(scope, receive, send)
            return
        self._check()
        if Headers(scope).content_length is not None:
            await self._app(scope, receive, send)
            return
        arrived = 0

        async def receive_counted() -> Message:
            nonlocal arrived
            message = await receive()
            size = len(message.get("body", b""))
            arrived += size
            self._traffic.arrived(size)
            self._check()
            return message

        try:
            await self._app(scope, receive_counted, send)
        finally:
            self._traffic.arrived(-arrived)

    def _check(self) -> None:
        """Raises:
        Overloaded: this request, which is counted already, is one too many.
        """
        if self._traffic.load().full:
            raise Overloaded("too many writes are under way")
