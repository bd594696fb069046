"""Copies of the tables, each taken at its own moment, and putting them back."""

from __future__ import annotations

from typing import Any

from tests.simulation.plan import TABLES, Plan

Raw = dict[str, Any]

# What a table holds, beside the write-ahead log.
_MEMBERS = {
    "catalog": ("rows",),
    "watermarks": ("rows", "touches"),
    "producers": ("rows", "keys"),
    "follows": ("rows",),
    "sessions": ("counters", "rows", "read_ms"),
}


def copy_of(raw: Raw, table: str) -> Any:
    """Returns everything in a table, as it is now."""
    if table == "wal":
        wal = raw["wal"]
        slots = {log_id: list(slots) for log_id, slots in wal._slots.items()}
        return slots, dict(wal._entries), dict(wal._marks)
    return tuple(dict(getattr(raw[table], name)) for name in _MEMBERS[table])


def put_back(raw: Raw, table: str, copy: Any) -> None:
    """Makes a table what `copy_of` gave; empty, if that is None."""
    if table == "wal":
        slots, entries, marks = copy or ({}, {}, {})
        raw["wal"]._slots = {log_id: list(own) for log_id, own in slots.items()}
        raw["wal"]._entries, raw["wal"]._marks = dict(entries), dict(marks)
    else:
        for name, rows in zip(_MEMBERS[table], copy or ({}, {}, {}), strict=False):
            setattr(raw[table], name, dict(rows))


class Backups:
    """Takes the copies that the disasters of a plan will ask for, when their moments come."""

    def __init__(self, plan: Plan, raw: Raw) -> None:
        planned = {op.id for op in plan.ops}
        self._raw = raw
        self._taken: dict[tuple[int, str], Any] = {}
        self._wanted = sorted(
            (moment, disaster.op_id, table)
            for disaster in plan.disasters
            for table, moment in disaster.tables
            if moment is not None and disaster.op_id in planned
        )

    def pass_by(self, now: int) -> None:
        """Called before anything changes: copies every table whose moment has come."""
        while self._wanted and self._wanted[0][0] <= now:
            _, op_id, table = self._wanted.pop(0)
            self._taken[op_id, table] = copy_of(self._raw, table)

    def of(self, op_id: int, table: str) -> Any:
        """Returns the copy for a disaster."""
        return self._taken[op_id, table]

    def begin_anew(self) -> None:
        """Nothing older than now can be restored: the tables are new ones."""
        self._taken = {(op_id, table): copy_of(self._raw, table) for op_id, table in self._taken}


def all_tables(raw: Raw) -> dict[str, Any]:
    """For comparing."""
    return {table: copy_of(raw, table) for table in TABLES}
