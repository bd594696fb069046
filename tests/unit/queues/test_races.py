"""Races of queues between two processes, or between the two reads of one call."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from headrace.errors import OutcomeUnknown, Overloaded, StoreThrottled
from headrace.queues import verbs
from headrace.topics.values import DiffRequest, Gap, Match, TopicConfig
from tests.support.clocks import ManualClock
from tests.support.faults import CountedEntries
from tests.unit.queues.world import Process, World, seqs

# What a `/work` stream asks before it claims: the newest leases, and not the jobs log.
GLANCES: list[Callable[[Process], object]] = [
    lambda process: process.queues.leases("q", "b"),
    lambda process: process.queues.next_due_ms("q"),
]


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


@pytest.mark.parametrize("glance", GLANCES)
def test_a_claim_of_a_process_that_knows_the_newest_leases_follows_the_newest_configuration(
    glance: Callable[[Process], object],
) -> None:
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(jobs=9, lease_ms=1_000)
    two.claim("b")
    for lease_ms in (60_000, 90_000):
        one.queues.put("q", TopicConfig(type="queue", lease_ms=lease_ms))
        glance(two)
        (job,) = two.claim("b").jobs
        assert job.deadline_ms == clock.now_ms() + lease_ms


@pytest.mark.parametrize("glance", GLANCES)
def test_a_claim_after_a_put_gets_no_job_that_the_new_cap_has_taken(glance: Callable[[Process], object]) -> None:
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(jobs=9)
    two.claim("b")
    one.queues.put("q", TopicConfig(type="queue", cap_records=2))
    glance(two)
    one.produce(b"10")
    assert seqs(two.claim("b")) == [9]


@pytest.mark.parametrize("glance", GLANCES)
def test_a_claim_after_a_put_gets_no_job_whose_new_ttl_is_over(glance: Callable[[Process], object]) -> None:
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(jobs=3)
    two.claim("b")
    clock.sleep(10)
    one.queues.put("q", TopicConfig(type="queue", ttl_ms=1_000))
    glance(two)
    assert two.claim("b").jobs == []


def test_a_put_goes_on_though_others_come_between_its_reads() -> None:
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(jobs=1)

    def put(*caps: int, process: Process = two) -> None:
        for cap in caps:
            process.queues.put("q", TopicConfig(type="queue", cap_records=cap))

    one.wal.on("newest", lambda: put(7, 8), call=3)  # it has read the jobs log, but not the lease log yet
    put(9, process=one)
    assert one.queues.view("q", touch=False).config.cap_records == 9
    assert seqs(two.claim("b")) == [1]


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


def _contended() -> tuple[Process, Process]:
    """Returns two processes of which the first has just met the second at a queue with many jobs."""
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(jobs=100)
    for process in (one, two, one):
        process.claim("a")
    return one, two


def test_a_process_that_looks_first_reads_only_what_came_since() -> None:
    one, two = _contended()
    two.claim("a")
    one.wal.target = counted = CountedEntries(one.wal.target)
    assert (one.claim("a").tries, counted.entries) == (1, 1)


def test_a_process_that_looks_first_and_is_far_behind_looks_afresh_and_keeps_its_slot() -> None:
    one, two = _contended()
    for _ in range(70):
        two.claim("a")
    commits, looks = one.wal.calls["commit"], one.catalog.calls["get"]
    assert one.claim("a").tries == 1
    assert (one.wal.calls["commit"] - commits, one.catalog.calls["get"] - looks) == (1, 1)


def test_a_process_that_pauses_while_it_looks_believes_nothing_that_follows_its_picture() -> None:
    one, two = _contended()
    two.claim("a")
    one.wal.on("read", lambda: one.clock.advance(3600), after=True)
    looks = one.catalog.calls["get"]
    assert one.claim("a").tries == 1
    assert one.catalog.calls["get"] - looks == 1


def test_a_delete_that_ends_after_some_of_its_commits_may_have_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "_ERASED_RUNS", 2)
    process = World().process()
    process.create()
    process.produce(*[b"1"] * 20, key=["odd", "even"] * 10)
    process.wal.fail("commit", StoreThrottled, call=3, times=100)
    with pytest.raises(OutcomeUnknown):
        process.queues.erase("q", None, Match("odd"))
    with pytest.raises(Overloaded):
        process.queues.erase("q", None, Match("odd"))
    process.wal.heal()
    assert process.counts()[3] == 16
    assert process.queues.erase("q", None, Match("odd")).deleted == 6, "a repeat deletes and counts the rest"
