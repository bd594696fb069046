"""The time that one request may take, seen by every store call that it makes. Cooperative: a call under way is not cut."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from headrace.errors import DeadlineExceeded

_until: ContextVar[float | None] = ContextVar("until", default=None)


@contextmanager
def within(budget_ms: int, monotonic: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Store calls made in this block (by this thread) begin within the budget, or not at all."""
    token = _until.set(monotonic() + budget_ms / 1000)
    try:
        yield
    finally:
        _until.reset(token)


def check(monotonic: Callable[[], float] = time.monotonic) -> None:
    """To be called before a store call.

    Raises:
        DeadlineExceeded: the request's time is over; the call was not made.
    """
    until = _until.get()
    if until is not None and monotonic() >= until:
        raise DeadlineExceeded("the request's time is over")
