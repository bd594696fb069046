"""Queues whose logs are sealed, trimmed, swept and recovered: what was acked stays done, and every job is somewhere."""

from __future__ import annotations

from typing import Any

import pytest

from functions.queue import MemoryQueue
from functions.sealer.context import Context, assemble
from functions.sealer.seal import seal
from functions.sealer.trim import sweep_orphans, trim
from headrace.batch import Record
from headrace.errors import Overloaded
from headrace.log.seam import Look
from headrace.memory import memory_stores
from headrace.objects import keys
from headrace.queues import events, ledger, verbs
from headrace.queues.ledger import KEPT_MS, MAX_EVENTS, Points
from headrace.queues.values import SettleRequest
from headrace.recovery.recover import recover
from headrace.recovery.verify import verify_all
from headrace.surfaces import find_dead
from headrace.tables.catalog import Row
from headrace.topics.values import LEASES, DiffRequest, Match
from tests.support.clocks import ManualClock
from tests.unit.queues.world import Process, World, seqs

SETTINGS = {"seal_records": 10, "seal_bytes": 2000, "trim_age_ms": 600_000}


def publish(process: Process, parts: Context, *, is_trimmed: bool = True) -> None:
    """Seals both logs, and trims them when they are old enough."""
    for which in ("q", ("q", LEASES)):
        seal(parts, process.queues.head(which).log_id, force=True)
    if is_trimmed:
        process.clock.advance(SETTINGS["trim_age_ms"] / 1000 + 1)
        for which in ("q", ("q", LEASES)):
            log_id = process.queues.head(which).log_id
            trim(parts, log_id)
            sweep_orphans(parts, log_id)


def snapshots(process: Process) -> list[str]:
    """Returns the keys of the snapshots that are in the bucket."""
    return [key for key in process.stores.objects.list("") if "/snapshots/" in key]


@pytest.mark.parametrize("workers", [2, 80])
def test_sealed_and_trimmed_logs_forget_nothing(workers: int) -> None:
    """With a projection in the state, and with one in a snapshot and the events after it."""
    world, clock = World(**SETTINGS), ManualClock()
    process = world.process(clock)
    parts = assemble(process.stores, MemoryQueue())
    process.create(jobs=400, lease_ms=86_400_000)
    for number in range(workers):
        process.claim(f"worker-{number}", 3)
        process.ack(f"worker-{number}", 3 * number + 2)
    assert bool(snapshots(process)) == (workers > 2)
    publish(process, parts)
    cold = world.process(clock)
    assert cold.counts() == (400 - 3 * workers, 2 * workers, 0, 400 - workers)
    assert cold.ack("worker-1", 4, 5, 6).done == (4, 6)
    assert seqs(cold.claim("other", 2)) == [3 * workers + 1, 3 * workers + 2]
    page = cold.queues.diff("q", DiffRequest(0, limit=4))
    assert [record.offset + 1 for record in page.records] == [1, 3, 7, 9] if workers > 2 else [1, 3, 7, 8]
    publish(cold, parts)
    assert world.process(clock).counts() == (400 - 3 * workers - 2, 2 * workers, 0, 400 - workers - 2)


def test_old_snapshots_are_swept_and_the_one_in_use_is_kept() -> None:
    world, clock = World(**SETTINGS), ManualClock()
    process = world.process(clock)
    parts = assemble(process.stores, MemoryQueue())
    process.create(jobs=200, lease_ms=86_400_000)
    for number in range(40):
        process.claim(f"worker-{number}", 3)
    for number in range(2 * MAX_EVENTS):
        process.queues.extend("q", SettleRequest("worker-1", (4,), lease_ms=80_000_000 + number))
    before = snapshots(process)
    assert len(before) == 3
    for _ in range(3):
        process.queues.extend("q", SettleRequest("worker-1", (4,), lease_ms=86_400_000))
        publish(process, parts)
    assert snapshots(process) == before[1:], "the newest entry names the last one, a manifest the one before"
    assert world.process(clock).counts() == (80, 120, 0, 200)


def test_a_cold_process_folds_few_bytes_after_a_large_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "_ERASED_RUNS", 100)
    monkeypatch.setattr(ledger, "MAX_BYTES", 5_000)
    world, folded = World(), 0
    process = world.process()
    process.create()
    for _ in range(20):
        process.produce(*[b"1"] * 1000, key=["odd", "even"] * 500)
    assert process.queues.erase("q", None, Match("odd")).deleted == 10_000
    written = [len(process.stores.objects.get(key)) for key in snapshots(process)]

    def decode(data: bytes, where: str) -> events.AnyEvent:
        nonlocal folded
        folded += len(data)
        return decode_event(data, where)

    decode_event = events.decode
    monkeypatch.setattr(events, "decode", decode)
    assert world.process().counts() == (10_000, 0, 0, 10_000)
    assert 0 < folded <= max(written)
    assert max(written) > 5_000, "the delete is large enough to tell"
    assert len(written) < 20, "not one for each of 100 events"


def test_a_queue_that_is_recovered_from_the_bucket_has_every_job_that_was_not_acked() -> None:
    for workers in (2, 80):
        world, clock = World(**SETTINGS), ManualClock()
        process = world.process(clock)
        process.create(jobs=300, lease_ms=86_400_000)
        for number in range(workers):
            process.claim(f"worker-{number}", 3)
            process.ack(f"worker-{number}", 3 * number + 1)
        publish(process, assemble(process.stores, MemoryQueue()), is_trimmed=False)
        process.produce(b"lost", b"lost")
        process.claim("late", 4)
        process.ack("late", 3 * workers + 1)
        world.stores = memory_stores(
            world.stores.settings, clock, objects=world.stores.objects, surfaces=world.stores.surfaces
        )
        clock.advance(1)
        recover(world.stores)
        after = world.process(clock)
        assert after.counts() == (300 - 3 * workers, 2 * workers, 0, 300 - workers)
        assert after.ack("worker-0", 1, 2).done == (2,), "what was acked stays done, what was leased stays leased"
        assert after.ack("late", 3 * workers + 1).skipped, "a lost lease is no lease"
        got = seqs(after.claim("other", 1000))
        assert got == list(range(3 * workers + 1, 301)), "a job whose ack was lost is there again"
        after.produce(b"new")
        assert [job.record.data for job in after.claim("other", 2).jobs] == [b"new"]


def test_a_process_that_saw_what_a_recovery_took_back_decides_on_what_is_left() -> None:
    world, clock = World(**SETTINGS), ManualClock()
    process = world.process(clock)
    process.create(jobs=300, lease_ms=86_400_000)
    for number in range(80):
        process.claim(f"worker-{number}", 3)
    publish(process, assemble(process.stores, MemoryQueue()), is_trimmed=False)
    process.ack("worker-0", 1, 2, 3)
    process.claim("late", 9)
    seen = process.queues._queues.points
    world.stores = memory_stores(
        world.stores.settings, clock, objects=world.stores.objects, surfaces=world.stores.surfaces
    )
    recover(world.stores)
    after = world.process(clock)
    after.queues._queues.points = seen  # as if the tables were restored under a running process
    assert after.counts() == (60, 240, 0, 300)
    assert after.ack("worker-0", 1, 2, 3).done == (1, 2, 3)
    assert seqs(after.claim("other", 2)) == [241, 242]


@pytest.mark.parametrize("workers", [2, 80])
def test_old_events_leave_the_lease_log(workers: int) -> None:
    """With a projection in the state, and with one in a snapshot and the events after it."""
    world, clock = World(**SETTINGS, merge_retire_ms=0), ManualClock()
    process, reader = world.process(clock), world.process(clock)
    parts = assemble(process.stores, MemoryQueue())
    process.create(jobs=400, lease_ms=86_400_000)
    for number in range(workers):
        process.claim(f"worker-{number}", 3)
        process.ack(f"worker-{number}", 3 * number + 2)
    reader.counts()  # it knows a projection whose events go
    for _ in range(4):
        clock.advance(KEPT_MS / 1000)
        held = seqs(process.claim("again", 1))
        for number in range(MAX_EVENTS):
            process.queues.extend("q", SettleRequest("again", tuple(held), lease_ms=80_000_000 + number))
        publish(process, parts)
        publish(process, parts)
    leases = process.queues.head(("q", LEASES))
    manifest = parts.manifests.newest(leases.log_id, None, 0)
    assert manifest is not None
    assert 0 < manifest.begin_offset <= leases.state.floor < leases.state.next_offset - MAX_EVENTS
    standing = [key for key in process.stores.objects.list(keys.segments(leases.log_id)) if key.endswith(".parquet")]
    assert len(standing) <= manifest.segment_count - manifest.begin_number
    assert verify_all(process.stores).findings == ()
    expected = process.counts()
    assert reader.counts() == world.process(clock).counts() == expected
    world.stores = memory_stores(
        world.stores.settings, clock, objects=world.stores.objects, surfaces=world.stores.surfaces
    )
    clock.advance(1)
    recover(world.stores)
    assert world.process(clock).counts() == expected


def test_events_that_a_picture_needs_and_that_are_dropped_do_not_stop_its_process() -> None:
    world, clock = World(**SETTINGS), ManualClock()
    process = world.process(clock)
    process.create(jobs=300, lease_ms=86_400_000)
    for number in range(80):
        process.claim(f"worker-{number}", 3)
    leases = process.queues.head(("q", LEASES))
    look = Look(Row(leases.log_id, leases.config), leases.state)

    class Dropped:
        def page(self, row: Row, position: int, max_records: int, max_bytes: int) -> list[Record]:
            return process.queues._context.page(
                row, max(position, 70), max_records - max(0, 70 - position), max_bytes
            )

        def object(self, key: str, decode: Any) -> Any:
            return process.queues._context.object(key, decode)

    rows: Any = Dropped()
    with pytest.raises(Overloaded, match="dropped"):
        Points().load(look, rows)


@pytest.mark.parametrize("ttl_ms", [0, 36_000_000])
def test_nothing_is_scrubbed_that_a_raised_ttl_keeps(ttl_ms: int) -> None:
    world = World(**SETTINGS)
    process = world.process()
    parts = assemble(process.stores, MemoryQueue())
    process.create(jobs=3, ttl_ms=3_600_000)
    written_ms = process.clock.now_ms()
    publish(process, parts, is_trimmed=False)
    process.clock.advance(1_800)
    process.create(ttl_ms=ttl_ms)
    process.clock.advance(2 * 3_600)  # the sealer does not run
    assert len(process.queues.diff("q", DiffRequest(0)).records) == 3
    manifest = parts.manifests.newest(process.queues.head("q").log_id, None, 0)
    assert manifest is not None
    dead = find_dead(process.stores)(manifest, process.clock.now_ms())
    assert dead.expired_ms is None or dead.expired_ms <= written_ms
