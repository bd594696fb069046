"""Races of queues between two processes, or between the two reads of one call."""

from __future__ import annotations

from headrace.topics.values import DiffRequest, Gap
from tests.support.clocks import ManualClock
from tests.unit.queues.world import World


def test_what_a_cap_takes_between_the_two_reads_of_a_diff_is_told() -> None:
    world, clock = World(), ManualClock()
    reader, other = world.process(clock), world.process(clock)
    reader.create(jobs=3, cap_records=3)

    def evict() -> None:
        other.produce(b"4", b"5")
        other.claim("b")

    reader.wal.on("newest", evict)
    page = reader.queues.diff("q", DiffRequest(0))
    assert (page.gap, [record.offset for record in page.records]) == (Gap(1, 2, "cap", 2), [2])


def test_what_the_ttl_takes_between_the_two_reads_of_a_diff_is_told() -> None:
    world, clock = World(), ManualClock()
    reader, other = world.process(clock), world.process(ManualClock())
    reader.create(jobs=3, ttl_ms=60_000)

    def expire() -> None:
        other.clock.sleep(60.001)
        other.produce(b"4")
        other.claim("b")

    reader.wal.on("newest", expire)
    page = reader.queues.diff("q", DiffRequest(0))
    assert (page.gap, page.records) == (Gap(1, 3, "ttl", 3), [])
