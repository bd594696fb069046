"""A small surface for tests: a name is a main log of any bytes and a companion, `notes`, of JSON."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from headrace.batch import Batch
from headrace.errors import Conflict
from headrace.log import seam as rules
from headrace.log.commit import Found
from headrace.log.context import Stores
from headrace.log.control import Controls
from headrace.log.logs import Log
from headrace.log.requests import JSON
from headrace.log.seam import Decision, Draft, Ids, Look, Request, Rows, Surface, Which
from headrace.tables.catalog import PutRow, Row
from headrace.tables.items import Guard, MemoryTables, Refusal
from headrace.wal.memory import MemoryWal
from headrace.wal.state import LogConfig, LogState, TimeRun, incarnation_of
from tests.support.builders import BYTES

PAIRS = "pairs"
NOTES = "notes"


class Tags:
    """A table of the surface's own, in memory: tags by log."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.rows: set[tuple[str, str]] = set()

    def purge(self, log_id: str) -> None:
        """Drops every row of a log."""
        with self.lock:
            self.rows = {row for row in self.rows if row[0] != log_id}


class PutTag(Guard, frozen=True):
    """Guard: a log gets a tag."""

    log_id: str
    tag: str

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns None: a tag can always be put."""

    def apply(self, tables: MemoryTables) -> None:
        """Puts the row."""
        tables["tags"].rows.add((self.log_id, self.tag))


def pairs_wal() -> MemoryWal:
    """Returns empty tables, that of the surface included."""
    return MemoryWal({"tags": Tags()})


class PairSurface(Surface):
    """Pairs, as the log knows them."""

    name = PAIRS
    noun = "pair"

    def decide(
        self, logs: Sequence[Look | None], requests: Sequence[Request], rows: Rows, now_ms: int, ids: Ids
    ) -> Decision:
        """Decides appends: all of them share an entry."""
        look = alive(logs[0])
        batches = [one.request for one in requests]
        draft = _write(look, batches, now_ms)
        return Decision([draft.state.next_offset] * len(batches), (draft,))


SURFACE = PairSurface()


def alive(look: Look | None) -> Look:
    """Returns the look. Raises the error of a log that has ended."""
    assert look is not None
    error = SURFACE.ended(look.config, look.state)
    if error is not None:
        raise error
    return look


def _write(look: Look, batches: list[Batch], now_ms: int) -> Draft:
    state = look.state
    for batch in batches:
        state = rules.grow(state, batch, now_ms).state
    times = (TimeRun(sum(map(len, batches)), state.append_time_ms),)
    return Draft(look.log_id, "data", state, batches, times, tuple(range(len(batches))))


class Pairs:
    """Pairs by name."""

    def __init__(self, stores: Stores) -> None:
        self.log = Log(stores, SURFACE)

    def create(self, name: str, **config: Any) -> Row:
        """Creates a pair, tagged in the surface's own table; its row."""

        def decide(looks: Sequence[Look | None], _: Sequence[Request], __: Rows, now_ms: int, ids: Ids) -> Decision:
            (old,) = looks
            if old is not None and not old.state.ended:
                raise Conflict(f"pair exists: name={name}")
            incarnation = incarnation_of(old.config, old.state) + 1 if old is not None else 0
            plain = LogConfig(PAIRS, name, incarnation, BYTES, now_ms, **config)
            state = LogState(touched_ms=now_ms)
            row = Row(ids.log(), rules.name_companions(plain, {NOTES: JSON}, ids))
            row = Row(row.log_id, row.config, deadline_ms=rules.deadline_ms(row.config, state, 0))
            entries = (Draft(row.log_id, "create", state, config=row.config), *rules.create_companions(row))
            tags = [PutTag(one.log_id, "created") for one in row.logs]
            return Decision((row,), entries, (PutRow(row, old.log_id if old is not None else None), *tags))

        row: Row = self.log.control(name, lambda controls: controls.find_any(name), decide)
        return row

    def append(self, which: Which, *data: bytes) -> int:
        """Appends to a log; the offset after it."""
        end: int = self.log.appender.append(which, Batch.of(data)).result()
        return end

    def append_both(self, name: str, data: bytes, note: bytes) -> None:
        """Appends to both logs in one commit."""

        def find(controls: Controls) -> Found:
            return controls.find_living(name, (name, NOTES))

        def decide(looks: Sequence[Look | None], _: Sequence[Request], __: Rows, now_ms: int, ___: Ids) -> Decision:
            main, notes = map(alive, looks)
            entries = (_write(main, [Batch.of([data])], now_ms), _write(notes, [Batch.of([note])], now_ms))
            return Decision((None,), entries)

        self.log.control(name, find, decide, None, (name, NOTES))
