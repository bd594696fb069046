"""The write-ahead log in memory, for tests and simulations. One lock makes commits with guards atomic."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from headrace.tables import catalog as catalogs
from headrace.tables import follows
from headrace.tables import producers as producer_rows
from headrace.tables import watermarks as marks
from headrace.tables.counters import TABLE as SESSIONS
from headrace.tables.items import Guard
from headrace.tables.memory import MemoryCatalog
from headrace.tables.sessions import MemorySessions
from headrace.wal import Committed, GuardRefused, Outcome, Page, SlotTaken, check_guards
from headrace.wal.entry import TABLE
from headrace.wal.state import Entry

_PAGE_BYTES = 1024 * 1024


class MemoryWal:
    """The port `headrace.wal.Wal` in memory, together with the tables that guards use.

    Attributes:
        tables: this table and the others, by the names that guards use. All share `lock`.
        more: the tables that only some surfaces have.
    """

    def __init__(self, more: Mapping[str, Any] | None = None) -> None:
        """Creates an empty log. Tables in `more` get this log's lock."""
        self.lock = threading.RLock()
        self.more = dict(more or {})
        self.catalog = MemoryCatalog(self.lock)
        self.watermarks = marks.MemoryWatermarks(self.lock)
        self.producers = producer_rows.MemoryProducers(self.lock)
        self.follows = follows.MemoryFollows(self.lock)
        self.sessions = MemorySessions(self.lock)
        self.tables: dict[str, Any] = {
            TABLE: self,
            catalogs.TABLE: self.catalog,
            marks.TABLE: self.watermarks,
            producer_rows.TABLE: self.producers,
            follows.TABLE: self.follows,
            SESSIONS: self.sessions,
            **self.more,
        }
        for table in self.more.values():
            table.lock = self.lock
        self.sessions.tables = self.tables
        self._slots: dict[str, list[int]] = {}
        self._entries: dict[tuple[str, int], Entry] = {}
        self._marks: dict[tuple[str, int], int] = {}  # when marked entries were committed

    def commit(self, entry: Entry, guards: Sequence[Guard] = (), read_ms: int | None = None) -> Outcome:  # noqa: ARG002
        """Checks the slot and all guards, and writes everything if all conditions hold, otherwise nothing. Returns the
        outcome.
        """
        if guards:
            check_guards(guards)
        with self.lock:
            standing = self.at(entry.log_id, entry.slot)
            if standing is not None:
                return SlotTaken(standing)
            checked = [(index, guard.check(self.tables)) for index, guard in enumerate(guards)]
            refused = tuple((index, refusal.standing) for index, refusal in checked if refusal is not None)
            if refused:
                return GuardRefused(*refused[0], refused[1:])
            self.put(entry)
            for guard in guards:
                guard.apply(self.tables)
            return Committed()

    def at(self, log_id: str, slot: int) -> Entry | None:
        """Returns the entry in a slot; None if the slot is free."""
        return self._entries.get((log_id, slot))

    def put(self, entry: Entry) -> None:
        """Puts an entry into its slot, without any check."""
        bisect.insort(self._slots.setdefault(entry.log_id, []), entry.slot)
        self._entries[entry.log_id, entry.slot] = entry
        if entry.state.is_purgeable:
            self._marks[entry.log_id, entry.slot] = entry.committed_ms

    def newest(self, log_id: str, *, below: int | None = None) -> Entry | None:
        """Returns the newest entry of a log; with `below`, the newest one in a lower slot. None if there is none."""
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
        """Returns one page of entries with `start <= slot < end`: at most `limit`, and about a megabyte."""
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
        """Removes the entries in these slots; missing ones are not an error."""
        with self.lock:
            for slot in slots:
                if self._entries.pop((log_id, slot), None) is not None:
                    self._slots[log_id].remove(slot)
                    self._marks.pop((log_id, slot), None)

    def remove_dead(self, entry: Entry) -> None:
        """Removes a dead entry (one in a trimmed slot that is no part of its log's chain); does nothing if its slot is
        empty or holds another entry.
        """
        with self.lock:
            standing = self._entries.get((entry.log_id, entry.slot))
            if standing is not None and standing.request_ids == entry.request_ids:
                self.remove(entry.log_id, [entry.slot])

    def unpurged(self, before_ms: int) -> Iterator[str]:
        """Yields the ids of the logs with a marked entry that was committed at or before `before_ms`."""
        with self.lock:
            found = [log_id for (log_id, _), committed_ms in self._marks.items() if committed_ms <= before_ms]
        yield from found

    def purged(self, log_id: str, slot: int) -> None:
        """Removes the mark of an entry; does nothing if it has none."""
        with self.lock:
            self._marks.pop((log_id, slot), None)
