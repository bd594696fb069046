"""What the model knows of one log: all its entries, and how it was after each of them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.wal.state import DefinitionRef, Entry, LogConfig, Recovery
from tests.simulation.queues import LeaseLog
from tests.simulation.topics import TopicLog


class View(NamedTuple):
    """A log after one of its changes."""

    step: int
    next_offset: int
    closed: bool
    ended: str
    last_seq: str | None
    forks: int
    holds_source: bool
    recoveries: tuple[Recovery, ...] = ()
    definition: DefinitionRef | None = None


class Written(NamedTuple):
    """Where an operation's change is: log, entry, offset after its records."""

    log_id: str
    entry: Entry
    next_offset: int
    records: int


@dataclass
class LogModel:
    """One log, whole, for ever."""

    log_id: str
    config: LogConfig
    entries: list[Entry] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    producers: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)  # step, epoch, seq: as is known
    applied: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)  # slot, epoch, seq: as is written
    survived: bool = False  # it is older than the last disaster
    gone: bool = False  # a disaster met it when it had been purged: of its entries anything may stand
    versions: list[int] = field(default_factory=list)  # of the schema that each record was accepted under
    topic: TopicLog = field(default_factory=TopicLog)  # of a topic
    queue: LeaseLog | None = None  # of a lease log
    pasts: list[TopicLog | LeaseLog | None] = field(default_factory=list)  # either one, after each entry

    @property
    def tip(self) -> Entry:
        """The newest entry."""
        return self.entries[-1]

    @property
    def now(self) -> View:
        """The log now."""
        return self.views[-1]

    @property
    def purgeable(self) -> bool:
        """Nobody needs its data."""
        return bool(self.now.ended) and not self.now.forks

    @property
    def incarnation(self) -> int:
        """In force now."""
        return self.incarnation_in(self.now)

    def incarnation_in(self, view: View) -> int:
        """In force after a change."""
        return view.recoveries[-1].incarnation if view.recoveries else self.config.incarnation

    @property
    def incarnations(self) -> list[int]:
        """All that were in force, as far as is known, the oldest first."""
        return [self.config.incarnation, *(one.incarnation for one in self.now.recoveries)]

    def since(self, step: int) -> list[View]:
        """Returns the log at `step`, and after each change since."""
        return self.views[max(0, bisect_right(self.steps, step) - 1) :]

    def at(self, step: int) -> View | None:
        """Returns the log at `step`; None if it did not exist."""
        index = bisect_right(self.steps, step)
        return self.views[index - 1] if index else None

    def ended_before(self, step: int) -> bool:
        """It had ended at `step`."""
        view = self.at(step)
        return view is not None and bool(view.ended)

    def known_producer(self, name: str, step: int) -> list[tuple[int, int] | None]:
        """Epoch and number of a producer at `step` and after each change since; None: unknown."""
        history = self.producers.get(name, [])
        index = bisect_right([at for at, _, _ in history], step)
        states: list[tuple[int, int] | None] = [history[index - 1][1:] if index else None]
        return states + [(epoch, seq) for _, epoch, seq in history[index:]]

    def stretch(self, start: int, stop: int) -> list[tuple[bytes, int]]:
        """Returns some of its own records, each with its schema version."""
        return list(zip(self.records[start:stop], self.versions[start:stop], strict=True))

    def position_of(self, slot: int, entry_id: str) -> int | None:
        """Index of an entry of the chain."""
        for index, entry in enumerate(self.entries):
            if entry.slot == slot and entry.id == entry_id:
                return index
        return None
