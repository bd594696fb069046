"""The table of sessions: counters over all processes, slots of open streams, and when a log was last read.

Guarantees that every adapter keeps:
 1. `commit` writes the rows of all its guards, or none. A slot comes and goes in one transaction with its counts, so what
    is counted is there, and is freed exactly once: by who took it, or by anyone after its deadline.
 2. `counts` is strongly consistent. `expired` and `clocks` may lag by a moment.
 3. A read clock only rises. It may be forgotten `CLOCK_KEPT_S` after the read.

Sessions in DynamoDB. Table `sessions`: `id` S (hash), `part` S (range). A counter's shard is the item `count#<what>`,
`<shard>` with `held` N (`headrace.tables.counters`). A read clock is `clock#<log id>`, `-` with `read_ms` N and
`expires_at` N (Unix seconds): a reader may write it after its log was purged, and nobody would remove it then. A slot
is `slot#<id>`, `-` with `counts` L (the shards that it occupies: `<what>#<shard>`), `expiry_shard` S and
`expires_at_ms` N, the keys of the sparse index `expiry`. DynamoDB removes by itself the rows with `expires_at`; slots
have none, because it would not free what they count.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from headrace.errors import Damaged
from headrace.tables.counters import SHARDS, TABLE, Count, counter_id
from headrace.tables.items import (
    ConditionFailed,
    Guard,
    Item,
    Member,
    MemoryTables,
    Names,
    Refusal,
    TransactionCancelled,
    n,
    refuse_newer,
    s,
)

if TYPE_CHECKING:  # it loads pynamodb, which the adapters in memory do not need
    from headrace.tables.dynamodb import Store

EXPIRY = "expiry"
EXPIRY_SHARDS = "0123"  # 2,000 slots can come and go in a second: each does so in one partition of the index
CLOCK_KEPT_S = 90 * 86400
_WHOLE = "-"  # the range key of what has one row
_EXPIRED_PAGE = 100


class Slot(msgspec.Struct, frozen=True):
    """A place that something occupies until it is freed, at most until a time that is known when it is taken.

    Attributes:
        expires_ms: when it may be freed by anyone, in epoch milliseconds.
        counts: the shards in which it is counted: counter and number.
    """

    id: str
    expires_ms: int
    counts: tuple[tuple[str, int], ...]


class Sessions(Protocol):
    """The port of the table of sessions. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def commit(self, guards: Sequence[Guard]) -> int | None:
        """Writes the rows of guards of any tables if all conditions hold, else nothing.

        Returns:
            The number of the first guard whose condition does not hold; None if all hold.

        Raises:
            StoreThrottled: also if the transaction collides with another; nothing was written.
        """

    def counts(self, what: str) -> list[int]:
        """Returns what each shard of a counter holds."""

    def clocks(self, log_ids: Iterable[str]) -> dict[str, int]:
        """Returns when logs were last read (epoch ms), by log id; without those that never were."""

    def touch(self, log_id: str, now_ms: int) -> None:
        """Raises a log's read clock to `now_ms`; does nothing if it is as high already. One write: callers do it at most
        once in 15 s.
        """

    def expired(self, now_ms: int) -> Iterator[Slot]:
        """Yields the slots whose deadline is at or before `now_ms`. Reads on only as far as it is asked."""

    def purge(self, log_id: str) -> bool:
        """Removes a log's read clock. Returns True: nothing is left."""


class PutSlot(Guard, frozen=True):
    """A guard that writes a slot. It refuses if the slot is there."""

    slot: Slot

    def member(self, names: Names) -> Member:
        """Returns a conditional put of the slot, as a member of a transaction."""
        return {
            "Put": {
                "TableName": names[TABLE],
                "Item": slot_item(self.slot),
                "ConditionExpression": "attribute_not_exists(id)",
            }
        }

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns a refusal if the slot is there; else None."""
        return Refusal() if self.slot.id in tables[TABLE].slots else None

    def apply(self, tables: MemoryTables) -> None:
        """Writes the slot to the table in memory."""
        tables[TABLE].slots[self.slot.id] = self.slot


class DropSlot(Guard, frozen=True):
    """A guard that removes a slot. It refuses if the slot is not there: another freed it, with what it counts."""

    id: str

    def member(self, names: Names) -> Member:
        """Returns a conditional delete of the slot, as a member of a transaction."""
        return {
            "Delete": {
                "TableName": names[TABLE],
                "Key": _key("slot", self.id),
                "ConditionExpression": "attribute_exists(id)",
            }
        }

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns a refusal if the slot is not there; else None."""
        return None if self.id in tables[TABLE].slots else Refusal()

    def apply(self, tables: MemoryTables) -> None:
        """Removes the slot from the table in memory."""
        del tables[TABLE].slots[self.id]


def taking(slot: Slot, mosts: Mapping[str, int]) -> tuple[Guard, ...]:
    """Returns the guards that take a slot, the slot itself first. `mosts` has the limit of each of its counters."""
    return (PutSlot(slot), *(Count(what, 1, mosts[what], shard) for what, shard in slot.counts))


def freeing(slot: Slot) -> tuple[Guard, ...]:
    """Returns the guards that free a slot."""
    return (DropSlot(slot.id), *(Count(what, -1, 0, shard) for what, shard in slot.counts))


def _key(kind: str, name: str) -> Item:
    return {"id": s(f"{kind}#{name}"), "part": s(_WHOLE)}


def slot_item(slot: Slot) -> Item:
    """Converts a slot to an item of the DynamoDB table."""
    return {
        **_key("slot", slot.id),
        "counts": {"L": [s(f"{what}#{shard}") for what, shard in slot.counts]},
        "expiry_shard": s(_expiry_shard(slot.id)),
        "expires_at_ms": n(slot.expires_ms),
    }


def _expiry_shard(slot_id: str) -> str:
    return EXPIRY_SHARDS[sum(slot_id.encode()) % len(EXPIRY_SHARDS)]


def _slot(item: Item) -> Slot:
    where = f"sessions id={item.get('id')}"
    refuse_newer(item, where)
    try:
        counts = [one["S"].rpartition("#") for one in item["counts"]["L"]]
        return Slot(
            item["id"]["S"].removeprefix("slot#"),
            int(item["expires_at_ms"]["N"]),
            tuple((what, int(shard)) for what, _, shard in counts),
        )
    except (KeyError, ValueError) as exc:
        raise Damaged(f"row of a slot does not parse: {where}") from exc


class DynamoSessions:
    """The port `headrace.tables.sessions.Sessions` on DynamoDB."""

    def __init__(self, store: Store, names: Names) -> None:
        """Creates an adapter. `names` holds the deployed names of this table and of those that guards use."""
        self._store = store
        self._names = names

    @property
    def _table(self) -> str:
        return self._names[TABLE]

    def commit(self, guards: Sequence[Guard]) -> int | None:
        """Writes the rows of all guards with one transaction; returns the number of the first that refuses, else None."""
        members = [guard.member(self._names) for guard in guards]
        try:
            self._store.call("TransactWriteItems", {"TransactItems": members})
        except TransactionCancelled as exc:
            for number, (code, _) in enumerate(exc.reasons):
                if code == "ConditionalCheckFailed":
                    return number
            raise
        return None

    def counts(self, what: str) -> list[int]:
        """Returns what each shard of a counter holds, with one consistent query."""
        query = {
            "TableName": self._table,
            "ConsistentRead": True,
            "KeyConditionExpression": "id = :id",
            "ExpressionAttributeValues": {":id": s(counter_id(what))},
        }
        counts = [0] * SHARDS
        for item in self._store.query(query):
            refuse_newer(item, f"sessions counter={what}")
            counts[int(item["part"]["S"])] = int(item["held"]["N"])
        return counts

    def clocks(self, log_ids: Iterable[str]) -> dict[str, int]:
        """Returns read clocks with one batched read for each 100 logs."""
        keys = [_key("clock", log_id) for log_id in dict.fromkeys(log_ids)]
        found: dict[str, int] = {}
        for item in self._store.get_all(self._table, keys):
            found[item["id"]["S"].removeprefix("clock#")] = int(item["read_ms"]["N"])
        return found

    def touch(self, log_id: str, now_ms: int) -> None:
        """Raises a log's read clock with one conditional update; does nothing if it is as high already."""
        arguments = {
            "TableName": self._table,
            "Key": _key("clock", log_id),
            "UpdateExpression": "SET read_ms = :now, expires_at = :end",
            "ConditionExpression": "attribute_not_exists(read_ms) OR read_ms < :now",
            "ExpressionAttributeValues": {":now": n(now_ms), ":end": n(now_ms // 1000 + CLOCK_KEPT_S)},
        }
        try:
            self._store.call("UpdateItem", arguments)
        except ConditionFailed:
            return

    def expired(self, now_ms: int) -> Iterator[Slot]:
        """Yields the expired slots, with a query for each shard of the index and page."""
        for shard in EXPIRY_SHARDS:
            query = {
                "TableName": self._table,
                "IndexName": EXPIRY,
                "KeyConditionExpression": "expiry_shard = :shard AND expires_at_ms <= :now",
                "ExpressionAttributeValues": {":shard": s(shard), ":now": n(now_ms)},
                "Limit": _EXPIRED_PAGE,
            }
            yield from map(_slot, self._store.query(query))

    def purge(self, log_id: str) -> bool:
        """Removes a log's read clock with one delete."""
        self._store.call("DeleteItem", {"TableName": self._table, "Key": _key("clock", log_id)})
        return True


class MemorySessions:
    """The port of the table of sessions in memory. The write-ahead log shares `lock`, and its guards' `tables`."""

    def __init__(self, lock: threading.RLock | None = None) -> None:
        self.lock = lock or threading.RLock()
        self.tables: Mapping[str, Any] = {TABLE: self}
        self.counters: dict[tuple[str, int], int] = {}
        self.slots: dict[str, Slot] = {}
        self.read_ms: dict[str, int] = {}

    def commit(self, guards: Sequence[Guard]) -> int | None:
        """Writes the rows of all guards; returns the number of the first that refuses, else None."""
        with self.lock:
            for number, guard in enumerate(guards):
                if guard.check(self.tables) is not None:
                    return number
            for guard in guards:
                guard.apply(self.tables)
            return None

    def counts(self, what: str) -> list[int]:
        """Returns what each shard of a counter holds."""
        with self.lock:
            return [self.counters.get((what, shard), 0) for shard in range(SHARDS)]

    def clocks(self, log_ids: Iterable[str]) -> dict[str, int]:
        """Returns when logs were last read, by log id; without those that never were."""
        with self.lock:
            return {log_id: self.read_ms[log_id] for log_id in log_ids if log_id in self.read_ms}

    def touch(self, log_id: str, now_ms: int) -> None:
        """Raises a log's read clock to `now_ms`; does nothing if it is as high already."""
        with self.lock:
            self.read_ms[log_id] = max(now_ms, self.read_ms.get(log_id, 0))

    def expired(self, now_ms: int) -> Iterator[Slot]:
        """Yields the slots whose deadline has passed."""
        with self.lock:
            found = [slot for slot in self.slots.values() if slot.expires_ms <= now_ms]
        yield from sorted(found, key=lambda slot: slot.expires_ms)

    def purge(self, log_id: str) -> bool:
        """Removes a log's read clock."""
        with self.lock:
            self.read_ms.pop(log_id, None)
        return True
