"""Converts entries to items of the table `wal` and back; and the guard that puts another log's entry in the same
commit.

Table `wal`: `log_id` S (hash), `slot` N (range), stream of new images.

The sparse index `purge` holds the keys of the entries after which a log may be purged: `purge_shard` S (hash, the first
digit of the log id), `committed` N (range).

Attributes of an item: `kind` S, `count` N, `ids` S (comma separated), `prev` N, `prev_id` S, `prev_committed` N,
`prev_bytes` N, `committed` N (ms), `state` S (JSON of LogState), and where they apply `payload` B or `payload_key` S,
`times` S (JSON runs), `config` S (JSON of LogConfig), `purge_shard` S (until the log is purged), `relay` N 1 (somebody may
follow the log: the filter by which the relay gets the entry from the stream). `v` N is the version of this layout.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.errors import Damaged
from headrace.tables.items import Guard, Item, Member, MemoryTables, Names, Refusal, n, refuse_newer, s
from headrace.wal.state import Entry, LogConfig, TimeRun
from headrace.wal.stored import decode_state

TABLE = "wal"
VERSION = 1
PURGE_INDEX = "purge"
PURGE_SHARDS = "0123456789abcdef"  # first digits of log ids: the index takes 1,000 ends a second for each

_config_decoder = msgspec.json.Decoder(LogConfig)
_times_decoder = msgspec.json.Decoder(tuple[TimeRun, ...])
_encode = msgspec.json.Encoder().encode


def entry_item(entry: Entry) -> Item:
    """Converts an entry to an item of the DynamoDB table."""
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
        "prev_bytes": n(entry.prev_bytes),
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
    if entry.state.is_followed(entry.committed_ms):
        item["relay"] = n(1)
    if entry.state.is_purgeable:
        item["purge_shard"] = s(entry.log_id[0])
    return item


def item_entry(item: Item) -> Entry:
    """Converts an item of the DynamoDB table to an entry.

    Raises:
        NewerFormat: a newer release wrote the item.
        Damaged: the item is not one that this version writes; the message names it.
    """
    where = f"log_id={item.get('log_id')} slot={item.get('slot')}"
    try:
        refuse_newer(item, where)
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
            prev_bytes=int(item["prev_bytes"]["N"]),
            committed_ms=int(item["committed"]["N"]),
            state=decode_state(item["state"]["S"]),
            payload=bytes(payload["B"]) if payload is not None else None,
            payload_key=payload_key["S"] if payload_key is not None else None,
            times=_times_decoder.decode(times["S"]) if times is not None else (),
            config=_config_decoder.decode(config["S"]) if config is not None else None,
        )
    except (KeyError, ValueError, RecursionError, msgspec.MsgspecError) as exc:
        raise Damaged(f"entry does not parse: {where}") from exc


def put_entry(entry: Entry, names: Names) -> dict[str, Any]:
    """Returns the arguments of a put that succeeds only if the slot is free, and otherwise returns the existing
    item.
    """
    return {
        "TableName": names[TABLE],
        "Item": entry_item(entry),
        "ConditionExpression": "attribute_not_exists(log_id)",  # the slot is free
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def present(item: Item | None) -> Item:
    """Returns the existing item because of which a put was refused.

    Raises:
        Damaged: the store did not return it.
    """
    if item is None:
        raise Damaged("the store did not say what is in a taken slot")
    return item


class PutEntry(Guard, frozen=True):
    """A guard that commits another log's entry, too, if its slot is free."""

    entry: Entry

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entry that the guard writes."""
        return (self.entry,)

    def member(self, names: Names) -> Member:
        """Returns a put of the entry, as a member of a transaction."""
        return {"Put": put_entry(self.entry, names)}

    def standing(self, item: Item | None) -> Entry:
        """Converts the item that is already in the slot to an entry."""
        return item_entry(present(item))

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns a refusal if the slot is taken; else None."""
        standing = tables[TABLE].at(self.entry.log_id, self.entry.slot)
        return Refusal(standing) if standing is not None else None

    def apply(self, tables: MemoryTables) -> None:
        """Puts the entry into the write-ahead log in memory, without checking (see `check`)."""
        tables[TABLE].put(self.entry)
