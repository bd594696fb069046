"""Watermarks in DynamoDB. Table `watermarks`: `log_id` S (hash).

Attributes: `generation`, `end_slot`, `end_offset`, `sealed_bytes`, `touched_ms`, `index_generation`, and
`requests.<name>` for each counter, all N; absent means zero. A log's note is an item of its own, `<log_id>#note`, so
that nobody else reads it: `data` B.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.tables.dynamodb import ConditionFailed, Item, Store, n, s
from headrace.tables.watermarks import Watermark

_FIELDS = ("generation", "end_slot", "end_offset", "sealed_bytes", "touched_ms", "index_generation")
_COUNTER = "requests."
_NOTE = "#note"


class DynamoWatermarks:
    """The port `headrace.tables.watermarks.Watermarks` on DynamoDB."""

    def __init__(self, store: Store, table: str) -> None:
        self._store = store
        self._table = table

    def get(self, log_id: str) -> Watermark:
        """One consistent read."""
        item = self._item(log_id)
        return Watermark(**{name: int(item[name]["N"]) for name in _FIELDS if name in item})

    def _item(self, log_id: str) -> Item:
        answer = self._store.call(
            "GetItem", {"TableName": self._table, "ConsistentRead": True, "Key": {"log_id": s(log_id)}}
        )
        item: Item = answer.get("Item", {})
        return item

    def publish(self, log_id: str, generation: int, end_slot: int, end_offset: int, sealed_bytes: int) -> bool:
        """One conditional update."""
        return self._update(
            log_id,
            "SET generation = :generation, end_slot = :slot, end_offset = :offset, sealed_bytes = :bytes",
            "attribute_not_exists(generation) OR (generation < :generation AND end_slot <= :slot)",
            {":generation": generation, ":slot": end_slot, ":offset": end_offset, ":bytes": sealed_bytes},
        )

    def publish_index(self, log_id: str, generation: int) -> None:
        """One conditional update."""
        is_newer = "(attribute_not_exists(index_generation) OR index_generation < :number)"
        self._update(
            log_id,
            "SET index_generation = :number",
            f"attribute_exists(generation) AND {is_newer}",
            {":number": generation},
        )

    def touch(self, log_id: str, now_ms: int) -> None:
        """One conditional update."""
        self._update(
            log_id,
            "SET touched_ms = :now",
            "attribute_not_exists(touched_ms) OR touched_ms < :now",
            {":now": now_ms},
        )

    def count(self, log_id: str, requests: Mapping[str, int]) -> None:
        """One update. Attributes of their own, since an update can't add to a map that is not there yet."""
        if not requests:
            return
        added = list(enumerate(requests.items()))
        self._store.call(
            "UpdateItem",
            {
                "TableName": self._table,
                "Key": {"log_id": s(log_id)},
                "UpdateExpression": "ADD " + ", ".join(f"#c{number} :c{number}" for number, _ in added),
                "ExpressionAttributeNames": {f"#c{number}": _COUNTER + name for number, (name, _) in added},
                "ExpressionAttributeValues": {f":c{number}": n(count) for number, (_, count) in added},
            },
        )

    def counts(self, log_id: str) -> dict[str, int]:
        """One consistent read."""
        return {
            attribute.removeprefix(_COUNTER): int(value["N"])
            for attribute, value in self._item(log_id).items()
            if attribute.startswith(_COUNTER)
        }

    def note(self, log_id: str) -> bytes | None:
        """One consistent read."""
        data = self._item(log_id + _NOTE).get("data")
        return bytes(data["B"]) if data is not None else None

    def set_note(self, log_id: str, data: bytes, replaces: bytes | None) -> bool:
        """One conditional update."""
        values: Item = {":data": {"B": data}}
        if replaces is not None:
            values[":replaces"] = {"B": replaces}
        try:
            self._store.call(
                "UpdateItem",
                {
                    "TableName": self._table,
                    "Key": {"log_id": s(log_id + _NOTE)},
                    "UpdateExpression": "SET #data = :data",
                    "ConditionExpression": "attribute_not_exists(#data)" if replaces is None else "#data = :replaces",
                    "ExpressionAttributeNames": {"#data": "data"},
                    "ExpressionAttributeValues": values,
                },
            )
        except ConditionFailed:
            return False
        return True

    def drop_note(self, log_id: str) -> None:
        """One delete."""
        self._store.call("DeleteItem", {"TableName": self._table, "Key": {"log_id": s(log_id + _NOTE)}})

    def delete(self, log_id: str) -> None:
        """One delete."""
        self._store.call("DeleteItem", {"TableName": self._table, "Key": {"log_id": s(log_id)}})

    def _update(self, log_id: str, update: str, condition: str, values: dict[str, int]) -> bool:
        try:
            self._store.call(
                "UpdateItem",
                {
                    "TableName": self._table,
                    "Key": {"log_id": s(log_id)},
                    "UpdateExpression": update,
                    "ConditionExpression": condition,
                    "ExpressionAttributeValues": {name: n(value) for name, value in values.items()},
                },
            )
        except ConditionFailed:
            return False
        return True
