"""The shape of a table, and what follows from it: keys, sizes and changes of items, and key conditions as SQL. No I/O."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from headrace.tables.items import Item
from local.machine.expressions import Condition, attribute, comparable

_HASH_BYTES, _RANGE_BYTES = 2048, 1024  # DynamoDB's limits
_HALF = 1 << 127  # numbers are stored so that bytes sort as they do


Key = tuple[bytes, bytes]


class Index(msgspec.Struct, frozen=True):
    """A secondary index: its keys, as of `Shape`, and whether it has the keys of an item only."""

    keys: tuple[tuple[str, str], ...]
    keys_only: bool


class Shape(msgspec.Struct, frozen=True):
    """What the template says about a table.

    Attributes:
        keys: name and type of the partition key, and of the sort key if there is one.
        indexes: the secondary indexes, by name.
        stream: what its stream shows of a change, as in `StreamViewType`; empty if it has none.
        expires: the attribute with the time (epoch seconds) at which an item may be removed; empty if it has none.
    """

    keys: tuple[tuple[str, str], ...]
    indexes: dict[str, Index] = {}
    stream: str = ""
    expires: str = ""


class Table(NamedTuple):
    """A table: its number in the database, its name, and its shape."""

    number: int
    name: str
    shape: Shape

    def key(self, item: Item) -> Key:
        """Returns the key of an item, or of the key attributes of one. Raises ValueError if it has none."""
        found = index_key(self.shape.keys, item)
        if found is None:
            raise ValueError(f"not a key of {self.name}: {sorted(item)}")
        return found

    def key_item(self, item: Item) -> Item:
        """Returns the key attributes of an item."""
        return {name: item[name] for name, _ in self.shape.keys}


def expires_at(shape: Shape, item: Item) -> int | None:
    """Returns the time (epoch seconds) at which an item may be removed; None if it stays."""
    expires = item.get(shape.expires)
    return int(expires["N"]) if expires is not None else None


def item_size(value: Mapping[str, Any]) -> int:
    """Returns the bytes of an attribute's value as DynamoDB counts them (Developer Guide, Item sizes and formats)."""
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "B":
            return len(content)
        case "N":
            return len(content.lstrip("-")) // 2 + 2
        case "SS" | "NS" | "BS":
            return sum(item_size({kind[0]: one}) for one in content)
        case "L":
            return 3 + sum(1 + item_size(one) for one in content)
        case "M":
            return 3 + sum(1 + len(name.encode()) + item_size(one) for name, one in content.items())
    return 1


def change_of(table: Table, before: Item | None, after: Item | None) -> dict[str, Any]:
    """Returns a change as a record of DynamoDB Streams has it, without its sequence number, and without attributes of
    bytes: these are payloads, which no function reads there, and each would be written twice.
    """
    view = table.shape.stream
    change: dict[str, Any] = {
        "StreamViewType": view,
        "ApproximateCreationDateTime": float(int(time.time())),
        "Keys": table.key_item(after or before or {}),
    }
    if after is not None and view in ("NEW_IMAGE", "NEW_AND_OLD_IMAGES"):
        change["NewImage"] = {name: value for name, value in after.items() if "B" not in value}
    if before is not None and view in ("OLD_IMAGE", "NEW_AND_OLD_IMAGES"):
        change["OldImage"] = {name: value for name, value in before.items() if "B" not in value}
    return {"eventName": "INSERT" if before is None else "REMOVE" if after is None else "MODIFY", "dynamodb": change}


def index_key(keys: Sequence[tuple[str, str]], item: Item) -> Key | None:
    """Returns the key of an item in a table or an index; None if it lacks an attribute of it."""
    if any(name not in item for name, _ in keys):
        return None
    hash_, *rest = (_sortable(kind, item[name]) for name, kind in keys)
    range_ = rest[0] if rest else b""
    if len(hash_) > _HASH_BYTES or len(range_) > _RANGE_BYTES:
        raise ValueError(f"too long a key: {len(hash_)} and {len(range_)} bytes")
    return hash_, range_


def _sortable(kind: str, value: Mapping[str, Any]) -> bytes:
    """Returns a key attribute as bytes that sort as its values do. Raises ValueError if it has another type, or is empty,
    or no whole number.
    """
    found, content = comparable(value)
    if found != kind or content == "" or (kind == "N" and not isinstance(content, int)):
        raise ValueError(f"not a key of type {kind}: {value}")
    return content.encode() if isinstance(content, str) else (int(content) + _HALF).to_bytes(16, "big")


def key_terms(
    terms: Sequence[Condition],
    keys: Sequence[tuple[str, str]],
    columns: Sequence[str],
    names: Mapping[str, str],
    values: Item,
) -> tuple[list[str], list[bytes]]:
    """Returns the terms of a key condition as SQL, about the columns of the keys, with its values. Raises ValueError if
    they are none.
    """
    column_of = dict(zip((name for name, _ in keys), columns, strict=False))
    kinds = dict(keys)
    where: list[str] = []
    bound: list[bytes] = []
    for term in terms:
        name = attribute(term.path, names)
        column = column_of[name]
        given = [
            values[one]["S"].encode() if term.kind == "begins_with" else _sortable(kinds[name], values[one])
            for one in term.values
        ]
        match term.kind:
            case "begins_with":
                where.append(f"{column} >= ?")
                bound.append(given[0])
                if given[0]:  # no byte of UTF-8 is the last one
                    where.append(f"{column} < ?")
                    bound.append(given[0][:-1] + bytes([given[0][-1] + 1]))
            case "BETWEEN":
                where.append(f"{column} BETWEEN ? AND ?")
                bound += given
            case "=" | "<" | "<=" | ">" | ">=":
                where.append(f"{column} {term.kind} ?")
                bound += given
            case _:
                raise ValueError(f"not a condition of keys: {term}")
    if not where or where[0] != f"{columns[0]} = ?":
        raise ValueError(f"no partition is named: {terms}")
    return where, bound
