"""Background work that no request waits for, done at intervals while there is something to do.

A server does it in a thread of its own. A Lambda function is frozen once its invocation is over, so there the work is done
within an invocation, at its end: a thread that outlived it would be frozen in mid-write, and go on hours later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from headrace.clock import Clock, within_deadline
from headrace.objects.observed import RequestCounts
from headrace.tables.watermarks import Watermarks

FLUSH_MS = 1_000  # for calls to begin: on Lambda the client of one request in an interval waits for them

_log = logging.getLogger(__name__)


class Periodic:
    """A kind of background work that is done at most once per interval."""

    def __init__(
        self,
        work: Callable[[], None],
        pending: Callable[[], bool],
        clock: Clock,
        *,
        name: str,
        interval_ms: int,
        runs_between_requests: bool,
    ) -> None:
        """Creates the work; `begun` or `invocation_ended` starts it later.

        Args:
            work: does everything that is pending; it never raises.
            pending: tells whether there is something to do.
            name: the name of the thread.
            interval_ms: the least time between two runs; 0 means that it never runs.
            runs_between_requests: whether the process also runs between requests (a server; a Lambda function does
                not).
        """
        self._work = work
        self._pending = pending
        self._clock = clock
        self._name = name
        self._interval_s = interval_ms / 1000
        self._lock = threading.Lock()
        # From the first request on: the time of making may be a snapshot's, resumed days later.
        self._last: float | None = None
        self._on_timer = interval_ms > 0 and runs_between_requests
        self._on_request = interval_ms > 0 and not runs_between_requests

    def begun(self) -> None:
        """Schedules the work one interval from now, if the process is a server; on Lambda does nothing. Must be called
        when there was nothing to do, and now there is. Returns at once.
        """
        if self._on_timer:
            timer = threading.Timer(self._interval_s, self._work)
            timer.daemon = True
            timer.name = self._name
            try:
                timer.start()
            except RuntimeError:  # the interpreter is shutting down, or there are too many threads
                _log.warning("background work is not done: no thread: name=%s", self._name)

    def invocation_ended(self) -> None:
        """Does the work, on Lambda, if an interval has passed and something is pending; in a server does nothing. Must be
        called at the end of each invocation, before Lambda is told that it is over.
        """
        if self._on_request and self._is_due():
            self._work()

    def _is_due(self) -> bool:
        with self._lock:
            now = self._clock.monotonic()
            if self._last is None:
                self._last = now
            if now - self._last < self._interval_s or not self._pending():
                return False
            self._last = now
            return True


class CountKeeper:
    """The counts of one process's requests to the object store, which it adds to the durable counters at intervals."""

    def __init__(
        self,
        counts: RequestCounts,
        watermarks: Watermarks,
        clock: Clock,
        *,
        interval_ms: int,
        runs_between_requests: bool,
    ) -> None:
        """Creates the keeper; the arguments are those of `Periodic`."""
        self.counts = counts
        self._watermarks = watermarks
        self._periodic = Periodic(
            self.flush,
            lambda: len(counts) > 0,
            clock,
            name="request-counts",
            interval_ms=interval_ms,
            runs_between_requests=runs_between_requests,
        )
        counts.on_first = self._periodic.begun

    def invocation_ended(self) -> None:
        """Calls `flush`, on Lambda, if it is due; as `Periodic.invocation_ended`."""
        self._periodic.invocation_ended()

    def flush(self) -> None:
        """Adds what was counted so far to the durable counters of the streams, as far as 1 s goes; the rest next time.
        Never raises: no request fails because of a counter.
        """
        try:
            with within_deadline(FLUSH_MS):
                self.counts.flush(self._watermarks)
        except Exception:  # noqa: BLE001 - as said
            _log.exception("request counts were not added")
