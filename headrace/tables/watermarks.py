"""The table of watermarks: for each log, how far it is published, how it is used (its last counted read, and counters
of requests for its objects), and a note of its surface.

Guarantees that every adapter keeps:
 1. The published part is raised only by a newer generation of the same log, and its end never falls; a repeat changes
    nothing. (A sealer that was frozen while its log was purged may publish a newer generation with a lower end.)
 2. `touched_ms` and `index_generation` never fall.
 3. `get` and `usage` are strongly consistent.
 4. Counts only grow, and touch nothing else. After `StoreTimeout` from `count` they may have been added.

Watermarks in DynamoDB. Table `watermarks`: `log_id` S (hash). A log has up to three items, so that writers of one do not
collide with transactions that check another:

    <log_id>         `generation`, `end_slot`, `end_offset`, `sealed_bytes`, `index_generation`; all N
    <log_id>#usage   `touched_ms`, and `requests.<name>` for each counter; all N
    <log_id>#<name>  a note, `data` B

Absent numbers mean zero.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

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

if TYPE_CHECKING:  # it loads pynamodb, which the adapters in memory do not need
    from headrace.tables.dynamodb import Store

TABLE = "watermarks"
SURFACE_NOTE = "note"  # of a log's surface
SEALER_NOTE = "sealer"


class Watermark(msgspec.Struct, frozen=True, omit_defaults=True):
    """The row of a log: how far it is published.

    Attributes:
        generation: number of the newest manifest known here (0 means none); the bucket may have a newer one.
        end_slot: slot after the last published entry.
        end_offset: offset after the last published record.
        sealed_bytes: published logical bytes.
        index_generation: number of the newest index manifest known here (0 means none); the bucket may have a newer
            one.
    """

    generation: int = 0
    end_slot: int = 0
    end_offset: int = 0
    sealed_bytes: int = 0
    index_generation: int = 0


class Usage(NamedTuple):
    """How a log is used.

    Attributes:
        touched_ms: time of the last counted read of a log with a sliding TTL, in epoch milliseconds; 0 if there was none.
        requests: counters of requests for its objects, by name; counters that are zero are left out.
    """

    touched_ms: int
    requests: dict[str, int]


class Watermarks(Protocol):
    """The port of the table of watermarks. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def get(self, log_id: str) -> Watermark:
        """Returns the row of a log; zeros if there is none."""

    def publish(self, log_id: str, generation: int, end_slot: int, end_offset: int, sealed_bytes: int) -> bool:
        """Raises the published part. Returns False, and changes nothing, if the row has this generation or a newer one, or
        a higher end.
        """

    def publish_index(self, log_id: str, generation: int) -> None:
        """Raises `index_generation` to `generation`, if the log is published and not purged."""

    def usage(self, log_id: str) -> Usage:
        """Returns how a log is used; zero and no counters if nothing is known."""

    def touch(self, log_id: str, now_ms: int) -> None:
        """Raises `touched_ms` to `now_ms`; does nothing if it is as high already."""

    def count(self, log_id: str, requests: Mapping[str, int]) -> None:
        """Adds these numbers of requests, by name, to the log's counters of requests."""

    def note(self, log_id: str, name: str = SURFACE_NOTE) -> bytes | None:
        """Returns a note that a surface (templates of waiters) or the sealer stores beside a log; None if there is none.
        Losing it loses no record. At most 300 KB.
        """

    def set_note(self, log_id: str, data: bytes, replaces: bytes | None, name: str = SURFACE_NOTE) -> bool:
        """Writes a note if the stored one equals `replaces` (None: if there is none). Returns False, and changes
        nothing, otherwise.
        """

    def drop_note(self, log_id: str, name: str = SURFACE_NOTE, replaces: bytes | None = None) -> bool:
        """Removes a note, if the stored one equals `replaces` (None: whatever it is); returns whether it did."""

    def delete(self, log_id: str) -> None:
        """Removes the row of a log; its usage and its note stay. Only a recovery does, if the row is wrong."""


_FIELDS = ("generation", "end_slot", "end_offset", "sealed_bytes", "index_generation")
_COUNTER = "requests."
_USAGE = "#usage"


class Unpublished(Guard, frozen=True):
    """A guard with the condition that a log is not published beyond a slot. Then the slot was never used before, since
    only published entries are trimmed.

    Without it, a commit into a slot that was trimmed would leave a dead entry, and what its other guards wrote would count.
    """

    log_id: str
    slot: int

    def member(self, names: Names) -> Member:
        """Returns a condition check of the log's row, as a member of a transaction."""
        check = {
            "TableName": names[TABLE],
            "Key": {"log_id": s(self.log_id)},
            "ConditionExpression": "attribute_not_exists(end_slot) OR end_slot <= :slot",
            "ExpressionAttributeValues": {":slot": n(self.slot)},
        }
        return {"ConditionCheck": check}

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns a refusal if the log is published beyond the slot; else None."""
        return None if tables[TABLE].get(self.log_id).end_slot <= self.slot else Refusal()


class TouchUnchanged(Guard, frozen=True):
    """A guard with the condition that no read has renewed the log's sliding TTL since `touched_ms` (0: never)."""

    log_id: str
    touched_ms: int

    def member(self, names: Names) -> Member:
        """Returns a condition check of the log's usage, as a member of a transaction."""
        check: Member = {"TableName": names[TABLE], "Key": {"log_id": s(self.log_id + _USAGE)}}
        if self.touched_ms:
            check["ConditionExpression"] = "touched_ms = :touched"
            check["ExpressionAttributeValues"] = {":touched": n(self.touched_ms)}
        else:
            check["ConditionExpression"] = "attribute_not_exists(touched_ms)"
        return {"ConditionCheck": check}

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns a refusal if a read has renewed the TTL since; else None."""
        return None if tables[TABLE].usage(self.log_id).touched_ms == self.touched_ms else Refusal()


class DynamoWatermarks:
    """The port `headrace.tables.watermarks.Watermarks` on DynamoDB."""

    def __init__(self, store: Store, table: str) -> None:
        self._store = store
        self._table = table

    def get(self, log_id: str) -> Watermark:
        """Returns the row of a log, zeros if there is none; costs one consistent read."""
        item = self._item(log_id)
        return Watermark(**{name: int(item[name]["N"]) for name in _FIELDS if name in item})

    def _item(self, log_id: str) -> Item:
        answer = self._store.call(
            "GetItem", {"TableName": self._table, "ConsistentRead": True, "Key": {"log_id": s(log_id)}}
        )
        item: Item = answer.get("Item", {})
        refuse_newer(item, f"watermarks log_id={log_id}")
        return item

    def publish(self, log_id: str, generation: int, end_slot: int, end_offset: int, sealed_bytes: int) -> bool:
        """Raises the published part with one conditional update; returns False if `generation` is not newer, or ends
        earlier.
        """
        return self._update(
            log_id,
            "SET generation = :generation, end_slot = :slot, end_offset = :offset, sealed_bytes = :bytes",
            "attribute_not_exists(generation) OR (generation < :generation AND end_slot <= :slot)",
            {":generation": generation, ":slot": end_slot, ":offset": end_offset, ":bytes": sealed_bytes},
        )

    def publish_index(self, log_id: str, generation: int) -> None:
        """Raises the index generation with one conditional update, if the log is published."""
        is_newer = "(attribute_not_exists(index_generation) OR index_generation < :number)"
        self._update(
            log_id,
            "SET index_generation = :number",
            f"attribute_exists(generation) AND {is_newer}",
            {":number": generation},
        )

    def usage(self, log_id: str) -> Usage:
        """Returns how a log is used, with one consistent read."""
        item = self._item(log_id + _USAGE)
        requests = {
            attribute.removeprefix(_COUNTER): int(value["N"])
            for attribute, value in item.items()
            if attribute.startswith(_COUNTER)
        }
        return Usage(int(item["touched_ms"]["N"]) if "touched_ms" in item else 0, requests)

    def touch(self, log_id: str, now_ms: int) -> None:
        """Raises `touched_ms` to `now_ms` with one conditional update; does nothing if it is as high already."""
        self._update(
            log_id + _USAGE,
            "SET touched_ms = :now",
            "attribute_not_exists(touched_ms) OR touched_ms < :now",
            {":now": now_ms},
        )

    def count(self, log_id: str, requests: Mapping[str, int]) -> None:
        """Adds these numbers of requests, by name, to the log's counters, with one update. Each counter is an attribute of
        its own, since an update can't add to a map that does not exist yet.
        """
        if not requests:
            return
        added = list(enumerate(requests.items()))
        self._store.call(
            "UpdateItem",
            {
                "TableName": self._table,
                "Key": {"log_id": s(log_id + _USAGE)},
                "UpdateExpression": "ADD " + ", ".join(f"#c{number} :c{number}" for number, _ in added),
                "ExpressionAttributeNames": {f"#c{number}": _COUNTER + name for number, (name, _) in added},
                "ExpressionAttributeValues": {f":c{number}": n(count) for number, (_, count) in added},
            },
        )

    def note(self, log_id: str, name: str = SURFACE_NOTE) -> bytes | None:
        """Returns a note of a log, None if there is none; costs one consistent read."""
        data = self._item(f"{log_id}#{name}").get("data")
        return bytes(data["B"]) if data is not None else None

    def set_note(self, log_id: str, data: bytes, replaces: bytes | None, name: str = SURFACE_NOTE) -> bool:
        """Writes a note with one conditional update, if the stored one equals `replaces`; returns whether it did."""
        values: Item = {":data": {"B": data}}
        if replaces is not None:
            values[":replaces"] = {"B": replaces}
        try:
            self._store.call(
                "UpdateItem",
                {
                    "TableName": self._table,
                    "Key": {"log_id": s(f"{log_id}#{name}")},
                    "UpdateExpression": "SET #data = :data",
                    "ConditionExpression": "attribute_not_exists(#data)" if replaces is None else "#data = :replaces",
                    "ExpressionAttributeNames": {"#data": "data"},
                    "ExpressionAttributeValues": values,
                },
            )
        except ConditionFailed:
            return False
        return True

    def drop_note(self, log_id: str, name: str = SURFACE_NOTE, replaces: bytes | None = None) -> bool:
        """Removes a note with one delete, if the stored one equals `replaces` (None: whatever it is); returns whether it
        did.
        """
        delete: dict[str, object] = {"TableName": self._table, "Key": {"log_id": s(f"{log_id}#{name}")}}
        if replaces is not None:
            delete["ConditionExpression"] = "#data = :replaces"
            delete["ExpressionAttributeNames"] = {"#data": "data"}
            delete["ExpressionAttributeValues"] = {":replaces": {"B": replaces}}
        try:
            self._store.call("DeleteItem", delete)
        except ConditionFailed:
            return False
        return True

    def delete(self, log_id: str) -> None:
        """Removes the row with one delete; usage and note stay."""
        self._store.call("DeleteItem", {"TableName": self._table, "Key": {"log_id": s(log_id)}})

    def _update(self, key: str, update: str, condition: str, values: dict[str, int]) -> bool:
        try:
            self._store.call(
                "UpdateItem",
                {
                    "TableName": self._table,
                    "Key": {"log_id": s(key)},
                    "UpdateExpression": update,
                    "ConditionExpression": condition,
                    "ExpressionAttributeValues": {name: n(value) for name, value in values.items()},
                },
            )
        except ConditionFailed:
            return False
        return True


class MemoryWatermarks:
    """The port of the table of watermarks in memory."""

    def __init__(self, lock: threading.RLock | None = None) -> None:
        self.lock = lock or threading.RLock()
        self.rows: dict[str, Watermark] = {}
        self.touches: dict[str, int] = {}
        self.counters: dict[str, Counter[str]] = {}
        self.notes: dict[tuple[str, str], bytes] = {}

    def get(self, log_id: str) -> Watermark:
        """Returns the row of a log; zeros if there is none."""
        with self.lock:
            return self.rows.get(log_id, Watermark())

    def publish(self, log_id: str, generation: int, end_slot: int, end_offset: int, sealed_bytes: int) -> bool:
        """Raises the published part; returns False, and changes nothing, if `generation` is not newer, or ends earlier."""
        with self.lock:
            current = self.get(log_id)
            if generation <= current.generation or end_slot < current.end_slot:
                return False
            self.rows[log_id] = msgspec.structs.replace(
                current, generation=generation, end_slot=end_slot, end_offset=end_offset, sealed_bytes=sealed_bytes
            )
            return True

    def publish_index(self, log_id: str, generation: int) -> None:
        """Raises the index generation, if the log is published."""
        with self.lock:
            current = self.get(log_id)
            if current.generation and generation > current.index_generation:
                self.rows[log_id] = msgspec.structs.replace(current, index_generation=generation)

    def usage(self, log_id: str) -> Usage:
        """Returns how a log is used."""
        with self.lock:
            return Usage(self.touches.get(log_id, 0), dict(self.counters.get(log_id, {})))

    def touch(self, log_id: str, now_ms: int) -> None:
        """Raises `touched_ms` to `now_ms`; does nothing if it is as high already."""
        with self.lock:
            self.touches[log_id] = max(now_ms, self.touches.get(log_id, 0))

    def count(self, log_id: str, requests: Mapping[str, int]) -> None:
        """Adds these numbers of requests, by name, to the log's counters."""
        with self.lock:
            self.counters.setdefault(log_id, Counter()).update(requests)

    def note(self, log_id: str, name: str = SURFACE_NOTE) -> bytes | None:
        """Returns a note of a log; None if there is none."""
        with self.lock:
            return self.notes.get((log_id, name))

    def set_note(self, log_id: str, data: bytes, replaces: bytes | None, name: str = SURFACE_NOTE) -> bool:
        """Writes a note if the stored one equals `replaces`; returns whether it did."""
        with self.lock:
            if self.notes.get((log_id, name)) != replaces:
                return False
            self.notes[log_id, name] = data
            return True

    def drop_note(self, log_id: str, name: str = SURFACE_NOTE, replaces: bytes | None = None) -> bool:
        """Removes a note, if the stored one equals `replaces` (None: whatever it is); returns whether it did."""
        with self.lock:
            if replaces is not None and self.notes.get((log_id, name)) != replaces:
                return False
            self.notes.pop((log_id, name), None)
            return True

    def delete(self, log_id: str) -> None:
        """Removes the row; usage and note stay."""
        with self.lock:
            self.rows.pop(log_id, None)
