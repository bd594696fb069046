"""A proxy around a bucket that tells observers of each request: its operation, keys, outcome and time.

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
from headrace.errors import DeadlineExceeded, StoreThrottled, StoreTimeout
from headrace.objects import ObjectMissing, Objects, Range, keys
from headrace.tables.watermarks import Watermarks

_PAGE = 1000  # keys that one list request answers, or one delete request takes

Operation = Literal["get", "put", "list", "delete"]
Outcome = Literal["ok", "miss", "throttled", "error"]


class Request(NamedTuple):
    """A finished request to the object store.

    Attributes:
        operation: "get" includes ranges, "put" includes creates.
        keys: the keys of its objects, or the prefix that it listed. Ranges that are read together are one request.
        outcome: how it ended; "miss" if there was no such object.
        took_s: its duration in seconds; 0 for a list, which lasts as long as its caller iterates.
    """

    operation: Operation
    keys: Sequence[str]
    outcome: Outcome
    took_s: float


Observe = Callable[[Request], None]


class ObservedObjects:
    """The port `headrace.objects.Objects`: passes each request on to another adapter, and reports it, failed or not, to
    the observers.
    """

    def __init__(self, objects: Objects, clock: Clock, *observers: Observe) -> None:
        self._objects = objects
        self._clock = clock
        self._observers = observers

    def get(self, key: str) -> bytes:
        """Returns the whole object; reported as one get."""
        with self._observed("get", (key,)):
            return self._objects.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Returns a range of an object; reported as one get."""
        with self._observed("get", (key,)):
            return self._objects.get_range(key, start, length)

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """Returns the bytes of each range; reported as one get with a key for each range."""
        if not ranges:
            return []
        with self._observed("get", [one.key for one in ranges]):
            return self._objects.get_ranges(ranges)

    def put(self, key: str, data: bytes) -> None:
        """Writes the object; reported as one put."""
        with self._observed("put", (key,)):
            self._objects.put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        """Writes the object if the key is free, and returns whether it was; reported as one put."""
        with self._observed("put", (key,)):
            return self._objects.create(key, data)

    def list(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Yields the keys with a prefix; reported as one list, and one more for each further thousand keys."""
        number = 0
        try:
            for key in self._objects.list(prefix, after=after):
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
        """Removes objects; reported as one delete for each thousand keys."""
        rest = iter(keys)
        while page := list(islice(rest, _PAGE)):
            with self._observed("delete", page):
                self._objects.delete(page)

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

    They only inform about a stream's use of the bucket: counts that a process had not added when it died are lost, and
    no decision depends on them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counter[str]] = {}
        self.on_first: Callable[[], None] = lambda: None  # called when there was nothing to add, and now there is

    def __len__(self) -> int:
        """Returns the number of logs that have counts to add."""
        with self._lock:
            return len(self._counts)

    def observe(self, request: Request) -> None:
        """Counts a request, once for each object that it named."""
        for key in request.keys:
            self.note(key, request.operation)

    def note(self, key: str, operation: str) -> None:
        """Counts one request for `key`, by its log and kind of object; ignores keys that belong to no log."""
        found = keys.artifact(key)
        if found is not None:
            log_id, kind = found
            self.add(log_id, {f"{kind}.{operation}": 1})

    def add(self, log_id: str, counts: Mapping[str, int]) -> None:
        """Adds counts for a log, by `<kind>.<operation>`."""
        with self._lock:
            was_empty = not self._counts
            self._counts.setdefault(log_id, Counter()).update(counts)
        if was_empty:
            self.on_first()

    def flush(self, watermarks: Watermarks) -> None:
        """Adds the counts to the durable counters, with one update for each log.

        Counts that the store refuses, and those that the caller's deadline leaves no time for, are kept for the next time.
        Counts for which it gives no answer are dropped: they
        may have been added already, and nothing must be counted twice.
        """
        with self._lock:
            taken, self._counts = self._counts, {}
        for log_id, counts in taken.items():
            try:
                watermarks.count(log_id, counts)
            except (StoreThrottled, DeadlineExceeded):
                self.add(log_id, counts)
            except StoreTimeout:
                pass
