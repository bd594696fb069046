"""Calls that block (every store call does), from coroutines; and waiting for the next record without holding a thread.

A Lambda function serves one request at a time, so there a call runs in place. A server of many requests runs it
in a thread; nothing holds a thread while it merely waits for time to pass. A reader that waits polls with back-off, and is
woken at once by this process's writes.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import ParamSpec, TypeVar

from headrace import offset as offsets
from headrace.log.requests import At, ReadPage
from headrace.streams.verbs import Streams

DYNAMODB_TIMEOUT_S = 2.0  # of one call to a store: within the budget of an append there is time for a second try
OBJECT_STORE_TIMEOUT_S = 2.0

P = ParamSpec("P")
T = TypeVar("T")

# Appends wait in their thread for a group commit: fewer threads than concurrent writers would make groups small.
_THREADS = 128
_pool: ThreadPoolExecutor | None = None


def on_lambda() -> bool:
    """This process is a Lambda function."""
    return "AWS_LAMBDA_FUNCTION_NAME" in os.environ


def capacity() -> int:
    """Returns how many calls run at once."""
    return 1 if on_lambda() else _THREADS


async def run(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Makes the call and gives its result."""
    global _pool
    if on_lambda():
        return call(*args, **kwargs)
    if _pool is None:
        _pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="store")
    return await asyncio.get_running_loop().run_in_executor(_pool, lambda: call(*args, **kwargs))


_FIRST_S = 0.020
_LAST_S = 0.250
_GROWTH = 1.6

_waiting: Counter[str] = Counter()  # requests of this process that wait, by stream


class Waiter:
    """Says when to look again."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self._delay_s = _FIRST_S

    def reset(self) -> None:
        """Something happened: the next pause is a short one."""
        self._delay_s = _FIRST_S

    async def pause(self, at_most_s: float) -> None:
        """Until this process changed the stream, the next poll is due, or `at_most_s` have passed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), max(0.0, min(self._delay_s, at_most_s)))
        self._delay_s = _FIRST_S if self._woken.is_set() else min(self._delay_s * _GROWTH, _LAST_S)
        self._woken.clear()

    def wake(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ends the pause; from any thread."""
        with suppress(RuntimeError):  # the loop is closed: no request waits any more
            loop.call_soon_threadsafe(self._woken.set)


@contextmanager
def listening(logs: Streams, name: str) -> Iterator[Waiter]:
    """Returns a waiter that hears of changes of `name` by this process."""
    waiter = Waiter()
    loop = asyncio.get_running_loop()
    _waiting[name] += 1
    try:
        with logs.wakeups.listen(name, lambda: waiter.wake(loop)):
            yield waiter
    finally:
        _waiting[name] -= 1
        if not _waiting[name]:
            del _waiting[name]


def waiters() -> dict[str, int]:
    """Returns how many requests of this process wait, by stream."""
    return dict(_waiting)


def after(page: ReadPage) -> At:
    """Returns where the next page begins."""
    return At(cursor=offsets.Cursor(page.head.incarnation, page.next))
