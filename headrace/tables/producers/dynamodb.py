"""Producer rows in DynamoDB. Table `producers`: `log_id` S (hash), `producer` S (range); `epoch` N, `seq` N."""

from __future__ import annotations

from typing import Any

from headrace.tables.dynamodb import Item, Store, n, s
from headrace.wal.state import Producer


def producer_item(log_id: str, producer: Producer) -> Item:
    """The item of a producer."""
    return {
        "log_id": s(log_id),
        "producer": s(producer.id),
        "epoch": n(producer.epoch),
        "seq": n(producer.seq),
    }


class DynamoProducers:
    """The port `headrace.tables.producers.Producers` on DynamoDB."""

    def __init__(self, store: Store, table: str) -> None:
        self._store = store
        self._table = table

    def get(self, log_id: str, producer_id: str) -> Producer | None:
        """One consistent read."""
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
        return Producer(item["producer"]["S"], int(item["epoch"]["N"]), int(item["seq"]["N"]))

    def purge(self, log_id: str) -> None:
        """Queries and batched deletes until nothing is left."""
        query: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "log_id = :log",
            "ExpressionAttributeValues": {":log": s(log_id)},
            "ProjectionExpression": "log_id, producer",
            "Limit": 25,
        }
        while True:
            keys = self._store.call("Query", query)["Items"]
            if not keys:
                return
            pending: dict[str, Any] = {self._table: [{"DeleteRequest": {"Key": key}} for key in keys]}
            while pending:
                pending = self._store.call("BatchWriteItem", {"RequestItems": pending}).get("UnprocessedItems", {})
