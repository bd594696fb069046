"""A small surface for tests: a name is a main log of any bytes and a companion, `notes`, of JSON.

It has what a surface may have: an extension of the state that holds configuration, a control kind of its own that names an
object, a table with a guarded row, appends and controls that commit entries of both logs. No file of the engine knows it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from headrace.batch import Batch
from headrace.errors import Conflict, InvalidRequest
from headrace.log import seam as rules
from headrace.log.commit import Found
from headrace.log.control import Controls
from headrace.log.logs import Log
from headrace.log.requests import JSON
from headrace.log.seam import Decision, Draft, Ids, Look, NamedObject, Request, Rows, Surface, Which, split
from headrace.log.stores import Stores
from headrace.objects import keys
from headrace.tables.catalog import PutRow, Row
from headrace.tables.counters import one_more, put_counted
from headrace.tables.items import Guard, Member, MemoryTables, Names, Refusal, s
from headrace.wal.extension import Extension
from headrace.wal.memory import MemoryWal
from headrace.wal.state import LogConfig, LogState, TimeRun, incarnation_of
from tests.support.builders import BYTES

if TYPE_CHECKING:
    from headrace.tables.dynamodb import Store

PAIRS = "pairs"
NOTES = "notes"
TAGS = "tags"
NOTED = "noted"  # the key of records that appear in the notes, too


class PairState(Extension, msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="pair"):
    """The extension of a pair's main log.

    Attributes:
        limit: the most bytes of a record.
        reason: the object that says why.
    """

    limit: int
    reason: str

    def named_objects(self, log_id: str) -> tuple[str, ...]:
        """Returns the object that says why."""
        return (self.reason,)


class Tags:
    """A table of the surface's own, in memory: tags by log."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.rows: set[tuple[str, str]] = set()

    def of(self, log_id: str) -> set[str]:
        """Returns the tags of a log."""
        with self.lock:
            return {tag for log, tag in self.rows if log == log_id}

    def put(self, log_id: str, tag: str) -> None:
        """Puts a row, whatever is there."""
        self.rows.add((log_id, tag))

    def purge(self, log_id: str) -> bool:
        """Drops every row of a log."""
        with self.lock:
            self.rows = {row for row in self.rows if row[0] != log_id}
        return True


class DynamoTags:
    """The same in DynamoDB. Table `tags`: `log_id` S (hash), `tag` S (range)."""

    def __init__(self, store: Store, table: str) -> None:
        self._store = store
        self._table = table

    def of(self, log_id: str) -> set[str]:
        """Returns the tags of a log."""
        query = {
            "TableName": self._table,
            "ConsistentRead": True,
            "KeyConditionExpression": "log_id = :log",
            "ExpressionAttributeValues": {":log": s(log_id)},
        }
        return {item["tag"]["S"] for item in self._store.call("Query", query)["Items"]}

    def put(self, log_id: str, tag: str) -> None:
        """Puts a row, whatever is there."""
        self._store.call("PutItem", {"TableName": self._table, "Item": {"log_id": s(log_id), "tag": s(tag)}})

    def purge(self, log_id: str) -> bool:
        """Drops every row of a log."""
        return self._store.purge(self._table, log_id, "tag", 100)


class PutTag(Guard, frozen=True):
    """Guard: a log gets a tag that it does not have."""

    log_id: str
    tag: str

    def member(self, names: Names) -> Member:
        """Returns a conditional put."""
        put = {
            "TableName": names[TAGS],
            "Item": {"log_id": s(self.log_id), "tag": s(self.tag)},
            "ConditionExpression": "attribute_not_exists(log_id)",
        }
        return {"Put": put}

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns the refusal if the log has the tag."""
        return Refusal() if (self.log_id, self.tag) in tables[TAGS].rows else None

    def apply(self, tables: MemoryTables) -> None:
        """Puts the row."""
        tables[TAGS].rows.add((self.log_id, self.tag))


def pairs_wal() -> MemoryWal:
    """Returns empty tables, that of the surface included."""
    return MemoryWal({TAGS: Tags()})


class PairSurface(Surface):
    """Pairs, as the log knows them."""

    name = PAIRS
    noun = "pair"

    def look_at(self, which: Which) -> tuple[Which, ...]:
        """An append to the main log may write to the notes, too."""
        name, role = split(which)
        return (which,) if role else (which, (name, NOTES))

    def decide(
        self, logs: Sequence[Look | None], requests: Sequence[Request], rows: Rows, now_ms: int, ids: Ids
    ) -> Decision:
        """Decides appends: all of them share an entry in each log that they write to."""
        looks, batches = [alive(look) for look in logs], [one.request for one in requests]
        extension = looks[0].state.extension
        if isinstance(extension, PairState) and any(batch.size > extension.limit for batch in batches):
            return Decision([InvalidRequest(f"record is too long: limit={extension.limit}")] * len(batches))
        drafts = [_write(looks[0], batches, now_ms, tuple(range(len(batches))))]
        noted = [batch for batch in batches if batch.key == NOTED]
        if noted and len(looks) > 1:
            drafts.append(_write(looks[1], noted, now_ms))
        return Decision([drafts[0].state.next_offset] * len(batches), tuple(drafts))


SURFACE = PairSurface()


def alive(look: Look | None) -> Look:
    """Returns the look. Raises the error of a log that has ended."""
    assert look is not None
    error = SURFACE.ended(look.config, look.state)
    if error is not None:
        raise error
    return look


def _write(look: Look, batches: list[Batch], now_ms: int, requests: tuple[int, ...] = ()) -> Draft:
    state = look.state
    for batch in batches:
        state = rules.grow(state, batch, now_ms).state
    times = (TimeRun(sum(map(len, batches)), state.append_time_ms),)
    return Draft(look.log_id, "data", state, batches, times, requests)


class Pairs:
    """Pairs by name.

    Args:
        most: how many pairs there may be, 0 for any number; None if they are not counted. `Stores.counted` must agree.
    """

    def __init__(self, stores: Stores, most: int | None = None) -> None:
        self.log = Log(stores, SURFACE)
        self._most = most

    def create(self, name: str, **config: Any) -> Row:
        """Creates a pair, tagged in the surface's own table; returns its row."""

        def decide(looks: Sequence[Look | None], _: Sequence[Request], rows: Rows, now_ms: int, ids: Ids) -> Decision:
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
            named: tuple[Guard, ...] = (PutRow(row, old.log_id if old is not None else None),)
            most = self._most
            if most is not None:
                before = old.row if old is not None else None
                named = put_counted(row, before, lambda: one_more(PAIRS, name, most, rows.counts, ids.refused))
            return Decision((row,), entries, (*named, *tags))

        row: Row = self.log.control(name, lambda controls: controls.find_any(name), decide)
        return row

    def append(self, which: Which, *data: bytes, key: str | None = None) -> int:
        """Appends to a log; the offset after it."""
        end: int = self.log.appender.append(which, Batch.of(data, key=key)).result()
        return end

    def configure(self, name: str, limit: int, reason: bytes) -> None:
        """Limits records; the reason is an object that the state names."""

        def decide(looks: Sequence[Look | None], _: Sequence[Request], __: Rows, ___: int, ids: Ids) -> Decision:
            look = alive(looks[0])
            before = look.state.named_objects(look.log_id)
            number = keys.numbered(before[0])[1] + 1 if before else 1
            key = keys.removed(look.log_id, number, ids.nonce(reason))
            draft = Draft(look.log_id, "configure", replace(look.state, extension=PairState(limit, key)))
            return Decision((None,), (draft,), (), (NamedObject(key, reason),))

        self.log.control(name, lambda controls: controls.find_living(name), decide)

    def raise_floor(self, name: str, floor: int) -> None:
        """Gives up the main log's records below an offset."""

        def decide(looks: Sequence[Look | None], _: Sequence[Request], __: Rows, ___: int, ____: Ids) -> Decision:
            look = alive(looks[0])
            draft = Draft(look.log_id, "erase", replace(look.state, floor=max(floor, look.state.floor)))
            return Decision((None,), (draft,))

        self.log.control(name, lambda controls: controls.find_living(name), decide)

    def tag(self, name: str, tag: str) -> None:
        """Gives the main log a tag."""

        def decide(looks: Sequence[Look | None], _: Sequence[Request], rows: Rows, __: int, ___: Ids) -> Decision:
            look = alive(looks[0])
            if tag in rows.table(TAGS).of(look.log_id):
                return Decision((Conflict(f"pair has this tag: tag={tag}"),))
            return Decision((None,), (Draft(look.log_id, "tag", look.state),), (PutTag(look.log_id, tag),))

        self.log.control(name, lambda controls: controls.find_living(name), decide)

    def append_both(self, name: str, data: bytes, note: bytes) -> None:
        """Appends to both logs in one commit."""

        def find(controls: Controls) -> Found:
            return controls.find_living(name, (name, NOTES))

        def decide(looks: Sequence[Look | None], _: Sequence[Request], __: Rows, now_ms: int, ___: Ids) -> Decision:
            main, notes = map(alive, looks)
            entries = (_write(main, [Batch.of([data])], now_ms), _write(notes, [Batch.of([note])], now_ms))
            return Decision((None,), entries)

        self.log.control(name, find, decide, None, (name, NOTES))
