"""Waiting logs and places in DynamoDB. Table `jobs`: `id` S (hash).

A waiting log is the item `log#<log id>`: `due_queue` S (always `log`) and `due_ms` N are the keys of the sparse index
`due`; `since_ms`, `failures`, `version` N, `job_id`, `reason` S. A place is the item `place#<number>`: `job_id`, `phase`,
`run_id` S, `since_ms` N. One partition of the index bounds the rate at which logs can come to wait (1,000 writes a second):
a log comes to wait once for each of its segments at most, which is far below.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.errors import Damaged
from headrace.tables.dynamodb import ConditionFailed, Item, Store, n, s
from headrace.tables.jobs import Place, Waiting

INDEX = "due"
_QUEUE = "log"


class DynamoJobs:
    """The port `headrace.tables.jobs.Jobs` on DynamoDB."""

    def __init__(self, store: Store, table: str) -> None:
        self._store = store
        self._table = table

    def get(self, log_id: str) -> Waiting | None:
        """One consistent read."""
        item = self._item(_log(log_id))
        return _row(item) if item is not None else None

    def put(self, row: Waiting) -> Waiting | None:
        """One conditional put."""
        written = msgspec.structs.replace(row, version=row.version + 1)
        item = {
            "id": s(_log(row.log_id)),
            "due_queue": s(_QUEUE),
            "due_ms": n(row.due_ms),
            "since_ms": n(row.since_ms),
            "failures": n(row.failures),
            "version": n(written.version),
            "job_id": s(row.job_id),
            "reason": s(row.reason),
        }
        condition, values = _version(row)
        done = self._conditionally("PutItem", {"Item": item}, condition, values)
        return written if done else None

    def drop(self, row: Waiting) -> bool:
        """One conditional delete."""
        if row.version == 0:
            return False
        condition, values = _version(row)
        return self._conditionally("DeleteItem", {"Key": {"id": s(_log(row.log_id))}}, condition, values)

    def due(self, now_ms: int, *, limit: int) -> list[Waiting]:
        """One query of the index, and more for pages after the first."""
        found: list[Waiting] = []
        start: Mapping[str, Any] = {}
        while len(found) < limit:
            answer = self._store.call(
                "Query",
                {
                    "TableName": self._table,
                    "IndexName": INDEX,
                    "KeyConditionExpression": "due_queue = :queue AND due_ms <= :now",
                    "ExpressionAttributeValues": {":queue": s(_QUEUE), ":now": n(now_ms)},
                    "Limit": limit - len(found),
                    **start,
                },
            )
            found += [_row(item) for item in answer.get("Items", ())]
            if not answer.get("LastEvaluatedKey"):
                break
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
        return found

    def place(self, number: int) -> Place | None:
        """One consistent read."""
        item = self._item(_place(number))
        if item is None:
            return None
        values = {name: item[name]["S"] for name in ("job_id", "phase", "run_id")}
        return msgspec.convert({"number": number, "since_ms": int(item["since_ms"]["N"]), **values}, Place)

    def take(self, place: Place) -> bool:
        """One conditional put."""
        return self._conditionally("PutItem", {"Item": _place_item(place)}, "attribute_not_exists(id)", {})

    def move(self, place: Place) -> bool:
        """One conditional put."""
        return self._conditionally("PutItem", {"Item": _place_item(place)}, *_holder(place))

    def release(self, place: Place) -> bool:
        """One conditional delete."""
        return self._conditionally("DeleteItem", {"Key": {"id": s(_place(place.number))}}, *_holder(place))

    def _item(self, key: str) -> Item | None:
        answer = self._store.call(
            "GetItem", {"TableName": self._table, "ConsistentRead": True, "Key": {"id": s(key)}}
        )
        item: Item | None = answer.get("Item")
        return item

    def _conditionally(self, operation: str, what: Item, condition: str, values: Item) -> bool:
        arguments: Item = {"TableName": self._table, "ConditionExpression": condition, **what}
        if values:
            arguments["ExpressionAttributeValues"] = values
        try:
            self._store.call(operation, arguments)
        except ConditionFailed:
            return False
        return True


def _log(log_id: str) -> str:
    return f"log#{log_id}"


def _place(number: int) -> str:
    return f"place#{number}"


def _version(row: Waiting) -> tuple[str, Item]:
    if row.version == 0:
        return "attribute_not_exists(id)", {}
    return "version = :version", {":version": n(row.version)}


def _holder(place: Place) -> tuple[str, Item]:
    return "job_id = :job", {":job": s(place.job_id)}


def _place_item(place: Place) -> Item:
    return {
        "id": s(_place(place.number)),
        "job_id": s(place.job_id),
        "phase": s(place.phase),
        "since_ms": n(place.since_ms),
        "run_id": s(place.run_id),
    }


def _row(item: Item) -> Waiting:
    try:
        return Waiting(
            log_id=item["id"]["S"].removeprefix("log#"),
            due_ms=int(item["due_ms"]["N"]),
            since_ms=int(item["since_ms"]["N"]),
            failures=int(item["failures"]["N"]),
            job_id=item["job_id"]["S"],
            reason=item["reason"]["S"],
            version=int(item["version"]["N"]),
        )
    except (KeyError, ValueError) as exc:
        raise Damaged(f"row of a waiting log does not parse: id={item.get('id')}") from exc
