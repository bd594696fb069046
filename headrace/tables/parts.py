"""The rows of what lasts for a while: slots of open streams, watch sessions, sockets, subscriptions. They are in the table
of sessions (`headrace.tables.sessions`).

A row may be counted (`headrace.tables.counters`). Then it comes and goes in one transaction with its counts, and has a
deadline, after which anyone may remove it so: what is counted is there, and is freed exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.errors import Damaged
from headrace.tables.counters import TABLE, Count
from headrace.tables.items import Guard, Item, Member, MemoryTables, Names, Refusal, n, refuse_newer, s

SLOT = "slot"  # the kind of a place of an open stream
WHOLE = "-"  # the range key of what has one row
EXPIRY_SHARDS = "0123"  # 2,000 counted rows can come and go in a second: each does so in one partition of the index
_KEPT_S = 3600  # after its deadline: clocks differ, and the store's own decides when a row goes


class Part(msgspec.Struct, frozen=True):
    """A row of something that lasts for a while.

    Attributes:
        kind: what it is; without `#`.
        id: which of its kind.
        part: which row of it.
        data: what its owner keeps in it.
        version: number of times the row was written; 0 if it was never written. A write decides it, not its caller.
        expires_ms: when anyone may remove it, in epoch milliseconds; 0 means never. It may stay after that: readers look at
            this, too. The store itself removes it if it is not counted.
        counts: the shards in which it is counted: counter and number. One that is counted has a deadline.
    """

    kind: str
    id: str
    part: str = WHOLE
    data: bytes = b""
    version: int = 0
    expires_ms: int = 0
    counts: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if self.counts and not self.expires_ms:
            raise ValueError(f"counted row without a deadline: {self.key}")

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells the row from all others."""
        return self.kind, self.id, self.part


class PutPart(Guard, frozen=True):
    """A guard that writes a row in place of `replaces`. It refuses if there is another, or none."""

    part: Part
    replaces: Part | None = None

    @property
    def written(self) -> Part:
        """The row as it is written."""
        return msgspec.structs.replace(self.part, version=self.replaces.version + 1 if self.replaces else 1)

    def member(self, names: Names) -> Member:
        """Returns a conditional put of the row, as a member of a transaction."""
        put: Member = {"TableName": names[TABLE], "Item": part_item(self.written)}
        return {"Put": {**put, **_standing(self.replaces)}}

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns a refusal if there is another row, or none; else None."""
        standing: Part | None = tables[TABLE].rows.get(self.part.key)
        is_it = (standing is None) if self.replaces is None else _is(standing, self.replaces)
        return None if is_it else Refusal()

    def apply(self, tables: MemoryTables) -> None:
        """Writes the row to the table in memory."""
        tables[TABLE].rows[self.part.key] = self.written


class DropPart(Guard, frozen=True):
    """A guard that removes a row. It refuses if the row is gone, or has changed."""

    part: Part

    def member(self, names: Names) -> Member:
        """Returns a conditional delete of the row, as a member of a transaction."""
        delete: Member = {"TableName": names[TABLE], "Key": part_key(*self.part.key)}
        return {"Delete": {**delete, **_standing(self.part)}}

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns a refusal if the row is gone or has changed; else None."""
        return None if _is(tables[TABLE].rows.get(self.part.key), self.part) else Refusal()

    def apply(self, tables: MemoryTables) -> None:
        """Removes the row from the table in memory."""
        del tables[TABLE].rows[self.part.key]


def taking(part: Part, mosts: Mapping[str, int]) -> tuple[Guard, ...]:
    """Returns the guards that write a new row and count it, the row first. `mosts` has the limit of each counter."""
    return (PutPart(part), *(Count(what, 1, mosts[what], shard) for what, shard in part.counts))


def freeing(part: Part) -> tuple[Guard, ...]:
    """Returns the guards that remove a row with its counts."""
    return (DropPart(part), *(Count(what, -1, 0, shard) for what, shard in part.counts))


def part_key(kind: str, name: str, part: str = WHOLE) -> Item:
    """Returns the key of a row."""
    return {"id": s(f"{kind}#{name}"), "part": s(part)}


def part_item(part: Part) -> Item:
    """Converts a row to an item of the DynamoDB table."""
    item = {**part_key(*part.key), "version": n(part.version)}
    if part.data:
        item["data"] = {"B": part.data}
    if part.expires_ms:
        item["expires_at_ms"] = n(part.expires_ms)
    if not part.counts:
        return item | ({"expires_at": n(expires_at(part.expires_ms))} if part.expires_ms else {})
    item["counts"] = {"L": [s(f"{what}#{shard}") for what, shard in part.counts]}
    item["expiry_shard"] = s(EXPIRY_SHARDS[sum(part.id.encode()) % len(EXPIRY_SHARDS)])
    return item


def item_part(item: Item) -> Part:
    """Converts an item of the DynamoDB table to a row. Raises Damaged or NewerFormat."""
    where = f"sessions id={item.get('id')} part={item.get('part')}"
    refuse_newer(item, where)
    try:
        kind, _, name = item["id"]["S"].partition("#")
        counts = [one["S"].rpartition("#") for one in item["counts"]["L"]] if "counts" in item else []
        return Part(
            kind,
            name,
            item["part"]["S"],
            bytes(item["data"]["B"]) if "data" in item else b"",
            int(item["version"]["N"]),
            int(item["expires_at_ms"]["N"]) if "expires_at_ms" in item else 0,
            tuple((what, int(shard)) for what, _, shard in counts),
        )
    except (KeyError, ValueError) as exc:
        raise Damaged(f"row does not parse: {where}") from exc


def expires_at(deadline_ms: int) -> int:
    """Returns when the store itself may remove what expires at `deadline_ms`, in Unix seconds."""
    return deadline_ms // 1000 + _KEPT_S


def _is(standing: Part | None, expected: Part) -> bool:
    return standing is not None and standing.version == expected.version


def _standing(expected: Part | None) -> dict[str, Any]:
    """Returns the condition that the row is as it was read; that there is none, if that is None."""
    if expected is None:
        return {"ConditionExpression": "attribute_not_exists(id)"}
    return {
        "ConditionExpression": "version = :version",
        "ExpressionAttributeValues": {":version": n(expected.version)},
    }
