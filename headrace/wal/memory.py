"""The write-ahead log in memory: for tests and simulations. One lock makes commits with guards atomic."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterable, Sequence

from headrace.tables.catalog.memory import MemoryCatalog
from headrace.tables.producers.memory import MemoryProducers
from headrace.tables.watermarks.memory import MemoryWatermarks
from headrace.wal import (
    Committed,
    Guard,
    GuardRefused,
    Outcome,
    Page,
    PutEntry,
    PutProducer,
    PutRow,
    SlotTaken,
    TouchUnchanged,
    check_guards,
)
from headrace.wal.state import Entry

_PAGE_BYTES = 1024 * 1024


class MemoryWal:
    """Entries by log and slot, beside the tables that guards speak of."""

    def __init__(
        self,
        catalog: MemoryCatalog | None = None,
        watermarks: MemoryWatermarks | None = None,
        producers: MemoryProducers | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.catalog = catalog or MemoryCatalog(self.lock)
        self.watermarks = watermarks or MemoryWatermarks(self.lock)
        self.producers = producers or MemoryProducers(self.lock)
        self.catalog.lock = self.watermarks.lock = self.producers.lock = self.lock
        self._slots: dict[str, list[int]] = {}
        self._entries: dict[tuple[str, int], Entry] = {}

    def commit(self, entry: Entry, guards: Sequence[Guard] = ()) -> Outcome:
        """Checks slot and guards, then writes all."""
        check_guards(guards)
        with self.lock:
            standing = self._entries.get((entry.log_id, entry.slot))
            if standing is not None:
                return SlotTaken(standing)
            for index, guard in enumerate(guards):
                refused = self._refuses(index, guard)
                if refused is not None:
                    return refused
            self._put(entry)
            for guard in guards:
                self._apply(guard)
            return Committed()

    def _refuses(self, index: int, guard: Guard) -> GuardRefused | None:
        match guard:
            case PutEntry(entry):
                standing = self._entries.get((entry.log_id, entry.slot))
                before = self._entries.get((entry.log_id, entry.prev_slot))
                follows = entry.prev_slot < 0 or (before is not None and before.id == entry.prev_id)
                return None if standing is None and follows else GuardRefused(index, standing)
            case PutRow(row, replaces):
                current = self.catalog.rows.get((row.surface, row.name))
                log_id = current.log_id if current is not None else None
                return None if log_id == replaces else GuardRefused(index)
            case TouchUnchanged(log_id, touched_ms):
                return None if self.watermarks.get(log_id).touched_ms == touched_ms else GuardRefused(index)
            case PutProducer(log_id, producer):
                standing_producer = self.producers.rows.get((log_id, producer.id))
                if standing_producer is None:
                    return None
                newer = (standing_producer.epoch, standing_producer.seq) > (producer.epoch, producer.seq)
                return GuardRefused(index) if newer else None

    def _apply(self, guard: Guard) -> None:
        match guard:
            case PutEntry(entry):
                self._put(entry)
            case PutRow(row, _):
                self.catalog.rows[row.surface, row.name] = row
            case PutProducer(log_id, producer):
                self.producers.rows[log_id, producer.id] = producer
            case TouchUnchanged():
                pass

    def _put(self, entry: Entry) -> None:
        bisect.insort(self._slots.setdefault(entry.log_id, []), entry.slot)
        self._entries[entry.log_id, entry.slot] = entry

    def newest(self, log_id: str, *, below: int | None = None) -> Entry | None:
        """The newest entry."""
        page = self.read(log_id, end=below, limit=1, descending=True)
        return page.entries[0] if page.entries else None

    def read(
        self,
        log_id: str,
        *,
        start: int = 0,
        end: int | None = None,
        limit: int | None = None,
        descending: bool = False,
    ) -> Page:
        """One page of entries."""
        with self.lock:
            slots = self._slots.get(log_id, [])
            lo = bisect.bisect_left(slots, start)
            hi = len(slots) if end is None else bisect.bisect_left(slots, end)
            found: list[Entry] = []
            size = 0
            for slot in reversed(slots[lo:hi]) if descending else slots[lo:hi]:
                entry = self._entries[log_id, slot]
                if len(found) == limit or (found and size >= _PAGE_BYTES):
                    return Page(found, complete=False)
                found.append(entry)
                size += 300 + len(entry.payload or b"")
            return Page(found, complete=True)

    def remove(self, log_id: str, slots: Iterable[int]) -> None:
        """Removes entries."""
        with self.lock:
            for slot in slots:
                if self._entries.pop((log_id, slot), None) is not None:
                    self._slots[log_id].remove(slot)

    def remove_dead(self, entry: Entry) -> None:
        """Removes the entry if it is this very one."""
        with self.lock:
            standing = self._entries.get((entry.log_id, entry.slot))
            if standing is not None and standing.request_ids == entry.request_ids:
                self.remove(entry.log_id, [entry.slot])
