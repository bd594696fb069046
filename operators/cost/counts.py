"""What each operation takes in AWS calls, billing units, bytes and CPU, as measured: the file `counts.json` as typed
values.

`python -m tests.cost` measures everything again and writes the file; a test checks that both are equal.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from headrace import decoding

FILE = Path(__file__).with_name("counts.json")
_READ_BYTES = 4096

Spent = Mapping[str, float]
"""What an operation takes: calls by name (`PutItem`, `get`, …), `read_units` and `write_units` of DynamoDB, bytes
(`get_bytes`, `put_bytes`).
"""


class Append(msgspec.Struct, frozen=True):
    """What a warm append of `batch` records takes: AWS calls by name, DynamoDB units and bytes in `spent`.
    `stored_bytes` is the size of its compressed payload, `item_bytes` that of its DynamoDB item.
    """

    record_bytes: int
    batch: int
    stored_bytes: int
    item_bytes: int
    spent: dict[str, float]

    @property
    def payload_bytes(self) -> int:
        """Returns the size of the records in bytes, uncompressed."""
        return self.record_bytes * self.batch

    @property
    def is_spilled(self) -> bool:
        """Returns whether the payload was stored in the bucket, so that the item holds only its key."""
        return "put" in self.spent


class Sealing(msgspec.Struct, frozen=True):
    """What it takes to seal `entries` entries into one segment: a look that finds nothing to do, the seal, the trim,
    and messages.
    """

    entries: int
    entry_bytes: int
    payload_bytes: int
    object_bytes: dict[str, int]
    manifest_bytes_of_each_segment: int
    messages: int
    look: dict[str, float]
    seal: dict[str, float]
    trim: dict[str, float]


class Page(msgspec.Struct, frozen=True):
    """What one page of a read takes when it comes from segments: AWS calls by name, DynamoDB units and bytes in
    `spent`.
    """

    records: int
    payload_bytes: int
    spent: dict[str, float]


class Query(msgspec.Struct, frozen=True):
    """What a query of one class takes on a million events with an opened index: milliseconds, GETs and bytes.
    `cold_wall_ms` is None if it was not measured.
    """

    wall_ms: float
    cpu_ms: float
    gets: int
    bytes: int
    cold_wall_ms: float | None = None


class IndexBuild(msgspec.Struct, frozen=True):
    """What it takes to index a number of events: CPU seconds to build runs and to merge them once, and the size of the
    index in bytes.
    """

    events: int
    event_bytes: int
    build_cpu_s: float
    compact_cpu_s: float
    bytes: int


class Printed(msgspec.Struct, frozen=True):
    """The measured figures that were read from the tables of docs/benchmarks.md, and the number of metrics that
    docs/operations.md names.
    """

    append_cpu_ms: float
    seal_mb_per_cpu_s: float
    replay_mb_per_cpu_s: float
    index: IndexBuild
    queries: dict[str, Query]
    metrics: int


class JobSize(msgspec.Struct, frozen=True):
    """The workers that a job run starts with: one driver and a number of executors, with the vCPUs and GB of memory of
    each.
    """

    driver_vcpus: float
    driver_gb: float
    executors: int
    executor_vcpus: float
    executor_gb: float


class Template(msgspec.Struct, frozen=True):
    """The numbers of a deployment's resources that cost money even without requests, and the sizes that their price
    depends on. An alarm is billed for each metric that it looks at: `alarm_metrics` counts these.
    """

    keys: int
    secrets: int
    alarm_metrics: int
    dashboards: int
    tables: int
    memory_mb: int
    webhook_memory_mb: int
    snapshots: int
    schedules_a_day: float
    queues_polled: int
    job: JobSize


class OwnMetrics(msgspec.Struct, frozen=True):
    """What it takes an api process to append to the metrics stream once, and to add to a log's counters of requests."""

    flush: dict[str, float]
    count: dict[str, float]
    indexed: bool


class Counts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All measured counts, as in `counts.json`.

    Attributes:
        sweep_idle, tick_idle, relay_idle: what the schedules of sealer, indexer and relay spend when there is nothing to
            do.
        idle_metrics: custom metrics that they write then.
        operations: what topics, queues, routers, watches, sockets and subscriptions spend for each operation.
        templates: what each preset of an environment deploys.
    """

    appends: list[Append]
    create: dict[str, float]
    append_cold: dict[str, float]
    read_tail_idle: dict[str, float]
    read_tail_new: dict[str, float]
    read_segment_cold: dict[str, float]
    read_segment: Page
    seal: Sealing
    seal_full: Sealing
    sweep_idle: dict[str, float]
    tick_idle: dict[str, float]
    relay_idle: dict[str, float]
    idle_metrics: list[str]
    operations: dict[str, dict[str, float]]
    index: dict[str, dict[str, float]]
    searches: dict[str, dict[str, float]]
    own_metrics: OwnMetrics
    printed: Printed
    templates: dict[str, Template]

    @property
    def item_overhead(self) -> int:
        """Returns the size in bytes of an entry's item without its payload."""
        return max(one.item_bytes - one.stored_bytes for one in self.appends if not one.is_spilled)

    @property
    def spilled_item(self) -> int:
        """Returns the size in bytes of an entry's item whose payload is in the bucket."""
        return max(one.item_bytes for one in self.appends if one.is_spilled)

    def stored(self, payload_bytes: float) -> float:
        """Estimates the compressed size of a payload: interpolated between measured sizes; beyond them, at the ratio of
        the nearest.
        """
        known = sorted({one.payload_bytes: one.stored_bytes for one in self.appends}.items())
        for (below, small), (above, large) in itertools.pairwise(known):
            if below <= payload_bytes <= above:
                return small + (large - small) * (payload_bytes - below) / (above - below)
        payload, size = known[0] if payload_bytes < known[0][0] else known[-1]
        return size * payload_bytes / payload

    @property
    def segment_ratio(self) -> float:
        """Returns the size of a full segment per byte of payload."""
        return self.seal_full.object_bytes["segment"] / self.seal_full.payload_bytes


def read_units(size: float) -> float:
    """Returns the DynamoDB read units of one consistent query that reads this many bytes: one for each 4,096 bytes, not
    rounded, and at least 1.
    """
    return max(1.0, size / _READ_BYTES)


@cache
def counted() -> Counts:
    """Loads the counts that come with Headrace."""
    return decoding.from_json(FILE.read_bytes(), Counts)
