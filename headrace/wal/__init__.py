"""The write-ahead log: one entry per slot, the only truth about a log.

Guarantees that every adapter keeps:
 1. For each slot exactly one `commit` succeeds; every other one returns the entry that is there.
 2. A commit with guards takes effect with all of them or not at all.
 3. `newest` and `read` are strongly consistent: they show every commit that succeeded before they began.
 4. An entry after which its log may be purged is *marked*, by its own commit. `unpurged` finds the mark, until the entry is
    removed or `purged` removes the mark.
 5. After `StoreTimeout` from `commit` the entry may be stored, whole, now or soon; sending the identical entry to the
    same slot again is always safe. After `StoreThrottled` it is not stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from headrace.tables.items import Guard
from headrace.wal.state import Entry

MAX_GUARDS = 99  # a DynamoDB transaction holds 100 items, one of them the entry


def check_guards(guards: Sequence[Guard]) -> None:
    """Raises ValueError if there are more guards than one commit can have."""
    if len(guards) > MAX_GUARDS:
        raise ValueError(f"too many guards: limit={MAX_GUARDS} received={len(guards)}")


class Committed(NamedTuple):
    """The outcome that the entry and all its guards took effect."""


class SlotTaken(NamedTuple):
    """The outcome that the slot already holds `entry`; nothing changed. It may be the very entry that was sent."""

    entry: Entry


class GuardRefused(NamedTuple):
    """The outcome that the condition of guard number `guard` did not hold; nothing changed.

    `standing` is the existing row or entry, if the guard reports it. `others` has number and row of each further guard that
    was refused.
    """

    guard: int
    standing: Any = None
    others: tuple[tuple[int, Any], ...] = ()

    @property
    def refused(self) -> tuple[tuple[int, Any], ...]:
        """Number and standing row of each guard that was refused."""
        return ((self.guard, self.standing), *self.others)


class TooLate(NamedTuple):
    """The outcome that the picture is too old for the store to accept what was decided on it; nothing changed."""


Outcome = Committed | SlotTaken | GuardRefused | TooLate


class Page(NamedTuple):
    """Entries in the requested order; `complete` if nothing of the range was left out."""

    entries: list[Entry]
    complete: bool


class Wal(Protocol):
    """The port of the write-ahead log. Every method may raise `StoreTimeout`, or `StoreThrottled` (also if a
    transaction collides with another).
    """

    def commit(self, entry: Entry, guards: Sequence[Guard] = (), read_ms: int | None = None) -> Outcome:
        """Puts `entry` into its slot if the slot is free and the condition of every guard holds; otherwise changes nothing,
        and returns what prevented it.

        Args:
            read_ms: when the state was read on which `entry` was decided (epoch ms, by this process). Where calls are
                signed, this one is signed with that time, so that it is refused if it arrives much later, however long it
                was held up by a suspended host or the network. If None, it is signed with the current time.

        Raises:
            ValueError: there are more than `MAX_GUARDS` guards.
        """

    def newest(self, log_id: str, *, below: int | None = None) -> Entry | None:
        """Returns the newest entry of a log; with `below`, the newest one in a lower slot. None if there is none."""

    def read(
        self,
        log_id: str,
        *,
        start: int = 0,
        end: int | None = None,
        limit: int | None = None,
        descending: bool = False,
    ) -> Page:
        """Returns one page of entries with `start <= slot < end`, ascending unless `descending`; at most `limit`, and about
        a megabyte.
        """

    def remove(self, log_id: str, slots: Iterable[int]) -> None:
        """Removes the entries in these slots; missing ones are not an error."""

    def remove_dead(self, entry: Entry) -> None:
        """Removes a dead entry: one that lies in a trimmed slot and is no part of its log's chain. Does nothing if the
        slot is empty or holds another entry.
        """

    def unpurged(self, before_ms: int) -> Iterator[str]:
        """Yields the ids of the logs with a marked entry that was committed at or before `before_ms`, some perhaps more
        than once. Marks of the last moment may be missing. Reads on only as far as it is asked.
        """

    def purged(self, log_id: str, slot: int) -> None:
        """Removes the mark of an entry, after all that was to be purged of its log is gone. Does nothing if it has none."""
