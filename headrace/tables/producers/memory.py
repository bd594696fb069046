"""Producer rows in memory: for tests and simulations."""

from __future__ import annotations

import threading

from headrace.wal.state import Producer


class MemoryProducers:
    """Rows in a dictionary. Writes come through `MemoryWal`, which holds `lock`."""

    def __init__(self, lock: threading.RLock | None = None) -> None:
        self.lock = lock or threading.RLock()
        self.rows: dict[tuple[str, str], Producer] = {}

    def get(self, log_id: str, producer_id: str) -> Producer | None:
        """The row of a producer."""
        with self.lock:
            return self.rows.get((log_id, producer_id))

    def purge(self, log_id: str) -> None:
        """Drops every row of a log."""
        with self.lock:
            for key in [key for key in self.rows if key[0] == log_id]:
                del self.rows[key]
