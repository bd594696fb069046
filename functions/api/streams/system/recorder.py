"""The window under way of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable

from functions.api.streams.system.window import Series, Unit, Window
from headrace.clock import Clock
from headrace.objects import keys
from headrace.objects.observed import Request
from headrace.streams.names import SYSTEM_STREAM


class Recorder:
    """Takes values from any thread.

    Nothing of the metrics stream itself is measured: a reader who waits there would be woken by the record of its own
    read, for ever.
    """

    def __init__(self, clock: Clock, *, enabled: bool = True) -> None:
        self._clock = clock
        self._enabled = enabled
        self._lock = threading.Lock()
        self._window: Window | None = None
        self._own_log: str | None = None
        self.on_first: Callable[[], None] = lambda: None  # called when there was no value, and now there is

    @property
    def pending(self) -> bool:
        """There are values."""
        return self._window is not None

    def own_log(self, log_id: str) -> None:
        """Says which log is the metrics stream's, so that its objects are not measured."""
        self._own_log = log_id

    def count(self, metric: str, unit: Unit, value: int, stream: str | None = None, **tags: str) -> None:
        """Takes a value of a metric."""
        if self._enabled and stream != SYSTEM_STREAM:
            self._add(Series(metric, unit, stream, tuple(sorted(tags.items()))), value)

    def observe(self, request: Request) -> None:
        """Takes the time of a get or a put of the object store. Ranges that are read at once are one get."""
        found = keys.artifact(request.keys[0]) if request.operation in ("get", "put") else None
        if found is None or found[0] == self._own_log:
            return
        outcome = request.outcome if request.outcome in ("ok", "miss") else "error"
        took_ns = round(request.took_s * 1_000_000_000)
        metric = f"tieredstore.objectstore.{request.operation}.latency"
        self.count(metric, "ns", took_ns, artifact=found[1], outcome=outcome)

    def take(self) -> Window | None:
        """All values so far; none are left."""
        with self._lock:
            taken, self._window = self._window, None
            return taken

    def put_back(self, taken: Window) -> None:
        """They go with the next window."""
        with self._lock:
            was_empty = self._window is None
            if self._window is not None:
                self._window.merge(taken)
            else:
                self._window = taken
        if was_empty:
            self.on_first()

    def _add(self, series: Series, value: int) -> None:
        now_ms = self._clock.now_ms()
        with self._lock:
            was_empty = self._window is None
            if self._window is None:
                self._window = Window(now_ms)
            self._window.add(series, value, now_ms)
        if was_empty:
            self.on_first()
