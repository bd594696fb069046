"""Watermarks in memory: for tests and simulations."""

from __future__ import annotations

import threading

import msgspec

from headrace.watermarks import Watermark


class MemoryWatermarks:
    """Rows in a dictionary."""

    def __init__(self, lock: threading.RLock | None = None) -> None:
        self.lock = lock or threading.RLock()
        self.rows: dict[str, Watermark] = {}

    def get(self, log_id: str) -> Watermark:
        """The row, or zeros."""
        with self.lock:
            return self.rows.get(log_id, Watermark())

    def publish(self, log_id: str, generation: int, end_slot: int, end_offset: int, sealed_bytes: int) -> bool:
        """Raises the published part if `generation` is newer and does not end before it."""
        with self.lock:
            current = self.get(log_id)
            if generation <= current.generation or end_slot < current.end_slot:
                return False
            self.rows[log_id] = Watermark(generation, end_slot, end_offset, sealed_bytes, current.touched_ms)
            return True

    def touch(self, log_id: str, now_ms: int) -> None:
        """Raises the last touch."""
        with self.lock:
            current = self.get(log_id)
            if now_ms > current.touched_ms:
                self.rows[log_id] = msgspec.structs.replace(current, touched_ms=now_ms)

    def delete(self, log_id: str) -> None:
        """Drops the row."""
        with self.lock:
            self.rows.pop(log_id, None)
