"""The one proxy around a bucket: its observers hear of each request, with its keys, its outcome and its time.

Counters, metrics and timings are observers. They are called in the thread of the request, after it, and must not raise.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Literal, NamedTuple

from headrace.clock import Clock
from headrace.errors import StoreThrottled, StoreTimeout
from headrace.objects import ObjectMissing, Objects, Range, keys
from headrace.tables.watermarks import Watermarks

_PAGE = 1000  # keys that one list request answers, or one delete request takes

Operation = Literal["get", "put", "list", "delete"]
Outcome = Literal["ok", "miss", "throttled", "error"]


class Request(NamedTuple):
    """A request to the object store that is over.

    Attributes:
        operation: "get" also of a range, "put" also of a create.
        keys: the objects that it named, or the prefix that it listed. Ranges that are read at once are one request.
        outcome: "miss" if there was no such object.
        took_s: how long it took; 0 of a list, which goes on as long as its caller does.
    """

    operation: Operation
    keys: Sequence[str]
    outcome: Outcome
    took_s: float


Observe = Callable[[Request], None]


class ObservedObjects:
    """The port `headrace.objects.Objects`: another one, with its requests observed, failed ones too."""

    def __init__(self, objects: Objects, clock: Clock, *observers: Observe) -> None:
        self._objects = objects
        self._clock = clock
        self._observers = observers

    def get(self, key: str) -> bytes:
        """Makes one get."""
        with self._observed("get", (key,)):
            return self._objects.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Makes one get."""
        with self._observed("get", (key,)):
            return self._objects.get_range(key, start, length)

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """Makes one get, of a key for each range."""
        if not ranges:
            return []
        with self._observed("get", [one.key for one in ranges]):
            return self._objects.get_ranges(ranges)

    def put(self, key: str, data: bytes) -> None:
        """Makes one put."""
        with self._observed("put", (key,)):
            self._objects.put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        """Makes one put."""
        with self._observed("put", (key,)):
            return self._objects.create(key, data)

    def list(self, prefix: str) -> Iterator[str]:
        """Makes one list, and one more for each further thousand keys."""
        number = 0
        try:
            for key in self._objects.list(prefix):
                if number % _PAGE == 0:
                    self._tell(Request("list", (prefix,), "ok", 0))
                number += 1
                yield key
        except StoreThrottled:
            self._tell(Request("list", (prefix,), "throttled", 0))
            raise
        if not number:
            self._tell(Request("list", (prefix,), "ok", 0))

    def delete(self, keys: Iterable[str]) -> None:
        """Makes one delete for each thousand keys."""
        rest = iter(keys)
        while doomed := list(islice(rest, _PAGE)):
            with self._observed("delete", doomed):
                self._objects.delete(doomed)

    @contextmanager
    def _observed(self, operation: Operation, named: Sequence[str]) -> Iterator[None]:
        began = self._clock.monotonic()
        outcome: Outcome = "error"
        try:
            yield
            outcome = "ok"
        except ObjectMissing:
            outcome = "miss"
            raise
        except StoreThrottled:
            outcome = "throttled"
            raise
        finally:
            self._tell(Request(operation, named, outcome, max(0.0, self._clock.monotonic() - began)))

    def _tell(self, request: Request) -> None:
        for observe in self._observers:
            observe(request)


class RequestCounts:
    """Requests of this process, by log and kind of object, that are not in the durable counters yet. Thread-safe.

    They say how a stream uses the bucket, no more: a process that dies takes along what it has not added, and nothing is
    decided by them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counter[str]] = {}
        self.on_first: Callable[[], None] = lambda: None  # called when there was nothing to add, and now there is

    def __len__(self) -> int:
        """Returns how many logs have something to add."""
        with self._lock:
            return len(self._counts)

    def observe(self, request: Request) -> None:
        """Counts a request: one for each object that it named."""
        for key in request.keys:
            self.note(key, request.operation)

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

    def flush(self, watermarks: Watermarks) -> None:
        """Adds what was counted to the durable counters: one update for each log. Not while somebody waits for an answer.

        What the store refuses is kept for the next time. What it gives no answer to is forgotten: it may be added already,
        and nothing must be counted twice.
        """
        with self._lock:
            taken, self._counts = self._counts, {}
        for log_id, counts in taken.items():
            try:
                watermarks.count(log_id, counts)
            except StoreThrottled:
                self.add(log_id, counts)
            except StoreTimeout:
                pass
