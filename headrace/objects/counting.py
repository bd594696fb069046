"""Counts the requests that go to the object store, by log and kind of object.

Counts are kept in the process and added to durable counters, the log's row of the watermarks table, by `flush`: never
while somebody waits for an answer. They say how a stream uses the bucket, no more: a process that dies takes those along
that it has not added, and nothing is decided by them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from headrace.errors import StoreThrottled, StoreTimeout
from headrace.objects import Objects, Range, keys
from headrace.tables.watermarks import Watermarks

_LIST_PAGE = 1000  # keys that one list request answers


class RequestCounts:
    """Requests of this process that are not in the durable counters yet. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counter[str]] = {}
        self.on_first: Callable[[], None] = lambda: None  # called when there was nothing to add, and now there is

    def __len__(self) -> int:
        """How many logs have something to add."""
        with self._lock:
            return len(self._counts)

    def note(self, key: str, operation: str) -> None:
        """Counts a request for `key`."""
        found = keys.artifact(key)
        if found is not None:
            log_id, kind = found
            self.add(log_id, {f"{kind}.{operation}": 1})

    def add(self, log_id: str, counts: Mapping[str, int]) -> None:
        """Counts requests, by `<kind>.<operation>`."""
        with self._lock:
            was_empty = not self._counts
            self._counts.setdefault(log_id, Counter()).update(counts)
        if was_empty:
            self.on_first()

    def take(self) -> dict[str, Counter[str]]:
        """All of them, by log; none are left."""
        with self._lock:
            taken, self._counts = self._counts, {}
            return taken


def flush(counts: RequestCounts, watermarks: Watermarks) -> None:
    """Adds what was counted to the durable counters: one update for each log.

    What the store refuses is kept for the next time. What it gives no answer to is forgotten: it may stand already, and
    nothing shall be counted twice.
    """
    for log_id, taken in counts.take().items():
        try:
            watermarks.count(log_id, taken)
        except StoreThrottled:
            counts.add(log_id, taken)
        except StoreTimeout:
            pass


class CountingObjects:
    """The port `headrace.objects.Objects`: another one, with its requests counted, failed ones too."""

    def __init__(self, objects: Objects, counts: RequestCounts) -> None:
        self._objects = objects
        self._counts = counts

    def get(self, key: str) -> bytes:
        """One `get`."""
        self._counts.note(key, "get")
        return self._objects.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """One `get`."""
        self._counts.note(key, "get")
        return self._objects.get_range(key, start, length)

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """One `get` for each."""
        for one in ranges:
            self._counts.note(one.key, "get")
        return self._objects.get_ranges(ranges)

    def put(self, key: str, data: bytes) -> None:
        """One `put`."""
        self._counts.note(key, "put")
        self._objects.put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        """One `put`."""
        self._counts.note(key, "put")
        return self._objects.create(key, data)

    def list(self, prefix: str) -> Iterator[str]:
        """One `list`, and one more for each further thousand keys."""
        self._counts.note(prefix, "list")
        return self._pages(prefix, self._objects.list(prefix))

    def _pages(self, prefix: str, found: Iterator[str]) -> Iterator[str]:
        for number, key in enumerate(found):
            if number and number % _LIST_PAGE == 0:
                self._counts.note(prefix, "list")
            yield key

    def delete(self, keys: Iterable[str]) -> None:
        """One `delete` for each object, although a thousand travel in one request."""
        self._objects.delete(self._deleted(keys))

    def _deleted(self, doomed: Iterable[str]) -> Iterator[str]:
        for key in doomed:
            self._counts.note(key, "delete")
            yield key
