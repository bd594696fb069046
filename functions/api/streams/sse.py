"""Server-sent events: every `data` event is followed by a `control` event that says where the reader stands.

Records of JSON streams come as one array for each page, of text streams as text, of others as base64. Line breaks
inside a payload begin a new `data:` line, so no payload can end an event or begin another.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import re
from collections.abc import AsyncIterator
from contextlib import suppress

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from functions.api.context import Context
from functions.api.door.bodies import ENDS_AT, fits, grown, is_buffered
from functions.api.door.waiting import Waiter, after, listening, run
from functions.api.streams import cursors, pages
from functions.api.streams.queries import ReadQuery
from headrace.errors import HeadraceError, StoreError
from headrace.log.requests import JSON, ReadPage
from headrace.streams.verbs import Streams

_log = logging.getLogger(__name__)

CONTENT_TYPE = "text/event-stream"
_LINE_BREAK = re.compile(rb"\r\n|\n|\r")
_KEEP_ALIVE = b": keep-alive\n\n"
_KEEP_ALIVE_S = 15.0
_BUFFERED_BYTES = 2 * 1024 * 1024  # after so much, as it goes through a buffered door, the client comes again


class EventStream(Response):
    """The response that follows a stream from a page on.

    Args:
        page: the first page, read already, so that its errors had their status.
    """

    media_type = None

    def __init__(self, context: Context, logs: Streams, name: str, query: ReadQuery, page: ReadPage) -> None:
        headers = {"Content-Type": CONTENT_TYPE, "Cache-Control": "no-cache, no-store"}
        if _needs_base64(page.head.config.content_type):
            headers["Stream-SSE-Data-Encoding"] = "base64"
        super().__init__(None, 200, headers)
        del self.headers["content-length"]
        self._context = context
        self._logs = logs
        self._name = name
        self._query = query
        self._page = page
        self._buffered = False
        self._open_s = float(context.settings.sse_seconds)
        self._cursor = query.cursor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # API Gateway shows nothing before the end: there the answer is what is there, and the client comes again.
        self._buffered = is_buffered(scope)
        if ENDS_AT in scope:  # the door closes then, in the middle of an event if need be
            self._open_s = min(self._open_s, (scope[ENDS_AT] - self._context.clock.now_ms()) / 1000)
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if self._buffered:
            await self._send_events(send)
            return
        events = asyncio.ensure_future(self._send_events(send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((events, gone), return_when=asyncio.FIRST_COMPLETED)
            if events.done():
                events.result()
        finally:
            for task in (events, gone):
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task

    async def _send_events(self, send: Send) -> None:
        async for chunk in self._events():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self) -> AsyncIterator[bytes]:
        clock = self._context.clock
        deadline = clock.monotonic() + self._open_s
        with listening(self._logs, self._name) as waiter:
            page = self._page
            event = self._event(page)
            yield event
            sent = 0
            while not page.at_eof:
                if self._buffered:
                    sent += grown(event, CONTENT_TYPE)
                    if page.up_to_date or sent >= _BUFFERED_BYTES:
                        return
                if page.up_to_date:
                    quiet_until = min(deadline, clock.monotonic() + _KEEP_ALIVE_S)
                    following = await self._next(waiter, page, quiet_until)
                else:
                    following = await self._read(page)
                is_over = clock.monotonic() >= deadline
                if following is None:
                    return
                page = following
                has_news = bool(page.data) or page.at_eof
                if is_over and not has_news:
                    return
                event = self._event(page) if has_news else _KEEP_ALIVE
                if self._buffered and not fits(event, CONTENT_TYPE, sent):
                    return  # the next answer begins with it
                if has_news:
                    waiter.reset()
                yield event
                if is_over:
                    return

    async def _next(self, waiter: Waiter, page: ReadPage, until: float) -> ReadPage | None:
        """The page after `page`: with data, or an empty one at the end or when time is up; None if it can't be read."""
        while True:
            await waiter.pause(until - self._context.clock.monotonic())
            following = await self._read(page)
            if following is None or following.data or following.at_eof:
                return following
            if self._context.clock.monotonic() >= until:
                return following

    async def _read(self, page: ReadPage) -> ReadPage | None:
        try:
            return await run(self._logs.read, self._name, after(page), self._query.selection, touch=False)
        except (HeadraceError, StoreError) as exc:
            # Deleted, expired, or a store is away: the response ends, and the reader's next request tells it.
            _log.info("event stream ended: error=%s", type(exc).__name__)
            return None

    def _event(self, page: ReadPage) -> bytes:
        frames = []
        if page.data:
            frames.append(data_event(page, self._query))
        frames.append(_frame(b"control", orjson.dumps(self._control(page))))
        return b"".join(frames)

    def _control(self, page: ReadPage) -> dict[str, str | bool]:
        control: dict[str, str | bool] = {"streamNextOffset": page.text(page.next)}
        if page.at_eof:
            return {**control, "upToDate": True, "streamClosed": True}
        context = self._context
        self._cursor = cursors.next_cursor(self._cursor, context.clock.now_ms(), context.random_below)
        control["streamCursor"] = str(self._cursor)
        if page.up_to_date:
            control["upToDate"] = True
        return control


def data_event(page: ReadPage, query: ReadQuery) -> bytes:
    """The event that shows the records of a page."""
    payload = pages.body_of(page, query)
    return _frame(b"data", base64.b64encode(payload) if _needs_base64(page.head.config.content_type) else payload)


def _needs_base64(content_type: str) -> bool:
    return content_type != JSON and not content_type.startswith("text/")


def _frame(event: bytes, payload: bytes) -> bytes:
    """One event. A reader drops one space after the colon, so a line that begins with one gets another."""
    lines = [b"data:" + (b" " if line.startswith(b" ") else b"") + line for line in _LINE_BREAK.split(payload)]
    return b"event: " + event + b"\n" + b"\n".join(lines) + b"\n\n"


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
