"""The table of sessions: counters over all processes, rows of what lasts for a while, bells, and when a log was last read.

Guarantees that every adapter keeps:
 1. `commit` writes the rows of all its guards, or none. A row that is counted comes and goes in one transaction with its
    counts, so what is counted is there, and is freed exactly once: by its owner, or by anyone after its deadline.
 2. `counts`, `part` and `parts` are strongly consistent. `expired`, `clocks` and `peek_bell` may lag by a moment.
 3. `put_part` and `drop_part` act only on the version that the caller read.
 4. A number that is rung before `take_bell` begins is in its answer, or in that of an earlier call, or the answer is None.
 5. A read clock only rises. It may be forgotten `CLOCK_KEPT_S` after the read.

Sessions in DynamoDB. Table `sessions`: `id` S (hash), `part` S (range). A counter's shard is the item `count#<what>`,
`<shard>` with `held` N (`headrace.tables.counters`). A read clock is `clock#<log id>`, `-` with `read_ms` N and
`expires_at` N (Unix seconds): a reader may write it after its log was purged, and nobody would remove it then. A bell is
`bell#<session id>`, `-` with `rung` NS, unless it is silent, and `expires_at`. A row of what lasts for a while
(`headrace.tables.parts`) is `<kind>#<id>`, `<part>` with `version` N, and where they apply `data` B, `expires_at_ms` N,
and `expires_at`. If it is counted, it has instead of the last one `counts` L (the shards that it occupies:
`<what>#<shard>`) and `expiry_shard` S, which is with `expires_at_ms` the key of the sparse index `expiry`: DynamoDB
removes by itself the rows with `expires_at`, and would not free what they count.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import StoreTimeout
from headrace.tables.counters import SHARDS, TABLE, counter_id
from headrace.tables.items import ConditionFailed, Guard, Names, TransactionCancelled, n, refuse_newer, s
from headrace.tables.parts import (
    EXPIRY_SHARDS,
    DropPart,
    Part,
    PutPart,
    expires_at,
    freeing,
    item_part,
    part_key,
)

if TYPE_CHECKING:  # it loads pynamodb, which the adapters in memory do not need
    from headrace.tables.dynamodb import Store

EXPIRY = "expiry"
CLOCK_KEPT_S = 90 * 86400
_EXPIRED_PAGE = 100


class Sessions(Protocol):
    """The port of the table of sessions. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def commit(self, guards: Sequence[Guard]) -> int | None:
        """Writes the rows of guards of any tables if all conditions hold, else nothing.

        Returns:
            The number of the first guard whose condition does not hold; None if all hold.

        Raises:
            StoreThrottled: also if the transaction collides with another; nothing was written.
        """

    def counts(self, what: str) -> list[int]:
        """Returns what each shard of a counter holds."""

    def clocks(self, log_ids: Iterable[str]) -> dict[str, int]:
        """Returns when logs were last read (epoch ms), by log id; without those that never were."""

    def touch(self, log_id: str, now_ms: int) -> None:
        """Raises a log's read clock to `now_ms`; does nothing if it is as high already. One write: callers do it at most
        once in 15 s.
        """

    def expired(self, now_ms: int) -> Iterator[Part]:
        """Yields the counted rows whose deadline is at or before `now_ms`. Reads on only as far as it is asked."""

    def part(self, kind: str, name: str, part: str = "-") -> Part | None:
        """Returns a row; None if there is none."""

    def parts(self, kind: str, name: str, *, prefix: str = "", after: str = "", limit: int) -> list[Part]:
        """Returns at most `limit` rows of one thing, in the order of `Part.part`: those that start with `prefix` and come
        after `after`.
        """

    def put_part(self, part: Part, replaces: Part | None) -> bool:
        """Writes a row in place of `replaces` (None: there is none yet), one version higher. Returns False, and changes
        nothing, if another row is there, or none.

        Raises:
            ValueError: it is counted otherwise than `replaces`; `headrace.tables.slots.take` counts a new one.
        """

    def drop_part(self, part: Part) -> bool:
        """Removes a row with its counts. Returns False, and changes nothing, if it is gone or has changed."""

    def ring(self, session_id: str, numbers: Iterable[int], until_ms: int) -> None:
        """Adds numbers to what a session's bell rings for. One write; at least one number.

        Args:
            until_ms: until when the session is kept; the bell may be forgotten after that.
        """

    def take_bell(self, session_id: str) -> frozenset[int] | None:
        """Silences a session's bell. Returns the numbers that it rang for; None if they are not known, because the store
        gave no answer: it may have rung for any.
        """

    def peek_bell(self, session_id: str) -> bool:
        """Returns whether a session's bell rings. Half a read unit."""

    def purge(self, log_id: str) -> bool:
        """Removes a log's read clock. Returns True: nothing is left."""


def check_counts(part: Part, replaces: Part | None) -> None:
    """Raises ValueError if a row is counted otherwise than the one that it replaces."""
    if part.counts != (replaces.counts if replaces is not None else ()):
        raise ValueError(f"counts of a row changed without its counters: {part.key}")


class DynamoSessions:
    """The port `headrace.tables.sessions.Sessions` on DynamoDB."""

    def __init__(self, store: Store, names: Names) -> None:
        """Creates an adapter. `names` holds the deployed names of this table and of those that guards use."""
        self._store = store
        self._names = names

    @property
    def _table(self) -> str:
        return self._names[TABLE]

    def commit(self, guards: Sequence[Guard]) -> int | None:
        """Writes the rows of all guards with one transaction; returns the number of the first that refuses, else None."""
        members = [guard.member(self._names) for guard in guards]
        try:
            self._store.call("TransactWriteItems", {"TransactItems": members})
        except TransactionCancelled as exc:
            for number, (code, _) in enumerate(exc.reasons):
                if code == "ConditionalCheckFailed":
                    return number
            raise
        return None

    def counts(self, what: str) -> list[int]:
        """Returns what each shard of a counter holds, with one consistent query."""
        query = {
            "TableName": self._table,
            "ConsistentRead": True,
            "KeyConditionExpression": "id = :id",
            "ExpressionAttributeValues": {":id": s(counter_id(what))},
        }
        counts = [0] * SHARDS
        for item in self._store.query(query):
            refuse_newer(item, f"sessions counter={what}")
            counts[int(item["part"]["S"])] = int(item["held"]["N"])
        return counts

    def clocks(self, log_ids: Iterable[str]) -> dict[str, int]:
        """Returns read clocks with one batched read for each 100 logs."""
        keys = [part_key("clock", log_id) for log_id in dict.fromkeys(log_ids)]
        found: dict[str, int] = {}
        for item in self._store.get_all(self._table, keys):
            found[item["id"]["S"].removeprefix("clock#")] = int(item["read_ms"]["N"])
        return found

    def touch(self, log_id: str, now_ms: int) -> None:
        """Raises a log's read clock with one conditional update; does nothing if it is as high already."""
        arguments = {
            "TableName": self._table,
            "Key": part_key("clock", log_id),
            "UpdateExpression": "SET read_ms = :now, expires_at = :end",
            "ConditionExpression": "attribute_not_exists(read_ms) OR read_ms < :now",
            "ExpressionAttributeValues": {":now": n(now_ms), ":end": n(now_ms // 1000 + CLOCK_KEPT_S)},
        }
        try:
            self._store.call("UpdateItem", arguments)
        except ConditionFailed:
            return

    def expired(self, now_ms: int) -> Iterator[Part]:
        """Yields the expired rows that are counted, with a query for each shard of the index and page."""
        for shard in EXPIRY_SHARDS:
            query = {
                "TableName": self._table,
                "IndexName": EXPIRY,
                "KeyConditionExpression": "expiry_shard = :shard AND expires_at_ms <= :now",
                "ExpressionAttributeValues": {":shard": s(shard), ":now": n(now_ms)},
                "Limit": _EXPIRED_PAGE,
            }
            yield from map(item_part, self._store.query(query))

    def part(self, kind: str, name: str, part: str = "-") -> Part | None:
        """Returns a row with one consistent read; None if there is none."""
        get = {"TableName": self._table, "ConsistentRead": True, "Key": part_key(kind, name, part)}
        item = self._store.call("GetItem", get).get("Item")
        return item_part(item) if item is not None else None

    def parts(self, kind: str, name: str, *, prefix: str = "", after: str = "", limit: int) -> list[Part]:
        """Returns rows of one thing, with consistent queries as far as the limit asks for."""
        if after > prefix and not after.startswith(prefix):
            return []  # it sorts behind every row with the prefix
        values = {":id": part_key(kind, name)["id"]}
        condition, values[":part"] = (
            ("#part > :part", s(after)) if after > prefix else ("begins_with(#part, :part)", s(prefix))
        )
        if not prefix and not after:
            condition, values = "", {":id": values[":id"]}
        query = {
            "TableName": self._table,
            "ConsistentRead": True,
            "KeyConditionExpression": " AND ".join(filter(None, ("id = :id", condition))),
            "ExpressionAttributeValues": values,
            **({"ExpressionAttributeNames": {"#part": "part"}} if condition else {}),
            "Limit": limit,
        }
        found = takewhile(lambda one: one.part.startswith(prefix), map(item_part, self._store.query(query)))
        return list(islice(found, limit))

    def put_part(self, part: Part, replaces: Part | None) -> bool:
        """Writes a row with one conditional put."""
        check_counts(part, replaces)
        try:
            self._store.call("PutItem", PutPart(part, replaces).member(self._names)["Put"])
        except ConditionFailed:
            return False
        return True

    def drop_part(self, part: Part) -> bool:
        """Removes a row with one conditional delete, or if it is counted with one transaction."""
        if part.counts:
            return self.commit(freeing(part)) is None
        try:
            self._store.call("DeleteItem", DropPart(part).member(self._names)["Delete"])
        except ConditionFailed:
            return False
        return True

    def ring(self, session_id: str, numbers: Iterable[int], until_ms: int) -> None:
        """Adds numbers to what a session's bell rings for, with one update."""
        self._store.call(
            "UpdateItem",
            {
                "TableName": self._table,
                "Key": part_key("bell", session_id),
                "UpdateExpression": "ADD rung :numbers SET expires_at = :end",
                "ExpressionAttributeValues": {
                    ":numbers": {"NS": [str(number) for number in sorted(set(numbers))]},
                    ":end": n(expires_at(until_ms)),
                },
            },
        )

    def take_bell(self, session_id: str) -> frozenset[int] | None:
        """Silences a session's bell with one conditional update, which returns what it rang for."""
        update = {
            "TableName": self._table,
            "Key": part_key("bell", session_id),
            "UpdateExpression": "REMOVE rung",
            "ConditionExpression": "attribute_exists(rung)",
            "ReturnValues": "UPDATED_OLD",
        }
        try:
            answer = self._store.call("UpdateItem", update)
        except ConditionFailed:
            return frozenset()
        except StoreTimeout:
            return None
        return frozenset(map(int, answer["Attributes"]["rung"]["NS"]))

    def peek_bell(self, session_id: str) -> bool:
        """Returns whether a session's bell rings, with one eventually consistent read."""
        item = self._store.call("GetItem", {"TableName": self._table, "Key": part_key("bell", session_id)}).get(
            "Item"
        )
        return item is not None and "rung" in item

    def purge(self, log_id: str) -> bool:
        """Removes a log's read clock with one delete."""
        self._store.call("DeleteItem", {"TableName": self._table, "Key": part_key("clock", log_id)})
        return True


class MemorySessions:
    """The port of the table of sessions in memory. The write-ahead log shares `lock`, and its guards' `tables`."""

    def __init__(self, lock: threading.RLock | None = None) -> None:
        self.lock = lock or threading.RLock()
        self.tables: Mapping[str, Any] = {TABLE: self}
        self.counters: dict[tuple[str, int], int] = {}
        self.rows: dict[tuple[str, str, str], Part] = {}
        self.bells: dict[str, frozenset[int]] = {}
        self.read_ms: dict[str, int] = {}

    def commit(self, guards: Sequence[Guard]) -> int | None:
        """Writes the rows of all guards; returns the number of the first that refuses, else None."""
        with self.lock:
            for number, guard in enumerate(guards):
                if guard.check(self.tables) is not None:
                    return number
            for guard in guards:
                guard.apply(self.tables)
            return None

    def counts(self, what: str) -> list[int]:
        """Returns what each shard of a counter holds."""
        with self.lock:
            return [self.counters.get((what, shard), 0) for shard in range(SHARDS)]

    def clocks(self, log_ids: Iterable[str]) -> dict[str, int]:
        """Returns when logs were last read, by log id; without those that never were."""
        with self.lock:
            return {log_id: self.read_ms[log_id] for log_id in log_ids if log_id in self.read_ms}

    def touch(self, log_id: str, now_ms: int) -> None:
        """Raises a log's read clock to `now_ms`; does nothing if it is as high already."""
        with self.lock:
            self.read_ms[log_id] = max(now_ms, self.read_ms.get(log_id, 0))

    def expired(self, now_ms: int) -> Iterator[Part]:
        """Yields the counted rows whose deadline has passed."""
        with self.lock:
            found = [one for one in self.rows.values() if one.counts and one.expires_ms <= now_ms]
        yield from sorted(found, key=lambda one: one.expires_ms)

    def part(self, kind: str, name: str, part: str = "-") -> Part | None:
        """Returns a row; None if there is none."""
        with self.lock:
            return self.rows.get((kind, name, part))

    def parts(self, kind: str, name: str, *, prefix: str = "", after: str = "", limit: int) -> list[Part]:
        """Returns rows of one thing, in the order of `Part.part`."""
        with self.lock:
            own = [one for key, one in sorted(self.rows.items()) if key[:2] == (kind, name)]
        return [one for one in own if one.part.startswith(prefix) and one.part > after][:limit]

    def put_part(self, part: Part, replaces: Part | None) -> bool:
        """Writes a row if `replaces` is there."""
        check_counts(part, replaces)
        return self.commit([PutPart(part, replaces)]) is None

    def drop_part(self, part: Part) -> bool:
        """Removes a row with its counts, if it is there."""
        return self.commit(freeing(part)) is None

    def ring(self, session_id: str, numbers: Iterable[int], until_ms: int) -> None:  # noqa: ARG002 - nothing is forgotten
        """Adds numbers to what a session's bell rings for."""
        with self.lock:
            self.bells[session_id] = self.bells.get(session_id, frozenset()).union(numbers)

    def take_bell(self, session_id: str) -> frozenset[int] | None:
        """Silences a session's bell; returns what it rang for."""
        with self.lock:
            return self.bells.pop(session_id, frozenset())

    def peek_bell(self, session_id: str) -> bool:
        """Returns whether a session's bell rings."""
        with self.lock:
            return session_id in self.bells

    def purge(self, log_id: str) -> bool:
        """Removes a log's read clock."""
        with self.lock:
            self.read_ms.pop(log_id, None)
        return True
