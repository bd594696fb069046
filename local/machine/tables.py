"""The tables of a single machine: the operations of DynamoDB's API that Headrace calls, on SQLite.

So every adapter of a table works here as it is. An item is stored as one value beside its key; an index is a table of keys,
kept in the same transaction as the items. A change of a table with a stream is stored in that transaction, too.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from headrace.clock import SystemClock, check_deadline
from headrace.decoding import from_json
from headrace.errors import SignatureExpired
from headrace.tables.dynamodb import Store
from headrace.tables.items import ConditionFailed, Item, TransactionCancelled, n
from local.machine.database import Database, Refused
from local.machine.expressions import (
    Condition,
    attribute,
    comparable,
    holds,
    parse_condition,
    parse_update,
    projected,
    touched,
    updated,
)

PAGE_BYTES = 1_048_576  # of an answer of Query
# DynamoDB's limits, so that what it would refuse is refused here, too.
_ITEM_BYTES = 400 * 1024
_HASH_BYTES, _RANGE_BYTES = 2048, 1024
_MEMBERS = 100  # of a transaction
_WRITE = {
    "TableName",
    "ConditionExpression",
    "ExpressionAttributeNames",
    "ExpressionAttributeValues",
    "ReturnValues",
    "ReturnValuesOnConditionCheckFailure",
}
_ARGUMENTS = {
    "Put": {*_WRITE, "Item"},
    "Delete": {*_WRITE, "Key"},
    "ConditionCheck": {*_WRITE, "Key"},
    "Update": {*_WRITE, "Key", "UpdateExpression"},
    "GetItem": {"TableName", "Key", "ConsistentRead"},
    "Query": {
        *(
            "TableName",
            "IndexName",
            "KeyConditionExpression",
            "ExpressionAttributeNames",
            "ExpressionAttributeValues",
        ),
        *("ProjectionExpression", "ScanIndexForward", "ExclusiveStartKey", "Limit", "ConsistentRead"),
    },
}
_SIGNATURE_MS = 300_000  # the age at which AWS refuses a call: the fence of frozen writers relies on it
_encode = msgspec.msgpack.Encoder().encode
_decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode
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


class _Table(NamedTuple):
    number: int
    name: str
    shape: Shape

    def key(self, item: Item) -> Key:
        """Returns the key of an item, or of the key attributes of one. Raises ValueError if it has none."""
        found = _index_key(self.shape.keys, item)
        if found is None:
            raise ValueError(f"not a key of {self.name}: {sorted(item)}")
        return found

    def key_item(self, item: Item) -> Item:
        return {name: item[name] for name, _ in self.shape.keys}


class _Write(NamedTuple):
    """A member of a transaction, or a single write: what it does is decided from the item as it was."""

    table: _Table
    key: Key
    condition: Condition | None
    change: Callable[[Item | None], Item | None]  # returns the item itself if it is only checked
    names: Mapping[str, str]
    values: Item
    tells: bool  # the item that refused it

    def is_allowed(self, old: Item | None) -> bool:
        return self.condition is None or holds(self.condition, old or {}, self.names, self.values)


class _RefusedWrites(Refused):
    """Some conditions do not hold: of each member whether it was refused, and the item if it tells it."""

    def __init__(self, reasons: list[tuple[bool, Item | None]]) -> None:
        super().__init__()
        self.reasons = reasons


class _TooLate(Refused):
    """The call was signed too long ago."""


def declare_table(database: Database, name: str, shape: Shape) -> None:
    """Creates a table if there is none with this name; if its shape has changed, makes its indexes new, and the times at
    which its items may be removed.

    Raises:
        ValueError: a table with this name has other keys.
    """
    wanted = msgspec.json.encode(shape)

    def work(connection: sqlite3.Connection) -> None:
        found = connection.execute("SELECT number, shape FROM tables WHERE name = ?", (name,)).fetchone()
        if found is None:
            connection.execute("INSERT INTO tables (name, shape) VALUES (?, ?)", (name, wanted))
        elif found[1] != wanted:
            table = _Table(found[0], name, shape)
            if from_json(found[1], Shape).keys != shape.keys:
                raise ValueError(f"table {name} has other keys than the template says")
            connection.execute("UPDATE tables SET shape = ? WHERE number = ?", (wanted, table.number))
            connection.execute("DELETE FROM entries WHERE tbl = ?", (table.number,))
            for (packed,) in connection.execute("SELECT item FROM items WHERE tbl = ?", (table.number,)).fetchall():
                item = _decode(packed)
                key = table.key(item)
                _index(connection, table, key, None, item)
                connection.execute(
                    "UPDATE items SET expires = ? WHERE tbl = ? AND hash = ? AND range = ?",
                    (_expires(shape, item), table.number, *key),
                )

    database.write(work)


class SqliteStore(Store):
    """A store on SQLite in place of DynamoDB. Thread-safe.

    Args:
        clock: tells the age of calls that are signed with a time, and times the repeats of deletions.
    """

    def __init__(self, database: Database, clock: SystemClock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()
        self._refused = lambda: None
        self._tables: dict[str, _Table] = {}

    def call(self, operation: str, arguments: Mapping[str, Any], signed_ms: int | None = None) -> dict[str, Any]:
        """Makes one call and returns its answer. A call that was signed more than 5 minutes ago is refused, as by AWS.

        Raises:
            ConditionFailed, TransactionCancelled: a condition did not hold; nothing changed.
            SignatureExpired: the call is too old; nothing changed.
            StoreTimeout: the outcome is unknown. `DeadlineExceeded`: the request's deadline had passed before the call.
            ValueError: Headrace does not make such a call.
        """
        check_deadline()
        match operation:
            case "GetItem":
                _check("GetItem", arguments)
                found = self._get(self._table(arguments["TableName"]), arguments["Key"])
                return {"Item": found} if found is not None else {}
            case "Query":
                return self._query(arguments)
            case "BatchGetItem":
                ((name, asked),) = arguments["RequestItems"].items()
                items = (self._get(self._table(name), key) for key in asked["Keys"])
                return {"Responses": {name: [item for item in items if item is not None]}}
            case "PutItem" | "UpdateItem" | "DeleteItem":
                return self._write_one(
                    self._member({operation.removesuffix("Item"): arguments}), arguments, signed_ms
                )
            case "TransactWriteItems":
                self._transact([self._member(one) for one in arguments["TransactItems"]], signed_ms)
                return {}
            case "BatchWriteItem":
                ((name, requests),) = arguments["RequestItems"].items()
                deletes = [{"Delete": {"TableName": name, **one["DeleteRequest"]}} for one in requests]
                self._write([self._member(one) for one in deletes], signed_ms)
                return {}
        raise ValueError(f"not supported: {operation}")

    def expire(self, now_s: int, limit: int = 1000) -> int:
        """Removes items whose time is over, at most `limit`, and returns how many. AWS does so within some days."""
        removed = 0
        due: list[tuple[str, bytes]] = self._database.read(
            "SELECT name, item FROM items JOIN tables ON number = tbl WHERE expires < ? LIMIT ?", (now_s, limit)
        )
        for name, packed in due:
            table, item = self._table(name), _decode(packed)
            is_due = Condition("<=", path=table.shape.expires, values=(":now",))
            write = _Write(table, table.key(item), is_due, lambda _: None, {}, {":now": n(now_s)}, tells=False)
            with suppress(_RefusedWrites):  # it was written again
                self._write([write], None)
                removed += 1
        return removed

    def _table(self, name: str) -> _Table:
        if name not in self._tables:
            ((number, shape),) = self._database.read("SELECT number, shape FROM tables WHERE name = ?", (name,))
            self._tables[name] = _Table(number, name, from_json(shape, Shape))
        return self._tables[name]

    def _get(self, table: _Table, key: Item) -> Item | None:
        sql = "SELECT item FROM items WHERE tbl = ? AND hash = ? AND range = ?"
        found = self._database.read(sql, (table.number, *table.key(key)))
        return _decode(found[0][0]) if found else None

    def _query(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Answers a query: at most `Limit` items, and about a megabyte."""
        _check("Query", asked)
        table, names = self._table(asked["TableName"]), asked.get("ExpressionAttributeNames", {})
        index = table.shape.indexes[asked["IndexName"]] if "IndexName" in asked else None
        keys = index.keys if index is not None else table.shape.keys
        condition = parse_condition(asked["KeyConditionExpression"])
        terms = condition.parts if condition.kind == "AND" else (condition,)
        own = ["hash", "range"] if index is None else ["index_hash", "index_range"]
        where, terms_values = _key_terms(terms, keys, own, names, asked["ExpressionAttributeValues"])
        values: list[Any] = [table.number, *terms_values]
        source, columns = "items", own
        if index is not None:
            source, columns = (
                "entries CROSS JOIN items USING (tbl, hash, range)",
                [*own, "hash", "range"],
            )  # in this order
            where.insert(0, "idx = ?")
            values.insert(1, asked["IndexName"])
        is_ascending = asked.get("ScanIndexForward", True)
        start = asked.get("ExclusiveStartKey")
        if start is not None:
            where.append(f"({', '.join(columns)}) {'>' if is_ascending else '<'} ({', '.join('?' * len(columns))})")
            values += (_index_key(index.keys, start) or ()) if index is not None else ()
            values += table.key(start)
        order = ", ".join(f"{column} {'ASC' if is_ascending else 'DESC'}" for column in columns[1:])
        limit = asked.get("Limit", -1)
        sql = f"SELECT item FROM {source} WHERE tbl = ? AND {' AND '.join(where)} ORDER BY {order} LIMIT ?"
        packed, is_cut = self._database.read_page(sql, (*values, limit), PAGE_BYTES)
        items = [_decode(one) for (one,) in packed]
        answer: dict[str, Any] = {"Items": [_shown(item, table, index, asked, names) for item in items]}
        if is_cut or len(items) == limit:
            shown = {*(name for name, _ in keys), *(name for name, _ in table.shape.keys)}
            answer["LastEvaluatedKey"] = {name: items[-1][name] for name in shown}
        return answer

    def _member(self, member: Mapping[str, Mapping[str, Any]]) -> _Write:
        ((kind, asked),) = member.items()
        _check(kind, asked)
        table = self._table(asked["TableName"])
        names, values = asked.get("ExpressionAttributeNames", {}), asked.get("ExpressionAttributeValues", {})
        condition = parse_condition(asked["ConditionExpression"]) if "ConditionExpression" in asked else None
        key = table.key(asked["Item"] if kind == "Put" else asked["Key"])
        change = _effect(kind, asked, names, values)
        tells = asked.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
        return _Write(table, key, condition, change, names, values, tells)

    def _write_one(self, write: _Write, asked: Mapping[str, Any], signed_ms: int | None) -> dict[str, Any]:
        returned = asked.get("ReturnValues", "NONE")
        if returned not in ("NONE", "UPDATED_OLD"):
            raise ValueError(f"not supported: {returned}")
        try:
            (old,) = self._write([write], signed_ms)
        except _RefusedWrites as exc:
            raise ConditionFailed(exc.reasons[0][1]) from None
        if returned == "NONE":
            return {}
        update = touched(parse_update(asked["UpdateExpression"]), write.names)
        return {"Attributes": {name: old[name] for name in update if old is not None and name in old}}

    def _transact(self, writes: Sequence[_Write], signed_ms: int | None) -> None:
        if len({(write.table.number, write.key) for write in writes}) < len(writes):
            raise ValueError("two members of a transaction are about one item")
        if len(writes) > _MEMBERS:
            raise ValueError(f"a transaction has more than {_MEMBERS} members: {len(writes)}")
        try:
            self._write(writes, signed_ms)
        except _RefusedWrites as exc:
            codes = [("ConditionalCheckFailed" if refused else "None", item) for refused, item in exc.reasons]
            raise TransactionCancelled(codes) from None

    def _write(self, writes: Sequence[_Write], signed_ms: int | None) -> list[Item | None]:
        """Writes all or nothing, and returns the items as they were. Raises SignatureExpired, _RefusedWrites."""

        def work(connection: sqlite3.Connection) -> list[Item | None]:
            if signed_ms is not None and self._clock.now_ms() - signed_ms > _SIGNATURE_MS:
                raise _TooLate
            packed = [_packed(connection, write.table, write.key) for write in writes]
            old = [_decode(one) if one is not None else None for one in packed]
            reasons = [
                (not write.is_allowed(one), one if write.tells else None)
                for write, one in zip(writes, old, strict=True)
            ]
            if any(refused for refused, _ in reasons):
                raise _RefusedWrites([(refused, item if refused else None) for refused, item in reasons])
            new = [write.change(one) for write, one in zip(writes, old, strict=True)]
            for write, before, after in zip(writes, old, new, strict=True):
                if after is not before:
                    self._put(connection, write.table, write.key, before, after)
            return old

        try:
            return self._database.write(work)
        except _TooLate:
            raise SignatureExpired("the call was signed more than 5 minutes ago") from None

    def _put(
        self, connection: sqlite3.Connection, table: _Table, key: Key, before: Item | None, after: Item | None
    ) -> None:
        """Replaces one item by another, with what follows from it: indexes, and the change for the table's stream."""
        if after is None:
            connection.execute("DELETE FROM items WHERE tbl = ? AND hash = ? AND range = ?", (table.number, *key))
        else:
            packed = _encode(after)
            if len(packed) > _ITEM_BYTES and (size := _size({"M": after}) - 3 - len(after)) > _ITEM_BYTES:
                raise ValueError(f"an item of {table.name} is larger than {_ITEM_BYTES} bytes: {size}")
            values = (table.number, *key, packed, _expires(table.shape, after))
            connection.execute("REPLACE INTO items VALUES (?, ?, ?, ?, ?)", values)
        _index(connection, table, key, before, after)
        if table.shape.stream and before != after:
            change = _encode(_change(table, before, after))
            connection.execute("INSERT INTO changes (tbl, change) VALUES (?, ?)", (table.number, change))
            self._database.ring_after_commit()


def _check(kind: str, asked: Mapping[str, Any]) -> None:
    """Raises ValueError if a call has an argument that would be ignored."""
    if not asked.keys() <= _ARGUMENTS.get(kind, set()):
        raise ValueError(f"not supported in {kind}: {sorted(asked.keys() - _ARGUMENTS.get(kind, set()))}")


def _expires(shape: Shape, item: Item) -> int | None:
    """Returns the time (epoch seconds) at which an item may be removed; None if it stays."""
    expires = item.get(shape.expires)
    return int(expires["N"]) if expires is not None else None


def _size(value: Mapping[str, Any]) -> int:
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
            return sum(_size({kind[0]: one}) for one in content)
        case "L":
            return 3 + sum(1 + _size(one) for one in content)
        case "M":
            return 3 + sum(1 + len(name.encode()) + _size(one) for name, one in content.items())
    return 1


def _effect(
    kind: str, asked: Mapping[str, Any], names: Mapping[str, str], values: Item
) -> Callable[[Item | None], Item | None]:
    """Returns the function from an item to what a member of a transaction makes of it; None means that there is none."""
    match kind:
        case "Put":
            return lambda _: asked["Item"]
        case "Delete":
            return lambda _: None
        case "ConditionCheck":
            return lambda old: old
        case "Update":
            update = parse_update(asked["UpdateExpression"])
            return lambda old: updated(update, old or asked["Key"], names, values)
    raise ValueError(f"not supported in a transaction: {kind}")


def _shown(
    item: Item, table: _Table, index: Index | None, asked: Mapping[str, Any], names: Mapping[str, str]
) -> Item:
    if "ProjectionExpression" in asked:
        return projected(asked["ProjectionExpression"], item, names)
    if index is not None and index.keys_only:
        return {name: item[name] for name, _ in (*table.shape.keys, *index.keys)}
    return item


def _packed(connection: sqlite3.Connection, table: _Table, key: Key) -> bytes | None:
    sql = "SELECT item FROM items WHERE tbl = ? AND hash = ? AND range = ?"
    found: list[bytes] | None = connection.execute(sql, (table.number, *key)).fetchone()
    return found[0] if found is not None else None


def _index(connection: sqlite3.Connection, table: _Table, key: Key, before: Item | None, after: Item | None) -> None:
    """Moves an item in the indexes of its table."""
    for name, index in table.shape.indexes.items():
        old = _index_key(index.keys, before) if before is not None else None
        new = _index_key(index.keys, after) if after is not None else None
        if old is not None and old != new:
            own = "tbl = ? AND idx = ? AND index_hash = ? AND index_range = ? AND hash = ? AND range = ?"
            connection.execute(f"DELETE FROM entries WHERE {own}", (table.number, name, *old, *key))
        if new is not None and new != old:
            connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", (table.number, name, *new, *key))


def _change(table: _Table, before: Item | None, after: Item | None) -> dict[str, Any]:
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


def _index_key(keys: Sequence[tuple[str, str]], item: Item) -> Key | None:
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


def _key_terms(
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
