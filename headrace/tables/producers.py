"""The table of what writers may repeat: producers that no longer fit in their log's state, and idempotency keys.

Rows are written only as guards of a commit (`PutProducer`): a producer is removed from the state and written to its row
in one step, so exactly-once holds for any number of producers. `get` is strongly consistent.

A key's row is written only as a guard of the commit of its records (`PutKey`), and only if the key is free: so one write
of a key counts, and one that fails leaves none. The guard's refusal returns the existing row.

Rows in DynamoDB. Table `producers`: `log_id` S (hash), `producer` S (range). Of a producer `epoch` N, `seq` N. Of a key,
whose `producer` is `key#` and a digest: `first` N, `end` N, `until_ms` N, `request` S, where it
applies `note` S, and `expires_at` N (Unix seconds), after which the store may remove it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headrace.errors import Damaged
from headrace.tables.items import Guard, Item, Member, MemoryTables, Names, Refusal, n, refuse_newer, s
from headrace.wal.state import Producer

if TYPE_CHECKING:  # it loads pynamodb, which the adapters in memory do not need
    from headrace.tables.dynamodb import Store

TABLE = "producers"
PURGED_AT_ONCE = 10_000  # rows in one run: 400 calls
_KEPT_S = 3600  # after a key is free: clocks differ, and the store's own decides when the row goes


class Producers(Protocol):
    """The port of the table of producers. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def get(self, log_id: str, producer_id: str) -> Producer | None:
        """Returns the row of a producer; None if there is none."""

    def key(self, log_id: str, digest: str) -> Key | None:
        """Returns the write that has an idempotency key, or had it until its time was over; None if there is no row."""

    def purge(self, log_id: str) -> bool:
        """Removes rows of a log, at most `PURGED_AT_ONCE`. Returns whether none are left."""


class Key(NamedTuple):
    """The write that has an idempotency key.

    Attributes:
        first, end: the offset of its first record, and the one after its last.
        until_ms: when the key is free again, epoch milliseconds.
        request_id: the request that wrote it.
        note: what its surface needs to answer a repeat.
    """

    first: int
    end: int
    until_ms: int
    request_id: str
    note: str = ""


def producer_item(log_id: str, producer: Producer) -> Item:
    """Converts a producer of a log to an item of the DynamoDB table."""
    return {
        "log_id": s(log_id),
        "producer": s(producer.id),
        "epoch": n(producer.epoch),
        "seq": n(producer.seq),
    }


class PutProducer(Guard, frozen=True):
    """A guard that writes a producer's row, if the row does not have a newer write of this producer.

    Otherwise a writer with old cached state could set the row back, with an entry that turns out not to count.
    """

    log_id: str
    producer: Producer

    def member(self, names: Names) -> Member:
        """Returns a conditional put of the producer's row, as a member of a transaction."""
        no_row = "attribute_not_exists(log_id)"
        older_epoch = "epoch < :epoch"
        no_newer_write = "(epoch = :epoch AND seq <= :seq)"
        return {
            "Put": {
                "TableName": names[TABLE],
                "Item": producer_item(self.log_id, self.producer),
                "ConditionExpression": f"{no_row} OR {older_epoch} OR {no_newer_write}",
                "ExpressionAttributeValues": {":epoch": n(self.producer.epoch), ":seq": n(self.producer.seq)},
            }
        }

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns a refusal if the row has a newer write; else None."""
        standing = tables[TABLE].rows.get((self.log_id, self.producer.id))
        if standing is None:
            return None
        is_newer = (standing.epoch, standing.seq) > (self.producer.epoch, self.producer.seq)
        return Refusal() if is_newer else None

    def apply(self, tables: MemoryTables) -> None:
        """Writes the row to the table in memory."""
        tables[TABLE].rows[self.log_id, self.producer.id] = self.producer


class PutKey(Guard, frozen=True):
    """A guard that gives an idempotency key to a write, if no other write has it at `now_ms` (epoch ms)."""

    log_id: str
    digest: str
    key: Key
    now_ms: int

    def member(self, names: Names) -> Member:
        """Returns a conditional put of the key's row, as a member of a transaction."""
        key = self.key
        item = {
            "log_id": s(self.log_id),
            "producer": s(f"key#{self.digest}"),
            "first": n(key.first),
            "end": n(key.end),
            "until_ms": n(key.until_ms),
            "request": s(key.request_id),
            "expires_at": n(key.until_ms // 1000 + _KEPT_S),
            **({"note": s(key.note)} if key.note else {}),
        }
        return {
            "Put": {
                "TableName": names[TABLE],
                "Item": item,
                "ConditionExpression": "attribute_not_exists(log_id) OR until_ms <= :now",
                "ExpressionAttributeValues": {":now": n(self.now_ms)},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }

    def standing(self, item: Item | None) -> Key:
        """Converts the row that refused the guard. Raises Damaged if the store did not return it, or it is no key's."""
        return _item_key(item or {}, self.log_id, self.digest)

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns a refusal if another write has the key; else None."""
        standing: Key | None = tables[TABLE].keys.get((self.log_id, self.digest))
        return Refusal(standing) if standing is not None and standing.until_ms > self.now_ms else None

    def apply(self, tables: MemoryTables) -> None:
        """Writes the row to the table in memory."""
        tables[TABLE].keys[self.log_id, self.digest] = self.key


def _item_key(item: Item, log_id: str, digest: str) -> Key:
    where = f"producers log_id={log_id} producer=key#{digest}"
    refuse_newer(item, where)
    try:
        first, end, until_ms = (int(item[name]["N"]) for name in ("first", "end", "until_ms"))
        return Key(first, end, until_ms, item["request"]["S"], item["note"]["S"] if "note" in item else "")
    except (KeyError, ValueError) as exc:
        raise Damaged(f"key's row does not parse: {where}") from exc


class DynamoProducers:
    """The port `headrace.tables.producers.Producers` on DynamoDB."""

    def __init__(self, store: Store, table: str) -> None:
        self._store = store
        self._table = table

    def get(self, log_id: str, producer_id: str) -> Producer | None:
        """Returns the row of a producer, None if there is none; costs one consistent read."""
        item = self._get(log_id, producer_id)
        if item is None:
            return None
        refuse_newer(item, f"producers log_id={log_id} producer={producer_id}")
        return Producer(item["producer"]["S"], int(item["epoch"]["N"]), int(item["seq"]["N"]))

    def key(self, log_id: str, digest: str) -> Key | None:
        """Returns the row of an idempotency key, None if there is none; costs one consistent read."""
        item = self._get(log_id, f"key#{digest}")
        return _item_key(item, log_id, digest) if item is not None else None

    def _get(self, log_id: str, producer: str) -> Item | None:
        key = {"log_id": s(log_id), "producer": s(producer)}
        found: Item | None = self._store.call(
            "GetItem", {"TableName": self._table, "ConsistentRead": True, "Key": key}
        ).get("Item")
        return found

    def purge(self, log_id: str) -> bool:
        """Removes rows of a log with queries and batched deletes. Returns whether none are left."""
        return self._store.purge(self._table, log_id, "producer", PURGED_AT_ONCE)


class MemoryProducers:
    """The port of the table of producers in memory. Rows are written by guards; the write-ahead log shares `lock`."""

    def __init__(self, lock: threading.RLock | None = None) -> None:
        self.lock = lock or threading.RLock()
        self.rows: dict[tuple[str, str], Producer] = {}
        self.keys: dict[tuple[str, str], Key] = {}

    def get(self, log_id: str, producer_id: str) -> Producer | None:
        """Returns the row of a producer; None if there is none."""
        with self.lock:
            return self.rows.get((log_id, producer_id))

    def key(self, log_id: str, digest: str) -> Key | None:
        """Returns the row of an idempotency key; None if there is none."""
        with self.lock:
            return self.keys.get((log_id, digest))

    def purge(self, log_id: str) -> bool:
        """Removes rows of a log. Returns whether none are left."""
        with self.lock:
            found = [(rows, row) for rows in (self.rows, self.keys) for row in rows if row[0] == log_id]
            for rows, row in found[:PURGED_AT_ONCE]:
                del rows[row]
        return len(found) < PURGED_AT_ONCE
