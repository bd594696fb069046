"""Races of queues between two processes, or between the two reads of one call."""

from __future__ import annotations

import msgspec
import pytest

from headrace.queues import verbs
from headrace.topics.values import DiffRequest, Gap, Match
from tests.support.clocks import ManualClock
from tests.unit.queues.world import World, seqs


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


def test_a_claim_on_an_older_picture_gets_no_job_that_a_cap_has_taken() -> None:
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(jobs=4, cap_records=4)
    assert seqs(two.claim("b")) == [1]
    one.produce(b"5", b"6")
    assert seqs(two.claim("b")) == [3], "jobs 1 and 2 are gone"


def test_a_claim_after_a_view_gets_no_job_that_a_cap_has_taken() -> None:
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(jobs=4, cap_records=4)
    two.counts()
    one.produce(b"5", b"6")
    assert seqs(two.claim("b", 2)) == [3, 4]


def test_a_delete_of_many_scattered_jobs_is_many_small_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "_ERASED_RUNS", 2)
    process = World().process()
    process.create()
    process.produce(*[b"1"] * 20, key=["odd", "even"] * 10)
    process.claim("a", 3)
    erased = process.queues.erase("q", None, Match("odd"))
    assert (erased.deleted, erased.live, erased.earliest_seq) == (10, 10, 2)
    removals = [event for event in map(msgspec.json.decode, process.leases()[1]) if event["event"] == "remove"]
    assert [len(event["jobs"]) for event in removals] == [4] * 5
    assert process.counts() == (9, 1, 0, 10)
