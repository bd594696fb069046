"""Time as an argument, so that a run can be replayed; and the time that one request may take.

Every store call that a request makes sees its deadline. Cooperative: a call under way is not cut.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, Protocol

from headrace.errors import DeadlineExceeded


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> int:
        """Returns the wall clock time in milliseconds since the Unix epoch. It may jump."""

    def monotonic(self) -> float:
        """Returns seconds that never run backwards; comparable only within this process."""

    def sleep(self, seconds: float) -> None:
        """Waits for a number of seconds."""


class Moment(NamedTuple):
    """A point in time on both clocks. Both are needed: a frozen process stops the monotonic clock, and setting the wall
    clock moves only that one.
    """

    monotonic: float
    wall_ms: int


def moment(clock: Clock) -> Moment:
    """Returns the current moment on both clocks."""
    return Moment(clock.monotonic(), clock.now_ms())


def age_s(clock: Clock, since: Moment) -> float:
    """Returns the seconds since a moment, by the clock that shows more; infinity if the wall clock ran backwards."""
    wall_ms = clock.now_ms() - since.wall_ms
    return max(clock.monotonic() - since.monotonic, wall_ms / 1000) if wall_ms >= 0 else math.inf


class SystemClock:
    """The clock of the machine."""

    def now_ms(self) -> int:
        """Returns the wall clock time in epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Returns monotonic seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Blocks the calling thread for a number of seconds."""
        time.sleep(seconds)


_until: ContextVar[float | None] = ContextVar("until", default=None)


@contextmanager
def within_deadline(budget_ms: int, monotonic: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Store calls made in this block (by this thread) begin within the budget, or not at all."""
    token = _until.set(monotonic() + budget_ms / 1000)
    try:
        yield
    finally:
        _until.reset(token)


def check_deadline(monotonic: Callable[[], float] = time.monotonic) -> None:
    """To be called before a store call.

    Raises:
        DeadlineExceeded: the request's time is over; the call was not made.
    """
    until = _until.get()
    if until is not None and monotonic() >= until:
        raise DeadlineExceeded("the request's time is over")
