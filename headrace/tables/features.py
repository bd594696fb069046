"""The table of feature rows: what the events of a lane have made of each entity, and how far a lane is folded.

The rows are a cache of the lane's log: they can be computed from it again. A row belongs to a *generation* of a table (the
table's name, the registry version in which its state began, and the lane's incarnation), and has all events of its entity
below its `as_of`. A lane has one *mark*: in each generation every row has all events below `Mark.folded`.

Guarantees that every adapter keeps:
 1. `get` and `mark` are strongly consistent, unless asked otherwise.
 2. `put` writes a row only in place of the one with the given `as_of`, and `put_mark` a mark only in place of that version.
 3. A row that `get` returns is whole.

Rows in DynamoDB. Table `features`: `id` S (hash): `<log id>#<generation>#<x>`, where x is the last hexadecimal digit of the
XXH64 of the entity; `part` S (range): the entity. `as_of` N, `data` B, and where it applies `expires_at` N (Unix seconds).
A row of more than `PIECE_BYTES` has instead of `data` the attribute `pieces` N: its pieces, in the same partition, are
`<entity>\\x01<as_of>.<number>` with `data` B. They are written before the row that names them; `old` S names the pieces of
the row before, which the next write deletes. A mark is `<log id>#mark`, `-` with `data` B and `version` N.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
import xxhash
from msgspec.structs import replace

from headrace import decoding
from headrace.errors import Damaged
from headrace.tables.items import ConditionFailed, Item, n, refuse_newer, s
from headrace.tables.marks import Mark, generations_of
from headrace.tables.producers import PURGED_AT_ONCE

if TYPE_CHECKING:  # it loads pynamodb, which the adapters in memory do not need
    from headrace.tables.dynamodb import Store

TABLE = "features"
PIECE_BYTES = 350 * 1024  # an item of DynamoDB holds 400 KB
SHARDS = "0123456789abcdef"  # of a generation: DynamoDB takes 1,000 writes a second for each
_LOOKS = 4  # at a row whose pieces are replaced while they are read
_SEPARATOR = "\x01"  # no entity has a control character


class Key(NamedTuple):
    """What tells a row from all others."""

    log_id: str
    generation: str
    entity: str


class StateRow(NamedTuple):
    """The row of an entity.

    Attributes:
        as_of: it has the events of its lane below this offset.
        data: its state (`headrace.features.rows`).
        expires_at: when the store may remove it, in Unix seconds; 0: never.
        pieces, old: how the store keeps it. A write decides them, not its caller.
    """

    key: Key
    as_of: int
    data: bytes
    expires_at: int = 0
    pieces: int = 0
    old: str = ""


class FeatureRows(Protocol):
    """The port of the table of feature rows. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def get(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, StateRow]:
        """Returns those of the rows that exist, by key. The keys differ from each other."""

    def put(self, row: StateRow, replaces: StateRow | None) -> StateRow | None:
        """Writes a row in place of `replaces` (None: there is none), whose data do not matter. Returns it as it was
        written; None if a row with another `as_of` is there, or none, and then nothing was changed.
        """

    def rows(self, log_id: str, generation: str) -> Iterator[StateRow]:
        """Yields the rows of a generation. Reads on only as far as it is asked."""

    def mark(self, log_id: str) -> Mark | None:
        """Returns the mark of a lane; None if it was never folded."""

    def put_mark(self, mark: Mark) -> Mark | None:
        """Writes a mark in place of the one with its version (0: there is none). Returns it as it was written; None if
        another one is there, and then nothing was changed.
        """

    def remove(self, log_id: str, generation: str) -> bool:
        """Removes rows of a generation, at most `PURGED_AT_ONCE`. Returns whether none are left."""

    def purge(self, log_id: str) -> bool:
        """Removes rows of a lane, and at last its mark. Returns whether none are left."""


def _shard(entity: str) -> str:
    return SHARDS[xxhash.xxh64_intdigest(entity.encode()) % len(SHARDS)]


def _partition(log_id: str, generation: str, shard: str) -> str:
    return f"{log_id}#{generation}#{shard}"


def _item_key(key: Key) -> Item:
    return {"id": s(_partition(key.log_id, key.generation, _shard(key.entity))), "part": s(key.entity)}


def _pieces_of(entity: str, token: str) -> list[str]:
    """Returns the range keys of a row's pieces; `token` is `<as_of>.<number of pieces>`."""
    as_of, _, count = token.partition(".")
    return [f"{entity}{_SEPARATOR}{as_of}.{number}" for number in range(int(count))]


class DynamoFeatures:
    """The port `FeatureRows` on DynamoDB."""

    def __init__(self, store: Store, table: str) -> None:
        self._store = store
        self._table = table

    def get(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, StateRow]:
        """Returns rows, with one read for each 100 keys, and more for rows in pieces."""
        found: dict[Key, StateRow] = {}
        wanted = list(keys)
        for _ in range(_LOOKS):
            if not wanted:
                return found
            by_item = {(one["id"]["S"], one["part"]["S"]): key for key in wanted for one in (_item_key(key),)}
            wanted = []
            for item in self._read([_item_key(key) for key in by_item.values()], consistent=consistent):
                key = by_item[item["id"]["S"], item["part"]["S"]]
                row = self._whole(key, item)
                if row is None:
                    wanted.append(key)  # its pieces were replaced meanwhile
                else:
                    found[key] = row
        if wanted:
            raise Damaged(f"pieces of a row are missing: log_id={wanted[0].log_id} entity={wanted[0].entity!r}")
        return found

    def _read(self, keys: Sequence[Item], *, consistent: bool) -> Iterator[Item]:
        if len(keys) == 1:
            get = {"TableName": self._table, "ConsistentRead": consistent, "Key": keys[0]}
            item = self._store.call("GetItem", get).get("Item")
            return iter([item] if item is not None else [])
        return self._store.get_all(self._table, keys, consistent=consistent)

    def _whole(self, key: Key, item: Item) -> StateRow | None:
        """Returns the row of an item; None if one of its pieces is missing."""
        where = f"features id={item.get('id')} part={item.get('part')}"
        refuse_newer(item, where)
        try:
            as_of = int(item["as_of"]["N"])
            expires_at = int(item["expires_at"]["N"]) if "expires_at" in item else 0
            old = item["old"]["S"] if "old" in item else ""
            if "pieces" not in item:
                return StateRow(key, as_of, bytes(item["data"]["B"]), expires_at, 0, old)
            names = _pieces_of(key.entity, f"{as_of}.{item['pieces']['N']}")
            pieces = {
                piece["part"]["S"]: bytes(piece["data"]["B"])
                for piece in self._read([{"id": item["id"], "part": s(name)} for name in names], consistent=True)
            }
        except (KeyError, ValueError) as exc:
            raise Damaged(f"row of a feature table does not parse: {where}") from exc
        if len(pieces) < len(names):
            return None
        return StateRow(key, as_of, b"".join(pieces[name] for name in names), expires_at, len(names), old)

    def put(self, row: StateRow, replaces: StateRow | None) -> StateRow | None:
        """Writes a row with one conditional put; one that is large with a put for each piece before."""
        pieces = [row.data[at : at + PIECE_BYTES] for at in range(0, len(row.data), PIECE_BYTES)]
        old = f"{replaces.as_of}.{replaces.pieces}" if replaces is not None and replaces.pieces else ""
        written = row._replace(pieces=len(pieces) if len(pieces) > 1 else 0, old=old)
        key = _item_key(row.key)
        if written.pieces:
            names = _pieces_of(row.key.entity, f"{row.as_of}.{len(pieces)}")
            for name, data in zip(names, pieces, strict=True):
                piece = {"id": key["id"], "part": s(name), "data": {"B": data}}
                self._store.call("PutItem", {"TableName": self._table, "Item": piece})
        item = {
            **key,
            "as_of": n(row.as_of),
            **({"pieces": n(written.pieces)} if written.pieces else {"data": {"B": row.data}}),
            **({"expires_at": n(row.expires_at)} if row.expires_at else {}),
            **({"old": s(old)} if old else {}),
        }
        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(id)"}
        if replaces is not None:
            values = {":seen": n(replaces.as_of)}
            condition = {"ConditionExpression": "as_of = :seen", "ExpressionAttributeValues": values}
        try:
            self._store.call("PutItem", {"TableName": self._table, "Item": item, **condition})
        except ConditionFailed:
            return None
        if replaces is not None and replaces.old:
            outdated = _pieces_of(row.key.entity, replaces.old)
            self._store.delete(self._table, [{"id": key["id"], "part": s(name)} for name in outdated])
        return written

    def rows(self, log_id: str, generation: str) -> Iterator[StateRow]:
        """Yields the rows of a generation, with queries for each of its shards."""
        for shard in SHARDS:
            query = {
                "TableName": self._table,
                "KeyConditionExpression": "id = :id",
                "ExpressionAttributeValues": {":id": s(_partition(log_id, generation, shard))},
            }
            for item in self._store.query(query):
                entity = item["part"]["S"]
                if _SEPARATOR not in entity:
                    key = Key(log_id, generation, entity)
                    row = self._whole(key, item) or self.get([key]).get(key)
                    if row is not None:
                        yield row

    def mark(self, log_id: str) -> Mark | None:
        """Returns a mark with one consistent read; None if there is none."""
        get = {"TableName": self._table, "ConsistentRead": True, "Key": _mark_key(log_id)}
        item = self._store.call("GetItem", get).get("Item")
        if item is None:
            return None
        where = f"features mark log_id={log_id}"
        refuse_newer(item, where)
        try:
            return replace(decoding.from_msgpack(bytes(item["data"]["B"]), Mark), version=int(item["version"]["N"]))
        except (KeyError, ValueError, msgspec.DecodeError) as exc:
            raise Damaged(f"mark does not parse: {where}") from exc

    def put_mark(self, mark: Mark) -> Mark | None:
        """Writes a mark with one conditional put."""
        written = replace(mark, version=mark.version + 1)
        item = {
            **_mark_key(mark.log_id),
            "data": {"B": msgspec.msgpack.encode(replace(mark, version=0))},
            "version": n(written.version),
        }
        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(id)"}
        if mark.version:
            values = {":version": n(mark.version)}
            condition = {"ConditionExpression": "version = :version", "ExpressionAttributeValues": values}
        try:
            self._store.call("PutItem", {"TableName": self._table, "Item": item, **condition})
        except ConditionFailed:
            return None
        return written

    def remove(self, log_id: str, generation: str) -> bool:
        """Removes rows of a generation with queries and batched deletes."""
        left = PURGED_AT_ONCE
        for shard in SHARDS:
            query = {
                "TableName": self._table,
                "KeyConditionExpression": "id = :id",
                "ExpressionAttributeValues": {":id": s(_partition(log_id, generation, shard))},
                "ExpressionAttributeNames": {"#part": "part"},
                "ProjectionExpression": "id, #part",
            }
            keys = list(islice(self._store.query(query), left))
            self._store.delete(self._table, keys)
            left -= len(keys)
            if not left:
                return False
        return True

    def purge(self, log_id: str) -> bool:
        """Removes the rows of a lane, then its mark."""
        mark = self.mark(log_id)
        if mark is None:
            return True
        if not all(self.remove(log_id, generation) for generation in generations_of(mark)):
            return False
        self._store.delete(self._table, [_mark_key(log_id)])
        return True


def _mark_key(log_id: str) -> Item:
    return {"id": s(f"{log_id}#mark"), "part": s("-")}


class MemoryFeatures:
    """The port of the table of feature rows in memory."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.kept: dict[Key, StateRow] = {}
        self.marks: dict[str, Mark] = {}

    def get(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, StateRow]:  # noqa: ARG002
        """Returns those of the rows that exist, by key."""
        with self.lock:
            return {key: self.kept[key] for key in keys if key in self.kept}

    def put(self, row: StateRow, replaces: StateRow | None) -> StateRow | None:
        """Writes a row if `replaces` is there."""
        with self.lock:
            standing = self.kept.get(row.key)
            if (standing and standing.as_of) != (replaces and replaces.as_of):
                return None
            self.kept[row.key] = row
            return row

    def rows(self, log_id: str, generation: str) -> Iterator[StateRow]:
        """Yields the rows of a generation."""
        with self.lock:
            found = [row for key, row in self.kept.items() if key[:2] == (log_id, generation)]
        yield from found

    def mark(self, log_id: str) -> Mark | None:
        """Returns the mark of a lane; None if there is none."""
        with self.lock:
            return self.marks.get(log_id)

    def put_mark(self, mark: Mark) -> Mark | None:
        """Writes a mark if the one with its version is there."""
        with self.lock:
            standing = self.marks.get(mark.log_id)
            if (standing.version if standing is not None else 0) != mark.version:
                return None
            self.marks[mark.log_id] = replace(mark, version=mark.version + 1)
            return self.marks[mark.log_id]

    def remove(self, log_id: str, generation: str) -> bool:
        """Removes rows of a generation."""
        with self.lock:
            return self._drop(key for key in self.kept if key[:2] == (log_id, generation))

    def purge(self, log_id: str) -> bool:
        """Removes the rows of a lane, then its mark."""
        with self.lock:
            if not self._drop(key for key in self.kept if key.log_id == log_id):
                return False
            self.marks.pop(log_id, None)
            return True

    def _drop(self, keys: Iterable[Key]) -> bool:
        found = list(keys)
        for key in found[:PURGED_AT_ONCE]:
            del self.kept[key]
        return len(found) < PURGED_AT_ONCE
