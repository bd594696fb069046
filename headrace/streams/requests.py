"""What callers ask of streams, and what they get."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from headrace import offset as offsets
from headrace.batch import EMPTY, Batch
from headrace.log.requests import Head
from headrace.wal.state import Producer


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


class Created(NamedTuple):
    """Answer to a create; `created` False when an equal stream existed already."""

    created: bool
    head: Head


class Appended(NamedTuple):
    """Answer to an append.

    Attributes:
        next_offset: the position after the request's own records (the tail, for a duplicate), as text.
        closed: the stream is closed now.
        duplicate: nothing was written; an earlier try of the same producer write was.
        producer: the producer's epoch and highest accepted sequence number, if the request named one.
        tries: commits it took; more than one when other writers were first.
    """

    next_offset: str
    closed: bool
    duplicate: bool
    producer: Producer | None
    tries: int = 1
