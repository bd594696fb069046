"""The stores that operations on logs use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from headrace.clock import Clock, SystemClock
from headrace.errors import StoreThrottled
from headrace.manifest.merging import FindDead, find_none
from headrace.manifest.store import ManifestStore
from headrace.objects import Objects
from headrace.settings import Settings
from headrace.tables.catalog import Catalog, MarkEnded, Row
from headrace.tables.counters import freed
from headrace.tables.follows import Follows
from headrace.tables.producers import Producers
from headrace.tables.sessions import Sessions
from headrace.tables.watermarks import Watermarks
from headrace.wal import Wal
from headrace.wal.state import LogState, random_id, request_id

_SHARDS_TRIED = 4  # of a counter, when transactions collide


class SurfaceTable(Protocol):
    """A table that belongs to a surface. Its rows belong to logs."""

    def purge(self, log_id: str) -> bool:
        """Removes rows of a log, as many as one run may. Returns whether none are left."""


@dataclass(frozen=True, slots=True)
class Stores:
    """All stores that operations on logs use, with clock, settings and id sources.

    Attributes:
        surfaces: names of the surfaces in the catalog.
        counted: those of them whose names are counted, each by the counter of its own name.
        tables: tables that only some surfaces have, by the names that guards use.
        derived: checks the rows that surfaces derive from the states of their logs; given these stores, and whether to set
            them right, it returns what is wrong. No writer may run meanwhile.
        find_dead: given these stores, returns the function that finds the removed records of a log of any surface.
    """

    wal: Wal
    catalog: Catalog
    watermarks: Watermarks
    producers: Producers
    follows: Follows
    sessions: Sessions
    objects: Objects
    settings: Settings
    clock: Clock = field(default_factory=SystemClock)
    log_ids: Callable[[], str] = random_id
    request_ids: Callable[[], str] = request_id
    surfaces: tuple[str, ...] = ()
    counted: frozenset[str] = frozenset()
    tables: Mapping[str, SurfaceTable] = field(default_factory=dict)
    derived: Callable[[Stores, bool], Sequence[str]] = lambda *_: ()
    find_dead: Callable[[Stores], FindDead] = lambda _: find_none

    def manifests(self) -> ManifestStore:
        """Creates a manifest store with an empty cache."""
        return ManifestStore(self.objects)

    def mark_ended(self, row: Row, state: LogState | None) -> None:
        """Records in the row of a name that its log has ended, and counts the name no more, if it was counted, nor what the
        log holds: all at once, and only once, however often this is called. Does nothing if the name has another log.

        Args:
            state: the state of the log since it has ended; None if it is not known, and then it is taken to hold nothing.
        """
        if row.surface not in self.counted:
            self.catalog.mark_ended(row)
            return
        for skip in range(_SHARDS_TRIED - 1):
            with suppress(StoreThrottled):  # another transaction is at this shard: take one off the next
                self.sessions.commit((MarkEnded(row), *freed(row, state, skip)))
                return
        self.sessions.commit((MarkEnded(row), *freed(row, state, _SHARDS_TRIED - 1)))
