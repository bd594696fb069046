"""The table of producers: those that no longer fit in their log's state.

Rows are written only as guards of a commit (`PutProducer`): a producer is removed from the state and written to its row
in one step, so exactly-once holds for any number of producers. `get` is strongly consistent.

Producer rows in DynamoDB. Table `producers`: `log_id` S (hash), `producer` S (range); `epoch` N, `seq` N.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from headrace.tables.items import Guard, Item, Member, MemoryTables, Names, Refusal, n, refuse_newer, s
from headrace.wal.state import Producer

if TYPE_CHECKING:  # it loads pynamodb, which the adapters in memory do not need
    from headrace.tables.dynamodb import Store

TABLE = "producers"
PURGED_AT_ONCE = 10_000  # rows in one run: 400 calls


class Producers(Protocol):
    """The port of the table of producers. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def get(self, log_id: str, producer_id: str) -> Producer | None:
        """Returns the row of a producer; None if there is none."""

    def purge(self, log_id: str) -> bool:
        """Removes rows of a log, at most `PURGED_AT_ONCE`. Returns whether none are left."""


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


class DynamoProducers:
    """The port `headrace.tables.producers.Producers` on DynamoDB."""

    def __init__(self, store: Store, table: str) -> None:
        self._store = store
        self._table = table

    def get(self, log_id: str, producer_id: str) -> Producer | None:
        """Returns the row of a producer, None if there is none; costs one consistent read."""
        answer = self._store.call(
            "GetItem",
            {
                "TableName": self._table,
                "ConsistentRead": True,
                "Key": {"log_id": s(log_id), "producer": s(producer_id)},
            },
        )
        item = answer.get("Item")
        if item is None:
            return None
        refuse_newer(item, f"producers log_id={log_id} producer={producer_id}")
        return Producer(item["producer"]["S"], int(item["epoch"]["N"]), int(item["seq"]["N"]))

    def purge(self, log_id: str) -> bool:
        """Removes rows of a log with queries and batched deletes. Returns whether none are left."""
        return self._store.purge(self._table, log_id, "producer", PURGED_AT_ONCE)


class MemoryProducers:
    """The port of the table of producers in memory. Rows are written by guards; the write-ahead log shares `lock`."""

    def __init__(self, lock: threading.RLock | None = None) -> None:
        self.lock = lock or threading.RLock()
        self.rows: dict[tuple[str, str], Producer] = {}

    def get(self, log_id: str, producer_id: str) -> Producer | None:
        """Returns the row of a producer; None if there is none."""
        with self.lock:
            return self.rows.get((log_id, producer_id))

    def purge(self, log_id: str) -> bool:
        """Removes rows of a log. Returns whether none are left."""
        with self.lock:
            keys = [key for key in self.rows if key[0] == log_id][:PURGED_AT_ONCE]
            for key in keys:
                del self.rows[key]
        return len(keys) < PURGED_AT_ONCE
