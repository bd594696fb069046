"""Requests that wait for a log to change: they poll with backoff, are woken at once by this process's writes, and hold no
thread meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from starlette.types import Receive

from headrace.log.logs import Log
from headrace.log.seam import Which

_FIRST_S = 0.020
_LAST_S = 0.250
_GROWTH = 1.6


class Waiter:
    """The pauses of a waiting reader between two looks at its log: longer each time, ended early by `wake`."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self._delay_s = _FIRST_S

    def reset(self) -> None:
        """Makes the next pause a short one, because something happened."""
        self._delay_s = _FIRST_S

    async def pause(self, at_most_s: float) -> None:
        """Waits until this process changes the log, the next poll is due, or `at_most_s` seconds have passed."""
        # not `wait_for`: before Python 3.12 it loses a cancellation that comes with the wake-up
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(self._delay_s, at_most_s))):
                await self._woken.wait()
        self._delay_s = _FIRST_S if self._woken.is_set() else min(self._delay_s * _GROWTH, _LAST_S)
        self._woken.clear()

    def wake(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ends the pause; may be called from any thread."""
        with suppress(RuntimeError):  # the loop is closed: no request waits any more
            loop.call_soon_threadsafe(self._woken.set)


@contextmanager
def woken_by(logs: Log, *logs_of: Which) -> Iterator[Waiter]:
    """Yields a waiter that is woken when this process changes one of these logs, while the block runs."""
    waiter = Waiter()
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        for which in logs_of:
            stack.enter_context(logs.wakeups.listen(which, lambda: waiter.wake(loop)))
        yield waiter


async def until_gone(receive: Receive, answer: Coroutine[Any, Any, None]) -> bool:
    """Runs `answer` until it ends, which may raise, or the client leaves. Returns whether the client left first."""
    sending = asyncio.ensure_future(answer)
    gone = asyncio.ensure_future(disconnected(receive))
    try:
        await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
            return False
        return True
    finally:
        for task in (sending, gone):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def disconnected(receive: Receive) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
