"""Long-poll: data at once if there is any, else the first that comes, else nothing after the timeout."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from functions.api.context import Context, scan_until
from functions.api.door.waiting import after, listening, run
from functions.api.streams import cursors, pages
from functions.api.streams.fitting import reader
from functions.api.streams.queries import ReadQuery
from headrace.errors import RequestTimeout
from headrace.streams.verbs import Streams


async def long_poll(context: Context, logs: Streams, request: Request, name: str, query: ReadQuery) -> Response:
    """The answer.

    Raises:
        RequestTimeout: a longer wait was asked for than a request may take, and nothing came.
        HeadraceError, AnswerTooLarge: as a read; also when the stream is deleted meanwhile.
    """
    settings = context.settings
    asked_ms = settings.live_timeout_ms if query.timeout_ms is None else query.timeout_ms
    deadline = context.clock.monotonic() + min(asked_ms, settings.request_timeout_ms) / 1000
    read = reader(request.scope, logs, query)
    with listening(logs, name) as waiter:
        page = await run(read, name, query.at, query.selection, until=scan_until(context))
        pages.check_format(page, query)
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
                break  # so much was looked at that the client should hear how far it came
            page = await run(read, name, after(page), query.selection, touch=False, until=scan_until(context))
    return pages.live(page, query, cursors.next_cursor(query.cursor, context.clock.now_ms(), context.random_below))
