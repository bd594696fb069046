"""What was asked and answered during a run, as plain values. Times are seconds of one monotonic clock.

A record is known by its id, `<op>.<part>`: every append has its own `op`, and writes its records under ids that nobody
else uses. Positions count the records of a stream before them; an incarnation is a life of a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Outcome = Literal["acknowledged", "unknown", "refused"]


class Life(NamedTuple):
    """One life of a name."""

    stream: str
    incarnation: int


@dataclass(frozen=True)
class Append:
    """A batch, from its first try to its last answer.

    Attributes:
        started, ended: before the first try, and after the answer that decided.
        outcome: `refused`: every answer said that nothing was written.
        life: that the answer names; None if there was none.
        end: position after the batch; None if the answer does not say it (a producer's repeat).
        producer, seq: of an idempotent append; such a one is tried until it is acknowledged.
    """

    stream: str
    op: str
    parts: int
    started: float
    ended: float
    outcome: Outcome
    life: Life | None = None
    end: int | None = None
    producer: str = ""
    seq: int = 0

    def ids(self) -> tuple[str, ...]:
        """Returns the ids of its records."""
        return tuple(f"{self.op}.{part}" for part in range(self.parts))


@dataclass(frozen=True)
class Page:
    """An answer to a read: records from `start` up to `next`; `tail` is where the stream ended at that moment."""

    reader: str
    life: Life
    start: int
    ids: tuple[str, ...]
    next: int
    tail: int
    started: float
    ended: float
    closed: bool = False


@dataclass(frozen=True)
class Creation:
    """A name began a new life."""

    life: Life
    started: float
    ended: float


@dataclass(frozen=True)
class Ending:
    """A close or a delete that was acknowledged; `end` is the position after the last record of a closed stream."""

    kind: Literal["close", "delete"]
    life: Life
    started: float
    ended: float
    end: int | None = None


@dataclass(frozen=True)
class Fork:
    """A fork that was acknowledged: it begins with the records of its source before `at`."""

    life: Life
    source: Life
    at: int


@dataclass
class History:
    """Everything that happened. `whole`: lives that some reader read to the end after the last append to them."""

    appends: list[Append] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)
    creations: list[Creation] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    forks: list[Fork] = field(default_factory=list)
    whole: set[Life] = field(default_factory=set)
    surprises: list[str] = field(default_factory=list)

    def acknowledged(self) -> Iterator[Append]:
        """Returns the acknowledged appends."""
        return (append for append in self.appends if append.outcome == "acknowledged")


def op_of(record_id: str) -> str:
    """Returns the name of the append that wrote a record."""
    return record_id.rpartition(".")[0]
