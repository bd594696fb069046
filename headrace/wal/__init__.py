"""The write-ahead log: one entry per slot, the only truth about a log.

Guarantees every adapter keeps:
 1. For each slot exactly one `commit` succeeds; every other learns the entry that is there.
 2. A commit with guards takes effect with all of them or not at all.
 3. `newest` and `read` are strongly consistent: they show every commit that succeeded before they began.
 4. After `StoreTimeout` from `commit` the entry may stand, whole, now or soon; sending the identical entry to the same
    slot again is always safe. After `StoreThrottled` it does not stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from headrace.tables.items import Guard
from headrace.wal.state import Entry

MAX_GUARDS = 90  # a DynamoDB transaction holds 100 items


def check_guards(guards: Sequence[Guard]) -> None:
    """Raises ValueError if there are more than one commit can carry."""
    if len(guards) > MAX_GUARDS:
        raise ValueError(f"too many guards: limit={MAX_GUARDS} received={len(guards)}")


class Committed(NamedTuple):
    """The entry and all its guards took effect."""


class SlotTaken(NamedTuple):
    """The slot holds `entry` already; nothing changed. It may be the very entry that was sent."""

    entry: Entry


class GuardRefused(NamedTuple):
    """The condition of guard number `guard` did not hold; nothing changed.

    `standing` is the row or entry that it met, where the guard tells it.
    """

    guard: int
    standing: Any = None


Outcome = Committed | SlotTaken | GuardRefused


class Page(NamedTuple):
    """Entries in the order asked for; `complete` when nothing of the range was left out."""

    entries: list[Entry]
    complete: bool


class Wal(Protocol):
    """Every method may raise `StoreTimeout` or `StoreThrottled` (also for a transaction that met another)."""

    def commit(self, entry: Entry, guards: Sequence[Guard] = ()) -> Outcome:
        """Puts `entry` into its slot if that is free and every guard holds.

        Raises:
            ValueError: more than `MAX_GUARDS` guards.
        """

    def newest(self, log_id: str, *, below: int | None = None) -> Entry | None:
        """Returns the newest entry (with a slot below `below`, if given)."""

    def read(
        self,
        log_id: str,
        *,
        start: int = 0,
        end: int | None = None,
        limit: int | None = None,
        descending: bool = False,
    ) -> Page:
        """Returns one page of entries with `start <= slot < end`; at most `limit`, and about a megabyte."""

    def remove(self, log_id: str, slots: Iterable[int]) -> None:
        """Removes entries. Missing ones are no error."""

    def remove_dead(self, entry: Entry) -> None:
        """Removes what is at the entry's slot if it is this very entry."""
