"""The write-ahead log: one entry per slot, the only truth about a log.

Guarantees every adapter keeps:
 1. For each slot exactly one `commit` succeeds; every other learns the entry that stands there.
 2. A commit with guards takes effect with all of them or not at all.
 3. `newest` and `read` are strongly consistent: they show every commit that succeeded before they began.
 4. After `StoreTimeout` from `commit` the entry may stand, whole, now or soon; sending the identical entry to the same
    slot again is always safe. After `StoreThrottled` it does not stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headrace.wal.state import Entry, Producer

if TYPE_CHECKING:  # a row holds values of `headrace.wal.state`: importing it here would be a circle
    from headrace.tables.catalog import Row

MAX_GUARDS = 90  # a DynamoDB transaction holds 100 items


class PutEntry(NamedTuple):
    """Guard: a second log's entry commits too, if its slot is free and its predecessor stands (a fork and its source).

    A free slot alone may be one that was used and trimmed: then half of the commit would be dead.
    """

    entry: Entry


class PutRow(NamedTuple):
    """Guard: the catalog row of a name is written if the name still stands for `replaces` (None: for nothing)."""

    row: Row
    replaces: str | None


class PutProducer(NamedTuple):
    """Guard: a producer's row is written, if no newer write of this producer stands there.

    A writer whose picture is old would set it back with an entry that turns out to be dead.
    """

    log_id: str
    producer: Producer


class TouchUnchanged(NamedTuple):
    """Guard: the log's last touch is still `touched_ms` (0: never touched)."""

    log_id: str
    touched_ms: int


Guard = PutEntry | PutRow | PutProducer | TouchUnchanged


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

    `entry` is what stands in the slot of a `PutEntry` guard that was taken.
    """

    guard: int
    entry: Entry | None = None


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
        """The newest entry (with a slot below `below`, if given)."""

    def read(
        self,
        log_id: str,
        *,
        start: int = 0,
        end: int | None = None,
        limit: int | None = None,
        descending: bool = False,
    ) -> Page:
        """One page of entries with `start <= slot < end`; at most `limit`, and about a megabyte."""

    def remove(self, log_id: str, slots: Iterable[int]) -> None:
        """Removes entries. Missing ones are no error."""

    def remove_dead(self, entry: Entry) -> None:
        """Removes what stands at the entry's slot if it is this very entry."""
