"""Waiting logs and places in memory: for tests and simulations."""

from __future__ import annotations

import threading

import msgspec

from headrace.tables.jobs import Place, Waiting


class MemoryJobs:
    """Rows in dictionaries. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.rows: dict[str, Waiting] = {}
        self.places: dict[int, Place] = {}

    def get(self, log_id: str) -> Waiting | None:
        """The row."""
        with self._lock:
            return self.rows.get(log_id)

    def put(self, row: Waiting) -> Waiting | None:
        """Compares the version and writes."""
        with self._lock:
            if not self._stands(row):
                return None
            written = msgspec.structs.replace(row, version=row.version + 1)
            self.rows[row.log_id] = written
            return written

    def drop(self, row: Waiting) -> bool:
        """Compares the version and removes."""
        with self._lock:
            if row.version == 0 or not self._stands(row):
                return False
            del self.rows[row.log_id]
            return True

    def due(self, now_ms: int, *, limit: int) -> list[Waiting]:
        """Sorted by time."""
        with self._lock:
            found = [row for row in self.rows.values() if row.due_ms <= now_ms]
        return sorted(found, key=lambda row: (row.due_ms, row.log_id))[:limit]

    def place(self, number: int) -> Place | None:
        """The place."""
        with self._lock:
            return self.places.get(number)

    def take(self, place: Place) -> bool:
        """Takes it if it is free."""
        with self._lock:
            if place.number in self.places:
                return False
            self.places[place.number] = place
            return True

    def move(self, place: Place) -> bool:
        """Replaces it if the job is the same."""
        with self._lock:
            if not self._holds(place):
                return False
            self.places[place.number] = place
            return True

    def release(self, place: Place) -> bool:
        """Frees it if the job is the same."""
        with self._lock:
            if not self._holds(place):
                return False
            del self.places[place.number]
            return True

    def _stands(self, row: Waiting) -> bool:
        current = self.rows.get(row.log_id)
        return row.version == (current.version if current is not None else 0)

    def _holds(self, place: Place) -> bool:
        current = self.places.get(place.number)
        return current is not None and current.job_id == place.job_id
