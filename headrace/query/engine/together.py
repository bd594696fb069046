"""Two things at once: what a cold process waits for one after the other adds up, and waiting takes no processor."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def together(one: Callable[[], A], other: Callable[[], B]) -> tuple[A, B]:
    """Makes both calls, the second in a thread of its own; the request's deadline holds there, too."""
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(copy_context().run, other)
        return one(), second.result()
