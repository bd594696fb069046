"""The catalog in memory, for tests and simulations."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from headrace.tables.catalog import DamagedRow, Row, bucket_of


class MemoryCatalog:
    """The port of the catalog in memory. Rows are written by guards; the write-ahead log shares `lock`."""

    def __init__(self, lock: threading.RLock | None = None) -> None:
        self.lock = lock or threading.RLock()
        self.rows: dict[tuple[str, str], Row] = {}

    def get(self, surface: str, name: str) -> Row | None:
        """Returns the row of a name; None if there is none."""
        with self.lock:
            return self.rows.get((surface, name))

    def living(self, surface: str, *, after: str = "", prefix: str = "", limit: int) -> list[Row]:
        """Returns up to `limit` rows that have not ended, in byte order of the name."""
        return [row for row in self._listed(surface, after, prefix) if not row.ended][:limit]

    def part(self, surface: str, bucket: str, *, after: str = "", limit: int) -> list[Row]:
        """Returns up to `limit` rows of one bucket that have not ended, in byte order of the name."""
        found = self._listed(surface, after, "")
        return [row for row in found if not row.ended and bucket_of(surface, row.name)[-1] == bucket][:limit]

    def every(self, surface: str, *, after: str = "", limit: int) -> list[Row | DamagedRow]:
        """Returns up to `limit` rows, ended or not, in byte order of the name."""
        return [*self._listed(surface, after, "")[:limit]]

    def _listed(self, surface: str, after: str, prefix: str) -> list[Row]:
        with self.lock:
            found = [
                row
                for row in self.rows.values()
                if row.surface == surface and row.name > after and row.name.startswith(prefix)
            ]
        return sorted(found, key=lambda row: row.name.encode())

    def due(self, now_ms: int) -> Iterator[Row]:
        """Yields the rows whose deadline has passed, as they are when they are asked for."""
        with self.lock:
            found = sorted(key for key, row in self.rows.items() if row.is_due(now_ms))
        yield from (row for row in map(self.rows.get, found) if row is not None and row.is_due(now_ms))

    def mark_ended(self, row: Row) -> None:
        """Marks the row as ended, if it is still of the same log."""
        self._change(row, {"ended": True, "deadline_ms": None})

    def set_hints(self, row: Row, *, deadline_ms: int | None = None, label: str | None = None) -> None:
        """Corrects deadline and label (None keeps them), if the row is still of the same log and has not ended."""
        hints = {"deadline_ms": deadline_ms, "label": label}
        self._change(row, {name: value for name, value in hints.items() if value is not None})

    def _change(self, row: Row, changes: Mapping[str, Any]) -> None:
        with self.lock:
            current = self.rows.get((row.surface, row.name))
            if current is not None and current.log_id == row.log_id and not current.ended:
                self.rows[row.surface, row.name] = msgspec.structs.replace(current, **changes)

    def put(self, row: Row) -> None:
        """Writes an announcement."""
        with self.lock:
            self.rows[row.surface, row.name] = row

    def remove(self, row: Row) -> None:
        """Removes an announcement, if its deadline is still the same."""
        with self.lock:
            standing = self.rows.get((row.surface, row.name))
            if standing is not None and standing.deadline_ms == row.deadline_ms:
                del self.rows[row.surface, row.name]
