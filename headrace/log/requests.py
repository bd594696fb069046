"""What callers ask of a log, and what they get."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from headrace import offset as offsets
from headrace.wal.state import LogConfig, LogState, incarnation_of

JSON = "application/json"


class Head(NamedTuple):
    """A living log at one moment."""

    log_id: str
    config: LogConfig
    state: LogState
    deadline_ms: int | None  # when it expires unless it is touched

    @property
    def incarnation(self) -> int:
        """Of the log."""
        return incarnation_of(self.config, self.state)

    @property
    def next_offset(self) -> str:
        """The tail, as text."""
        return offsets.encode(self.incarnation, self.state.next_offset)


class At(NamedTuple):
    """Where a read begins: a cursor, the tail (`now`), or the first record appended at or after a time."""

    cursor: offsets.Cursor | None = None
    since_ms: int | None = None

    @property
    def is_now(self) -> bool:
        """Begins at the tail."""
        return self.cursor is None and self.since_ms is None


class Selection(NamedTuple):
    """Which records a read wants: those of a routing key, those that a filter matches, or all."""

    key: str | None = None
    filter: str | None = None


EVERYTHING = Selection()


class Bounds(TypedDict, total=False):
    """What a read may do besides.

    Attributes:
        touch: renew a sliding TTL; it does unless told otherwise.
        max_records, max_bytes: of the page; what the limits say by default.
        until: monotonic seconds; a read that selects records ends there with what it has, and says how far it came.
    """

    touch: bool
    max_records: int
    max_bytes: int
    until: float | None


class Scan(NamedTuple):
    """Payload bytes that a filtered read has looked at, and whether it stopped because they were too many."""

    bytes: int
    limit_reached: bool


class ReadPage(NamedTuple):
    """A page of records, and where it is.

    Attributes:
        start, next: position where the page begins, and after the last record that was looked at.
        end: position of the tail when the page was made.
        data: the records, one element per record, as the schema in force shows them.
        size: bytes of `data`.
        head: the log then.
        foreign: the cursor was of an older incarnation that is still accepted (a fork's source, or from before a
            recovery).
        scan: what a filter looked at; None without one.
    """

    head: Head
    start: int
    next: int
    end: int
    data: list[bytes]
    size: int
    foreign: bool = False
    scan: Scan | None = None

    @property
    def up_to_date(self) -> bool:
        """Nothing was after the page."""
        return self.next >= self.end

    @property
    def at_eof(self) -> bool:
        """Nothing ever will."""
        return self.up_to_date and self.head.state.is_final

    def text(self, position: int) -> str:
        """Returns a position of this log as a cursor."""
        return offsets.encode(self.head.incarnation, position)
