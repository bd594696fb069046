"""Counts of what the API does. Names are those of the metrics."""

from __future__ import annotations

from typing import Protocol


class Meter(Protocol):
    """Cheap counters, flushed by whoever owns the process."""

    def count(self, name: str, value: int = 1) -> None:
        """Adds to a counter."""

    def size(self, name: str, value: int) -> None:
        """Adds bytes to a counter."""


class NoMeter:
    """Counts nothing: outside Lambda nobody collects it."""

    def count(self, name: str, value: int = 1) -> None:
        """Nothing."""

    def size(self, name: str, value: int) -> None:
        """Nothing."""


_ERROR_METRICS = {
    401: "Unauthorized",
    403: "Forbidden",
    408: "Timeouts",
    409: "Conflicts",
    429: "Throttles",
    500: "Failures",
    503: "StoreFailures",
}


def count_error(meter: Meter, status: int) -> None:
    """Counts a request that ended in an error. Clients' ordinary mistakes (400, 404, …) are not counted."""
    name = _ERROR_METRICS.get(status)
    if name is not None:
        meter.count(name)
