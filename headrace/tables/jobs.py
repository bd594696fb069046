"""What the indexer remembers between its runs: logs that wait for an index job, and the job runs under way.

All of it can be lost without a record or a run being lost: what is published is in the bucket, the daily audit finds
the logs again, and a job run that nobody follows has made runs that nobody names.

Guarantees every adapter keeps:
 1. `put` and `drop` act only on the version that the caller read, so that of two planners one has a log's work.
 2. `take` gives a place to one job at a time; `move` and `release` act only on the job that holds it.
 3. `get`, `place` are strongly consistent. `due` may lag by a moment.

Waiting logs and places in DynamoDB. Table `jobs`: `id` S (hash).

A waiting log is the item `log#<log id>`: `due_queue` S (always `log`) and `due_ms` N are the keys of the sparse index
`due`; `since_ms`, `failures`, `version` N, `job_id`, `reason` S. A place is the item `place#<number>`: `job_id`, `phase`,
`run_id` S, `since_ms` N. One partition of the index bounds the rate at which logs can come to wait (1,000 writes a second):
a log comes to wait once for each of its segments at most, which is far below.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from headrace.errors import Damaged
from headrace.tables.items import ConditionFailed, Item, n, s

if TYPE_CHECKING:  # it loads pynamodb, which the adapters in memory do not need
    from headrace.tables.dynamodb import Store


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True):
    """A log that the indexer must look at.

    Attributes:
        due_ms: not before this time.
        since_ms: since when something of it waits to be indexed, as far as known; 0: nothing is known to.
        failures: job runs in a row that made nothing for it; it then runs alone, and ever later.
        job_id: of the job that has its work in hand; `due_ms` is then when that job is given up.
        reason: why the last of them failed.
        version: how often the row was written: from 1 on, 0 of a row that was never written.
    """

    log_id: str
    due_ms: int
    since_ms: int = 0
    failures: int = 0
    job_id: str = ""
    reason: str = ""
    version: int = 0


Phase = Literal["planning", "starting", "running"]


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of the places for job runs that may run at once, with the job that holds it.

    Attributes:
        number: of the place, from 0 on.
        job_id: of the job.
        phase: `planning` until its input is written, `starting` until the run's id is known, then `running`.
        since_ms: when the phase began.
        run_id: of the job run at EMR Serverless; empty before `running`.
    """

    number: int
    job_id: str
    phase: Phase
    since_ms: int
    run_id: str = ""


class Jobs(Protocol):
    """Rows of waiting logs, and places. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def get(self, log_id: str) -> Waiting | None:
        """Returns the row of a log."""

    def put(self, row: Waiting) -> Waiting | None:
        """Writes the row if the version in it is the current one (0: if there is none).

        Returns:
            The row with its new version; None, and nothing changed, if there is another version.
        """

    def drop(self, row: Waiting) -> bool:
        """Removes the row if its version is the current one. False, and nothing changed, if not."""

    def due(self, now_ms: int, *, limit: int) -> list[Waiting]:
        """Rows that are due at `now_ms`, the longest due first."""

    def place(self, number: int) -> Place | None:
        """Returns who holds a place; None while it is free."""

    def take(self, place: Place) -> bool:
        """Gives a free place to a job. False, and nothing changed, if it is not free."""

    def move(self, place: Place) -> bool:
        """Writes phase, time and run id of the job that holds the place. False, and nothing changed, if another does."""

    def release(self, place: Place) -> bool:
        """Frees the place if this job holds it. False, and nothing changed, if not."""


INDEX = "due"
_QUEUE = "log"


class DynamoJobs:
    """The port `headrace.tables.jobs.Jobs` on DynamoDB."""

    def __init__(self, store: Store, table: str) -> None:
        self._store = store
        self._table = table

    def get(self, log_id: str) -> Waiting | None:
        """Returns one consistent read."""
        item = self._item(_log(log_id))
        return _row(item) if item is not None else None

    def put(self, row: Waiting) -> Waiting | None:
        """Writes it with one conditional put; returns whether it did."""
        written = msgspec.structs.replace(row, version=row.version + 1)
        item = {
            "id": s(_log(row.log_id)),
            "due_queue": s(_QUEUE),
            "due_ms": n(row.due_ms),
            "since_ms": n(row.since_ms),
            "failures": n(row.failures),
            "version": n(written.version),
            "job_id": s(row.job_id),
            "reason": s(row.reason),
        }
        condition, values = _version(row)
        done = self._conditionally("PutItem", {"Item": item}, condition, values)
        return written if done else None

    def drop(self, row: Waiting) -> bool:
        """Removes it with one conditional delete; returns whether it did."""
        if row.version == 0:
            return False
        condition, values = _version(row)
        return self._conditionally("DeleteItem", {"Key": {"id": s(_log(row.log_id))}}, condition, values)

    def due(self, now_ms: int, *, limit: int) -> list[Waiting]:
        """Returns one query of the index, and more for pages after the first."""
        found: list[Waiting] = []
        start: Mapping[str, Any] = {}
        while len(found) < limit:
            answer = self._store.call(
                "Query",
                {
                    "TableName": self._table,
                    "IndexName": INDEX,
                    "KeyConditionExpression": "due_queue = :queue AND due_ms <= :now",
                    "ExpressionAttributeValues": {":queue": s(_QUEUE), ":now": n(now_ms)},
                    "Limit": limit - len(found),
                    **start,
                },
            )
            found += [_row(item) for item in answer.get("Items", ())]
            if not answer.get("LastEvaluatedKey"):
                break
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
        return found

    def place(self, number: int) -> Place | None:
        """Returns one consistent read."""
        item = self._item(_place(number))
        if item is None:
            return None
        values = {name: item[name]["S"] for name in ("job_id", "phase", "run_id")}
        return msgspec.convert({"number": number, "since_ms": int(item["since_ms"]["N"]), **values}, Place)

    def take(self, place: Place) -> bool:
        """Writes it with one conditional put; returns whether it did."""
        return self._conditionally("PutItem", {"Item": _place_item(place)}, "attribute_not_exists(id)", {})

    def move(self, place: Place) -> bool:
        """Writes it with one conditional put; returns whether it did."""
        return self._conditionally("PutItem", {"Item": _place_item(place)}, *_holder(place))

    def release(self, place: Place) -> bool:
        """Removes it with one conditional delete; returns whether it did."""
        return self._conditionally("DeleteItem", {"Key": {"id": s(_place(place.number))}}, *_holder(place))

    def _item(self, key: str) -> Item | None:
        answer = self._store.call(
            "GetItem", {"TableName": self._table, "ConsistentRead": True, "Key": {"id": s(key)}}
        )
        item: Item | None = answer.get("Item")
        return item

    def _conditionally(self, operation: str, what: Item, condition: str, values: Item) -> bool:
        arguments: Item = {"TableName": self._table, "ConditionExpression": condition, **what}
        if values:
            arguments["ExpressionAttributeValues"] = values
        try:
            self._store.call(operation, arguments)
        except ConditionFailed:
            return False
        return True


def _log(log_id: str) -> str:
    return f"log#{log_id}"


def _place(number: int) -> str:
    return f"place#{number}"


def _version(row: Waiting) -> tuple[str, Item]:
    if row.version == 0:
        return "attribute_not_exists(id)", {}
    return "version = :version", {":version": n(row.version)}


def _holder(place: Place) -> tuple[str, Item]:
    return "job_id = :job", {":job": s(place.job_id)}


def _place_item(place: Place) -> Item:
    return {
        "id": s(_place(place.number)),
        "job_id": s(place.job_id),
        "phase": s(place.phase),
        "since_ms": n(place.since_ms),
        "run_id": s(place.run_id),
    }


def _row(item: Item) -> Waiting:
    try:
        return Waiting(
            log_id=item["id"]["S"].removeprefix("log#"),
            due_ms=int(item["due_ms"]["N"]),
            since_ms=int(item["since_ms"]["N"]),
            failures=int(item["failures"]["N"]),
            job_id=item["job_id"]["S"],
            reason=item["reason"]["S"],
            version=int(item["version"]["N"]),
        )
    except (KeyError, ValueError) as exc:
        raise Damaged(f"row of a waiting log does not parse: id={item.get('id')}") from exc


class MemoryJobs:
    """Rows in dictionaries. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.rows: dict[str, Waiting] = {}
        self.places: dict[int, Place] = {}

    def get(self, log_id: str) -> Waiting | None:
        """Returns the row."""
        with self._lock:
            return self.rows.get(log_id)

    def put(self, row: Waiting) -> Waiting | None:
        """Compares the version and writes."""
        with self._lock:
            if not self._stands(row):
                return None
            written = msgspec.structs.replace(row, version=row.version + 1)
            self.rows[row.log_id] = written
            return written

    def drop(self, row: Waiting) -> bool:
        """Compares the version and removes."""
        with self._lock:
            if row.version == 0 or not self._stands(row):
                return False
            del self.rows[row.log_id]
            return True

    def due(self, now_ms: int, *, limit: int) -> list[Waiting]:
        """Sorted by time."""
        with self._lock:
            found = [row for row in self.rows.values() if row.due_ms <= now_ms]
        return sorted(found, key=lambda row: (row.due_ms, row.log_id))[:limit]

    def place(self, number: int) -> Place | None:
        """Returns the place."""
        with self._lock:
            return self.places.get(number)

    def take(self, place: Place) -> bool:
        """Takes it if it is free."""
        with self._lock:
            if place.number in self.places:
                return False
            self.places[place.number] = place
            return True

    def move(self, place: Place) -> bool:
        """Replaces it if the job is the same."""
        with self._lock:
            if not self._holds(place):
                return False
            self.places[place.number] = place
            return True

    def release(self, place: Place) -> bool:
        """Frees it if the job is the same."""
        with self._lock:
            if not self._holds(place):
                return False
            del self.places[place.number]
            return True

    def _stands(self, row: Waiting) -> bool:
        current = self.rows.get(row.log_id)
        return row.version == (current.version if current is not None else 0)

    def _holds(self, place: Place) -> bool:
        current = self.places.get(place.number)
        return current is not None and current.job_id == place.job_id
