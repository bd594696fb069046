"""When this process adds what it asked of the object store to the durable counters: never while a request waits for it."""

from __future__ import annotations

import logging

from functions.api.door.periodic import Periodic
from headrace.clock import Clock
from headrace.objects.observed import RequestCounts
from headrace.tables.watermarks import Watermarks

_log = logging.getLogger(__name__)


class CountKeeper:
    """Flushes the counts of one process."""

    def __init__(
        self,
        counts: RequestCounts,
        watermarks: Watermarks,
        clock: Clock,
        *,
        interval_ms: int,
        runs_between_requests: bool,
    ) -> None:
        """Args: as of `Periodic`."""
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

    def request_began(self) -> None:
        """To be called at the begin of each request; returns at once."""
        self._periodic.request_began()

    def flush(self) -> None:
        """Adds what was counted so far. Never raises: nobody shall fail because of a counter."""
        try:
            self.counts.flush(self._watermarks)
        except Exception:  # noqa: BLE001 - as said
            _log.exception("request counts were not added")
