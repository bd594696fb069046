"""The catalog on DynamoDB, with the items that `headrace.tables.catalog` describes."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from headrace.errors import Damaged
from headrace.tables.catalog import (
    BUCKETS,
    EXPIRY,
    LIVING,
    MARK,
    UNMARKED,
    DamagedRow,
    Row,
    bucket_of,
    item_row,
    row_item,
    row_key,
)
from headrace.tables.dynamodb import Store
from headrace.tables.items import ConditionFailed, Item, n, s

_log = logging.getLogger(__name__)
_DUE_PAGE = 200  # keys of one query: a sweep may not reach more


def _read(read: Callable[[Item], Row | None], items: Iterable[Item]) -> Iterator[Row | DamagedRow]:
    """Yields the rows that `read` finds, whole or damaged."""
    for item in items:
        try:
            row: Row | DamagedRow | None = read(item)
        except Damaged as exc:
            surface = item["bucket"]["S"].rpartition("#")[0]
            row = DamagedRow(surface, item["name"]["S"], item.get("log_id", {}).get("S", ""), str(exc))
        if row is not None:
            yield row


class DynamoCatalog:
    """The port `headrace.tables.catalog.Catalog` on DynamoDB."""

    def __init__(self, store: Store, table: str, damaged: Callable[[], None] = lambda: None) -> None:
        """Creates an adapter for `table`; it calls `damaged` for each damaged row that it passes over."""
        self._store = store
        self._table = table
        self._damaged = damaged

    def get(self, surface: str, name: str) -> Row | None:
        """Returns the row of a name, None if there is none; costs one consistent read."""
        return self._get(row_key(surface, name))

    def _get(self, key: Item) -> Row | None:
        wanted = {"bucket": key["bucket"], "name": key["name"]}
        arguments = {"TableName": self._table, "ConsistentRead": True, "Key": wanted}
        item = self._store.call("GetItem", arguments).get("Item")
        return item_row(item) if item is not None else None

    def living(self, surface: str, *, after: str = "", prefix: str = "", limit: int) -> list[Row]:
        """Returns up to `limit` rows of the index of living names, in byte order, by merging 16 ordered queries."""
        return list(islice(self._whole(self._merged({"IndexName": LIVING}, surface, after, prefix, limit)), limit))

    def part(self, surface: str, bucket: str, *, after: str = "", limit: int) -> list[Row]:
        """Returns up to `limit` living rows of one bucket, in byte order of the name, with one query a megabyte."""
        found = self._walk({"IndexName": LIVING}, f"{surface}#{bucket}", after, "", limit)
        return list(islice(self._whole(found), limit))

    def every(self, surface: str, *, after: str = "", limit: int) -> list[Row | DamagedRow]:
        """Returns up to `limit` rows, ended or not, in byte order of the name, by merging 16 ordered queries of the table,
        strongly consistent ones.
        """
        return list(islice(self._merged({}, surface, after, "", limit), limit))

    def _merged(
        self, index: Mapping[str, str], surface: str, after: str, prefix: str, limit: int
    ) -> Iterator[Row | DamagedRow]:
        least = max(8, limit // 8)
        streams = [self._walk(index, f"{surface}#{digit}", after, prefix, least) for digit in BUCKETS]
        return heapq.merge(*streams, key=lambda row: row.name.encode())

    def _walk(
        self, index: Mapping[str, str], bucket: str, after: str, prefix: str, limit: int
    ) -> Iterator[Row | DamagedRow]:
        """Yields the rows of one bucket in order, with queries of up to `limit` rows. `index` names the index to query; if
        it is empty, the table is.
        """
        key = "living_in" if index else "bucket"
        condition, names, values = "#b = :b", {"#b": key}, {":b": s(bucket)}
        if prefix:
            condition += " AND begins_with(#n, :prefix)"
            names["#n"] = "name"
            values[":prefix"] = s(prefix)
        query: dict[str, Any] = {
            "TableName": self._table,
            **(index or {"ConsistentRead": True}),
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
            "Limit": limit,
        }
        if after > prefix:
            if not after.startswith(prefix):
                return  # it sorts behind every name with the prefix; as a start key the store would refuse it
            query["ExclusiveStartKey"] = {"bucket": s(bucket), "name": s(after), key: s(bucket)}
        yield from (row for row in _read(item_row, self._store.query(query)) if row.name > after)

    def _whole(self, rows: Iterable[Row | DamagedRow]) -> Iterator[Row]:
        """Yields the rows that are not damaged; reports the others."""
        for row in rows:
            if isinstance(row, Row):
                yield row
            else:
                _log.error("%s", row.reason)
                self._damaged()

    def due(self, now_ms: int) -> Iterator[Row]:
        """Yields the due rows, with a query per shard and page, and a read of each. Begins with another shard each minute:
        rows that fail keep no others waiting.
        """
        first = now_ms // 60_000 % len(BUCKETS)
        for shard in BUCKETS[first:] + BUCKETS[:first]:
            query = {
                "TableName": self._table,
                "IndexName": EXPIRY,
                "KeyConditionExpression": "expiry_shard = :shard AND expires_at_ms <= :now",
                "ExpressionAttributeValues": {":shard": s(shard), ":now": n(now_ms)},
                "Limit": _DUE_PAGE,
            }
            rows = self._whole(_read(self._get, self._store.query(query)))
            yield from (row for row in rows if row.is_due(now_ms))

    def mark_ended(self, row: Row) -> None:
        """Marks the row as ended with one conditional update; does nothing if the name has another log now."""
        self._update(row, MARK, {})

    def set_hints(self, row: Row, *, deadline_ms: int | None = None, label: str | None = None) -> None:
        """Corrects deadline and label with one conditional update; does nothing if the name's log is another, or ended."""
        changes: list[str] = []
        values: Item = {}
        if deadline_ms is not None:
            changes += ["expiry_shard = :shard", "expires_at_ms = :deadline"]
            values |= {":shard": s(bucket_of(row.surface, row.name)[-1]), ":deadline": n(deadline_ms)}
        if label is not None:
            changes.append("label = :label")
            values[":label"] = s(label)
        if changes:
            self._update(row, f"SET {', '.join(changes)}", values, UNMARKED)

    def put(self, row: Row) -> None:
        """Writes an announcement with one put."""
        self._store.call("PutItem", {"TableName": self._table, "Item": row_item(row)})

    def remove(self, row: Row) -> None:
        """Removes an announcement with one conditional delete; does nothing if its deadline is another."""
        arguments = {
            "TableName": self._table,
            "Key": row_key(row.surface, row.name),
            "ConditionExpression": "expires_at_ms = :deadline",
            "ExpressionAttributeValues": {":deadline": row_item(row)["expires_at_ms"]},
        }
        with suppress(ConditionFailed):
            self._store.call("DeleteItem", arguments)

    def _update(self, row: Row, update: str, values: Item, condition: str = "") -> None:
        arguments = {
            "TableName": self._table,
            "Key": row_key(row.surface, row.name),
            "UpdateExpression": update,
            "ConditionExpression": "log_id = :log" + condition,
            "ExpressionAttributeValues": {":log": s(row.log_id), **values},
        }
        try:
            self._store.call("UpdateItem", arguments)
        except ConditionFailed:
            return
