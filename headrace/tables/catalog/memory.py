"""The catalog in memory: for tests and simulations."""

from __future__ import annotations

import threading

import msgspec

from headrace.tables.catalog import Row


class MemoryCatalog:
    """Rows in a dictionary. Writes of rows come through `MemoryWal`, which holds `lock`."""

    def __init__(self, lock: threading.RLock | None = None) -> None:
        self.lock = lock or threading.RLock()
        self.rows: dict[tuple[str, str], Row] = {}

    def get(self, surface: str, name: str) -> Row | None:
        """The row of a name."""
        with self.lock:
            return self.rows.get((surface, name))

    def living(self, surface: str, *, after: str = "", prefix: str = "", limit: int) -> list[Row]:
        """Rows that have not ended, in byte order of the name."""
        return [row for row in self._listed(surface, after, prefix) if not row.ended][:limit]

    def every(self, surface: str, *, after: str = "", limit: int) -> list[Row]:
        """Rows, ended or not, in byte order of the name."""
        return self._listed(surface, after, "")[:limit]

    def _listed(self, surface: str, after: str, prefix: str) -> list[Row]:
        with self.lock:
            found = [
                row
                for row in self.rows.values()
                if row.surface == surface and row.name > after and row.name.startswith(prefix)
            ]
        return sorted(found, key=lambda row: row.name.encode())

    def due(self, now_ms: int, *, limit: int) -> list[Row]:
        """Rows whose deadline has come."""
        with self.lock:
            found = [r for r in self.rows.values() if r.deadline_ms is not None and r.deadline_ms <= now_ms]
        return sorted(found, key=lambda row: row.deadline_ms or 0)[:limit]

    def mark_ended(self, row: Row) -> None:
        """Ends the row if it still stands for the same log."""
        with self.lock:
            current = self.rows.get((row.surface, row.name))
            if current is not None and current.log_id == row.log_id:
                ended = msgspec.structs.replace(current, ended=True, deadline_ms=None)
                self.rows[row.surface, row.name] = ended

    def set_hints(self, row: Row, *, deadline_ms: int | None = None, profile: str | None = None) -> None:
        """Corrects the row if it still stands for the same, living log."""
        with self.lock:
            current = self.rows.get((row.surface, row.name))
            if current is not None and current.log_id == row.log_id and not current.ended:
                self.rows[row.surface, row.name] = msgspec.structs.replace(
                    current,
                    deadline_ms=current.deadline_ms if deadline_ms is None else deadline_ms,
                    profile=current.profile if profile is None else profile,
                )
