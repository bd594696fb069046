"""The values that the write-ahead log holds: a log's state, its configuration, an entry."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from headrace import offset as offsets


class Producer(msgspec.Struct, frozen=True, array_like=True):
    """The last accepted write of an idempotent producer."""

    id: str
    epoch: int
    seq: int


class Recovery(msgspec.Struct, frozen=True, array_like=True):
    """At offset `at` the log took up `incarnation`: what was behind it may be lost, and its offsets come again."""

    at: int
    incarnation: int


class DefinitionRef(msgspec.Struct, frozen=True, array_like=True):
    """Which schema registry and profile are in force. They are in an immutable object of the bucket.

    Attributes:
        number: how often they were changed, this change included.
        nonce: of the object's key, so that two writers of one number never meet.
        schema_version: of the current schema; 0 without one.
        label: what listings show, given by the surface.
    """

    number: int
    nonce: str
    schema_version: int
    label: str


class Extension:
    """What one surface keeps in the state of its logs: a tagged struct, of which only that surface knows the members.

    A surface derives a struct with `tag_field="kind"` and a `tag` of its own from this class. To import that struct is
    enough for `decode_extension` to find it.
    """

    __slots__ = ()

    @property
    def is_final(self) -> bool:
        """Whether no record will ever follow."""
        return False


class ForeignExtension(dict[str, Any], Extension):
    """The extension of a surface that this process does not import. It is written as it was read."""

    __slots__ = ()


def decode_extension(_: type, value: Any) -> Any:
    """Returns the extension in a document (a decoding hook of msgspec).

    Raises:
        msgspec.ValidationError: it is not one.
    """
    if not isinstance(value, dict):
        raise msgspec.ValidationError("extension is not an object")
    for known in Extension.__subclasses__():
        if issubclass(known, msgspec.Struct) and known.__struct_config__.tag == value.get("kind"):
            return msgspec.convert(value, known)
    return ForeignExtension(value)


class LogState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that a decision about a log needs, as of one entry. Stored in every entry and every manifest.

    This is the core, which every surface shares; what one surface needs beside it is in `extension`.

    Attributes:
        next_offset: offset of the next record.
        append_time_ms: append time of the newest record; append times never fall.
        touched_ms: commit time (server's clock) of the newest entry that renews a sliding TTL.
        total_bytes: logical bytes of all records of this log (what it inherits as a fork not included).
        ended: "" while the log lives, else how it ended.
        forks: live forks that read from this log.
        holds_source: this log is a fork that still counts in its source's `forks`.
        producers: the most recent producers, the newest last.
        producers_spilled: others are in the producers table.
        recoveries: when the log was rebuilt from what was published, the oldest first.
        definition: the schema registry and the profile in force; None while they are the empty ones.
        extension: what the log's surface keeps; None if nothing.
    """

    next_offset: int = 0
    append_time_ms: int = 0
    touched_ms: int = 0
    total_bytes: int = 0
    ended: Literal["", "deleted", "expired"] = ""
    forks: int = 0
    holds_source: bool = False
    producers: tuple[Producer, ...] = ()
    producers_spilled: bool = False
    recoveries: tuple[Recovery, ...] = ()
    definition: DefinitionRef | None = None
    extension: Extension | None = None

    @property
    def is_final(self) -> bool:
        """Whether no record will ever follow, though the log may live on."""
        return self.extension is not None and self.extension.is_final

    @property
    def schema_version(self) -> int:
        """Version of the schema in force; 0 without one."""
        return self.definition.schema_version if self.definition is not None else 0

    @property
    def label(self) -> str:
        """What listings show of the definition in force."""
        return self.definition.label if self.definition is not None else "generic"


class Ancestor(msgspec.Struct, frozen=True, array_like=True):
    """A log whose records a fork inherits, up to offset `through` (exclusive)."""

    log_id: str
    incarnation: int
    through: int


class ForkSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a fork was asked to branch from, as asked: an equal request is an idempotent repeat."""

    name: str
    log_id: str
    offset: int | None = None
    sub_offset: int = 0
    own_expiry: bool = False  # it was asked with an expiry; else it inherited the source's


class Companion(msgspec.Struct, frozen=True, array_like=True):
    """Another log of a name, by its role: a queue's leases, say."""

    role: str
    log_id: str
    content_type: str


class LogConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """What never changes about a log. It is in its first entry, its catalog row and its `log.json`.

    A name has a main log, and perhaps companions: they begin with it, in one commit, and end with it. So a catalog row that
    holds the main log's configuration names all logs of the name.

    Attributes:
        incarnation: rises each time the name is created again; fences older cursors. A recovery raises it further,
            in the state: `incarnation_of` has the one in force.
        lineage: for a fork, the logs that it inherits from, oldest first.
        ttl_ms, expires_at_ms: sliding and absolute expiry; at most one.
        definition: for a fork, what it begins with; what is in force is in the state. Inherited records need it, and
            they can be published before the fork is.
        companions: of a main log, the other logs of its name, each with a role of its own.
        role, main: of a companion, what it is to its name, and the id of the main log; empty for a main log.
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
        """What people call the log."""
        return f"{self.name} ({self.role})" if self.role else self.name

    @property
    def base_offset(self) -> int:
        """Offset of the first record that the log itself holds."""
        return self.lineage[-1].through if self.lineage else 0


def incarnation_of(config: LogConfig, state: LogState) -> int:
    """Returns the incarnation in force: the configuration's, or what the last recovery raised it to."""
    return state.recoveries[-1].incarnation if state.recoveries else config.incarnation


class TimeRun(msgspec.Struct, frozen=True, array_like=True):
    """`count` consecutive records with one append time."""

    count: int
    time_ms: int


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One item of the write-ahead log: a batch of records, or a control entry, and the state after it.

    Attributes:
        kind: the log itself writes create, data, fork, unfork, release, delete, expire, recover and define; surfaces
            have kinds of their own.
        slot: its place; `count` records are at offsets from `offset` on.
        prev_slot, prev_id: place and first request id of its predecessor (-1 and "" for the first). The id tells the
            predecessor from a dead item that a late writer put into a slot already trimmed.
        payload, payload_key: compressed frames, or the key of the object that holds them; neither without records.
        times: append times of the records.
        request_ids: the requests that this entry answers; the first is the entry's identity.
        committed_ms: the server's clock at the commit; ages and trimming use it, never a client's hint.
        config: in the first entry only.
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
    count: int = 0
    payload: bytes | None = None
    payload_key: str | None = None
    times: tuple[TimeRun, ...] = ()
    config: LogConfig | None = None

    @property
    def id(self) -> str:
        """The entry's identity."""
        return self.request_ids[0]

    @property
    def offset(self) -> int:
        """Offset of its first record (of the next record, for a control entry)."""
        return offsets.offset_of_slot(self.slot)

    @property
    def next_offset(self) -> int:
        """Offset after its last record."""
        return self.offset + self.count

    def next_slot(self, *, deleting: bool = False) -> int:
        """Returns the slot of the entry after it."""
        return offsets.following_slot(self.slot, self.count, deleting=deleting)
