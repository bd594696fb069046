"""Counts of what one process has committed to topics since it began, and of its open streams, for `/v0/metrics` (§ 8.3)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

BUCKETS_US = (500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000)
_MEANINGS = {
    "frames": "records and lease events committed",
    "batches": "requests committed",
    "fsyncs": "requests committed with the durability class fsync",
    "bytes_written": "bytes of data and meta committed",
}


class Tally:
    """The counts. Thread-safe.

    Attributes:
        streams: how many streams of jobs are open.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(_MEANINGS, 0)
        self._within = [0] * len(BUCKETS_US)  # commits of the class fsync that took at most so long
        self._sum_us = 0
        self.streams = 0

    def committed(self, records: int, size: int, took_ms: float, *, durable: bool) -> None:
        """Counts a request that was committed; `durable` says whether it has the durability class `fsync`."""
        took_us = round(took_ms * 1000)
        with self._lock:
            for name, more in (
                ("frames", records),
                ("batches", 1),
                ("fsyncs", int(durable)),
                ("bytes_written", size),
            ):
                self._counts[name] += more
            if durable:
                self._sum_us += took_us
                for place, most in enumerate(BUCKETS_US):
                    self._within[place] += took_us <= most

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Counts a stream as open while the block runs."""
        with self._lock:
            self.streams += 1
        try:
            yield
        finally:
            with self._lock:
                self.streams -= 1

    def document(self) -> dict[str, int]:
        """Returns the counts as a JSON document."""
        with self._lock:
            return {**self._counts, "fsync_micros_total": self._sum_us}

    def text(self) -> str:
        """Returns the counts in the text format of Prometheus."""
        with self._lock:
            counts, within, sum_us = dict(self._counts), list(self._within), self._sum_us
        lines: list[str] = []
        for name, value in counts.items():
            metric = f"topics_wal_{name}_total"
            lines += (f"# HELP {metric} {_MEANINGS[name]}", f"# TYPE {metric} counter", f"{metric} {value}")
        metric = "topics_wal_fsync_latency_us"
        lines += (f"# HELP {metric} time of commits of the class fsync", f"# TYPE {metric} histogram")
        lines += (f'{metric}_bucket{{le="{most}"}} {count}' for most, count in zip(BUCKETS_US, within, strict=True))
        total = counts["fsyncs"]
        lines += (f'{metric}_bucket{{le="+Inf"}} {total}', f"{metric}_sum {sum_us}", f"{metric}_count {total}")
        return "\n".join(lines) + "\n"
