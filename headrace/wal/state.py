"""The values in the write-ahead log: positions, a log's state, its configuration, and entries.

A cursor is a position as clients get it: a 128-bit tuple of incarnation (u32), position (u64) and a reserved u32,
shifted left by two so that 26 characters of five bits (Crockford base32) hold it: the form that the Prisma Streams
server emits, so that cursors can migrate. `position` counts the records before the cursor; reading at it returns the
record with that offset first.

A slot is the position of an entry: `slot = offset * 10^9 + n`, where n counts the control entries since the last data at
that offset. Entries therefore sort by offset, a reader can seek by offset, and a control entry takes a slot without
using an offset, so that it stops writers with an older picture. The highest values of n are reserved for delete, so that
a log can always be deleted.
"""

from __future__ import annotations

import base64
import os
from typing import Any, Literal, NamedTuple

import msgspec

from headrace.errors import InvalidRequest, Overloaded
from headrace.wal.extension import Extension

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]
_DECODE = {c: i for i, c in enumerate(_ALPHABET)}
_DECODE |= {c.lower(): i for c, i in _DECODE.items() if c.isalpha()}
_DECODE |= {"O": 0, "o": 0, "I": 1, "i": 1, "L": 1, "l": 1}  # Crockford's look-alikes

CURSOR_LENGTH = 26
START = "-1"
NOW = "now"
# The official conformance suite sends the reference server's literal for "before the first record".
REFERENCE_ZERO = "0000000000000000_0000000000000000"


class Cursor(NamedTuple):
    """A position in a stream. `incarnation` None matches any incarnation (the start of the stream)."""

    incarnation: int | None
    position: int


BEGINNING = Cursor(None, 0)


def encode_cursor(incarnation: int, position: int) -> str:
    """Encodes a cursor as text; the texts of one stream sort as its cursors do."""
    value = ((incarnation << 96) | (position << 32)) << 2
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(120, -1, -10)])  # each append prints two


def decode_cursor(text: str) -> Cursor:
    """Parses a cursor that this server may have issued; `-1` gives the start of the stream.

    Raises:
        InvalidRequest: the text is not 26 characters of base32, or has bits that our cursors never have.
    """
    if text in (START, REFERENCE_ZERO):
        return BEGINNING
    if len(text) != CURSOR_LENGTH:
        raise InvalidRequest(f"invalid offset length: expected={CURSOR_LENGTH} received={len(text)}")
    value = 0
    for char in text:
        digit = _DECODE.get(char)
        if digit is None:
            raise InvalidRequest("invalid offset: not base32")
        value = (value << 5) | digit
    if value & 3 or (value >> 2) & 0xFFFF_FFFF:
        raise InvalidRequest("invalid offset: not one that this server issues")
    value >>= 34
    incarnation, position = value >> 64, value & 0xFFFF_FFFF_FFFF_FFFF
    if position == 0 and incarnation == 0:
        return Cursor(0, 0)
    return Cursor(incarnation, position)


SLOT_SPAN = 10**9
_LAST_ORDINARY = SLOT_SPAN - 1000  # above: delete and what may follow it


def first_slot(offset: int) -> int:
    """Returns the lowest slot that an entry whose first record is at `offset` can have."""
    return offset * SLOT_SPAN


def offset_of_slot(slot: int) -> int:
    """Returns the offset of the first record in the entry at `slot` (or of the next record, for a control entry)."""
    return slot // SLOT_SPAN


def following_slot(slot: int, count: int, *, deleting: bool = False) -> int:
    """Returns the slot after an entry at `slot` that holds `count` records.

    Raises:
        Overloaded: a billion control entries are at one offset; only delete is possible.
    """
    if count:
        return (slot // SLOT_SPAN + count) * SLOT_SPAN
    nxt = slot + 1
    n = nxt % SLOT_SPAN
    if n == 0 or (n >= _LAST_ORDINARY and not deleting):
        raise Overloaded("too many control entries at one offset", retry_after_s=60)
    return nxt


def random_id() -> str:
    """Returns 128 random bits from the operating system, in hex. Nothing is kept between calls, so clones of a snapshot
    get different ids.
    """
    return os.urandom(16).hex()


def request_id() -> str:
    """Returns 72 random bits from the operating system, as 12 characters."""
    return base64.urlsafe_b64encode(os.urandom(9)).decode()


class Producer(msgspec.Struct, frozen=True, array_like=True):
    """The epoch and sequence number of the last accepted write of an idempotent producer."""

    id: str
    epoch: int
    seq: int


class Recovery(msgspec.Struct, frozen=True, array_like=True):
    """A recovery of the log, which raised its incarnation to `incarnation` at offset `at`. Later records of before may
    be lost, and their offsets are used again.
    """

    at: int
    incarnation: int


class DefinitionRef(msgspec.Struct, frozen=True, array_like=True):
    """A reference to a definition (schema registry and profile), which is an immutable object of the bucket, unless it is
    built in.

    Attributes:
        number: number of changes of the definition so far, this one included; 0 for a built-in one.
        nonce: part of the object's key, so that two writers of the same number never use the same key; the name of a
            built-in definition.
        schema_version: version of the current schema; 0 if there is none.
        label: the text that listings show, from the surface.
    """

    number: int
    nonce: str
    schema_version: int
    label: str


class LogState(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The state of a log after an entry: everything that decisions need. It is stored in every entry and every
    manifest.

    All surfaces share these members; what only one surface needs is in `extension`.

    Attributes:
        next_offset: offset of the next record.
        append_time_ms: append time of the newest record, in epoch milliseconds; append times never decrease.
        touched_ms: commit time (server's clock) of the newest entry that renews a sliding TTL.
        total_bytes: logical bytes of all records of this log, without those that a fork inherits.
        floor: offset of the first record that can be read; those below it are gone for good. It never falls.
        ended: how the log ended; empty while it lives.
        followers: number of those that hear of every append, and stay until they are removed: routers, subscriptions.
            Their rows are in the table `follows`.
        followed_ms: until when others may hear of appends that last for a while, in epoch milliseconds.
        forks: number of living forks that read from this log.
        holds_source: whether this log is a fork that its source still counts in `forks`.
        producers: the producers that wrote last, newest last.
        producers_spilled: whether there are more in the table of producers.
        recoveries: the recoveries of the log from its published part, oldest first.
        definition: reference to the current definition; None for the empty one.
        extension: the part that belongs to the surface; None if there is none.
        later: members of a later release, of the state or under `extension`, which are written back as they are
            (`headrace.wal.stored`); None if there are none.
    """

    next_offset: int = 0
    append_time_ms: int = 0
    touched_ms: int = 0
    total_bytes: int = 0
    floor: int = 0
    ended: Literal["", "deleted", "expired"] = ""
    followers: int = 0
    followed_ms: int = 0
    forks: int = 0
    holds_source: bool = False
    producers: tuple[Producer, ...] = ()
    producers_spilled: bool = False
    recoveries: tuple[Recovery, ...] = ()
    definition: DefinitionRef | None = None
    extension: Extension | None = None
    later: dict[str, Any] | None = None

    def retained(self, now_ms: int) -> LogState:
        """Returns the state without the records that the log's surface does not keep any longer."""
        return self if self.extension is None else self.extension.retained(self, now_ms)

    @property
    def is_purgeable(self) -> bool:
        """Whether the log has ended and no fork reads from it, so that all of it may go."""
        return bool(self.ended) and not self.forks

    def is_followed(self, now_ms: int) -> bool:
        """Returns whether somebody may follow the log at this time, and so must hear of an append."""
        return bool(self.followers) or self.followed_ms > now_ms

    @property
    def is_final(self) -> bool:
        """Whether no record will ever follow, even if the log has not ended."""
        return self.extension is not None and self.extension.is_final

    def named_objects(self, log_id: str) -> tuple[str, ...]:
        """Returns the keys of the surface's own objects that the state of this log names."""
        return self.extension.named_objects(log_id) if self.extension is not None else ()

    @property
    def schema_version(self) -> int:
        """The version of the current schema; 0 if there is none."""
        return self.definition.schema_version if self.definition is not None else 0

    @property
    def label(self) -> str:
        """The text that listings show for the current definition; `generic` if there is none."""
        return self.definition.label if self.definition is not None else "generic"


class Ancestor(msgspec.Struct, frozen=True, array_like=True):
    """A log, in one of its incarnations, whose records a fork inherits up to offset `through` (exclusive)."""

    log_id: str
    incarnation: int
    through: int


class ForkSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """The source that a fork was created from, as in the request, so that an equal request is recognised as a
    repeat.
    """

    name: str
    log_id: str
    offset: int | None = None
    sub_offset: int = 0
    own_expiry: bool = False  # it was asked with an expiry; else it inherited the source's


class Companion(msgspec.Struct, frozen=True, array_like=True):
    """Another log of the same name, identified by its role, such as a queue's leases."""

    role: str
    log_id: str
    content_type: str


class LogConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """The configuration of a log, which never changes. It is stored in its first entry, its catalog row and its
    `log.json`.

    A name has a main log, and may have companions, which are created in the same commit and end with it. So the catalog
    row, which holds the main log's configuration, names all logs of the name.

    Attributes:
        incarnation: rises each time the name is created again, so that older cursors become invalid. A recovery raises
            it further, in the state: use `incarnation_of`.
        lineage: for a fork, the logs that it inherits from, oldest first.
        ttl_ms, expires_at_ms: sliding and absolute expiry; at most one.
        definition: for a fork, the definition it begins with; the current one is in the state. Inherited records need
            it, and they can be published before the fork is.
        companions: for a main log, the other logs of its name, each with a role of its own.
        role, main: for a companion, its role, and the id of the main log; empty for a main log.
    """

    surface: str
    name: str
    incarnation: int
    content_type: str
    created_ms: int
    ttl_ms: int | None = None
    expires_at_ms: int | None = None
    lineage: tuple[Ancestor, ...] = ()
    source: ForkSource | None = None
    definition: DefinitionRef | None = None
    companions: tuple[Companion, ...] = ()
    role: str = ""
    main: str = ""

    @property
    def title(self) -> str:
        """The name of the log for messages; for a companion, with its role in parentheses."""
        return f"{self.name} ({self.role})" if self.role else self.name

    @property
    def base_offset(self) -> int:
        """The offset of the first record that the log itself holds."""
        return self.lineage[-1].through if self.lineage else 0


def incarnation_of(config: LogConfig, state: LogState) -> int:
    """Returns the number that rises each time a name is created again or its log is recovered: that of the last recovery,
    or else the configuration's.
    """
    return state.recoveries[-1].incarnation if state.recoveries else config.incarnation


class TimeRun(msgspec.Struct, frozen=True, array_like=True):
    """The append time of `count` consecutive records."""

    count: int
    time_ms: int


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the write-ahead log: a batch of records, or a control entry, with the log's state after it.

    Attributes:
        kind: the log itself writes create, data, fork, unfork, release, delete, expire, recover, define, follow, unfollow
            and rest; surfaces have kinds of their own.
        slot: its slot; it has `count` records, at offsets from `offset` on.
        prev_slot, prev_id: slot and first request id of its predecessor (-1 and "" for the first entry). The id
            distinguishes the predecessor from a dead item that a late writer put into a trimmed slot.
        prev_committed_ms, prev_bytes: its predecessor's `committed_ms` and total of bytes, for the sealer: an entry alone
            tells it whether the log may be due.
        payload, payload_key: compressed frames, or the key of the object that holds them; neither without records.
        times: append times of the records, as runs of equal times.
        request_ids: the requests that this entry answers; the first is the entry's identity.
        committed_ms: the server's clock at the commit; ages and trimming use it, never a client's hint.
        config: the log's configuration, only in its first entry.
    """

    log_id: str
    slot: int
    kind: str
    state: LogState
    request_ids: tuple[str, ...]
    committed_ms: int
    prev_slot: int = -1
    prev_id: str = ""
    prev_committed_ms: int = 0
    prev_bytes: int = 0
    count: int = 0
    payload: bytes | None = None
    payload_key: str | None = None
    times: tuple[TimeRun, ...] = ()
    config: LogConfig | None = None

    @property
    def id(self) -> str:
        """The entry's identity, its first request id."""
        return self.request_ids[0]

    @property
    def offset(self) -> int:
        """The offset of its first record; for a control entry, of the next record."""
        return offset_of_slot(self.slot)

    @property
    def next_offset(self) -> int:
        """The offset after its last record."""
        return self.offset + self.count

    def next_slot(self, *, deleting: bool = False) -> int:
        """Returns the slot of the entry after it; with `deleting`, reserved slots are allowed, too. Raises Overloaded if no
        slot is left at its offset.
        """
        return following_slot(self.slot, self.count, deleting=deleting)
