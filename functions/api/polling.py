"""Long-poll: data at once if there is any, else the first that comes, else nothing after the timeout."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from functions.api import cursors, pages
from functions.api.blocking import run
from functions.api.parts import Parts
from functions.api.queries import ReadQuery
from functions.api.waiting import after, listening
from headrace.errors import RequestTimeout
from headrace.log.logs import Logs


async def long_poll(parts: Parts, logs: Logs, request: Request, name: str, query: ReadQuery) -> Response:
    """The answer.

    Raises:
        RequestTimeout: a longer wait was asked for than a request may take, and nothing came.
        HeadraceError: as a read; also when the stream is deleted meanwhile.
    """
    settings = parts.settings
    asked_ms = settings.live_timeout_ms if query.timeout_ms is None else query.timeout_ms
    deadline = parts.clock.monotonic() + min(asked_ms, settings.request_timeout_ms) / 1000
    with listening(logs, name) as waiter:
        page = await run(logs.read, name, query.at)
        pages.check_format(page, query)
        while not page.data and not page.at_eof:
            left_s = deadline - parts.clock.monotonic()
            if left_s <= 0:
                if asked_ms > settings.request_timeout_ms:
                    raise RequestTimeout
                break
            await waiter.pause(left_s)
            if await request.is_disconnected():
                break
            page = await run(logs.read, name, after(page), touch=False)
    return pages.live(page, query, cursors.next_cursor(query.cursor, parts.clock.now_ms(), parts.random_below))
