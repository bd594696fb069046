"""The events of a lane that are not folded yet, as a reader holds them: row and tail together are what `/get` answers from.

The order in which a reader looks decides that it misses nothing:

 1. The mark, read strongly, or the one in hand with all events since it.
 2. The rows, and what came after the newest known entry, which must chain to that entry.
 3. If it does not, everything again from 1.
 4. While a row is ahead of the tail, the tail is read on.
 5. The time of the answer is the clock's, or that of the newest event in hand if that is later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.clock import Bounded, Moment, Threads, age_s, moment
from headrace.errors import HeadraceError, RequestTimeout, StoreError
from headrace.features.documents import generation_of
from headrace.features.errors import Behind
from headrace.features.events import Entity, Event, Pipelines, read_event
from headrace.features.pipeline.features import State
from headrace.features.pipeline.tables import Table
from headrace.features.register import Registrations
from headrace.features.rows import decode_row
from headrace.features.values import lane_of
from headrace.log.join import PayloadTrimmed, fetch_payloads, read_beyond, read_payload
from headrace.log.requests import Head
from headrace.log.seam import Which
from headrace.tables.features import Key, StateRow
from headrace.tables.marks import Mark
from headrace.wal.state import Entry

_log = logging.getLogger(__name__)

MAX_TAIL_BYTES = 8 * 1024 * 1024  # of events that one read folds: what a push may find waiting, and one push more
MARK_S = 1.0  # a process reads the mark of a lane at most so often, unless it must
_LOOKS = 6
_REMEMBERED = 1_000  # lanes of one process
_READERS = Threads(16, "features")


class Tail:
    """The events of a lane from the mark on, and the state of the lane after them. Its owner holds `lock` for each call.

    Attributes:
        head: the lane, as of the newest entry.
        newest: that entry; seen at `read`.
        mark: the mark from which on events are held, read at `mark_read`; None if this incarnation of the lane was never
            folded.
        end: the offset after the last event.
        pipelines: what applies to the events.
    """

    def __init__(
        self,
        head: Head,
        newest: Entry,
        read: Moment,
        mark: Mark | None,
        mark_read: Moment,
        begin: int,
        pipelines: Pipelines,
    ) -> None:
        self.lock = threading.Lock()
        self.head = head
        self.newest = newest
        self.read = read
        self.mark = mark
        self.mark_read = mark_read
        self.pipelines = pipelines
        self.end = begin
        self._events: list[tuple[int, int, bytes]] = []  # offset, stamp, text
        self._indexes: dict[str, tuple[int, dict[str, list[Event]]]] = {}  # by table: how many are in it, by entity

    @property
    def unfolded_bytes(self) -> int:
        """Bytes of the events that are not folded, as far as this process knows."""
        return self.newest.state.total_bytes - (self.mark.total_bytes if self.mark is not None else 0)

    def add(self, offset: int, stamp_ms: int, data: bytes) -> None:
        """Adds an event at the end."""
        self._events.append((offset, stamp_ms, data))
        self.end = offset + 1

    def trim(self, mark: Mark) -> None:
        """Goes on from a newer mark: what is below it is in the rows."""
        self.mark = mark
        kept = [event for event in self._events if event[0] >= mark.folded]
        if len(kept) < len(self._events):
            self._events, self._indexes = kept, {}

    def forget_index(self) -> None:
        """Forgets which events belong to which entity, since the pipelines have changed."""
        self._indexes = {}

    def of(self, table: Table, entity: str, as_of: int) -> list[Event]:
        """Returns the events of an entity from an offset on."""
        count, index = self._indexes.get(table.name, (0, {}))
        for offset, stamp_ms, data in self._events[count:]:
            pipeline = self.pipelines.at(offset)
            at = pipeline.table(table.name, table.generation) if pipeline is not None else None
            if pipeline is None or at is None:
                continue
            row = read_event(pipeline, data)
            placed = at.entity_of(row) if row is not None else None
            if placed is not None:
                index.setdefault(placed[0], []).append(Event(at, placed[1], stamp_ms, offset))
        self._indexes[table.name] = (len(self._events), index)
        return [event for event in index.get(entity, ()) if event.offset >= as_of]


class Wanted(NamedTuple):
    """A row that is wanted: of a table, as its lane had it when it was asked for."""

    table: str
    entity: str


class Found(NamedTuple):
    """A row as it is: the table as it is now, and the state, None if there is no row.

    Attributes:
        failed: why there is no state, if an event that is not folded yet makes the table's features fail.
    """

    table: Table
    state: State | None
    failed: str = ""


class Rows(NamedTuple):
    """Rows of a lane, all with the events of one prefix of it.

    Attributes:
        head: the lane.
        mark: its mark, as far as it is known.
        end: the offset after the last event that the rows have; None if each may have others.
        found: what was wanted; None for what the lane has no table of any longer.
    """

    head: Head
    mark: Mark | None
    end: int | None
    found: dict[Wanted, Found | None]


class Lanes:
    """The tails of the lanes that a process reads."""

    def __init__(self, registrations: Registrations) -> None:
        self._log = registrations
        self._rows = registrations.rows
        self._stores = registrations.stores
        self._clock = registrations.stores.clock
        self._tails: Bounded[Which, Tail] = Bounded(_REMEMBERED)

    def tail(self, which: Which, *, fresh: bool = False) -> Tail:
        """Returns the tail of a lane as this process has it, or (`fresh`) as it is now; reads it if this process has none,
        or an old one.
        """
        tail = self._tails.get(which)
        if tail is None or self._log.is_old(tail.read) or (fresh and not self._extend(tail)):
            tail = self._open(which)
        return tail

    def read(self, which: Which, wanted: Sequence[Wanted]) -> Rows:
        """Returns rows of a lane with every event that was there when the read began: as states that the caller owns.

        Raises:
            NotFound, Gone: the lane has ended.
            Behind: too many events are not folded.
        """
        for _ in range(_LOOKS):
            rows = self._try(which, self.tail(which), wanted)
            if rows is not None:
                return rows
        raise RequestTimeout("others keep changing this table")

    def stored(self, which: Which, wanted: Sequence[Wanted]) -> Rows:
        """Returns rows of a lane as they are stored, without what came after, by the pipeline that this process knows; else
        as `read`.
        """
        tail = self.tail(which)
        with tail.lock:
            head, mark, tables = tail.head, tail.mark, self._tables(tail, wanted)
            keys = {one: self._key(tail, table, one) for one, table in tables.items() if table is not None}
        rows = self._rows.get(list(dict.fromkeys(keys.values())), consistent=False)
        found: dict[Wanted, Found | None] = {}
        for one, table in tables.items():
            row = rows.get(keys[one]) if table is not None else None
            state = decode_row(table.features, row.data) if row is not None and table is not None else None
            found[one] = Found(table, state) if table is not None else None
        return Rows(head, mark, None, found)

    def _try(self, which: Which, tail: Tail, wanted: Sequence[Wanted]) -> Rows | None:
        """Reads rows, and what came after a tail. None if that does not follow the tail, which is forgotten then, or if
        another thread has let go of events since.
        """
        self._renew(tail)  # before the rows are read: what is let go of now is in them
        with tail.lock:
            mark, tables = tail.mark, self._tables(tail, wanted)
        keys = {one: self._key(tail, table, one) for one, table in tables.items() if table is not None}
        calls: list[Callable[[], Any]] = [lambda: self._extend(tail)]
        if keys:
            calls.append(lambda: self._rows.get(list(dict.fromkeys(keys.values()))))
        follows, *rest = _READERS.map(lambda call: call(), calls)
        rows: Mapping[Key, StateRow] = rest[0] if rest else {}
        ahead = max((row.as_of for row in rows.values()), default=0)
        for _ in range(_LOOKS):
            if not follows or tail.end >= ahead:
                break
            follows = self._extend(tail)
        if not follows or tail.end < ahead or tail.unfolded_bytes > MAX_TAIL_BYTES:
            self._tails.pop(which)
            return None
        with tail.lock:
            if tail.mark is not mark or self._tables(tail, wanted) != tables:
                return None
            found: dict[Wanted, Found | None] = {}
            for one in wanted:
                row = rows.get(keys[one]) if one in keys else None
                found[one] = self._merge(tail, tables[one], one.entity, row)
            return Rows(tail.head, mark, tail.end, found)  # here: without the lock others read on

    def _tables(self, tail: Tail, wanted: Sequence[Wanted]) -> dict[Wanted, Table | None]:
        return {one: tail.pipelines.last.tables.get(one.table) for one in wanted}

    def _key(self, tail: Tail, table: Table, wanted: Wanted) -> Key:
        head = tail.head
        return Key(head.log_id, generation_of(table.name, table.generation, head), wanted.entity)

    def _merge(self, tail: Tail, table: Table | None, text: str, row: StateRow | None) -> Found | None:
        if table is None:
            return None
        try:
            return Found(table, self._fold(tail, table, text, row))
        except (HeadraceError, StoreError):
            raise
        except Exception as exc:  # noqa: BLE001 - whatever it is, other tables can be read; the folder stops this one
            _log.exception("table fails: log_id=%s table=%s", tail.head.log_id, table.name)
            return Found(table, None, type(exc).__name__)

    def _fold(self, tail: Tail, table: Table, text: str, row: StateRow | None) -> State | None:
        events = tail.of(table, text, row.as_of if row is not None else 0)
        entity = Entity()
        if row is not None:
            first = events[0].table if events else table
            entity = Entity(first, decode_row(first.features, row.data))
        lane = lane_of(tail.head.config.role)
        for event in events:
            entity.fold(event, lane)
        entity.move(table)
        return entity.state

    # Reading the tail.

    def _open(self, which: Which) -> Tail:
        """Reads the mark of a lane and all events since. Raises Behind."""
        for _ in range(_LOOKS):
            read = moment(self._clock)
            head, newest = self._log.newest(which)
            mark_read = moment(self._clock)
            mark = self._log.mark_of(head)
            begin = max(mark.folded if mark is not None else 0, head.state.floor)
            tail = Tail(head, newest, read, mark, mark_read, begin, self._log.pipelines_of(head, begin))
            self._check(tail)
            while tail.end < newest.next_offset:
                page = self._log.records(which, tail.end, max_bytes=MAX_TAIL_BYTES)
                if page.head.log_id != head.log_id or page.head.incarnation != head.incarnation:
                    break  # the name has another log
                for record in page.records:
                    if record.offset < newest.next_offset:
                        tail.add(record.offset, record.time_ms, record.data)
                tail.end = max(tail.end, min(page.next, newest.next_offset))  # also above a floor that rose meanwhile
                if not page.records:
                    break
            if tail.end == newest.next_offset:
                self._tails.put(which, tail)
                return tail
        raise RequestTimeout("others keep changing this event's log")

    def _check(self, tail: Tail) -> None:
        """Raises Behind if the events of a tail are too many to be read."""
        if tail.unfolded_bytes > MAX_TAIL_BYTES:
            raise Behind(tail.head.config.name.partition("/")[2], tail.unfolded_bytes)

    def _extend(self, tail: Tail) -> bool:
        """Adds what came after a tail. Returns False if that is not known, because entries were trimmed or the tail is old,
        or if the lane has ended: it must be read again from the mark.
        """
        for _ in range(_LOOKS):
            read = moment(self._clock)
            known = tail.newest
            after = read_beyond(self._stores.wal, known)
            if after.newest is None or self._log.is_old(tail.read) or after.newest.state.ended:
                return False
            try:
                fetched = fetch_payloads(self._stores, after.entries)
                batches = [read_payload(self._stores, entry, fetched) for entry in after.entries]
            except PayloadTrimmed:
                return False
            with tail.lock:
                if tail.newest is known:
                    if after.newest is not known:
                        self._add(tail, after.newest, read)
                        for entry, batch in zip(after.entries, batches, strict=True):
                            for record in batch.records(entry.offset):
                                tail.add(record.offset, record.time_ms, record.data)
                        tail.end = after.newest.next_offset
                    return True
                if tail.newest.slot >= after.newest.slot:
                    return True  # another thread has added as much
        return False

    def _add(self, tail: Tail, newest: Entry, read: Moment) -> None:
        head = tail.head._replace(state=newest.state)
        if head.state.definition != tail.head.state.definition:
            first = tail.mark.folded if tail.mark is not None else 0
            tail.pipelines = self._log.pipelines_of(head, first)  # may fail: until then nothing has changed
            tail.forget_index()
        tail.head, tail.newest, tail.read = head, newest, read

    def _renew(self, tail: Tail) -> None:
        """Reads the mark again from time to time, and lets go of events that are in the rows."""
        is_over = tail.unfolded_bytes > MAX_TAIL_BYTES
        if not is_over and (not tail.unfolded_bytes or age_s(self._clock, tail.mark_read) <= MARK_S):
            return
        read = moment(self._clock)
        mark = self._log.mark_of(tail.head)
        with tail.lock:
            tail.mark_read = read
            if mark is not None and (tail.mark is None or mark.folded > tail.mark.folded):
                tail.trim(mark)
