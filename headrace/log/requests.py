"""The values that callers pass to reads of a log, and get from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias, TypedDict

from headrace.batch import Record
from headrace.errors import Gone, InvalidRequest
from headrace.wal.state import Cursor, LogConfig, LogState, Recovery, encode_cursor, incarnation_of

JSON = "application/json"


class Head(NamedTuple):
    """The state of a living log at one moment: its id, configuration and state; `deadline_ms` is when it expires (epoch ms)
    unless it is touched, None for never.
    """

    log_id: str
    config: LogConfig
    state: LogState
    deadline_ms: int | None  # when it expires unless it is touched

    @property
    def incarnation(self) -> int:
        """The log's incarnation: a number that rises when a name is created again or its log is recovered."""
        return incarnation_of(self.config, self.state)

    @property
    def next_offset(self) -> str:
        """The log's end as a cursor text."""
        return encode_cursor(self.incarnation, self.state.next_offset)


class At(NamedTuple):
    """Where a read begins: at a cursor, at the tail (`now`), or at the first record appended at or after a time."""

    cursor: Cursor | None = None
    since_ms: int | None = None

    @property
    def is_now(self) -> bool:
        """Whether the read begins at the tail."""
        return self.cursor is None and self.since_ms is None


class Selection(NamedTuple):
    """Which records a read returns: those with the routing key and that match the filter; None leaves a condition out."""

    key: str | None = None
    filter: str | None = None


EVERYTHING = Selection()


Describe: TypeAlias = Callable[[Head, Record], bytes]


class Bounds(TypedDict, total=False):
    """The options and limits of a read.

    Attributes:
        touch: whether the read renews a sliding TTL.
        max_records, max_bytes: the maximum size of the page.
        until: monotonic seconds at which a selecting read ends with what it has, and says how far it came.
        describe: returns what the page has instead of a record's data.
    """

    touch: bool
    max_records: int
    max_bytes: int
    until: float | None
    describe: Describe | None


class Scan(NamedTuple):
    """The payload bytes that a filtered read has looked at, and whether it stopped because there were too many."""

    bytes: int
    limit_reached: bool


class ReadPage(NamedTuple):
    """A page of records, with its position in the stream.

    Attributes:
        start, next: the position where the page begins, and the one after the last record that was looked at.
        end: the position of the tail when the page was read.
        data: the data of each record, promoted to the current schema.
        size: bytes of `data`.
        head: the log's state at that time.
        foreign: whether the cursor was of an older incarnation that is still valid (a fork's source, or from before a
            recovery).
        scan: what a filter looked at; None if there was no filter.
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
        """Whether there was nothing after the page."""
        return self.next >= self.end

    @property
    def at_eof(self) -> bool:
        """Whether nothing will ever follow the page."""
        return self.up_to_date and self.head.state.is_final

    def text(self, position: int) -> str:
        """Formats a position of this stream as a cursor text."""
        return encode_cursor(self.head.incarnation, position)


class RecordsPage(NamedTuple):
    """A page of consecutive records with all their columns.

    Attributes:
        head: the log's state when the page was read. Records below its floor are left out.
        records: the records; their offsets are consecutive.
        next: the position after the last of them; the position where the page begins if there are none.
        end: the position of the tail.
    """

    head: Head
    records: list[Record]
    next: int
    end: int


def check_cursor(config: LogConfig, cursor: Cursor, recoveries: Sequence[Recovery] = ()) -> bool:
    """Checks a cursor. Returns True if it is of an earlier incarnation that is still valid: an ancestor's, up to
    the fork point, or this log's before a recovery, up to the recovered end. Returns False if it is of the log's
    current incarnation.

    Raises:
        InvalidRequest, Gone: it is of another incarnation.
    """
    own = recoveries[-1].incarnation if recoveries else config.incarnation
    if cursor.incarnation is None or cursor.incarnation == own:
        return False
    if cursor.incarnation > own:
        raise InvalidRequest("offset is of a later incarnation")
    for ancestor in config.lineage:
        if cursor.incarnation == ancestor.incarnation and cursor.position <= ancestor.through:
            return True
    before = config.incarnation
    for recovery in recoveries:
        if cursor.incarnation == before and cursor.position <= recovery.at:
            return True
        before = recovery.incarnation
    raise Gone("offset belongs to an earlier incarnation")
