"""The tables of a single machine: the operations of DynamoDB's API that Headrace calls, on SQLite.

So every adapter of a table works here as it is. An item is stored as one value beside its key; an index is a table of keys,
kept in the same transaction as the items. A change of a table with a stream is stored in that transaction, too.
"""

from __future__ import annotations

import sqlite3
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
    holds,
    parse_condition,
    parse_update,
    projected,
    touched,
    updated,
)
from local.machine.shapes import Index, Key, Shape, Table, change_of, expires_at, index_key, item_size, key_terms

PAGE_BYTES = 1_048_576  # of an answer of Query
# DynamoDB's limits, so that what it would refuse is refused here, too.
_ITEM_BYTES = 400 * 1024
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
_PUT = (
    "INSERT INTO items VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET item = excluded.item, expires = excluded.expires"
)
_encode = msgspec.msgpack.Encoder().encode
_decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode


class _Write(NamedTuple):
    """A member of a transaction, or a single write: what it does is decided from the item as it was."""

    table: Table
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
            table = Table(found[0], name, shape)
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
                    (expires_at(shape, item), table.number, *key),
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
        self._tables: dict[str, Table] = {}

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

    def _table(self, name: str) -> Table:
        if name not in self._tables:
            ((number, shape),) = self._database.read("SELECT number, shape FROM tables WHERE name = ?", (name,))
            self._tables[name] = Table(number, name, from_json(shape, Shape))
        return self._tables[name]

    def _get(self, table: Table, key: Item) -> Item | None:
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
        where, terms_values = key_terms(terms, keys, own, names, asked["ExpressionAttributeValues"])
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
            values += (index_key(index.keys, start) or ()) if index is not None else ()
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
        self, connection: sqlite3.Connection, table: Table, key: Key, before: Item | None, after: Item | None
    ) -> None:
        """Replaces one item by another, with what follows from it: indexes, and the change for the table's stream."""
        if after is None:
            connection.execute("DELETE FROM items WHERE tbl = ? AND hash = ? AND range = ?", (table.number, *key))
        else:
            packed = _encode(after)
            if len(packed) > _ITEM_BYTES and (size := item_size({"M": after}) - 3 - len(after)) > _ITEM_BYTES:
                raise ValueError(f"an item of {table.name} is larger than {_ITEM_BYTES} bytes: {size}")
            values = (table.number, *key, packed, expires_at(table.shape, after))
            connection.execute(_PUT, values)
        _index(connection, table, key, before, after)
        if table.shape.stream and before != after:
            change = _encode(change_of(table, before, after))
            connection.execute("INSERT INTO changes (tbl, change) VALUES (?, ?)", (table.number, change))
            self._database.ring_after_commit()


def _check(kind: str, asked: Mapping[str, Any]) -> None:
    """Raises ValueError if a call has an argument that would be ignored."""
    if not asked.keys() <= _ARGUMENTS.get(kind, set()):
        raise ValueError(f"not supported in {kind}: {sorted(asked.keys() - _ARGUMENTS.get(kind, set()))}")


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


def _shown(item: Item, table: Table, index: Index | None, asked: Mapping[str, Any], names: Mapping[str, str]) -> Item:
    if "ProjectionExpression" in asked:
        return projected(asked["ProjectionExpression"], item, names)
    if index is not None and index.keys_only:
        return {name: item[name] for name, _ in (*table.shape.keys, *index.keys)}
    return item


def _packed(connection: sqlite3.Connection, table: Table, key: Key) -> bytes | None:
    sql = "SELECT item FROM items WHERE tbl = ? AND hash = ? AND range = ?"
    found: list[bytes] | None = connection.execute(sql, (table.number, *key)).fetchone()
    return found[0] if found is not None else None


def _index(connection: sqlite3.Connection, table: Table, key: Key, before: Item | None, after: Item | None) -> None:
    """Moves an item in the indexes of its table."""
    for name, index in table.shape.indexes.items():
        old = index_key(index.keys, before) if before is not None else None
        new = index_key(index.keys, after) if after is not None else None
        if old is not None and old != new:
            own = "tbl = ? AND idx = ? AND index_hash = ? AND index_range = ? AND hash = ? AND range = ?"
            connection.execute(f"DELETE FROM entries WHERE {own}", (table.number, name, *old, *key))
        if new is not None and new != old:
            connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", (table.number, name, *new, *key))
