"""The seam between the log and a surface: what a surface decides, and what it is given to decide on.

A surface is a kind of names: streams, topics, feature tables. It gives the log `decide`, for data and for control alike:
from the logs as they stand, the requests and the clock to the entries that must follow, the rows and conditions that join
their commit, the objects that they name, and an answer for each request. The log writes the objects first, then puts the
entries into their slots, and asks again when another writer was first. A surface never reads or writes a store itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from headrace.batch import Batch
from headrace.definition import Definition
from headrace.errors import Gone, HeadraceError, NotFound
from headrace.tables.catalog import Row
from headrace.tables.items import Guard
from headrace.wal.state import LogConfig, LogState, Producer, TimeRun

Which = str | tuple[str, str]
"""Says which log is meant: the main one of a name, or with a role a companion."""


def split(which: Which) -> tuple[str, str]:
    """Returns name and role; the role of a main log is empty."""
    return (which, "") if isinstance(which, str) else which


class Look(NamedTuple):
    """A log as a decision sees it.

    Attributes:
        row: the row of its name; of a companion, what follows from it.
        state: as of its newest entry.
        touched_ms: the last counted read that this process knows of.
    """

    row: Row
    state: LogState
    touched_ms: int = 0

    @property
    def log_id(self) -> str:
        """Id of the log."""
        return self.row.log_id

    @property
    def config(self) -> LogConfig:
        """What never changes about the log."""
        return self.row.config


class Draft(NamedTuple):
    """An entry as a surface decides it; the log gives it slot, predecessor and payload.

    Attributes:
        log_id: of a log that was looked at, or of a new one.
        kind: what it does; surfaces have kinds of their own.
        state: of the log after it.
        batches, times: the records that it holds, and their append times.
        requests: which requests it answers, by number. The answers to others rest on the state alone.
        config: of a new log, whose first entry it is.
    """

    log_id: str
    kind: str
    state: LogState
    batches: Sequence[Batch] = ()
    times: tuple[TimeRun, ...] = ()
    requests: tuple[int, ...] = (0,)
    config: LogConfig | None = None


class NamedObject(NamedTuple):
    """An object that an entry names. It is written before the entry, and never changes.

    Attributes:
        definition: what `data` holds, if it is a definition: this process will ask for it.
    """

    key: str
    data: bytes
    definition: Definition | None = None


class Decision(NamedTuple):
    """What requests come to.

    Attributes:
        answers: one for each request; an error is an answer, too.
        entries: what to commit, all or nothing; none if nothing changes. The first one carries the guards.
        guards: rows and conditions that join the commit.
        objects: what the entries name.
    """

    answers: Sequence[Any]
    entries: tuple[Draft, ...] = ()
    guards: tuple[Guard, ...] = ()
    objects: tuple[NamedObject, ...] = ()

    @property
    def tells(self) -> bool:
        """Whether an answer rests on the state alone: a refusal, or a repeat. No slot checks it."""
        answered = {number for entry in self.entries for number in entry.requests}
        return len(answered) < len(self.answers)


class Rows(Protocol):
    """What a decision may read beside states."""

    def producer(self, log_id: str, producer_id: str) -> Producer | None:
        """Returns the row of a producer that is not in the state."""

    def definition(self, log_id: str, state: LogState) -> Definition:
        """Returns the definition that a state names."""

    def record(self, row: Row, position: int) -> bytes:
        """Returns the record at a position that exists."""

    def table(self, name: str) -> Any:
        """Returns the adapter of a surface's own table."""


class Ids(Protocol):
    """Where a decision takes its ids from."""

    def log(self) -> str:
        """Returns the id of a new log."""

    def nonce(self, data: bytes) -> str:
        """Returns a nonce for the key of an object: the same for equal data while one request is decided again."""


class Request(Protocol):
    """A request that waits to be decided.

    Attributes:
        request: what is asked.
        memo: what the surface remembers of it from one decision to the next.
    """

    request: Any
    memo: Any


Decide = Callable[[Sequence[Look | None], Sequence[Request], Rows, int, Ids], Decision]
"""Decides requests: `decide(logs, requests, rows, now_ms, ids)`.

Args:
    logs: those that were looked at, in the order asked for; None for a name that stands for nothing.
    now_ms: the server's clock.

Raises:
    HeadraceError: all requests are refused.
"""


class Surface:
    """What the log knows of a surface: its name, its words, and how it decides an append. Stateless.

    Attributes:
        name: as in the catalog.
        noun: what one of its names is called in messages.
    """

    name: ClassVar[str]
    noun: ClassVar[str]

    def decide(
        self, logs: Sequence[Look | None], requests: Sequence[Request], rows: Rows, now_ms: int, ids: Ids
    ) -> Decision:
        """Decides appends to one log (`Decide`)."""
        raise NotImplementedError

    def missing(self, name: str) -> HeadraceError:
        """Returns the error for a name that stands for nothing."""
        return NotFound(f"{self.noun} not found: name={name}")

    def ended(self, config: LogConfig, state: LogState) -> HeadraceError | None:
        """Returns why a log that has ended can't be used; None while it lives."""
        if not state.ended:
            return None
        if state.forks:
            return Gone(f"{self.noun} was {state.ended} and is kept for its forks: name={config.name}")
        return NotFound(f"{self.noun} expired") if state.ended == "expired" else self.missing(config.name)


class AnySurface(Surface):
    """What workers that end or repair logs of every surface take for theirs: nobody hears its words."""

    name = ""
    noun = "log"
