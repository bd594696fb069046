"""The indexer's memory between its runs: logs that wait for an index job, and the places of active job runs.

The table may be lost: everything published is in the bucket, the daily audit finds the logs again, and the results of a
job run that is no longer followed are removed as orphans.

Guarantees that every adapter keeps:
 1. `put` and `drop` act only on the version that the caller read, so that only one of two planners gets a log's work.
 2. `take` gives a place to one job at a time; `move` and `release` act only on the job that holds it.
 3. `get`, `place` are strongly consistent. `due` may lag by a moment.

Waiting logs and places in DynamoDB. Table `jobs`: `id` S (hash).

A waiting log is the item `log#<log id>`: `due_queue` S (always `log`) and `due_ms` N are the keys of the sparse index
`due`; `since_ms`, `failures`, `version` N, `job_id`, `reason` S. A place is the item `place#<number>`: `job_id`,
`phase`, `run_id` S, `since_ms` N. One partition of the index bounds the rate at which logs can come to wait (1,000
writes a second): a log comes to wait once for each of its segments at most, which is far below.
"""

from __future__ import annotations

import threading
from itertools import islice
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from headrace import decoding
from headrace.errors import Damaged
from headrace.tables.items import ConditionFailed, Item, n, s

if TYPE_CHECKING:  # it loads pynamodb, which the adapters in memory do not need
    from headrace.tables.dynamodb import Store


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True):
    """A log that the indexer must look at.

    Attributes:
        due_ms: the earliest time to look, in epoch milliseconds.
        since_ms: since when something of it has been waiting to be indexed, if known; else 0.
        failures: number of consecutive job runs that failed for it; it then runs alone, and later each time.
        job_id: id of the job that works on it; `due_ms` is then the time at which that job is given up.
        reason: why the last job run failed.
        version: number of times the row was written; 0 for a row that was never written.
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
    """A place for a job run, held by a job. The number of places limits how many job runs are active at once.

    Attributes:
        number: number of the place, from 0 on.
        job_id: id of the job that holds it.
        phase: `planning` until its input is written, `starting` until the run's id is known, then `running`.
        since_ms: when the phase began, in epoch milliseconds.
        run_id: id of the job run at EMR Serverless; empty before phase `running`.
    """

    number: int
    job_id: str
    phase: Phase
    since_ms: int
    run_id: str = ""


class Jobs(Protocol):
    """The port of waiting logs and places. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def get(self, log_id: str) -> Waiting | None:
        """Returns the row of a waiting log; None if there is none."""

    def put(self, row: Waiting) -> Waiting | None:
        """Writes the row if its version is the current one (0: if there is no row).

        Returns:
            The row with its new version; None if the current version is another one, and nothing was changed.
        """

    def drop(self, row: Waiting) -> bool:
        """Removes the row if its version is the current one. Returns False, and changes nothing, otherwise."""

    def due(self, now_ms: int, *, limit: int) -> list[Waiting]:
        """Returns at most `limit` rows that are due at `now_ms`, those due longest first."""

    def place(self, number: int) -> Place | None:
        """Returns a place with the job that holds it; None if it is free."""

    def take(self, place: Place) -> bool:
        """Gives a free place to a job. Returns False, and changes nothing, if it is not free."""

    def move(self, place: Place) -> bool:
        """Writes phase, time and run id of the job that holds the place. Returns False, and changes nothing, if another job
        holds it, or none.
        """

    def release(self, place: Place) -> bool:
        """Frees the place if this job holds it. Returns False, and changes nothing, if another job holds it, or none."""


INDEX = "due"
_QUEUE = "log"


class DynamoJobs:
    """The port `headrace.tables.jobs.Jobs` on DynamoDB."""

    def __init__(self, store: Store, table: str) -> None:
        self._store = store
        self._table = table

    def get(self, log_id: str) -> Waiting | None:
        """Returns the row of a waiting log, None if there is none; costs one consistent read."""
        item = self._item(_log(log_id))
        return _row(item) if item is not None else None

    def put(self, row: Waiting) -> Waiting | None:
        """Writes the row with one conditional put and returns it with its new version; None if its version is not the
        current one.
        """
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
        """Removes the row with one conditional delete; returns False if its version is not the current one."""
        if row.version == 0:
            return False
        condition, values = _version(row)
        return self._conditionally("DeleteItem", {"Key": {"id": s(_log(row.log_id))}}, condition, values)

    def due(self, now_ms: int, *, limit: int) -> list[Waiting]:
        """Returns at most `limit` due rows, those due longest first, with one query of the index per page."""
        items = self._store.query(
            {
                "TableName": self._table,
                "IndexName": INDEX,
                "KeyConditionExpression": "due_queue = :queue AND due_ms <= :now",
                "ExpressionAttributeValues": {":queue": s(_QUEUE), ":now": n(now_ms)},
                "Limit": limit,
            }
        )
        return [_row(item) for item in islice(items, limit)]

    def place(self, number: int) -> Place | None:
        """Returns a place with the job that holds it, None if it is free; costs one consistent read."""
        item = self._item(_place(number))
        if item is None:
            return None
        values = {name: item[name]["S"] for name in ("job_id", "phase", "run_id")}
        return decoding.from_builtins({"number": number, "since_ms": int(item["since_ms"]["N"]), **values}, Place)

    def take(self, place: Place) -> bool:
        """Gives the place to a job with one conditional put; returns False if it is not free."""
        return self._conditionally("PutItem", {"Item": _place_item(place)}, "attribute_not_exists(id)", {})

    def move(self, place: Place) -> bool:
        """Updates a place with one conditional put; returns False if another job holds it, or none."""
        return self._conditionally("PutItem", {"Item": _place_item(place)}, *_holder(place))

    def release(self, place: Place) -> bool:
        """Frees a place with one conditional delete; returns False if another job holds it, or none."""
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
    """The port of waiting logs and places in memory. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.rows: dict[str, Waiting] = {}
        self.places: dict[int, Place] = {}

    def get(self, log_id: str) -> Waiting | None:
        """Returns the row of a waiting log; None if there is none."""
        with self._lock:
            return self.rows.get(log_id)

    def put(self, row: Waiting) -> Waiting | None:
        """Writes the row if its version is the current one, and returns it with its new version; else returns None."""
        with self._lock:
            if not self._stands(row):
                return None
            written = msgspec.structs.replace(row, version=row.version + 1)
            self.rows[row.log_id] = written
            return written

    def drop(self, row: Waiting) -> bool:
        """Removes the row if its version is the current one; returns whether it was."""
        with self._lock:
            if row.version == 0 or not self._stands(row):
                return False
            del self.rows[row.log_id]
            return True

    def due(self, now_ms: int, *, limit: int) -> list[Waiting]:
        """Returns at most `limit` due rows, those due longest first."""
        with self._lock:
            found = [row for row in self.rows.values() if row.due_ms <= now_ms]
        return sorted(found, key=lambda row: (row.due_ms, row.log_id))[:limit]

    def place(self, number: int) -> Place | None:
        """Returns a place with the job that holds it; None if it is free."""
        with self._lock:
            return self.places.get(number)

    def take(self, place: Place) -> bool:
        """Gives the place to a job if it is free; returns whether it was."""
        with self._lock:
            if place.number in self.places:
                return False
            self.places[place.number] = place
            return True

    def move(self, place: Place) -> bool:
        """Updates the place if the same job holds it; returns whether it does."""
        with self._lock:
            if not self._holds(place):
                return False
            self.places[place.number] = place
            return True

    def release(self, place: Place) -> bool:
        """Frees the place if the same job holds it; returns whether it did."""
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
