"""Clocks as arguments, so that a run can be replayed with the same times; the deadline of a request; the
budget of a write; threads that keep that deadline; and the cache that all code here uses, whose values age by both clocks.

Every store call of a request checks the request's deadline first. A call that is in progress is not interrupted.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Generic, NamedTuple, Protocol, TypeVar

from headrace.errors import DeadlineExceeded, Overloaded


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> int:
        """Returns the wall clock time in milliseconds since the Unix epoch. It may jump."""

    def monotonic(self) -> float:
        """Returns seconds that never run backwards; comparable only within this process."""

    def sleep(self, seconds: float) -> None:
        """Waits for a number of seconds."""


class Moment(NamedTuple):
    """A point in time on both clocks, monotonic seconds and epoch milliseconds. Both are needed: while a host is suspended,
    either may stand still.
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


_SIGNATURE_MS = 900_000  # the longest that AWS accepts a signature (Common Errors of its API references)
_OFF_MS = 2_000  # a store's answer tells its time in whole seconds


class SystemClock:
    """The clock of the machine, corrected by the time that a store tells. So a wall clock that is wrong, or that
    stopped while its host was suspended, is right again with the first answer of the store.
    """

    def __init__(self) -> None:
        self._correction_ms = 0

    def wall_ms(self) -> int:
        """Returns the machine's wall clock time in epoch milliseconds, without the correction."""
        return time.time_ns() // 1_000_000

    def now_ms(self) -> int:
        """Returns the wall clock time in epoch milliseconds."""
        return self.wall_ms() + self._correction_ms

    def follow(self, sent_ms: int, told_ms: int) -> bool:
        """Corrects this clock if it is more than 2 s off. Call it as soon as a store has answered. Thread-safe.

        Args:
            sent_ms: `wall_ms` when the request was sent.
            told_ms: the time of the answer by the store's clock, epoch milliseconds, cut to a whole second.

        Returns:
            Whether the clock was corrected.
        """
        received_ms = self.wall_ms()
        least_ms, most_ms = told_ms - received_ms - _OFF_MS, told_ms + 1_000 - sent_ms + _OFF_MS
        if least_ms <= self._correction_ms <= most_ms:
            return False
        self._correction_ms = told_ms + 500 - received_ms
        return True

    def follow_date(self, sent_ms: int, date: str | None, signed_ms: int | None) -> bool:
        """Corrects this clock as `follow` does, by the `Date` header of an answer; does nothing if it has none.

        Args:
            signed_ms: the time with which the call was signed. A date that is more than 15 minutes from it is wrong, since
                the call would have been refused. None if it was refused.
        """
        told_ms = _parse_date(date) if date is not None else None
        if told_ms is None or (signed_ms is not None and abs(told_ms - signed_ms) > _SIGNATURE_MS):
            return False
        return self.follow(sent_ms, told_ms)

    def monotonic(self) -> float:
        """Returns monotonic seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Blocks the calling thread for a number of seconds."""
        time.sleep(seconds)


@lru_cache(maxsize=8)
def _parse_date(text: str) -> int | None:
    """Returns a time of RFC 9110 in epoch milliseconds; None if it is none."""
    try:
        return round(parsedate_to_datetime(text).timestamp() * 1000)
    except (TypeError, ValueError, OverflowError):
        return None


_until: ContextVar[float | None] = ContextVar("until", default=None)


@contextmanager
def within_deadline(budget_ms: int, monotonic: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Sets the request's deadline while a block runs: store calls in it, by this thread or by `Threads`, start within the
    budget, or raise DeadlineExceeded. Inside another such block the sooner deadline counts.
    """
    outer, own = _until.get(), monotonic() + budget_ms / 1000
    token = _until.set(own if outer is None else min(outer, own))
    try:
        yield
    finally:
        _until.reset(token)


def check_deadline(monotonic: Callable[[], float] = time.monotonic) -> None:
    """Raises an error if the request's deadline has passed; every store call does this check first.

    Raises:
        DeadlineExceeded: the request's time is over; the call was not made.
    """
    until = _until.get()
    if until is not None and monotonic() >= until:
        raise DeadlineExceeded("the request's time is over")


A = TypeVar("A")
B = TypeVar("B")


class Threads:
    """A pool of threads for store calls that need not wait for each other; created when first used. Each call has the
    deadline of the request that makes it. A pool of one is the calling thread.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def map(self, call: Callable[[A], B], items: Sequence[A]) -> list[B]:
        """Calls a function for each item in parallel, and returns the results in the order of the items. Raises the error
        of the first failed call; calls that were not begun by then are not made, and those under way end first: a process
        that is frozen after its answer must not finish them later.

        `call` must not use the same threads: it would wait for those that it occupies.
        """
        if len(items) < 2 or self._count < 2:
            return [call(item) for item in items]
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._count, thread_name_prefix=self._name)
        # A thread has none of its caller's context variables, and no two threads can run in one copy of them.
        running = [self._pool.submit(copy_context().run, call, item) for item in items]
        try:
            return [one.result() for one in running]
        finally:
            for one in running:
                one.cancel()
            wait(running)


MAX_TRIES = 24  # conflicts with other writers before 429; each costs a write unit of the log's partition
_FIRST_PAUSE_S = 0.004
_LONGEST_PAUSE_S = 0.25
_system_random = random.SystemRandom().random  # no state that clones of a snapshot would share


class Budget:
    """The time and tries that one request has for writing, and the pauses between tries."""

    def __init__(self, clock: Clock, limit_ms: int, jitter: Callable[[], float] = _system_random) -> None:
        self._clock = clock
        self._until = clock.monotonic() + limit_ms / 1000
        self._jitter = jitter
        self.tries = 0

    @property
    def spent(self) -> bool:
        """Whether the time is over."""
        return self._clock.monotonic() >= self._until

    def again(self, what: str) -> None:
        """Counts a try that lost against another writer, and pauses.

        Raises:
            Overloaded: tries or time are used up; nothing was written.
        """
        self.tries += 1
        if self.tries >= MAX_TRIES or self.spent:
            raise Overloaded(f"{what}: tries={self.tries}")
        self.pause(self.tries)

    def pause(self, attempt: int) -> None:
        """Sleeps for a random time that grows with each attempt."""
        longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(attempt, 8))
        self._clock.sleep(longest * (0.2 + 0.8 * self._jitter()))


K = TypeVar("K")
V = TypeVar("V")


class _Kept(NamedTuple, Generic[V]):
    value: V
    weight: int
    read: Moment | None


class Bounded(Generic[K, V]):
    """A cache of values by key, up to a total weight. Thread-safe; the lock is not held while a value is loaded."""

    def __init__(self, limit: int, *, weigh: Callable[[V], int] | None = None, clock: Clock | None = None) -> None:
        """Creates an empty cache.

        Args:
            limit: total weight to keep, inclusive. A value that alone weighs more is not kept.
            weigh: returns the weight of a value; called once, when the value is put. If None, every value weighs 1, so
                `limit` is a count.
            clock: tells the age of values; required for `max_age_s`.
        """
        self._limit = limit
        self._weigh = weigh
        self._clock = clock
        self._lock = threading.Lock()
        self._values: OrderedDict[K, _Kept[V]] = OrderedDict()
        self._weight = 0

    def get(self, key: K, *, max_age_s: float | None = None) -> V | None:
        """Returns the value under `key`, or None if there is none, or if it was read more than `max_age_s` seconds ago.

        An old value is not removed, since it may still be a starting point for finding a newer one.
        """
        with self._lock:
            kept = self._values.get(key)
            if kept is None:
                return None
            self._values.move_to_end(key)
        if max_age_s is not None:
            assert self._clock is not None and kept.read is not None, "a cache without a clock has no ages"
            if age_s(self._clock, kept.read) > max_age_s:
                return None
        return kept.value

    def put(self, key: K, value: V, *, read: Moment | None = None) -> list[tuple[K, V]]:
        """Stores a value under its key, and returns the keys and values that were dropped to make room; perhaps the new
        value itself.

        Args:
            read: when the value was read; None means now. Take it with `clock.moment` before the read, so that no value
                looks younger than it is.
        """
        with self._lock:
            return self._put(key, value, read)

    def update(self, key: K, change: Callable[[V | None], V]) -> V:
        """Replaces the value under `key` by the result of `change`, atomically, and returns the result. `change` is
        called with the cached value, or None.
        """
        with self._lock:
            kept = self._values.get(key)
            value = change(kept.value if kept is not None else None)
            if kept is None or value is not kept.value:
                self._put(key, value, None)
            return value

    def load(self, key: K, load: Callable[[], V]) -> V:
        """Returns the value under `key`; calls `load` and caches its result if there is none. If two threads load at
        once, both get the value that was stored first.
        """
        value = self.get(key)
        if value is not None:
            return value
        loaded = load()
        return self.update(key, lambda kept: loaded if kept is None else kept)

    def pop(self, key: K) -> V | None:
        """Drops a value and returns it, or None if there is none."""
        with self._lock:
            kept = self._values.pop(key, None)
            if kept is None:
                return None
            self._weight -= kept.weight
            return kept.value

    def clear(self) -> None:
        """Drops all values."""
        with self._lock:
            self._values.clear()
            self._weight = 0

    def __len__(self) -> int:
        return len(self._values)

    def _put(self, key: K, value: V, read: Moment | None) -> list[tuple[K, V]]:
        before = self._values.pop(key, None)
        weight = 1 if self._weigh is None else self._weigh(value)
        if weight > self._limit:
            self._weight -= before.weight if before is not None else 0
            return [(key, value)]
        if read is None and self._clock is not None:
            read = moment(self._clock)
        self._values[key] = _Kept(value, weight, read)
        self._weight += weight - (before.weight if before is not None else 0)
        gone = []
        while self._weight > self._limit:
            oldest, kept = self._values.popitem(last=False)
            self._weight -= kept.weight
            gone.append((oldest, kept.value))
        return gone
