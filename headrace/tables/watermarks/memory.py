"""Watermarks in memory: for tests and simulations."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

import msgspec

from headrace.tables.watermarks import Watermark


class MemoryWatermarks:
    """Rows in a dictionary."""

    def __init__(self, lock: threading.RLock | None = None) -> None:
        self.lock = lock or threading.RLock()
        self.rows: dict[str, Watermark] = {}
        self.counters: dict[str, Counter[str]] = {}
        self.notes: dict[str, bytes] = {}

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
            self.rows[log_id] = msgspec.structs.replace(
                current, generation=generation, end_slot=end_slot, end_offset=end_offset, sealed_bytes=sealed_bytes
            )
            return True

    def publish_index(self, log_id: str, generation: int) -> None:
        """Raises the number."""
        with self.lock:
            current = self.get(log_id)
            if current.generation and generation > current.index_generation:
                self.rows[log_id] = msgspec.structs.replace(current, index_generation=generation)

    def touch(self, log_id: str, now_ms: int) -> None:
        """Raises the last touch."""
        with self.lock:
            current = self.get(log_id)
            if now_ms > current.touched_ms:
                self.rows[log_id] = msgspec.structs.replace(current, touched_ms=now_ms)

    def count(self, log_id: str, requests: Mapping[str, int]) -> None:
        """Adds to the counters."""
        with self.lock:
            self.counters.setdefault(log_id, Counter()).update(requests)

    def counts(self, log_id: str) -> dict[str, int]:
        """The counters."""
        with self.lock:
            return dict(self.counters.get(log_id, {}))

    def note(self, log_id: str) -> bytes | None:
        """The note."""
        with self.lock:
            return self.notes.get(log_id)

    def set_note(self, log_id: str, data: bytes, replaces: bytes | None) -> bool:
        """Compares and sets."""
        with self.lock:
            if self.notes.get(log_id) != replaces:
                return False
            self.notes[log_id] = data
            return True

    def drop_note(self, log_id: str) -> None:
        """Removes the note."""
        with self.lock:
            self.notes.pop(log_id, None)

    def delete(self, log_id: str) -> None:
        """Drops row and counters."""
        with self.lock:
            self.rows.pop(log_id, None)
            self.counters.pop(log_id, None)
