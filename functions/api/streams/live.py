"""The routes `GET /v1/stream/{name}` and `…/pk/{key}`, with server-sent events, long-polls, and waiting for the next
record.

Every `data` event is followed by a `control` event that says where the reader is. Records of JSON streams come as one
array for each page, of text streams as text, of others as base64. Line breaks inside a payload begin a new `data:`
line, so that no payload can end an event or begin another one.

A long-poll is answered with data at once if there is any, otherwise with the first data that arrives, or without data
after the timeout.

`Stream-Cursor` makes the URLs of live readers change over time, so that caches in between can't cause loops (protocol §
10.1).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import orjson
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from functions.access import Scope as Access
from functions.api.context import Context, scan_until
from functions.api.door import routes
from functions.api.door.answers import fits, grown
from functions.api.door.requests import ENDS_AT, Headers, is_buffered, run
from functions.api.door.waiting import Waiter, until_gone, woken_by
from functions.api.streams import reads
from functions.api.streams.reads import ReadQuery, read_query
from functions.api.streams.records import PATH, STREAMS, name_and_key
from functions.metrics import ApiMetric
from headrace.errors import HeadraceError, RequestTimeout, StoreError
from headrace.log.requests import At, ReadPage
from headrace.streams.verbs import Streams
from headrace.wal.state import Cursor

_log = logging.getLogger(__name__)


def add_routes(app: FastAPI, context: Context) -> None:
    """Adds the routes that read a stream: a page, a long-poll, or server-sent events."""
    meter = context.meter

    async def read_stream_by_key(request: Request) -> Response:
        name, key = name_and_key(request.scope)
        STREAMS.require(request, Access.READ, name)
        return await _read(request, name, read_query(request.scope, key))

    routes.add(app, PATH + "/pk/{key:path}", GET=read_stream_by_key)

    @routes.serve(app, PATH, "GET")
    async def read_stream(request: Request) -> Response:
        name = STREAMS.allowed_name(request, Access.READ)
        return await _read(request, name, read_query(request.scope))

    async def _read(request: Request, name: str, query: ReadQuery) -> Response:
        logs = context.logs()
        meter.add(ApiMetric.Reads)
        if query.live == "long-poll":
            return await long_poll(context, logs, request, name, query)
        read = reads.reader(request.scope, logs, query)
        began = context.clock.monotonic()
        page = await run(read, name, query.at, query.selection, until=scan_until(context))
        reads.check_format(page, query)
        meter.add(ApiMetric.ReadMs, context.ms_since(began))
        meter.add(ApiMetric.ReadRecords, len(page.data))
        meter.add(ApiMetric.ReadBytes, page.size)
        if query.live == "sse":
            return EventStream(context, logs, name, query, page)
        return reads.catch_up(page, query, Headers(request.scope))


_waiting: Counter[str] = Counter()  # requests of this process that wait, by stream


@contextmanager
def listening(logs: Streams, name: str) -> Iterator[Waiter]:
    """Yields a waiter that is woken when this process changes the stream. While the block runs, its request counts as
    waiting.
    """
    _waiting[name] += 1
    try:
        with woken_by(logs, name) as waiter:
            yield waiter
    finally:
        _waiting[name] -= 1
        if not _waiting[name]:
            del _waiting[name]


def waiters() -> dict[str, int]:
    """Returns the number of waiting requests of this process, by stream."""
    return dict(_waiting)


def after(page: ReadPage) -> At:
    """Returns the position where the page after this one begins."""
    return At(cursor=Cursor(page.head.incarnation, page.next))


_KEEP_ALIVE = b": keep-alive\n\n"
_KEEP_ALIVE_S = 15.0
_BUFFERED_BYTES = 2 * 1024 * 1024  # after so much, as it goes through a buffered door, the client comes again


class EventStream(Response):
    """A response with server-sent events that follows a stream from a page on.

    Args:
        page: the first page, which was read already so that its errors could be answered with their status.
    """

    media_type = None

    def __init__(self, context: Context, logs: Streams, name: str, query: ReadQuery, page: ReadPage) -> None:
        headers = {"Content-Type": reads.EVENTS, "Cache-Control": "no-cache, no-store"}
        if reads.needs_base64(page.head.config.content_type):
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
        await until_gone(receive, self._send_events(send))

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
                    sent += grown(event, reads.EVENTS)
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
                if self._buffered and not fits(event, reads.EVENTS, sent):
                    return  # the next answer begins with it
                if has_news:
                    waiter.reset()
                yield event
                if is_over:
                    return

    async def _next(self, waiter: Waiter, page: ReadPage, until: float) -> ReadPage | None:
        """Returns the page after `page`: with data, or an empty one at the end of the stream or of the time, or where a
        scan has stopped; None if it can't be read.
        """
        while True:
            await waiter.pause(until - self._context.clock.monotonic())
            following = await self._read(page)
            if following is None or following.data or following.at_eof or not following.up_to_date:
                return following
            if self._context.clock.monotonic() >= until:
                return following

    async def _read(self, page: ReadPage) -> ReadPage | None:
        try:
            until = scan_until(self._context)
            return await run(
                self._logs.read, self._name, after(page), self._query.selection, touch=False, until=until
            )
        except (HeadraceError, StoreError) as exc:
            # Deleted, expired, or a store is away: the response ends, and the reader's next request tells it.
            _log.info("event stream ended: error=%s", type(exc).__name__)
            return None

    def _event(self, page: ReadPage) -> bytes:
        frames = []
        if page.data:
            frames.append(reads.data_event(page, self._query))
        frames.append(reads.frame_event(b"control", orjson.dumps(self._control(page))))
        return b"".join(frames)

    def _control(self, page: ReadPage) -> dict[str, str | bool]:
        control: dict[str, str | bool] = {"streamNextOffset": page.text(page.next)}
        if page.at_eof:
            return {**control, "upToDate": True, "streamClosed": True}
        context = self._context
        self._cursor = next_cursor(self._cursor, context.clock.now_ms(), context.random_below)
        control["streamCursor"] = str(self._cursor)
        if page.up_to_date:
            control["upToDate"] = True
        return control


async def long_poll(context: Context, logs: Streams, request: Request, name: str, query: ReadQuery) -> Response:
    """Waits for data, and returns the answer to a long-poll.

    Raises:
        RequestTimeout: the requested wait is longer than a request may take, and no data arrived.
        HeadraceError, AnswerTooLarge: the errors of a read; also if the stream is deleted meanwhile.
    """
    settings = context.settings
    asked_ms = settings.live_timeout_ms if query.timeout_ms is None else query.timeout_ms
    deadline = context.clock.monotonic() + min(asked_ms, settings.request_timeout_ms) / 1000
    read = reads.reader(request.scope, logs, query)
    with listening(logs, name) as waiter:
        page = await run(read, name, query.at, query.selection, until=scan_until(context))
        reads.check_format(page, query)
        while not page.data and not page.at_eof:
            left_s = deadline - context.clock.monotonic()
            if left_s <= 0:
                if asked_ms > settings.request_timeout_ms:
                    raise RequestTimeout
                break
            if page.up_to_date:
                await waiter.pause(left_s)
            if await request.is_disconnected():
                break
            if page.scan is not None and page.scan.limit_reached:
                break  # so much was scanned that the client should learn how far it came
            page = await run(read, name, after(page), query.selection, touch=False, until=scan_until(context))
    return reads.live(page, query, next_cursor(query.cursor, context.clock.now_ms(), context.random_below))


_EPOCH_MS = 1_728_432_000_000  # 2024-10-09T00:00:00Z
_INTERVAL_MS = 20_000
_JITTER_S = 3600


def next_cursor(client: int | None, now_ms: int, random_below: Callable[[int], int]) -> int:
    """Returns the next `Stream-Cursor`: the number of the current 20-second interval, or a number above the client's
    cursor if that is not lower.

    How far above is random: 1 to 3,600 seconds, in whole intervals, at least one.
    """
    current = max(0, (now_ms - _EPOCH_MS) // _INTERVAL_MS)
    if client is None or client < current:
        return current
    jitter_s = 1 + random_below(_JITTER_S)
    return client + max(1, jitter_s * 1000 // _INTERVAL_MS)
