"""The values of streams: names, the stream's part of a log's state, requests and answers."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from headrace.batch import EMPTY, Batch
from headrace.errors import InvalidRequest
from headrace.limits import CONTROL_CHARACTER, MAX_NAME_BYTES
from headrace.log.marks import Mark, count_beyond, count_expired, joined
from headrace.log.requests import Head
from headrace.wal.extension import Extension
from headrace.wal.state import Cursor, LogState, Producer

STREAMS = "streams"  # the surface of `/v1/stream/…`
SYSTEM_STREAM = "__stream_metrics__"  # written by the server, read by anyone who may
# Instances of a function share their metrics among these, so that no number of them makes one log hot.
METRIC_STREAMS = (SYSTEM_STREAM, *(f"{SYSTEM_STREAM}.{number}" for number in range(1, 8)))
# Nobody else writes these. Those without a writer do not exist, and their names stay free for the server.
OWN_STREAMS = frozenset({*METRIC_STREAMS, "__registry__", "__stream_stats__"})

# Sub-resources of a stream; a name may not end in one, since raw slashes are part of a name.
RESERVED_SEGMENTS = frozenset(
    {
        "_schema",
        "_profile",
        "_search",
        "_aggregate",
        "_routing_keys",
        "_index_status",
        "_details",
        "_otlp",
        "__ds",
    }
)
# … of two segments; `…/pk/{key}` reads one routing key.
RESERVED_PAIRS = frozenset({("touch", "meta"), ("touch", "wait"), ("templates", "activate")})


class ForkRequest(msgspec.Struct, frozen=True):
    """The fork part of a create: the source's name, the cursor to branch at (None: its tail), and how far past it.

    `sub_offset` counts records on a JSON stream and bytes on any other.
    """

    source: str
    at: Cursor | None = None
    sub_offset: int = 0


class Retention(msgspec.Struct, frozen=True, omit_defaults=True):
    """How long a stream keeps records; None means for ever, and however many.

    Attributes:
        age_ms: records that were appended so long ago need not be kept.
        bytes: the newest records of so many bytes are kept, whatever others are not.
    """

    age_ms: int | None = None
    bytes: int | None = None


class CreateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to create a stream, perhaps as a fork, perhaps with first records, closed, with an expiry, or with a
    retention. A `content_type` of None means the default, or the source's for a fork; so does a `retention` of None.
    """

    content_type: str | None = None
    ttl_ms: int | None = None
    expires_at_ms: int | None = None
    closed: bool = False
    records: Batch = EMPTY
    time_hint_ms: int | None = None
    fork: ForkRequest | None = None
    retention: Retention | None = None


class AppendRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to append records, to close the stream, or both; perhaps with a `Stream-Seq`, a producer, a hint for the
    append time, or the kind of profile that the stream must have. `content_type` may be None only if there are no records.
    """

    content_type: str | None = None
    records: Batch = EMPTY
    seq: str | None = None
    producer: Producer | None = None
    time_hint_ms: int | None = None
    close: bool = False
    profile: str | None = None

    @property
    def size(self) -> int:
        """The bytes of record data, plus the characters of keys."""
        return self.records.size


class Created(NamedTuple):
    """The answer to a create: the stream's state, and whether it was created (False: an equal stream existed already)."""

    created: bool
    head: Head


class Appended(NamedTuple):
    """The answer to an append.

    Attributes:
        next_offset: the position after the request's own records (for a duplicate, the tail), as a cursor text.
        closed: whether the stream is closed now.
        duplicate: whether nothing was written, because this producer write, or the close, was done before.
        producer: the producer's epoch and highest accepted sequence number, if the request named one.
        tries: number of commits that it took; more than one if other writers were first.
    """

    next_offset: str
    closed: bool
    duplicate: bool
    producer: Producer | None
    tries: int = 1


class StreamState(Extension, msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="stream"):
    """The stream's part of a log's state; it is not stored if it has the default values.

    Attributes:
        last_seq: the last accepted `Stream-Seq`; None if there was none.
        closed: whether the stream is closed for appends.
        retention: how long records are kept; None if all are, and always were.
        marks: stretches of the log, ascending, from the floor on; kept once there is a retention.
    """

    last_seq: str | None = None
    closed: bool = False
    retention: Retention | None = None
    marks: tuple[Mark, ...] = ()

    @property
    def is_final(self) -> bool:
        """Whether no record will ever follow, because the stream is closed."""
        return self.closed

    def retained(self, state: LogState, now_ms: int) -> LogState:
        """Returns the state whose floor is above the marks that are too old, or more than is kept."""
        keep = self.retention
        if keep is None or not self.marks:
            return state
        too_old = 0 if keep.age_ms is None else count_expired(self.marks, now_ms - keep.age_ms)
        too_many = 0 if keep.bytes is None else count_beyond(self.marks, keep.bytes)
        gone = max(too_old, too_many)
        if not gone:
            return state
        left = replace(self, marks=self.marks[gone:])
        return replace(state, floor=max(state.floor, self.marks[gone - 1].end), extension=left)


OPEN = StreamState()


def state_of(state: LogState) -> StreamState:
    """Returns the stream's part of a log's state; the default values if none is stored."""
    return state.extension if isinstance(state.extension, StreamState) else OPEN


def extension_of(stream: StreamState) -> StreamState | None:
    """Returns the stream's part to store in a log's state; None if it has the default values."""
    return stream if stream != OPEN else None


def marked(state: LogState, records: int, size: int) -> LogState:
    """Returns the state in which the newest records, with `size` bytes, have a mark, if the stream has a retention."""
    stream = state_of(state)
    if stream.retention is None or not records:
        return state
    mark = Mark(state.next_offset, state.append_time_ms, records, size)
    return replace(state, extension=replace(stream, marks=joined((*stream.marks, mark))))


def check_name(name: str) -> str:
    """Checks that a text can be the name of a stream, and returns it.

    Raises:
        InvalidRequest: the name is empty, too long or not encodable, has control characters, or begins or ends in a
            reserved segment.
    """
    if not name:
        raise InvalidRequest("stream name is empty")
    try:
        raw = name.encode()
    except UnicodeEncodeError as exc:
        raise InvalidRequest("stream name is not valid unicode") from exc
    if len(raw) > MAX_NAME_BYTES:
        raise InvalidRequest(f"stream name is too long: limit={MAX_NAME_BYTES} received={len(raw)}")
    if CONTROL_CHARACTER.search(name):
        raise InvalidRequest("stream name has a control character")
    segments = name.split("/")
    below, is_otlp = tuple(segments[-2:]), segments[-3:-1] == ["_otlp", "v1"]
    is_reserved = segments[-1] in RESERVED_SEGMENTS or segments[0] == "__ds"
    if is_reserved or is_otlp or below in RESERVED_PAIRS or below[0] == "pk":
        raise InvalidRequest(f"stream name is reserved: name={name}")
    return name


def check_writable(name: str) -> None:
    """Checks that clients may create, write, change and delete a stream with this name.

    Raises:
        InvalidRequest: the name is that of a system stream.
    """
    if name in OWN_STREAMS:
        raise InvalidRequest(f"stream name is reserved for the server: name={name}")
