"""The write-ahead log in DynamoDB. Table `wal`: `log_id` S (hash), `slot` N (range), stream of new images.

Attributes of an item: `kind` S, `count` N, `ids` S (comma separated), `prev` N, `prev_id` S, `prev_committed` N,
`committed` N (ms), `state` S (JSON of LogState), and where they apply `payload` B or `payload_key` S, `times` S (JSON
runs), `config` S (JSON of LogConfig). `v` N is the version of this layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from headrace.errors import Damaged
from headrace.tables.catalog.dynamodb import row_item
from headrace.tables.dynamodb import ConditionFailed, Item, Store, TransactionCancelled, n, s
from headrace.tables.producers.dynamodb import producer_item
from headrace.wal import (
    Committed,
    Guard,
    GuardRefused,
    Outcome,
    Page,
    PutEntry,
    PutProducer,
    PutRow,
    SlotTaken,
    TouchUnchanged,
    check_guards,
)
from headrace.wal.state import Entry, LogConfig, LogState, TimeRun

VERSION = 1

_state_decoder = msgspec.json.Decoder(LogState)
_config_decoder = msgspec.json.Decoder(LogConfig)
_times_decoder = msgspec.json.Decoder(tuple[TimeRun, ...])
_encode = msgspec.json.Encoder().encode


class Tables(NamedTuple):
    """Names of the tables that a commit can touch."""

    wal: str
    catalog: str
    watermarks: str
    producers: str


def entry_item(entry: Entry) -> Item:
    """The item of an entry."""
    item: Item = {
        "log_id": s(entry.log_id),
        "slot": n(entry.slot),
        "v": n(VERSION),
        "kind": s(entry.kind),
        "count": n(entry.count),
        "ids": s(",".join(entry.request_ids)),
        "prev": n(entry.prev_slot),
        "prev_id": s(entry.prev_id),
        "prev_committed": n(entry.prev_committed_ms),
        "committed": n(entry.committed_ms),
        "state": s(_encode(entry.state).decode()),
    }
    if entry.payload is not None:
        item["payload"] = {"B": entry.payload}
    if entry.payload_key is not None:
        item["payload_key"] = s(entry.payload_key)
    if entry.times:
        item["times"] = s(_encode(entry.times).decode())
    if entry.config is not None:
        item["config"] = s(_encode(entry.config).decode())
    return item


def item_entry(item: Item) -> Entry:
    """The entry of an item.

    Raises:
        Damaged: the item is not one that this version writes; names it.
    """
    try:
        if item["v"]["N"] != str(VERSION):
            raise ValueError(f"unknown version {item['v']['N']}")
        payload = item.get("payload")
        payload_key = item.get("payload_key")
        times = item.get("times")
        config = item.get("config")
        return Entry(
            log_id=item["log_id"]["S"],
            slot=int(item["slot"]["N"]),
            kind=item["kind"]["S"],
            count=int(item["count"]["N"]),
            request_ids=tuple(item["ids"]["S"].split(",")),
            prev_slot=int(item["prev"]["N"]),
            prev_id=item["prev_id"]["S"],
            prev_committed_ms=int(item["prev_committed"]["N"]),
            committed_ms=int(item["committed"]["N"]),
            state=_state_decoder.decode(item["state"]["S"]),
            payload=bytes(payload["B"]) if payload is not None else None,
            payload_key=payload_key["S"] if payload_key is not None else None,
            times=_times_decoder.decode(times["S"]) if times is not None else (),
            config=_config_decoder.decode(config["S"]) if config is not None else None,
        )
    except (KeyError, ValueError, RecursionError, msgspec.MsgspecError) as exc:
        where = f"log_id={item.get('log_id')} slot={item.get('slot')}"
        raise Damaged(f"entry does not parse: {where}") from exc


class DynamoWal:
    """The port `headrace.wal.Wal` on DynamoDB."""

    def __init__(self, store: Store, tables: Tables) -> None:
        self._store = store
        self._tables = tables

    def commit(self, entry: Entry, guards: Sequence[Guard] = ()) -> Outcome:
        """A conditional put; with guards a transaction."""
        check_guards(guards)
        if guards:
            return self._commit_guarded(entry, guards)
        try:
            self._store.call("PutItem", self._put_entry(entry))
        except ConditionFailed as exc:
            return SlotTaken(item_entry(_present(exc.item)))
        return Committed()

    def _commit_guarded(self, entry: Entry, guards: Sequence[Guard]) -> Outcome:
        follows = [
            (index, guard.entry)
            for index, guard in enumerate(guards)
            if isinstance(guard, PutEntry) and guard.entry.prev_slot >= 0
        ]
        members = [
            {"Put": self._put_entry(entry)},
            *(self._member(guard) for guard in guards),
            *(self._stands_before(second) for _, second in follows),
        ]
        try:
            self._store.call("TransactWriteItems", {"TransactItems": members})
        except TransactionCancelled as exc:
            code, item = exc.reasons[0]
            if code == "ConditionalCheckFailed":
                return SlotTaken(item_entry(_present(item)))
            for index, (code, item) in enumerate(exc.reasons[1 : 1 + len(guards)]):
                if code == "ConditionalCheckFailed":
                    taken = item_entry(_present(item)) if isinstance(guards[index], PutEntry) else None
                    return GuardRefused(index, taken)
            for (index, _), (code, _) in zip(follows, exc.reasons[1 + len(guards) :], strict=True):
                if code == "ConditionalCheckFailed":
                    return GuardRefused(index)
            raise
        return Committed()

    def _put_entry(self, entry: Entry) -> dict[str, Any]:
        return {
            "TableName": self._tables.wal,
            "Item": entry_item(entry),
            "ConditionExpression": "attribute_not_exists(log_id)",  # the slot is free
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    def _stands_before(self, entry: Entry) -> dict[str, Any]:
        """The entry's predecessor was not trimmed."""
        return {
            "ConditionCheck": {
                "TableName": self._tables.wal,
                "Key": {"log_id": s(entry.log_id), "slot": n(entry.prev_slot)},
                "ConditionExpression": "ids = :id OR begins_with(ids, :first)",
                "ExpressionAttributeValues": {":id": s(entry.prev_id), ":first": s(entry.prev_id + ",")},
            }
        }

    def _member(self, guard: Guard) -> dict[str, Any]:
        match guard:
            case PutEntry(entry):
                return {"Put": self._put_entry(entry)}
            case PutRow(row, replaces):
                put: dict[str, Any] = {"TableName": self._tables.catalog, "Item": row_item(row)}
                if replaces is None:
                    put["ConditionExpression"] = "attribute_not_exists(log_id)"
                else:
                    put["ConditionExpression"] = "log_id = :replaces"
                    put["ExpressionAttributeValues"] = {":replaces": s(replaces)}
                return {"Put": put}
            case PutProducer(log_id, producer):
                no_row = "attribute_not_exists(log_id)"
                older_epoch = "epoch < :epoch"
                no_newer_write = "(epoch = :epoch AND seq <= :seq)"
                return {
                    "Put": {
                        "TableName": self._tables.producers,
                        "Item": producer_item(log_id, producer),
                        "ConditionExpression": f"{no_row} OR {older_epoch} OR {no_newer_write}",
                        "ExpressionAttributeValues": {":epoch": n(producer.epoch), ":seq": n(producer.seq)},
                    }
                }
            case TouchUnchanged(log_id, touched_ms):
                check: dict[str, Any] = {"TableName": self._tables.watermarks, "Key": {"log_id": s(log_id)}}
                if touched_ms:
                    check["ConditionExpression"] = "touched_ms = :touched"
                    check["ExpressionAttributeValues"] = {":touched": n(touched_ms)}
                else:
                    check["ConditionExpression"] = "attribute_not_exists(touched_ms)"
                return {"ConditionCheck": check}

    def newest(self, log_id: str, *, below: int | None = None) -> Entry | None:
        """One query for one item."""
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
        """One query."""
        values = {":log": s(log_id), ":start": n(start)}
        condition = "log_id = :log AND slot >= :start"
        if end is not None:
            if end <= start:
                return Page([], complete=True)
            condition = "log_id = :log AND slot BETWEEN :start AND :last"
            values[":last"] = n(end - 1)
        query: dict[str, Any] = {
            "TableName": self._tables.wal,
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
        """Batches of 25; what the store leaves undone is sent again."""
        for group in _batched(slots, 25):
            requests = [{"DeleteRequest": {"Key": {"log_id": s(log_id), "slot": n(slot)}}} for slot in group]
            pending: dict[str, Any] = {self._tables.wal: requests}
            while pending:
                pending = self._store.call("BatchWriteItem", {"RequestItems": pending}).get("UnprocessedItems", {})

    def remove_dead(self, entry: Entry) -> None:
        """A conditional delete."""
        arguments = {
            "TableName": self._tables.wal,
            "Key": {"log_id": s(entry.log_id), "slot": n(entry.slot)},
            "ConditionExpression": "ids = :ids",
            "ExpressionAttributeValues": {":ids": s(",".join(entry.request_ids))},
        }
        try:
            self._store.call("DeleteItem", arguments)
        except ConditionFailed:
            return


def _present(item: Item | None) -> Item:
    if item is None:
        raise Damaged("the store did not say what stands in a taken slot")
    return item


def _batched(slots: Iterable[int], size: int) -> Iterable[Sequence[int]]:
    ordered = list(slots)
    return (ordered[at : at + size] for at in range(0, len(ordered), size))
