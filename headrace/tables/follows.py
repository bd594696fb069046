"""The table of followers: who must hear of a log's appends.

A follower that stays (a router, a subscription) is counted in its log's state, `LogState.followers`: its row comes and goes
with the entry that changes the count (`headrace.log.logs.Log.follow`). Of those that last for a while (the bell of a watch
session, a socket) the state has only a deadline, `LogState.followed_ms`, which is never before that of a row. As long as
the state has either, each entry is sent to the relay, which reads the rows and tells them.

Guarantees that every adapter keeps:
 1. `of` and `get` are strongly consistent. `due` may lag by a moment.
 2. `put` and `remove` act only on the version that the caller read, and so do the guards.

Followers in DynamoDB. Table `follows`: `log_id` S (hash), `id` S (range): `<kind>#<follower id>`. `version` N, and where
they apply `data` B, `until_ms` N, `expires_at` N (Unix seconds: DynamoDB removes by itself those that last for a while),
and `due_shard` S and `due_ms` N, the keys of the sparse index `due`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import replace

from headrace.errors import Damaged
from headrace.tables.items import (
    ConditionFailed,
    Guard,
    Item,
    Member,
    MemoryTables,
    Names,
    Refusal,
    n,
    refuse_newer,
    s,
)
from headrace.tables.parts import expires_at
from headrace.tables.producers import PURGED_AT_ONCE

if TYPE_CHECKING:  # it loads pynamodb, which the adapters in memory do not need
    from headrace.tables.dynamodb import Store

TABLE = "follows"
DUE = "due"
DUE_SHARDS = "0123456789abcdef"  # first digits of log ids: the index takes 1,000 changes a second for each
_DUE_PAGE = 100


class Follow(msgspec.Struct, frozen=True):
    """A follower of a log.

    Attributes:
        kind: what it is: `router`, `bell`, `socket`, `subscription`; without `#`.
        id: which of its kind.
        data: what it keeps here, as its own JSON.
        until_ms: when it ends unless it is renewed, in epoch milliseconds; 0: it stays until it is removed.
        due_ms: when the sweep must visit it, in epoch milliseconds; 0: never.
        version: number of times the row was written; 0 if it was never written. A write decides it, not its caller.
    """

    log_id: str
    kind: str
    id: str
    data: bytes = b""
    until_ms: int = 0
    due_ms: int = 0
    version: int = 0

    @property
    def key(self) -> str:
        """The row's key among those of its log, by which they are ordered."""
        return f"{self.kind}#{self.id}"

    @property
    def stays(self) -> bool:
        """Whether it stays until it is removed, and so is counted in the log's state."""
        return not self.until_ms


class Follows(Protocol):
    """The port of the table of followers. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def of(self, log_id: str, kind: str = "", after: str = "", limit: int = 100) -> list[Follow]:
        """Returns at most `limit` followers of a log, of one kind or (empty) of all, in the order of their keys; with
        `after`, those whose keys come after it. Those that have ended may still be among them.
        """

    def get(self, log_id: str, kind: str, name: str) -> Follow | None:
        """Returns the follower of a log with this kind and id; None if there is none."""

    def put(self, follow: Follow, replaces: Follow | None) -> bool:
        """Writes a row in place of `replaces` (None: there is none yet), one version higher. Returns False, and changes
        nothing, if another row is there, or none.

        Raises:
            ValueError: it stays and `replaces` does not, or the other way round: the log's state must change with it
                (`headrace.log.logs.Log.follow`).
        """

    def remove(self, follow: Follow) -> bool:
        """Removes the row of a follower that does not stay. Returns False, and changes nothing, if it is gone or has
        changed.

        Raises:
            ValueError: the follower stays: the log's state must change with it (`headrace.log.logs.Log.unfollow`).
        """

    def due(self, now_ms: int) -> Iterator[Follow]:
        """Yields the followers that must be visited at or before `now_ms`. Reads on only as far as it is asked."""

    def purge(self, log_id: str) -> bool:
        """Removes rows of a log, at most `PURGED_AT_ONCE`. Returns whether none are left."""


class PutFollow(Guard, frozen=True):
    """A guard that writes a follower's row in place of `replaces`. It refuses if there is another, or none; the refusal
    returns it.
    """

    follow: Follow
    replaces: Follow | None = None

    @property
    def written(self) -> Follow:
        """The row as it is written."""
        return replace(self.follow, version=self.replaces.version + 1 if self.replaces is not None else 1)

    def member(self, names: Names) -> Member:
        """Returns a conditional put of the row, as a member of a transaction."""
        return {"Put": {"TableName": names[TABLE], "Item": follow_item(self.written), **_standing(self.replaces)}}

    def standing(self, item: Item | None) -> Follow | None:
        """Converts the row that refused the guard; None if there is none."""
        return item_follow(item) if item else None

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns a refusal if there is another row, or none; else None."""
        return _refusal(tables, self.follow, self.replaces)

    def apply(self, tables: MemoryTables) -> None:
        """Writes the row to the table in memory."""
        tables[TABLE].rows[self.follow.log_id, self.follow.key] = self.written


class DropFollow(Guard, frozen=True):
    """A guard that removes a follower's row. It refuses if the row is gone, or has changed; the refusal returns it."""

    follow: Follow

    def member(self, names: Names) -> Member:
        """Returns a conditional delete of the row, as a member of a transaction."""
        key = _key(self.follow.log_id, self.follow.key)
        return {"Delete": {"TableName": names[TABLE], "Key": key, **_standing(self.follow)}}

    def standing(self, item: Item | None) -> Follow | None:
        """Converts the row that refused the guard; None if there is none."""
        return item_follow(item) if item else None

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns a refusal if the row is gone or has changed; else None."""
        return _refusal(tables, self.follow, self.follow)

    def apply(self, tables: MemoryTables) -> None:
        """Removes the row from the table in memory."""
        del tables[TABLE].rows[self.follow.log_id, self.follow.key]


def follow_item(follow: Follow) -> Item:
    """Converts a follower to an item of the DynamoDB table."""
    item = {**_key(follow.log_id, follow.key), "version": n(follow.version)}
    if follow.data:
        item["data"] = {"B": follow.data}
    if follow.until_ms:
        item |= {"until_ms": n(follow.until_ms), "expires_at": n(expires_at(follow.until_ms))}
    if follow.due_ms:
        item |= {"due_shard": s(follow.log_id[0]), "due_ms": n(follow.due_ms)}
    return item


def item_follow(item: Item) -> Follow:
    """Converts an item of the DynamoDB table to a follower. Raises Damaged or NewerFormat."""
    where = f"follows log_id={item.get('log_id')} id={item.get('id')}"
    refuse_newer(item, where)
    try:
        kind, _, name = item["id"]["S"].partition("#")
        until_ms, due_ms = (int(item[one]["N"]) if one in item else 0 for one in ("until_ms", "due_ms"))
        data = bytes(item["data"]["B"]) if "data" in item else b""
        return Follow(item["log_id"]["S"], kind, name, data, until_ms, due_ms, int(item["version"]["N"]))
    except (KeyError, ValueError) as exc:
        raise Damaged(f"follower's row does not parse: {where}") from exc


def _key(log_id: str, key: str) -> Item:
    return {"log_id": s(log_id), "id": s(key)}


def _standing(expected: Follow | None) -> dict[str, Any]:
    """Returns the condition that the row is as it was read; that there is none, if that is None."""
    told = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    if expected is None:
        return {"ConditionExpression": "attribute_not_exists(log_id)", **told}
    values = {":version": n(expected.version)}
    return {"ConditionExpression": "version = :version", "ExpressionAttributeValues": values, **told}


def _refusal(tables: MemoryTables, follow: Follow, expected: Follow | None) -> Refusal | None:
    standing: Follow | None = tables[TABLE].rows.get((follow.log_id, follow.key))
    found = standing.version if standing is not None else 0
    return None if found == (expected.version if expected is not None else 0) else Refusal(standing)


def _check_change(follow: Follow | None, replaces: Follow | None) -> None:
    """Raises ValueError if a change of the row changes what the log's state has to count."""
    if (follow is not None and follow.stays) != (replaces is not None and replaces.stays):
        raise ValueError("a follower that stays comes and goes with an entry of its log")


class DynamoFollows:
    """The port `headrace.tables.follows.Follows` on DynamoDB."""

    def __init__(self, store: Store, names: Names) -> None:
        """Creates an adapter. `names` has the deployed name of the table."""
        self._store = store
        self._names = names

    def of(self, log_id: str, kind: str = "", after: str = "", limit: int = 100) -> list[Follow]:
        """Returns followers of a log, with consistent queries as far as the limit asks for."""
        query: dict[str, Any] = {
            "TableName": self._names[TABLE],
            "ConsistentRead": True,
            "KeyConditionExpression": "log_id = :log",
            "ExpressionAttributeValues": {":log": s(log_id)},
            "Limit": limit,
        }
        prefix = f"{kind}#" if kind else ""
        if after > prefix and not after.startswith(prefix):
            return []  # it sorts behind all of this kind; as a start key the store would refuse it
        if kind:
            query["KeyConditionExpression"] += " AND begins_with(id, :kind)"
            query["ExpressionAttributeValues"][":kind"] = s(prefix)
        if after > prefix:
            query["ExclusiveStartKey"] = _key(log_id, after)
        return [item_follow(item) for item in islice(self._store.query(query), limit)]

    def get(self, log_id: str, kind: str, name: str) -> Follow | None:
        """Returns a follower with one consistent read; None if there is none."""
        get = {"TableName": self._names[TABLE], "ConsistentRead": True, "Key": _key(log_id, f"{kind}#{name}")}
        item = self._store.call("GetItem", get).get("Item")
        return item_follow(item) if item is not None else None

    def put(self, follow: Follow, replaces: Follow | None) -> bool:
        """Writes a row with one conditional put."""
        _check_change(follow, replaces)
        return self._done("PutItem", PutFollow(follow, replaces).member(self._names)["Put"])

    def remove(self, follow: Follow) -> bool:
        """Removes a row with one conditional delete."""
        _check_change(None, follow)
        return self._done("DeleteItem", DropFollow(follow).member(self._names)["Delete"])

    def due(self, now_ms: int) -> Iterator[Follow]:
        """Yields the due followers, with a query for each shard of the index and page. Begins with another shard each
        minute: followers that fail keep no others waiting.
        """
        first = now_ms // 60_000 % len(DUE_SHARDS)
        for shard in DUE_SHARDS[first:] + DUE_SHARDS[:first]:
            query = {
                "TableName": self._names[TABLE],
                "IndexName": DUE,
                "KeyConditionExpression": "due_shard = :shard AND due_ms <= :now",
                "ExpressionAttributeValues": {":shard": s(shard), ":now": n(now_ms)},
                "Limit": _DUE_PAGE,
            }
            yield from map(item_follow, self._store.query(query))

    def purge(self, log_id: str) -> bool:
        """Removes rows of a log with queries and batched deletes. Returns whether none are left."""
        return self._store.purge(self._names[TABLE], log_id, "id", PURGED_AT_ONCE)

    def _done(self, operation: str, arguments: dict[str, Any]) -> bool:
        try:
            self._store.call(operation, arguments)
        except ConditionFailed:
            return False
        return True


class MemoryFollows:
    """The port of the table of followers in memory. The write-ahead log shares `lock`."""

    def __init__(self, lock: threading.RLock | None = None) -> None:
        self.lock = lock or threading.RLock()
        self.rows: dict[tuple[str, str], Follow] = {}

    def of(self, log_id: str, kind: str = "", after: str = "", limit: int = 100) -> list[Follow]:
        """Returns followers of a log, in the order of their keys."""
        with self.lock:
            own = [row for (log, _), row in sorted(self.rows.items()) if log == log_id]
        return [row for row in own if kind in ("", row.kind) and row.key > after][:limit]

    def get(self, log_id: str, kind: str, name: str) -> Follow | None:
        """Returns a follower; None if there is none."""
        with self.lock:
            return self.rows.get((log_id, f"{kind}#{name}"))

    def put(self, follow: Follow, replaces: Follow | None) -> bool:
        """Writes a row if `replaces` is there."""
        _check_change(follow, replaces)
        return self._done(PutFollow(follow, replaces))

    def remove(self, follow: Follow) -> bool:
        """Removes a row if it is there."""
        _check_change(None, follow)
        return self._done(DropFollow(follow))

    def due(self, now_ms: int) -> Iterator[Follow]:
        """Yields the due followers, those due longest first."""
        with self.lock:
            found = [row for row in self.rows.values() if row.due_ms and row.due_ms <= now_ms]
        yield from sorted(found, key=lambda row: row.due_ms)

    def purge(self, log_id: str) -> bool:
        """Removes rows of a log. Returns whether none are left."""
        with self.lock:
            found = [key for key in self.rows if key[0] == log_id]
            for key in found[:PURGED_AT_ONCE]:
                del self.rows[key]
        return len(found) < PURGED_AT_ONCE

    def _done(self, guard: PutFollow | DropFollow) -> bool:
        with self.lock:
            if guard.check({TABLE: self}) is not None:
                return False
            guard.apply({TABLE: self})
            return True
