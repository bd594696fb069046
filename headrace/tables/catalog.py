"""The catalog: one row per name. It is derived from the write-ahead log, and can be repaired from it.

Guarantees that every adapter keeps:
 1. The row of a name is created and replaced only as a guard of a commit (`PutRow`), so it has one log at a time.
 2. `get` is strongly consistent. Listings and `due` may lag by a moment.
 3. Listings are in byte order of the name, and cost in proportion to what they return, however many names have ended.
 4. A damaged row hides no other: listings and `due` report it and pass it over, `every` tells of it, and `get` of its name
    raises `Damaged`.

The catalog in DynamoDB. Table `catalog`: `bucket` S (hash), `name` S (range).

Attributes of an item: `log_id` S, `config` S (JSON of LogConfig), `label` S (absent: generic), until the log has ended
`living_in` S (the bucket), the hash key of the sparse index `living` (range: `name`), and while the log can expire
`expiry_shard` S and `expires_at_ms` N, the keys of the sparse index `expiry`. Beside names the table has announcements
of logs (`headrace.tables.unborn`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import msgspec

from headrace.errors import Damaged
from headrace.tables.items import (
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
from headrace.wal.state import LogConfig

TABLE = "catalog"
BUCKETS = "0123456789abcdef"
GENERIC = "generic"  # the label of a log that was given none


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """The catalog row of a name.

    Attributes:
        log_id: id of the name's main log.
        config: configuration of the main log, which names the companions.
        ended: whether the log has ended, so that listings do without it. Only a hint: the log's own state decides.
        deadline_ms: the earliest time at which it can expire; None if it never does.
        label: the text that listings show for the log's definition.
    """

    log_id: str
    config: LogConfig
    ended: bool = False
    deadline_ms: int | None = None
    label: str = GENERIC

    @property
    def surface(self) -> str:
        """The surface that owns the name."""
        return self.config.surface

    @property
    def name(self) -> str:
        """The name."""
        return self.config.name

    @property
    def companions(self) -> tuple[Row, ...]:
        """The rows of the name's other logs. They are in no table, but derived from the row of the main log."""
        return tuple(
            Row(
                one.log_id,
                LogConfig(
                    surface=self.surface,
                    name=self.name,
                    incarnation=self.config.incarnation,
                    content_type=one.content_type,
                    created_ms=self.config.created_ms,
                    role=one.role,
                    main=self.log_id,
                ),
                ended=self.ended,
            )
            for one in self.config.companions
        )

    @property
    def logs(self) -> tuple[Row, ...]:
        """The rows of all logs of the name, the main one first."""
        return (self, *self.companions)

    def is_due(self, now_ms: int) -> bool:
        """Returns whether the deadline has passed."""
        return self.deadline_ms is not None and self.deadline_ms <= now_ms

    def log(self, role: str) -> Row | None:
        """Returns the row of the log with this role ("" for the main log); None if there is none."""
        return next((one for one in self.logs if one.config.role == role), None)


class DamagedRow(NamedTuple):
    """What can be told of a row that does not parse: the name that its key says, its log (empty if that can't be read
    either), and the error.
    """

    surface: str
    name: str
    log_id: str
    reason: str


def bucket_of(surface: str, name: str) -> str:
    """Returns the hash key of a name's row: the surface and one hex digit. A listing merges 16 ordered queries."""
    return f"{surface}#{hashlib.sha256(name.encode()).hexdigest()[0]}"


class Catalog(Protocol):
    """The port of the catalog. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def get(self, surface: str, name: str) -> Row | None:
        """Returns the row of a name, ended or not; None if there is none."""

    def living(self, surface: str, *, after: str = "", prefix: str = "", limit: int) -> list[Row]:
        """Returns up to `limit` rows that have not ended, in order, of names above `after` that begin with `prefix`."""

    def part(self, surface: str, bucket: str, *, after: str = "", limit: int) -> list[Row]:
        """Returns up to `limit` rows that have not ended, of the names of one of the `BUCKETS`, as `living` does. Audits
        share the names by it.
        """

    def every(self, surface: str, *, after: str = "", limit: int) -> list[Row | DamagedRow]:
        """Returns up to `limit` rows, ended or not, with names above `after`, in order, those that are damaged among them,
        as they are now; recovery uses it.
        """

    def due(self, now_ms: int) -> Iterator[Row]:
        """Yields the rows whose deadline is at or before `now_ms`, in any order, each as it is when it is asked for. Some
        may be missing, because the index lags. Reads on only as far as it is asked.
        """

    def mark_ended(self, row: Row) -> None:
        """Records that the row's log has ended, and removes its deadline. Does nothing if the name has another log."""

    def set_hints(self, row: Row, *, deadline_ms: int | None = None, label: str | None = None) -> None:
        """Corrects deadline and label (None keeps them). Does nothing if the name has another log now, or has ended."""

    def put(self, row: Row) -> None:
        """Writes the announcement of a log, whatever is there; never the row of a name."""

    def remove(self, row: Row) -> None:
        """Removes the announcement of a log, if it is there and has this deadline still."""


LIVING = "living"  # the index of the names that have not ended: their whole rows, in order
EXPIRY = "expiry"
MARK = "REMOVE living_in, expiry_shard, expires_at_ms"
UNMARKED = " AND attribute_exists(living_in)"  # of a condition
_config_decoder = msgspec.json.Decoder(LogConfig)
_encode = msgspec.json.Encoder().encode


def row_key(surface: str, name: str) -> Item:
    """Returns the key of a name's item."""
    return {"bucket": s(bucket_of(surface, name)), "name": s(name)}


def row_item(row: Row) -> Item:
    """Converts a row to an item of the DynamoDB table."""
    bucket = bucket_of(row.surface, row.name)
    item: Item = {
        **row_key(row.surface, row.name),
        "log_id": s(row.log_id),
        "config": s(_encode(row.config).decode()),
    }
    if not row.ended:
        item["living_in"] = s(bucket)
    if row.label != GENERIC:
        item["label"] = s(row.label)
    if row.deadline_ms is not None:
        item["expiry_shard"] = s(bucket[-1])
        item["expires_at_ms"] = n(row.deadline_ms)
    return item


def item_row(item: Item) -> Row:
    """Converts an item of the DynamoDB table to a row.

    Raises:
        NewerFormat: a newer release wrote the item.
        Damaged: the item is no valid row.
    """
    where = f"bucket={item.get('bucket')} name={item.get('name')}"
    try:
        refuse_newer(item, where)
        deadline = item.get("expires_at_ms")
        row = Row(
            log_id=item["log_id"]["S"],
            config=_config_decoder.decode(item["config"]["S"]),
            ended="living_in" not in item,
            deadline_ms=int(deadline["N"]) if deadline is not None else None,
            label=item["label"]["S"] if "label" in item else GENERIC,
        )
        if item["name"]["S"] != row.name or item["bucket"]["S"].rpartition("#")[0] != row.surface:
            raise ValueError("it is the row of another name")  # a listing would continue after that name
        return row
    except (KeyError, ValueError, RecursionError, msgspec.MsgspecError) as exc:
        raise Damaged(f"catalog row does not parse: {where}") from exc


class PutRow(Guard, frozen=True):
    """A guard that writes the catalog row of a name, if the name's current log is `replaces` (None: if there is no
    row).

    Attributes:
        unmarked: whether it also refuses if the row to be replaced is marked as ended.
    """

    row: Row
    replaces: str | None
    unmarked: bool = False

    def __post_init__(self) -> None:
        """Refuses the row of a companion, which would replace that of its main log."""
        assert not self.row.config.role, "a row stands for a main log"

    def member(self, names: Names) -> Member:
        """Returns a conditional put of the row, as a member of a transaction."""
        put: Member = {"TableName": names[TABLE], "Item": row_item(self.row)}
        if self.replaces is None:
            put["ConditionExpression"] = "attribute_not_exists(log_id)"
        else:
            put["ConditionExpression"] = "log_id = :replaces" + (UNMARKED if self.unmarked else "")
            put["ExpressionAttributeValues"] = {":replaces": s(self.replaces)}
        return {"Put": put}

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns a refusal unless the name's current log is the one to replace; None if it is."""
        current = tables[TABLE].rows.get((self.row.surface, self.row.name))
        log_id = current.log_id if current is not None else None
        is_marked = current is not None and current.ended
        return Refusal() if log_id != self.replaces or (self.unmarked and is_marked) else None

    def apply(self, tables: MemoryTables) -> None:
        """Writes the row to the table in memory."""
        tables[TABLE].rows[self.row.surface, self.row.name] = self.row


class MarkEnded(Guard, frozen=True):
    """A guard that marks a row as ended, as `Catalog.mark_ended` does. It refuses if the name has another log, or the row
    is marked: so what joins it happens once.
    """

    row: Row

    def member(self, names: Names) -> Member:
        """Returns a conditional update of the row, as a member of a transaction."""
        return {
            "Update": {
                "TableName": names[TABLE],
                "Key": row_key(self.row.surface, self.row.name),
                "UpdateExpression": MARK,
                "ConditionExpression": f"log_id = :log{UNMARKED}",
                "ExpressionAttributeValues": {":log": s(self.row.log_id)},
            }
        }

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns a refusal if the name has another log, or the row is marked; else None."""
        current = tables[TABLE].rows.get((self.row.surface, self.row.name))
        is_it = current is not None and current.log_id == self.row.log_id and not current.ended
        return None if is_it else Refusal()

    def apply(self, tables: MemoryTables) -> None:
        """Marks the row in the table in memory."""
        tables[TABLE].mark_ended(self.row)
