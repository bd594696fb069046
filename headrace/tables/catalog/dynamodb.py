"""The catalog in DynamoDB. Table `catalog`: `bucket` S (hash), `name` S (range).

Attributes: `log_id` S, `config` S (JSON of LogConfig), `ended` BOOL (only when true), `profile` S (absent: generic), and
while the log can expire
`expiry_shard` S and `expires_at_ms` N, the keys of the sparse index `expiry`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from headrace.errors import Damaged
from headrace.tables.catalog import BUCKETS, GENERIC, Row, bucket_of
from headrace.tables.dynamodb import ConditionFailed, Item, Store, n, s
from headrace.wal.state import LogConfig

INDEX = "expiry"
_config_decoder = msgspec.json.Decoder(LogConfig)
_encode = msgspec.json.Encoder().encode


def row_item(row: Row) -> Item:
    """The item of a row."""
    bucket = bucket_of(row.surface, row.name)
    item: Item = {
        "bucket": s(bucket),
        "name": s(row.name),
        "log_id": s(row.log_id),
        "config": s(_encode(row.config).decode()),
    }
    if row.ended:
        item["ended"] = {"BOOL": True}
    if row.profile != GENERIC:
        item["profile"] = s(row.profile)
    if row.deadline_ms is not None:
        item["expiry_shard"] = s(bucket[-1])
        item["expires_at_ms"] = n(row.deadline_ms)
    return item


def item_row(item: Item) -> Row:
    """The row of an item.

    Raises:
        Damaged: it does not parse.
    """
    try:
        deadline = item.get("expires_at_ms")
        return Row(
            log_id=item["log_id"]["S"],
            config=_config_decoder.decode(item["config"]["S"]),
            ended=item.get("ended", {}).get("BOOL", False),
            deadline_ms=int(deadline["N"]) if deadline is not None else None,
            profile=item["profile"]["S"] if "profile" in item else GENERIC,
        )
    except (KeyError, ValueError, RecursionError, msgspec.MsgspecError) as exc:
        raise Damaged(f"catalog row does not parse: bucket={item.get('bucket')} name={item.get('name')}") from exc


class DynamoCatalog:
    """The port `headrace.tables.catalog.Catalog` on DynamoDB."""

    def __init__(self, store: Store, table: str) -> None:
        self._store = store
        self._table = table

    def get(self, surface: str, name: str) -> Row | None:
        """One consistent read."""
        answer = self._store.call(
            "GetItem",
            {
                "TableName": self._table,
                "ConsistentRead": True,
                "Key": {"bucket": s(bucket_of(surface, name)), "name": s(name)},
            },
        )
        item = answer.get("Item")
        return item_row(item) if item is not None else None

    def living(self, surface: str, *, after: str = "", prefix: str = "", limit: int) -> list[Row]:
        """Merges 16 ordered queries."""
        rows = self._merged(surface, after, prefix, limit)
        return list(islice((row for row in rows if not row.ended), limit))

    def every(self, surface: str, *, after: str = "", limit: int) -> list[Row]:
        """Merges 16 ordered queries."""
        return list(islice(self._merged(surface, after, "", limit), limit))

    def _merged(self, surface: str, after: str, prefix: str, limit: int) -> Iterator[Row]:
        streams = [self._walk(f"{surface}#{digit}", after, prefix, limit) for digit in BUCKETS]
        return heapq.merge(*streams, key=lambda row: row.name.encode())

    def _walk(self, bucket: str, after: str, prefix: str, limit: int) -> Iterator[Row]:
        condition, names, values = "#b = :b", {"#b": "bucket"}, {":b": s(bucket)}
        if prefix or after:
            names["#n"] = "name"
        if prefix:
            condition += " AND begins_with(#n, :prefix)"
            values[":prefix"] = s(prefix)
        elif after:
            condition += " AND #n > :after"
            values[":after"] = s(after)
        query: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
            "Limit": max(8, limit // 8),
        }
        if prefix and after > prefix:
            if not after.startswith(prefix):
                return  # it sorts behind every name with the prefix; as a start key the store would refuse it
            query["ExclusiveStartKey"] = {"bucket": s(bucket), "name": s(after)}
        while True:
            answer = self._store.call("Query", query)
            for item in answer["Items"]:
                row = item_row(item)
                if row.name > after:
                    yield row
            if "LastEvaluatedKey" not in answer:
                return
            query["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def due(self, now_ms: int, *, limit: int) -> list[Row]:
        """One index query per shard, then the rows themselves."""
        found: list[Row] = []
        for shard in BUCKETS:
            answer = self._store.call(
                "Query",
                {
                    "TableName": self._table,
                    "IndexName": INDEX,
                    "KeyConditionExpression": "expiry_shard = :shard AND expires_at_ms <= :now",
                    "ExpressionAttributeValues": {":shard": s(shard), ":now": n(now_ms)},
                    "Limit": limit,
                },
            )
            for key in answer["Items"]:
                surface = key["bucket"]["S"].rpartition("#")[0]
                row = self.get(surface, key["name"]["S"])
                if row is not None and row.deadline_ms is not None and row.deadline_ms <= now_ms:
                    found.append(row)
        return sorted(found, key=lambda row: row.deadline_ms or 0)[:limit]

    def mark_ended(self, row: Row) -> None:
        """A conditional update."""
        self._update(row, "SET ended = :ended REMOVE expiry_shard, expires_at_ms", {":ended": {"BOOL": True}})

    def set_hints(self, row: Row, *, deadline_ms: int | None = None, profile: str | None = None) -> None:
        """A conditional update."""
        changes: list[str] = []
        values: Item = {}
        if deadline_ms is not None:
            changes += ["expiry_shard = :shard", "expires_at_ms = :deadline"]
            values |= {":shard": s(bucket_of(row.surface, row.name)[-1]), ":deadline": n(deadline_ms)}
        if profile is not None:
            changes.append("profile = :profile")
            values[":profile"] = s(profile)
        if changes:
            self._update(row, f"SET {', '.join(changes)}", values, " AND attribute_not_exists(ended)")

    def _update(self, row: Row, update: str, values: Item, condition: str = "") -> None:
        try:
            self._store.call(
                "UpdateItem",
                {
                    "TableName": self._table,
                    "Key": {"bucket": s(bucket_of(row.surface, row.name)), "name": s(row.name)},
                    "UpdateExpression": update,
                    "ConditionExpression": "log_id = :log" + condition,
                    "ExpressionAttributeValues": {":log": s(row.log_id), **values},
                },
            )
        except ConditionFailed:
            return
