"""The promise that deleted and expired records are gone from the bucket, its old versions and the indexes, in the time that
docs/guarantees.md states: on a bucket that keeps versions, nothing in any object tells of them.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Iterable
from typing import Protocol

import pyarrow.parquet as pq
import pytest
import zstandard

from functions.indexer.context import assemble as assemble_indexer
from functions.indexer.look import audit as audit_indexes
from functions.indexer.retire import sweep_orphans as sweep_index_orphans
from functions.queue import MemoryQueue
from functions.sealer.audit import audit as audit_logs
from functions.sealer.context import assemble as assemble_sealer
from functions.sealer.seal import seal
from functions.sealer.trim import sweep_orphans, trim
from headrace.batch import Batch
from headrace.index.job import Task
from headrace.log.join import read_payload
from headrace.objects import Objects
from headrace.objects.memory import MemoryObjects
from headrace.queues.values import ClaimRequest, SettleRequest
from headrace.queues.verbs import Queues
from headrace.settings import Settings
from headrace.streams.values import STREAMS
from headrace.topics.values import TOPICS, DiffRequest, Match, TopicConfig, WriteRequest
from tests.support import index_runs
from tests.support.clocks import ManualClock
from tests.unit.indexer.world import World

SETTINGS = Settings(seal_records=30, seal_bytes=100_000, index_segments=2, compact_fanout=2, spill_bytes=600)
DAY_S = 24 * 3600
SCRUBBED_DAYS = 17  # docs/guarantees.md
SECRETS = (b"secret-data", b"secret-tag", b"secret-node", b"secret-meta")


class Bucket(Objects, Protocol):
    """A bucket that keeps old versions of objects, and forgets them by its lifecycle rule."""

    version_days: int

    def forget(self) -> None:
        """Applies the lifecycle rule."""

    def current(self) -> Iterable[tuple[str, bytes]]:
        """Yields each object, with its key."""

    def everything(self) -> Iterable[tuple[str, bytes]]:
        """Yields each object and each old version that exists, with its key."""


class VersionedObjects(MemoryObjects):
    """A `Bucket` in memory."""

    version_days = 7  # `noncurrent_version_days` of the environment dev

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock
        self.old: list[tuple[int, bytes, str]] = []

    def put(self, key: str, data: bytes) -> None:
        """Keeps what is overwritten."""
        self._keep([key])
        super().put(key, data)

    def delete(self, keys: Iterable[str]) -> None:
        """Keeps what is deleted."""
        chosen = list(keys)
        self._keep(chosen)
        super().delete(chosen)

    def _keep(self, keys: Iterable[str]) -> None:
        held = [key for key in keys if key in self._objects]
        self.old += [(self._clock.now_ms(), self._objects[key], key) for key in held]

    def forget(self) -> None:
        """Applies the lifecycle rule."""
        kept_ms = self._clock.now_ms() - self.version_days * DAY_S * 1000
        self.old = [one for one in self.old if one[0] > kept_ms]

    def current(self) -> Iterable[tuple[str, bytes]]:
        """Yields each object, with its key."""
        return self._objects.items()

    def everything(self) -> Iterable[tuple[str, bytes]]:
        """Yields each object and each old version that exists, with its key."""
        yield from self.current()
        yield from ((key, data) for _, data, key in self.old)


class Topic(World):
    """A topic in a deployment whose job runs do real work, and whose audits come every day."""

    def __init__(self, bucket: Callable[[ManualClock], Bucket] = VersionedObjects, **config: object) -> None:
        super().__init__(SETTINGS)
        self.objects = self.bucket = bucket(self.clock)
        self.stores = dataclasses.replace(self.stores, objects=self.bucket, surfaces=(STREAMS, TOPICS))
        self.parts = assemble_sealer(self.stores, self.queue)
        self.wakes = MemoryQueue()
        self.indexer = assemble_indexer(self.stores, self.jobs, self.runs, self.wakes)
        self.topics = Queues(self.stores)
        self.topics.put("t", TopicConfig(**config))  # type: ignore[arg-type]
        self.log_ids = [one.log_id for one in self.topics.list(limit=1)[0].logs]

    def _make(self, objects: Objects, task: Task, created_ms: int) -> None:
        index_runs.make(objects, [task])

    def write(self, *, secret: bool, count: int = 10) -> None:
        """Appends records, and has them sealed and indexed."""
        word = b"secret" if secret else b"public"
        names = [f"{word.decode()}-tag-{number}" for number in range(count)]
        records = Batch.of(
            [b'{"text": "%b-data-%d"}' % (word, number) + b" " * (400 * secret) for number in range(count)],
            key=names,
            node=f"{word.decode()}-node",
            meta=b'{"m": "%b-meta"}' % word,
        )
        self.topics.append("t", WriteRequest(records=records))
        self.process()

    def process(self) -> None:
        """What messages would cause."""
        for log_id in self.log_ids:
            seal(self.parts, log_id, force=True)
        self.clock.advance(SETTINGS.trim_age_ms / 1000 + 1)
        for log_id in self.log_ids:
            trim(self.parts, log_id)
        self.settle(*self.log_ids)

    def pass_day(self) -> None:
        """The audits of a day, and what they ask for."""
        self.clock.advance(DAY_S / 2)
        _, sent = self.audit(audit_logs, self.parts)
        for message in sent:
            if message.verb == "seal":
                seal(self.parts, message.log_id, force=True)
            elif message.verb == "trim":
                trim(self.parts, message.log_id)
            elif message.verb == "orphans":
                sweep_orphans(self.parts, message.log_id)
        _, sent = self.audit(audit_indexes, self.indexer)
        for message in sent:
            if message.verb == "orphans":
                sweep_index_orphans(self.indexer, message.log_id)
        self.settle()
        self.clock.advance(DAY_S / 2 - 12 * 360)
        self.bucket.forget()

    def telling(self, *, versions: bool = True) -> list[str]:
        """Returns the keys of objects, and old versions if wanted, that have any of the secrets in them."""
        found = self.bucket.everything() if versions else self.bucket.current()
        return sorted({key for key, data in found if any(secret in _plain(key, data) for secret in SECRETS)})

    def entries_tell(self) -> bool:
        """Returns whether an item of the write-ahead log has any of the secrets in it."""
        entries = [entry for log_id in self.log_ids for entry in self.entries(log_id)]
        records = [record for entry in entries for record in read_payload(self.stores, entry).records(0)]
        return any(secret in str(record).encode() for record in records for secret in SECRETS)

    def read(self) -> list[bytes]:
        """Returns the data that a reader gets."""
        return [one.data for one in self.topics.diff("t", DiffRequest(limit=1000)).records]


def _plain(key: str, data: bytes) -> bytes:
    """Returns all that an object holds, decompressed."""
    if key.endswith(".parquet"):
        return str(pq.read_table(io.BytesIO(data)).to_pydict()).encode()
    return zstandard.ZstdDecompressor().decompress(data) if key.endswith(".zst") or "/wal/" in key else data


def delete(world: Topic) -> None:
    assert world.topics.erase("t", None, Match("secret-", is_prefix=True)).deleted == 10


def acknowledge(world: Topic) -> None:
    claimed = world.topics.claim("t", ClaimRequest(node="w", max=10))
    assert [b"secret" in job.record.data for job in claimed.jobs] == [True] * 10
    assert (
        len(world.topics.ack("t", SettleRequest("w", tuple(job.record.offset + 1 for job in claimed.jobs))).done)
        == 10
    )


def check_goes(world: Topic, gone: Callable[[Topic], None], count: int) -> None:
    """Checks that ten records, which `gone` removes, leave bucket and tables in time, and that `count` others stay."""
    world.write(secret=True)
    world.write(secret=False, count=count)
    kept = world.read()[10:]
    assert any(key.endswith(".parquet") and "/index/" in key for key in world.telling()), "it is indexed"
    gone(world)
    world.process()
    for _ in range(SCRUBBED_DAYS):
        world.pass_day()
    assert world.telling(versions=False) == []
    assert not world.entries_tell()
    for _ in range(world.bucket.version_days + 1):
        world.pass_day()
    assert world.telling() == []
    assert world.read() == kept
    assert world.covered(world.log_ids[0]), "and all that lives is indexed again"


@pytest.mark.parametrize("count", [2, 10, 60], ids=["most", "half", "few"])
@pytest.mark.parametrize("gone", [delete, acknowledge], ids=["deleted", "done"])
def test_what_was_deleted_is_in_no_object_and_no_old_version_after_the_stated_time(
    gone: Callable[[Topic], None], count: int
) -> None:
    check_goes(Topic(type="queue" if gone is acknowledge else "log"), gone, count)


@pytest.mark.parametrize("gone", [delete, acknowledge], ids=["deleted", "done"])
def test_what_was_deleted_does_not_stay_in_the_newest_entry(gone: Callable[[Topic], None]) -> None:
    world = Topic(type="queue" if gone is acknowledge else "log")
    world.write(secret=True)
    assert world.entries_tell()
    gone(world)
    for _ in range(SCRUBBED_DAYS):
        world.pass_day()
    assert not world.entries_tell()
    assert world.telling(versions=False) == []
    assert world.read() == []
    assert world.topics.append("t", WriteRequest(records=Batch.of([b"1"]))).head_seq == 11


def test_what_expired_goes_even_if_nothing_is_ever_written_again() -> None:
    world = Topic(ttl_ms=3 * DAY_S * 1000)
    world.write(secret=True)
    world.write(secret=True)
    assert world.telling()
    for _ in range(3 + SCRUBBED_DAYS + world.bucket.version_days + 1):
        world.pass_day()
    assert world.telling() == []
    assert not world.entries_tell()
    assert world.read() == []


def test_what_lives_is_touched_by_nothing_of_this() -> None:
    world = Topic()
    world.write(secret=True)
    kept = world.read()
    for _ in range(10):
        world.pass_day()
    assert world.read() == kept
    assert world.telling(versions=False)


def test_what_was_lost_to_a_cap_leaves_the_indexes_as_soon_as_a_quarter_of_a_run_is_below_the_floor() -> None:
    world = Topic(cap_records=20)
    (log_id,) = world.log_ids
    world.write(secret=True)
    world.write(secret=False)
    assert [(run.first_offset, run.end_offset) for run in world.index(log_id).runs] == [(0, 20)]
    world.write(secret=False, count=4)
    assert world.topics.view("t").earliest_seq == 5
    assert [run.first_offset for run in world.index(log_id).runs] == [0, 20]
    world.write(secret=False, count=2)
    assert min(run.first_offset for run in world.index(log_id).runs) == 6, "the rest is built again from the floor"
    assert world.covered(log_id)
    for _ in range(3):
        world.write(secret=False)
    runs = world.index(log_id).runs
    assert min(run.end_offset for run in runs) > world.topics.view("t").earliest_seq - 1
    for _ in range(SCRUBBED_DAYS + world.bucket.version_days + 1):
        world.pass_day()
    assert world.telling() == []
    assert len(world.read()) == 20
    assert world.covered(log_id)
