"""Many blocking reads at once, so many and no more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")

_THREADS = 16
_pool: ThreadPoolExecutor | None = None


def fan_out(call: Callable[[T], U], items: Sequence[T]) -> list[U]:
    """The results in the order of the items. Raises what the first failed call raised.

    `call` must not fan out itself: it would wait for the threads that it takes.
    """
    global _pool
    if len(items) < 2:
        return [call(item) for item in items]
    if _pool is None:
        _pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="inspect")
    return list(_pool.map(call, items))
