"""What the streams of server-sent events have in common: headers, how an event is written, and how a stream ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as Asgi

from functions.api.door.requests import ENDS_AT, is_buffered
from functions.api.door.waiting import disconnected
from functions.api.topics.calls import TOPICS, Call

EVENTS = "text/event-stream"
RETRY = b"retry: 2000\n\n"
LAST_SEND_S = 2.0  # for an answer that comes at the end of a stream's time

_log = logging.getLogger(__name__)


def check_accept(call: Call) -> None:
    """Raises HTTPException (406) if the client does not take server-sent events."""
    accepted = (call.headers.get("accept") or "*/*").lower()
    if not any(kind in accepted for kind in (EVENTS, "text/*", "*/*")):
        raise HTTPException(406, f"accept must be {EVENTS}")


def event(kind: bytes, document: bytes, event_id: str = "") -> bytes:
    """Returns an event with a JSON text as its data; without an id if that is empty."""
    lines = b"\ndata: ".join(document.splitlines())  # white space inside data may be line breaks
    named = b"id: %s\n" % event_id.encode() if event_id else b""
    return b"%sevent: %s\ndata: %s\n\n" % (named, kind, lines)


def error_event(code: int, message: str, **members: Any) -> bytes:
    """Returns the event of an error; without the members that are None."""
    given = {name: value for name, value in members.items() if value is not None}
    return event(b"error", orjson.dumps({"code": code, "error": message, **given}))


def event_of(error: Exception, **members: Any) -> bytes:
    """Returns the event of an error that would otherwise be an answer."""
    answer = TOPICS.response_to(error, "GET")
    retry_after = answer.headers.get("retry-after")
    members["retry_after_ms"] = int(retry_after) * 1000 if retry_after else None
    return error_event(answer.status_code, orjson.loads(answer.body)["error"]["message"], **members)


class EventStream(Response):
    """A response that sends events until its time is over or its client has gone.

    Attributes:
        ends_ms: when it ends at the latest, in epoch milliseconds; by then its slot expires, too.
        slow_s: how long the client may take for a part of it; at most as long as the stream may be open.
    """

    media_type = None
    slow_s = float("inf")

    def __init__(self, call: Call) -> None:
        headers = {
            "Content-Type": f"{EVENTS}; charset=utf-8",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
        }
        super().__init__(None, 200, headers)
        del self.headers["content-length"]
        self._call = call
        self._clock = call.context.clock
        scope = call.request.scope
        self._buffered = is_buffered(scope)
        open_s = float(call.context.settings.sse_seconds)
        if ENDS_AT in scope:  # the door closes then, in the middle of an event if need be
            open_s = min(open_s, (scope[ENDS_AT] - self._clock.now_ms()) / 1000)
        self._deadline = self._clock.monotonic() + open_s
        self.ends_ms = self._clock.now_ms() + round(open_s * 1000)

    async def _begin(self) -> None:
        """Prepares the stream; what it raises is answered with its status."""

    def _events(self, gone: asyncio.Future[None]) -> AsyncGenerator[bytes, None]:
        """Yields the parts of the stream. An event has been sent when it is resumed. `gone` is done when the client has
        left.
        """
        raise NotImplementedError

    async def _end(self, *, is_gone: bool) -> None:
        """Ends the stream. Never raises.

        Args:
            is_gone: whether the client has left before the end.
        """

    async def __call__(self, scope: Asgi, receive: Receive, send: Send) -> None:
        await self._begin()
        gone = asyncio.ensure_future(disconnected(receive))
        is_over = False
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with aclosing(self._events(gone)) as events:
                with self._call.context.commits.stream():
                    async for part in events:
                        await self._send(send, part)
            is_over = not gone.done()  # a server says that the client has left after the end, too
            await self._send(send, b"", more=False)
        except TimeoutError:
            _log.info("stream broke off: its client reads too slowly: path=%s", scope["path"])
            await self._give_up(send)
        finally:
            await asyncio.shield(self._end(is_gone=gone.done() and not is_over and not self._buffered))
            gone.cancel()

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        """Sends a part of the answer. Raises TimeoutError if the client does not take it in time."""
        left_s = self._deadline - self._clock.monotonic()
        async with asyncio.timeout(min(self.slow_s, max(LAST_SEND_S, left_s))):
            await send({"type": "http.response.body", "body": body, "more_body": more})

    async def _give_up(self, send: Send) -> None:
        """Tells a client that reads too slowly, if it takes that."""
        body = error_event(408, "the client reads too slowly", retry_after_ms=2000)
        try:
            async with asyncio.timeout(LAST_SEND_S):
                await send({"type": "http.response.body", "body": body, "more_body": False})
        except TimeoutError:
            return

    def _heartbeat(self) -> bytes:
        return b": hb %d\n\n" % self._clock.now_ms()
