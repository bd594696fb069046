"""Items of DynamoDB tables as values, and the base of guards: rows, entries and conditions that join a commit.

A guard is defined beside its rows, and describes itself in two ways: as a member of a DynamoDB transaction, and as a
condition and an effect on tables in memory. Adapters of the write-ahead log know no guard by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypedDict

import msgspec

from headrace.errors import NewerFormat

VERSION = 1  # of the items of every table but that of waiting logs and job runs, which may be emptied

Item = dict[str, Any]
Member = dict[str, Any]
Names = Mapping[str, str]  # names of the deployed tables, by their names here
MemoryTables = Mapping[str, Any]  # the adapters in memory, by what the tables are called here


class Attribute(TypedDict, total=False):
    """An attribute value. The decoder reads `B` as bytes; JSON has it as base64 text."""

    S: str
    N: str
    B: bytes
    BOOL: bool
    NULL: bool
    SS: list[str]
    NS: list[str]
    BS: list[bytes]
    L: list[Attribute]
    M: dict[str, Attribute]


class Refusal(NamedTuple):
    """The result that the condition of a guard does not hold; `standing` is the existing row or entry, if the guard
    reports it.
    """

    standing: Any = None


class Guard(msgspec.Struct, frozen=True):
    """A row, an entry or a condition that joins a commit: the commit takes effect with all its guards or not at all."""

    @property
    def entries(self) -> tuple[Any, ...]:
        """The entries of other logs (`headrace.wal.state.Entry`) that the guard writes."""
        return ()

    def member(self, names: Names) -> Member:
        """Returns the guard as a member of a DynamoDB transaction. No two members of a transaction may be about the same
        item.

        Args:
            names: the deployed name of each table, by the name that guards use.
        """
        raise NotImplementedError

    def standing(self, item: Item | None) -> Any:  # noqa: ARG002
        """Returns the existing row or entry that a refusal reports, from the item that refused it; None if there is
        nothing to report.
        """
        return None

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns a refusal if the condition does not hold on tables in memory, None if it holds. The caller holds their
        lock.
        """
        raise NotImplementedError

    def apply(self, tables: MemoryTables) -> None:
        """Writes the guard's row or entry to tables in memory; nothing if it is only a condition. The caller holds their
        lock.
        """


def refuse_newer(item: Item, where: str) -> None:
    """Raises NewerFormat if a newer release wrote the item. One without the attribute `v` is of version 1."""
    found = int(item["v"]["N"]) if "v" in item else VERSION
    if found > VERSION:
        raise NewerFormat(where, found, VERSION)


class ConditionFailed(Exception):
    """A conditional write was refused; `item` is the existing item, None if the store did not return it."""

    def __init__(self, item: Item | None) -> None:
        super().__init__("condition failed")
        self.item = item


class TransactionCancelled(Exception):
    """A transaction was refused by a condition: `reasons` has (code, item) per member; the code is "None" where the
    condition held.
    """

    def __init__(self, reasons: list[tuple[str, Item | None]]) -> None:
        super().__init__("transaction cancelled")
        self.reasons = reasons


def s(value: str) -> Item:
    """Returns a string as a DynamoDB attribute value."""
    return {"S": value}


def n(value: int) -> Item:
    """Returns a number as a DynamoDB attribute value."""
    return {"N": str(value)}
