"""Items of DynamoDB tables as values, and guards: the rows and conditions that join a commit.

A guard is defined beside the rows that it speaks of, and describes itself: as members of a DynamoDB transaction, and as
a condition and an effect on tables in memory. Adapters of the write-ahead log know no guard by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

Item = dict[str, Any]
Member = dict[str, Any]
Names = Mapping[str, str]  # of the tables as they are deployed, by what they are called here
MemoryTables = Mapping[str, Any]  # the adapters in memory, by what the tables are called here


class Refusal(NamedTuple):
    """The condition of a guard does not hold; `standing` is the row or entry that it met, where the guard tells it."""

    standing: Any = None


class Guard(msgspec.Struct, frozen=True):
    """A row, an entry or a condition that joins a commit: the commit takes effect with all of its guards or not at all."""

    @property
    def entries(self) -> tuple[Any, ...]:
        """The entries of other logs (`headrace.wal.state.Entry`) that the guard writes."""
        return ()

    def members(self, names: Names) -> list[Member]:
        """Returns the members of a transaction that the guard stands for: it is refused if one of them is.

        Args:
            names: the deployed name of each table.
        """
        raise NotImplementedError

    def standing(self, item: Item | None) -> Any:  # noqa: ARG002
        """Returns what a refusal tells, given the item that the first member met; None: nothing."""
        return None

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns the refusal if the condition does not hold on tables in memory. The caller holds their lock."""
        raise NotImplementedError

    def apply(self, tables: MemoryTables) -> None:
        """Writes to tables in memory what the guard writes. The caller holds their lock."""


class ConditionFailed(Exception):
    """A conditional put met an item; `item` is what is there."""

    def __init__(self, item: Item | None) -> None:
        super().__init__("condition failed")
        self.item = item


class TransactionCancelled(Exception):
    """A transaction met a condition: `reasons` has (code, item) per member, code "None" where it held."""

    def __init__(self, reasons: list[tuple[str, Item | None]]) -> None:
        super().__init__("transaction cancelled")
        self.reasons = reasons


def s(value: str) -> Item:
    """Returns a string attribute value."""
    return {"S": value}


def n(value: int) -> Item:
    """Returns a number attribute value."""
    return {"N": str(value)}
