"""Counters over all processes: how many of a kind there are (topics, open streams), so that a limit holds for all of them.

A counter is the sum of 16 rows, its *shards*, so that transactions seldom meet at one item. Of a limit each shard may
hold its part, and the parts add up to the limit: so the sum never exceeds it, and while the sum is below the limit, some
shard has room. One more goes to any shard that has room; one less comes off any shard, which may fall below zero. So
nothing has to remember where it was counted, and a limit may be changed at any time: after it was lowered, shards that hold
more than their new part keep it and others fill up to theirs, so that the sum may be above it, but never above the limit
before. Likewise a recovery may find more than the limit: it spreads them evenly, and the sum never exceeds what it found.

The rows are in the table of sessions (`headrace.tables.sessions`). They change only with what they count, in one
transaction: a name with its row, an open stream with its slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from headrace.errors import LimitReached
from headrace.tables.catalog import PutRow, Row
from headrace.tables.items import Guard, Member, MemoryTables, Names, Refusal, n, s
from headrace.wal.state import LogState

TABLE = "sessions"
SHARDS = 16
TOTAL_BYTES = "total_bytes"  # the counter of the bytes that logs have reserved
_PREFIX = "count#"


def part_of(shard: int, most: int) -> int:
    """Returns how many of a limit of `most` one shard may hold."""
    return most // SHARDS + (shard < most % SHARDS)


def usual_shard(name: str, most: int) -> int:
    """Returns the shard that a name tries first: one that may hold something."""
    return sha256(name.encode()).digest()[0] % min(SHARDS, most or SHARDS)


def free_shard(counts: Sequence[int], most: int, first: int) -> int | None:
    """Returns the first shard with room for one more, from `first` on and around; None if the limit is reached.

    Args:
        counts: what each shard holds.
        most: the limit; 0 means none.
    """
    if not most:
        return first
    if sum(counts) >= most:
        return None
    shards = ((first + step) % SHARDS for step in range(SHARDS))
    return next(shard for shard in shards if counts[shard] < part_of(shard, most))


class Count(Guard, frozen=True):
    """A guard that adds `change` to one shard of a counter. It refuses if the shard would hold more than its part of the
    limit.

    Attributes:
        what: the name of the counter.
        most: the limit; 0 means none. It does not matter if `change` is negative.
        shard: the number of the shard.
    """

    what: str
    change: int
    most: int
    shard: int

    @property
    def _is_limited(self) -> bool:
        return self.change > 0 and self.most > 0

    @property
    def _room(self) -> int:
        """The most that the shard may hold before the change."""
        return part_of(self.shard, self.most) - self.change

    def member(self, names: Names) -> Member:
        """Returns an update of the shard's row, as a member of a transaction."""
        update: Member = {
            "TableName": names[TABLE],
            "Key": counter_key(self.what, self.shard),
            "UpdateExpression": "ADD held :change",
            "ExpressionAttributeValues": {":change": n(self.change)},
        }
        if self._is_limited:
            absent = "attribute_not_exists(held) OR " if self._room >= 0 else ""
            update["ConditionExpression"] = f"{absent}held <= :room"
            update["ExpressionAttributeValues"][":room"] = n(self._room)
        return {"Update": update}

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns a refusal if the shard has no room; else None."""
        held = tables[TABLE].counters.get((self.what, self.shard), 0)
        return Refusal() if self._is_limited and held > self._room else None

    def apply(self, tables: MemoryTables) -> None:
        """Changes the shard in memory."""
        counters = tables[TABLE].counters
        counters[self.what, self.shard] = counters.get((self.what, self.shard), 0) + self.change


class SetShard(Guard, frozen=True):
    """A guard that gives one shard of a counter another value, if it still has the value `was`."""

    what: str
    shard: int
    was: int
    held: int

    def member(self, names: Names) -> Member:
        """Returns a conditional update of the shard's row, as a member of a transaction."""
        absent = "attribute_not_exists(held) OR " if self.was == 0 else ""
        return {
            "Update": {
                "TableName": names[TABLE],
                "Key": counter_key(self.what, self.shard),
                "UpdateExpression": "SET held = :held",
                "ConditionExpression": f"{absent}held = :was",
                "ExpressionAttributeValues": {":was": n(self.was), ":held": n(self.held)},
            }
        }

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns a refusal if the shard has another value; else None."""
        held = tables[TABLE].counters.get((self.what, self.shard), 0)
        return None if held == self.was else Refusal()

    def apply(self, tables: MemoryTables) -> None:
        """Changes the shard in memory."""
        tables[TABLE].counters[self.what, self.shard] = self.held


def counter_id(what: str) -> str:
    """Returns the hash key of a counter's rows."""
    return _PREFIX + what


def counter_key(what: str, shard: int) -> Member:
    """Returns the key of one shard's item."""
    return {"id": s(counter_id(what)), "part": s(f"{shard:02}")}


def one_more(
    what: str,
    name: str,
    most: int,
    counts: Callable[[str], Sequence[int]],
    refused: Sequence[tuple[Guard, Any]] = (),
) -> Count:
    """Returns the guard by which a commit counts one more.

    Args:
        what: the name of the counter.
        name: what is counted; it decides which shard is tried first.
        most: the limit; 0 means none.
        counts: reads what each shard of a counter holds (`Rows.counts`).
        refused: the guards that prevented the commit before (`Ids.refused`). Only if a shard of this counter is among
            them, because it is full, the counter is read.

    Raises:
        LimitReached: there are as many as may be.
    """
    usual = usual_shard(name, most)
    shard: int | None = usual
    if any(isinstance(guard, Count) and guard.what == what for guard, _ in refused):
        shard = free_shard(counts(what), most, usual)
    if shard is None:
        raise LimitReached(f"max_{what}", most)
    return Count(what, 1, most, shard)


def one_less(what: str, name: str, skip: int = 0) -> Count:
    """Returns the guard by which a commit counts one less: in the shard that `name` tries first, or `skip` shards on."""
    return Count(what, -1, 0, (usual_shard(name, 0) + skip) % SHARDS)


def freed(row: Row, state: LogState | None, skip: int = 0) -> tuple[Count, ...]:
    """Returns the guards by which a name that has ended counts no more, nor what its log holds."""
    return (one_less(row.surface, row.name, skip), *_held(row, state, skip))


def _held(row: Row, state: LogState | None, skip: int = 0) -> tuple[Count, ...]:
    shard = (usual_shard(row.name, 0) + skip) % SHARDS
    counted = state.extension.counted if state is not None and state.extension is not None else ()
    return tuple(Count(what, -number, 0, shard) for what, number in counted)


def put_counted(
    row: Row, before: Row | None, count: Callable[[], Count], state: LogState | None = None
) -> tuple[Guard, ...]:
    """Returns the guards that write the row of a new log of a counted surface.

    Args:
        before: the name's row as it was read, of a log that has ended; None if there is none.
        count: returns the guard that counts the name. It is asked only if the name is not counted: the row of an ended
            log counts until it is marked, and then its place is taken over.
        state: the state of the log that the name had, which holds nothing from now on.
    """
    if before is None:
        return (PutRow(row, None), count())
    if before.ended:
        return (PutRow(row, before.log_id), count())
    return (PutRow(row, before.log_id, unmarked=True), *_held(before, state))
