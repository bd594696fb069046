"""What callers ask of a log, and what they get."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from headrace import offset as offsets
from headrace.batch import EMPTY, Batch
from headrace.wal.state import LogConfig, LogState, Producer, incarnation_of

JSON = "application/json"


class ForkRequest(msgspec.Struct, frozen=True):
    """A create that branches: from which name, at which cursor (None: its tail), how far past it.

    `sub_offset` counts records on a JSON stream and bytes on any other.
    """

    source: str
    at: offsets.Cursor | None = None
    sub_offset: int = 0


class CreateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A create. `content_type` None stands for the default (or the source's, for a fork)."""

    content_type: str | None = None
    ttl_ms: int | None = None
    expires_at_ms: int | None = None
    closed: bool = False
    records: Batch = EMPTY
    time_hint_ms: int | None = None
    fork: ForkRequest | None = None


class AppendRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An append, a close, or both. `content_type` None only without records."""

    content_type: str | None = None
    records: Batch = EMPTY
    seq: str | None = None
    producer: Producer | None = None
    time_hint_ms: int | None = None
    close: bool = False

    @property
    def size(self) -> int:
        """Bytes of record data and keys."""
        return self.records.size


class Head(NamedTuple):
    """A living stream at one moment."""

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


class Created(NamedTuple):
    """Answer to a create; `created` False when an equal stream stood there already."""

    created: bool
    head: Head


class Appended(NamedTuple):
    """Answer to an append.

    Attributes:
        next_offset: the position after the request's own records (the tail, for a duplicate), as text.
        closed: the stream is closed now.
        duplicate: nothing was written; an earlier try of the same producer write stands.
        producer: the producer's epoch and highest accepted sequence number, if the request named one.
        tries: commits it took; more than one when other writers were first.
    """

    next_offset: str
    closed: bool
    duplicate: bool
    producer: Producer | None
    tries: int = 1


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


class Scan(NamedTuple):
    """Payload bytes that a filtered read has looked at, and whether it stopped because they were too many."""

    bytes: int
    limit_reached: bool


class ReadPage(NamedTuple):
    """A page of records, and where it stands.

    Attributes:
        start, next: position where the page begins, and after the last record that was looked at.
        end: position of the tail when the page was made.
        data: the records, one element per record, as the schema in force shows them.
        size: bytes of `data`.
        head: the stream then.
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
        """Nothing stood after the page."""
        return self.next >= self.end

    @property
    def at_eof(self) -> bool:
        """Nothing ever will."""
        return self.up_to_date and self.head.state.closed

    def text(self, position: int) -> str:
        """A position of this stream as a cursor."""
        return offsets.encode(self.head.incarnation, position)
