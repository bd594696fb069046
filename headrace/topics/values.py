"""The values of topics: names, configuration, the topic's part of a log's state, requests and answers.

The contract is the specification of `/v0`; sections are named as "§ 4". A seq is an offset plus one.
"""

from __future__ import annotations

import builtins
import re
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from headrace.batch import EMPTY, Batch, Record
from headrace.definition import COLUMNS, GENERIC
from headrace.errors import InvalidRequest
from headrace.log.marks import Mark
from headrace.objects import keys
from headrace.tables.counters import TOTAL_BYTES
from headrace.topics.removed import Root
from headrace.wal.extension import Extension
from headrace.wal.state import DefinitionRef, LogConfig, LogState

TOPICS = "topics"  # the surface of `/v0/…`
LEASES = "leases"  # the role of a queue's lease log
TIMINGS = DefinitionRef(0, "timings", 1, GENERIC)  # its definition: `headrace.queues.timings`

MAX_LIMIT = 1000  # records of a diff (§ 3)
DEFAULT_LIMIT = 256
MAX_CLAIM = 1000  # jobs of a claim, and seqs of an ack, nack, extend or delete (§ 10, § 11)
MAX_RECORDS = 10_000  # of one write (§ 2)
MAX_RECORD_BYTES = 1024 * 1024  # data and meta of one record
MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_META_BYTES = 16 * 1024
MAX_META_KEYS = 64
MAX_TAG_BYTES = 256
MAX_NODE_BYTES = 128
MAX_KEY_CHARACTERS = 256  # of an idempotency key
MAX_WAIT_MS = 30_000
DEFAULT_PAGE_BYTES = 1024 * 1024  # `max_batch_bytes` (§ 7.2, § 11)
MAX_PAGE_BYTES = 8 * 1024 * 1024
LEASE_MS = (100, 86_400_000)  # clamp of every lease, and of a nack's delay from above
MAX_JITTER_MS = 5000
MAX_HOPS = 8  # a record that routers have copied so often is copied no more (§ 6)
MAX_NUMBER = 2**63 - 1  # a seq is a u64 in the specification; a slot has room for less

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}\Z")

Kind = Literal["log", "queue"]
Durability = Literal["ephemeral", "memory", "disk", "fsync"]


def check_name(name: str) -> str:
    """Checks that a text can be the name of a topic (§ 1.1), and returns it. Raises InvalidRequest."""
    if not _NAME.match(name):
        raise InvalidRequest(
            "a topic name has 1 to 255 letters, digits and . _ : - and begins with a letter or digit"
        )
    return name


class TopicConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """A topic's configuration (§ 0.10). It may change, so it is part of the log's state, without the members that have
    their default. `durable` is not stored: it is `durability == "fsync"`.
    """

    type: Kind = "log"
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: Literal["old", "reject"] = "old"
    durability: Durability = "disk"
    priority: int | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: int = 120_000
    dedupe_node: bool = True
    lease_ms: int = 30_000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    leases_durable: bool = False

    @property
    def durable(self) -> bool:
        """Whether the durability class is `fsync`."""
        return self.durability == "fsync"


class Match(NamedTuple):
    """A condition on tags (§ 5): equal to `text` or, with `is_prefix`, beginning with it."""

    text: str
    is_prefix: bool = False

    def fits(self, tag: str | None) -> bool:
        """Returns whether a tag is as the condition says; a record without one never is."""
        return tag is not None and (tag.startswith(self.text) if self.is_prefix else tag == self.text)


class Routing(msgspec.Struct, frozen=True, omit_defaults=True):
    """What of a router may change (§ 6): which records it copies, and what of them.

    Attributes:
        filter: the condition on their tags; None for all records.
        exactly_once: whether copies are stamped with their origin. Each record is copied once in either case.
    """

    preserve_node: bool = True
    preserve_tag: bool = True
    filter: Match | None = None
    allow_cycle: bool = False
    exactly_once: bool = False

    def passes(self, record: Record) -> bool:
        """Returns whether the router copies a record."""
        return record.hops < MAX_HOPS and (self.filter is None or self.filter.fits(record.key))


class Feed(msgspec.Struct, frozen=True, array_like=True):
    """A router into a topic.

    Attributes:
        router: its name.
        id: tells it from an earlier one of that name.
        source, source_id: the topic whose records it copies, and the id of that topic's log.
        incarnation, offset: its cursor: the offset of the next record to copy, and the incarnation of the source when that
            was said.
        total: how many records it has copied.
    """

    router: str
    id: str
    source: str
    source_id: str
    incarnation: int
    offset: int
    total: int = 0
    routing: Routing = Routing()


class RemovedRef(msgspec.Struct, frozen=True, array_like=True):
    """A reference to the object that names the pages of removed records: `logs/<id>/dead/<number>-<nonce>…`, immutable.

    Attributes:
        number: one more than that of the object before. So a state that named an object always names one: by the number
            the orphan sweep knows which others can never be named any more.
        records: the number of records in its pages.
        end: the offset after the last of them.
    """

    number: int
    nonce: str
    records: int
    end: int


class TopicState(Extension, msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="topic"):
    """The topic's part of a log's state. `LogState.floor` has the offset of the first record that can live.

    Attributes:
        config: the configuration.
        evict_floor: the offset below which records were lost to a cap or a TTL; at most `LogState.floor`.
        cause: what moved `evict_floor`: cap, ttl or mixed; empty if nothing did.
        live, bytes: how many records live, and their bytes of data and meta.
        removed: records above the floor that were deleted, as runs `[first, end, first, end, …]`; the newest ones, if
            `base` has others.
        base: the object that names the pages with the others; None if there are none.
        marks: stretches of the log, ascending, from the floor on.
        reserved: bytes that it has reserved of the limit of all topics; 0 while there is none.
        configured: how often the configuration of a queue has changed.
        fed_by: the routers that copy records into it, all from one source.
        voids: offsets of removed records that stand for some that the source lost before they were copied; readers learn of
            them.
    """

    config: TopicConfig = TopicConfig()
    evict_floor: int = 0
    cause: Literal["", "cap", "ttl", "mixed", "source_trim"] = ""
    live: int = 0
    bytes: int = 0
    removed: tuple[int, ...] = ()
    base: RemovedRef | None = None
    marks: tuple[Mark, ...] = ()
    reserved: int = 0
    configured: int = 0
    fed_by: tuple[Feed, ...] = ()
    voids: tuple[int, ...] = ()

    @classmethod
    def begin(cls, config: LogConfig, state: LogState) -> LogState:
        """Returns the state of a topic whose own configuration is lost: it has the defaults, but a queue stays one; or the
        state of a lease log.
        """
        if config.surface != TOPICS:
            return state
        if config.role == LEASES:
            return replace(state, definition=TIMINGS)
        topic = TopicConfig(type="queue" if config.companions else "log")
        return replace(state, definition=COLUMNS, extension=TopicState(topic))

    @property
    def counted(self) -> tuple[tuple[str, int], ...]:
        """Returns the bytes that it has reserved."""
        return ((TOTAL_BYTES, self.reserved),) if self.reserved else ()

    @property
    def removes_records(self) -> bool:
        """Always: records can be deleted, and a queue's jobs are done."""
        return True

    def named_objects(self, log_id: str) -> tuple[str, ...]:
        """Returns the key of the object that names the pages of removed records, if there is one."""
        return (keys.removed(log_id, self.base.number, self.base.nonce),) if self.base is not None else ()

    def named_pages(self, key: str, data: builtins.bytes) -> tuple[str, ...]:
        """Returns the keys of those pages."""
        pages = Root.decode(data, key).pages
        return tuple(keys.removed_page(keys.log_of(key), page.number, page.nonce) for page in pages)


def topic_of(state: LogState) -> TopicState:
    """Returns the topic's part of a log's state."""
    return state.extension if isinstance(state.extension, TopicState) else TopicState()


class WriteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to append records (§ 2).

    Attributes:
        records: the records; their key is the tag. Never empty.
        key: the idempotency key; None without one.
        create: whether the write may create the topic; None means what `config` says of `auto_create`.
        config: the configuration of a topic that this write creates.
    """

    records: Batch = EMPTY
    key: str | None = None
    create: bool | None = None
    config: TopicConfig = TopicConfig()

    @property
    def size(self) -> int:
        """The bytes of data, plus the characters of tags."""
        return self.records.size


class Written(NamedTuple):
    """The answer to a write: the seqs `[first_seq, last_seq]` of its records, the newest seq of the topic, whether this
    write created the topic, and whether it was a repeat, so that nothing was appended. `durable` says whether the topic's
    durability class is `fsync`; `tries` is the number of commits.
    """

    first_seq: int
    last_seq: int
    head_seq: int
    created: bool = False
    deduped: bool = False
    durable: bool = False
    tries: int = 1


class Configured(NamedTuple):
    """The answer to a PUT: whether it created the topic, and the whole configuration."""

    created: bool
    config: TopicConfig


class QueueCounts(NamedTuple):
    """The counters of a queue (§ 10.7)."""

    ready: int
    in_flight: int
    dead_lettered: int


class TopicView(NamedTuple):
    """The state of a topic (§ 1.2) at one moment. `queue` is None for a log; times are None if never."""

    name: str
    config: TopicConfig
    head_seq: int
    earliest_seq: int
    live: int
    bytes: int
    effective_priority: int
    last_write_ts: int | None
    last_read_ts: int | None
    queue: QueueCounts | None = None


class Gap(NamedTuple):
    """A tombstone (§ 3.3): the seqs `[first, last]` were lost for a reason that the reader must learn."""

    first: int
    last: int
    reason: Literal["cap", "ttl", "mixed", "recreated", "source_trim"]
    missed_estimate: int


class DiffRequest(NamedTuple):
    """A read after a cursor (§ 3), clamped: the records after `from_seq`, at most `limit` and about `max_bytes`, without
    those that one of `nodes` wrote. `incarnation` is that of the cursor, as an earlier page told it; None if only the seq
    is known, as of all cursors that clients give.
    """

    from_seq: int = 0
    limit: int = DEFAULT_LIMIT
    nodes: frozenset[str] = frozenset()
    max_bytes: int = DEFAULT_PAGE_BYTES
    incarnation: int | None = None


class DiffPage(NamedTuple):
    """A page of records after a cursor. `examined` counts the records that were looked at, `next_seq` is the seq of the
    last one, or of the last that is gone. `incarnation` is that of the topic, to which all seqs belong.
    """

    records: list[Record]
    next_seq: int
    head_seq: int
    earliest_seq: int
    gap: Gap | None
    examined: int
    incarnation: int

    @property
    def caught_up(self) -> bool:
        """Whether nothing follows."""
        return self.next_seq == self.head_seq


class Extent(NamedTuple):
    """The seqs of a topic: the first one that lives (one above the newest if none does), and the newest; and the
    incarnation to which they belong.
    """

    earliest_seq: int
    head_seq: int
    incarnation: int


class Erased(NamedTuple):
    """The answer to a delete of records (§ 5): how many this call removed, and the topic afterwards."""

    deleted: int
    head_seq: int
    earliest_seq: int
    live: int
    bytes: int
