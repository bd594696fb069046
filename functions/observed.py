"""What a function asks of its stores, counted for its metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from headrace.errors import StoreThrottled
from headrace.objects import Objects, Range

Add = Callable[[int], None]


class StoreMetrics(NamedTuple):
    """Where the counts go: GETs and PUTs of the bucket, and calls that it refused for load."""

    gets: Add
    puts: Add
    throttles: Add


class Gets:
    """GETs of one piece of work, in all its threads."""

    def __init__(self) -> None:
        self.count = 0


_gets: ContextVar[Gets | None] = ContextVar("gets of this work", default=None)


@contextmanager
def counted_gets() -> Iterator[Gets]:
    """Counts what is fetched inside, also in threads that got a copy of the context."""
    found = Gets()
    token = _gets.set(found)
    try:
        yield found
    finally:
        _gets.reset(token)


class ObservedObjects:
    """The port `headrace.objects.Objects`: another one, with its requests counted."""

    def __init__(self, objects: Objects, metrics: StoreMetrics) -> None:
        self._objects = objects
        self._metrics = metrics

    def get(self, key: str) -> bytes:
        """One GET."""
        self._got(1)
        with self._refusals():
            return self._objects.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """One GET."""
        self._got(1)
        with self._refusals():
            return self._objects.get_range(key, start, length)

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """One GET for each."""
        self._got(len(ranges))
        with self._refusals():
            return self._objects.get_ranges(ranges)

    def put(self, key: str, data: bytes) -> None:
        """One PUT."""
        self._metrics.puts(1)
        with self._refusals():
            self._objects.put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        """One PUT."""
        self._metrics.puts(1)
        with self._refusals():
            return self._objects.create(key, data)

    def list(self, prefix: str) -> Iterator[str]:
        """Not counted but for refusals."""
        with self._refusals():
            yield from self._objects.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """Not counted but for refusals: it is free."""
        with self._refusals():
            self._objects.delete(keys)

    def _got(self, count: int) -> None:
        self._metrics.gets(count)
        if (work := _gets.get()) is not None:
            work.count += count

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except StoreThrottled:
            self._metrics.throttles(1)
            raise
