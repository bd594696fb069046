"""The values in the golden files."""

from __future__ import annotations

from headrace.batch import Batch
from headrace.log.marks import Mark
from headrace.manifest.manifest import Description, Tombstone
from headrace.queues.events import Join
from headrace.queues.ledger import Base, LeaseState, Saved
from headrace.streams.values import StreamState
from headrace.tables.catalog import Row
from headrace.topics.values import RemovedRef, TopicConfig, TopicState
from headrace.wal.state import (
    Ancestor,
    Companion,
    DefinitionRef,
    Entry,
    ForkSource,
    LogConfig,
    LogState,
    Producer,
    Recovery,
    TimeRun,
)

LOG = "0123456789abcdef" * 2
SOURCE_LOG = "f" * 32
START_MS = 1_700_000_000_000

RECORDS = Batch.of([b"first", b"", bytes(range(256)), b'{"n": 1.0}'], key=[None, "orders", "é", ""])
# Every column, a list.
LISTED = Batch.of([b"a", b"bc"], key=["k", None], node=[None, "né"], meta=[b'{"a":1}', None], hops=[0, 3])
# Every column, constant.
CONSTANT = Batch.of([b"a", b"bc"], key="k", node="n", meta=b"{}", hops=2)

# Every field is in use, none has its default.
CONFIG = LogConfig(
    surface="streams",
    name="a/é",
    incarnation=3,
    content_type="application/json",
    created_ms=START_MS,
    ttl_ms=60_000,
    expires_at_ms=START_MS + 1,
    lineage=(Ancestor(SOURCE_LOG, 1, 7),),
    source=ForkSource("orders", SOURCE_LOG, offset=7, sub_offset=2, own_expiry=True),
)
STATE = LogState(
    next_offset=74,
    append_time_ms=START_MS + 3,
    touched_ms=START_MS + 4,
    total_bytes=277,
    ended="deleted",
    forks=2,
    holds_source=True,
    producers=(Producer("é", 0, 0), Producer("p", 1, 2)),
    producers_spilled=True,
    recoveries=(Recovery(70, 5),),
    definition=DefinitionRef(3, "n1", 2, "evlog"),
    extension=StreamState("s1", closed=True),
)
TOPIC_STATE = LogState(
    next_offset=90,
    append_time_ms=START_MS + 3,
    floor=7,
    extension=TopicState(
        config=TopicConfig(
            type="queue",
            ttl_ms=1,
            cap_records=2,
            cap_bytes=3,
            discard="reject",
            durability="fsync",
            priority=-4,
            auto_priority=False,
            auto_create=False,
            idempotency_window_ms=5,
            dedupe_node=False,
            lease_ms=100,
            claim_jitter_ms=6,
            max_deliveries=7,
            dead_letter="é",
            leases_durable=True,
        ),
        evict_floor=5,
        cause="mixed",
        live=70,
        bytes=700,
        removed=(8, 9, 12, 20),
        base=RemovedRef(3, "n1", 4, 40),
        marks=(Mark(50, START_MS, 30, 300), Mark(90, START_MS + 3, 40, 400)),
    ),
)
JOIN = Join(at=START_MS + 1, id="j1", node="a", max=2, lease_ms=100, max_bytes=9, closes=START_MS + 5)
PROJECTION = Saved(
    incarnation=1,
    time_ms=START_MS + 3,
    front=7,
    cursor=20,
    acked=8,
    dead=1,
    done=(9, 10, 12, 14),
    grants=(
        ("c1", "a", "", START_MS + 100, 1, START_MS, (7, 9)),
        ("c2", "é", "s1", START_MS + 200, 2, START_MS + 2, (10, 12)),
    ),
    back=((0, 1, (14, 15)), (START_MS + 50, 3, (15, 20))),
    joins=(JOIN,),
)
LEASE_STATE = LogState(
    next_offset=5,
    append_time_ms=START_MS + 3,
    extension=LeaseState(digest="ab12", front=7, projection=PROJECTION, base=Base(4, "n1", 2**20)),
)
ENTRY = Entry(
    log_id=LOG,
    slot=70 * 10**9,
    kind="create",
    state=STATE,
    request_ids=("req-00000001", "req-00000002"),
    committed_ms=START_MS + 5,
    prev_slot=69 * 10**9 + 4,
    prev_id="req-00000000",
    prev_committed_ms=START_MS,
    count=4,
    payload=b"the payload",
    times=(TimeRun(3, START_MS + 2), TimeRun(1, START_MS + 3)),
    config=CONFIG,
)
CONTROL = Entry(
    log_id=LOG, slot=74 * 10**9, kind="close", state=LogState(), request_ids=("req-00000003",), committed_ms=START_MS
)
SPILLED = Entry(
    log_id=LOG,
    slot=74 * 10**9 + 1,
    kind="data",
    state=LogState(next_offset=75),
    request_ids=("req-00000004",),
    committed_ms=START_MS,
    count=1,
    payload_key="logs/the-payload",
    times=(TimeRun(1, START_MS),),
)
ROW = Row(LOG, CONFIG, ended=True, deadline_ms=START_MS + 60_000)
LIVING_ROW = Row(LOG, LogConfig("streams", "orders", 0, "text/plain", START_MS))
PAIR_ROW = Row(
    LOG,
    LogConfig(
        "queues", "jobs", 2, "application/json", START_MS, companions=(Companion("leases", "e" * 32, "text/plain"),)
    ),
)
DESCRIPTION = Description(LOG, CONFIG)
COMPANION = Description(PAIR_ROW.companions[0].log_id, PAIR_ROW.companions[0].config)
TOMBSTONE = Tombstone(LOG, CONFIG, "deleted", 42)
