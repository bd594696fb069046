"""Watermarks in DynamoDB. Table `watermarks`: `log_id` S (hash).

Attributes: `generation`, `end_slot`, `end_offset`, `sealed_bytes`, `touched_ms`, all N; absent means zero.
"""

from __future__ import annotations

from headrace.dynamodb import ConditionFailed, Store, n, s
from headrace.watermarks import Watermark

_FIELDS = ("generation", "end_slot", "end_offset", "sealed_bytes", "touched_ms")


class DynamoWatermarks:
    """The port `headrace.watermarks.Watermarks` on DynamoDB."""

    def __init__(self, store: Store, table: str) -> None:
        self._store = store
        self._table = table

    def get(self, log_id: str) -> Watermark:
        """One consistent read."""
        answer = self._store.call(
            "GetItem", {"TableName": self._table, "ConsistentRead": True, "Key": {"log_id": s(log_id)}}
        )
        item = answer.get("Item", {})
        return Watermark(**{name: int(item[name]["N"]) for name in _FIELDS if name in item})

    def publish(self, log_id: str, generation: int, end_slot: int, end_offset: int, sealed_bytes: int) -> bool:
        """One conditional update."""
        return self._update(
            log_id,
            "SET generation = :generation, end_slot = :slot, end_offset = :offset, sealed_bytes = :bytes",
            "attribute_not_exists(generation) OR (generation < :generation AND end_slot <= :slot)",
            {":generation": generation, ":slot": end_slot, ":offset": end_offset, ":bytes": sealed_bytes},
        )

    def touch(self, log_id: str, now_ms: int) -> None:
        """One conditional update."""
        self._update(
            log_id,
            "SET touched_ms = :now",
            "attribute_not_exists(touched_ms) OR touched_ms < :now",
            {":now": now_ms},
        )

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
