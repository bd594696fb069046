"""Announcements: rows of the catalog for logs that are about to be created, so that nothing of a create that fails
remains in the bucket.

A create that puts objects of its new log (a payload that is too large for the entry, the definition of a fork) writes
an *announcement* first. Its commit removes that row, on the condition that the row is there and is not *buried*. So at
each moment an object of a log has an entry that names it, or a row that tells of it. A row becomes due after a day, and
at once if the create knows that it lost. The sealer's sweep finds it in the index of the rows that can expire, buries
it, removes the objects, and then the row. From the burial on, no commit can create that log any more. The row says
when it was buried, and is removed only by the sweep that buried it last: a create that was held up for more than a day
puts its object, is refused, and buries the row again, perhaps after a sweep has listed the objects.

An announcement has a surface of its own, so it is no name, and no listing, audit or recovery meets it; it never is in
the index of living names.
"""

from __future__ import annotations

from headrace.tables.catalog import TABLE, Row, row_key
from headrace.tables.items import Guard, Member, MemoryTables, Names, Refusal, n
from headrace.wal.state import LogConfig

UNBORN = "unborn"  # the surface of announcements
DUE_MS = 24 * 3600 * 1000  # hundreds of times longer than a request may take
_BURIED_MS = 0  # the latest deadline of a buried row


def announced(log_id: str, now_ms: int) -> Row:
    """Returns the announcement of a log that is to be created, as of `now_ms` (epoch ms)."""
    return _row(log_id, now_ms + DUE_MS)


def buried(log_id: str, now_ms: int) -> Row:
    """Returns the announcement of a log that can't be created any more, as of `now_ms` (epoch ms); it is due at once."""
    return _row(log_id, _BURIED_MS - now_ms)


def _row(log_id: str, deadline_ms: int) -> Row:
    config = LogConfig(surface=UNBORN, name=log_id, incarnation=0, content_type="", created_ms=0)
    return Row(log_id, config, ended=True, deadline_ms=deadline_ms)


class Born(Guard, frozen=True):
    """A guard that removes the announcement of the log that its commit creates, if the log is announced and not buried."""

    log_id: str

    def member(self, names: Names) -> Member:
        """Returns a conditional delete of the row, as a member of a transaction."""
        return {
            "Delete": {
                "TableName": names[TABLE],
                "Key": row_key(UNBORN, self.log_id),
                "ConditionExpression": "expires_at_ms > :buried",
                "ExpressionAttributeValues": {":buried": n(_BURIED_MS)},
            }
        }

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns a refusal if there is no row, or a buried one; else None."""
        row = tables[TABLE].rows.get((UNBORN, self.log_id))
        return None if row is not None and row.deadline_ms > _BURIED_MS else Refusal()

    def apply(self, tables: MemoryTables) -> None:
        """Removes the row from the table in memory."""
        del tables[TABLE].rows[UNBORN, self.log_id]
