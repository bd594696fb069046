"""The write-ahead log in DynamoDB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace.errors import SignatureExpired
from headrace.tables.items import ConditionFailed, Guard, Names, TransactionCancelled, n, s
from headrace.wal import Committed, GuardRefused, Outcome, Page, SlotTaken, TooLate, check_guards
from headrace.wal.entry import PURGE_INDEX, PURGE_SHARDS, TABLE, item_entry, present, put_entry
from headrace.wal.state import Entry

if TYPE_CHECKING:
    from headrace.tables.dynamodb import Store

_REFUSED = "ConditionalCheckFailed"


class DynamoWal:
    """The port `headrace.wal.Wal` on DynamoDB."""

    def __init__(self, store: Store, names: Names) -> None:
        """Creates an adapter. `names` holds the deployed names of this table and of those that guards use."""
        self._store = store
        self._names = names

    def commit(self, entry: Entry, guards: Sequence[Guard] = (), read_ms: int | None = None) -> Outcome:
        """Commits with one conditional put, or with one transaction if there are guards; signed with the time `read_ms`.
        Returns the outcome; nothing changed unless it is `Committed`.
        """
        try:
            if guards:
                check_guards(guards)
                return self._commit_guarded(entry, guards, read_ms)
            self._store.call("PutItem", put_entry(entry, self._names), read_ms)
        except SignatureExpired:
            return TooLate()
        except ConditionFailed as exc:
            return SlotTaken(item_entry(present(exc.item)))
        return Committed()

    def _commit_guarded(self, entry: Entry, guards: Sequence[Guard], read_ms: int | None) -> Outcome:
        members = [{"Put": put_entry(entry, self._names)}, *(guard.member(self._names) for guard in guards)]
        try:
            self._store.call("TransactWriteItems", {"TransactItems": members}, read_ms)
        except TransactionCancelled as exc:
            (code, standing), *reasons = exc.reasons
            if code == _REFUSED:
                return SlotTaken(item_entry(present(standing)))
            refused = tuple(
                (number, guards[number].standing(item))
                for number, (code, item) in enumerate(reasons)
                if code == _REFUSED
            )
            if refused:
                return GuardRefused(*refused[0], refused[1:])
            raise
        return Committed()

    def newest(self, log_id: str, *, below: int | None = None) -> Entry | None:
        """Returns the newest entry of a log, with `below` the newest one in a lower slot, with one query; None if there is
        none.
        """
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
        """Returns one page of entries with `start <= slot < end`, with one query; at most `limit`, and about a megabyte."""
        values = {":log": s(log_id), ":start": n(start)}
        condition = "log_id = :log AND slot >= :start"
        if end is not None:
            if end <= start:
                return Page([], complete=True)
            condition = "log_id = :log AND slot BETWEEN :start AND :last"
            values[":last"] = n(end - 1)
        query: dict[str, Any] = {
            "TableName": self._names[TABLE],
            "ConsistentRead": True,
            "KeyConditionExpression": condition,
            "ExpressionAttributeValues": values,
            "ScanIndexForward": not descending,
        }
        if limit is not None:
            query["Limit"] = limit
        answer = self._store.call("Query", query)
        return Page([item_entry(item) for item in answer["Items"]], complete="LastEvaluatedKey" not in answer)

    def remove(self, log_id: str, slots: Iterable[int]) -> None:
        """Removes the entries in these slots, in batches; missing ones are not an error."""
        self._store.delete(self._names[TABLE], ({"log_id": s(log_id), "slot": n(slot)} for slot in slots))

    def remove_dead(self, entry: Entry) -> None:
        """Removes a dead entry (one in a trimmed slot that is no part of its log's chain) with one conditional delete; does
        nothing if its slot is empty or holds another entry.
        """
        arguments = {
            "TableName": self._names[TABLE],
            "Key": {"log_id": s(entry.log_id), "slot": n(entry.slot)},
            "ConditionExpression": "ids = :ids",
            "ExpressionAttributeValues": {":ids": s(",".join(entry.request_ids))},
        }
        try:
            self._store.call("DeleteItem", arguments)
        except ConditionFailed:
            return

    def unpurged(self, before_ms: int) -> Iterator[str]:
        """Yields the ids of the logs with a marked entry of `before_ms` or before, with one query of the index for each
        shard, and one more for each further megabyte.
        """
        for shard in PURGE_SHARDS:
            query: dict[str, Any] = {
                "TableName": self._names[TABLE],
                "IndexName": PURGE_INDEX,
                "KeyConditionExpression": "purge_shard = :shard AND committed <= :before",
                "ExpressionAttributeValues": {":shard": s(shard), ":before": n(before_ms)},
            }
            for key in self._store.query(query):
                yield key["log_id"]["S"]

    def purged(self, log_id: str, slot: int) -> None:
        """Removes the mark of an entry with one conditional update; does nothing if it has none."""
        arguments = {
            "TableName": self._names[TABLE],
            "Key": {"log_id": s(log_id), "slot": n(slot)},
            "UpdateExpression": "REMOVE purge_shard",
            "ConditionExpression": "attribute_exists(purge_shard)",
        }
        try:
            self._store.call("UpdateItem", arguments)
        except ConditionFailed:
            return
