"""Jobs that wait for a dead-letter topic: what readers learn of them once they expire, and what tries in vain cost."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.queues import dead_letter
from headrace.topics.values import DiffRequest, Gap, TopicConfig
from tests.support.clocks import ManualClock
from tests.unit.queues.world import Process, World

CONFIG: dict[str, Any] = {"max_deliveries": 1, "dead_letter": "dead", "lease_ms": 1_000}


def expire_one() -> tuple[Process, Process]:
    """Returns a process that has passed over a dead job because its TTL was over, and another one whose clock is late."""
    world = World()
    process, late = world.process(ManualClock()), world.process(ManualClock())
    process.create(jobs=1, ttl_ms=60_000, **CONFIG)
    process.claim()
    process.clock.advance(61)
    assert (process.claim().jobs, process.counts()) == ([], (0, 0, 0, 0))
    return process, late


def test_a_reader_with_a_late_clock_learns_of_dead_jobs_that_have_expired() -> None:
    process, late = expire_one()
    assert process.leases()[0].lapsed == 1
    page = late.queues.diff("q", DiffRequest(0))
    assert (page.gap, page.records) == (Gap(1, 1, "ttl", 1), [])


def test_a_longer_ttl_does_not_hide_that_dead_jobs_have_expired() -> None:
    process, _ = expire_one()
    process.queues.put("q", TopicConfig(type="queue", ttl_ms=10**9, **CONFIG))
    page = process.queues.diff("q", DiffRequest(0))
    assert (page.gap, page.records) == (Gap(1, 1, "ttl", 1), [])


def test_jobs_without_room_hold_up_no_smaller_one_however_many_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter, "MOST", 2)
    process = World().process()
    process.create(**CONFIG)
    process.queues.put("dead", TopicConfig(cap_bytes=1_000, discard="reject"))
    process.produce(*[b'"%s"' % (b"x" * 2_000)] * 4, b"1", b'"%s"' % (b"y" * 2_000))
    process.claim(max=6)
    dead = []
    for _ in range(5):
        process.clock.advance(5)
        dead.append(process.claim().dead)
    assert dead == [0, 0, 1, 0, 0], "the fifth try begins at the first job again"
    process.queues.put("dead", TopicConfig())
    for _ in range(3):
        process.clock.advance(5)
        process.claim()
    assert process.counts() == (0, 0, 6, 0)


def test_claims_do_not_read_jobs_again_that_the_dead_letter_topic_does_not_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, clock = World(), ManualClock()
    process, cold = world.process(clock), world.process(clock)
    process.create(**CONFIG)
    process.queues.put("dead", TopicConfig(cap_records=1, discard="reject"))
    process.produce(b"1", name="dead")
    for _ in range(10):
        process.produce(*[b'"%s"' % (b"x" * 100_000)] * 10)
    assert len(process.claim(max=100, max_bytes=10**9).jobs) == 100
    clock.advance(2)
    reads = cold.queues._context.reads
    page, read = reads.page, 0

    def counted(*asked: Any) -> Any:
        nonlocal read
        records = page(*asked)
        read += sum(len(record.data) for record in records)
        return records

    monkeypatch.setattr(reads, "page", counted)
    cold.claim()
    first = read
    assert 0 < first < 5 * 2**20
    for _ in range(3):
        cold.claim()
    assert read == first, "not before the pause is over"
    clock.advance(5)
    cold.claim()
    assert first < read < 10 * 2**20
