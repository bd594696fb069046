"""Races of queues between two processes, or between the two reads of one call."""

from __future__ import annotations

import msgspec
import pytest

from headrace.errors import OutcomeUnknown, Overloaded, StoreThrottled
from headrace.queues import verbs
from headrace.queues.ledger import MAX_EVENTS
from headrace.queues.values import SettleRequest
from headrace.topics.errors import TopicNotFound
from headrace.topics.values import DiffRequest, Gap, Match, TopicConfig
from tests.support.clocks import ManualClock
from tests.support.faults import CountedEntries
from tests.unit.queues.world import Process, World, seqs


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


def test_a_claim_of_a_process_that_knows_the_newest_leases_follows_the_newest_configuration() -> None:
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(jobs=9, lease_ms=1_000)
    two.claim("b")
    for lease_ms in (60_000, 90_000):
        one.queues.put("q", TopicConfig(type="queue", lease_ms=lease_ms))
        two.queues.leases("q", "b")
        (job,) = two.claim("b").jobs
        assert job.deadline_ms == clock.now_ms() + lease_ms


def test_a_claim_after_a_put_gets_no_job_that_the_new_cap_has_taken() -> None:
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(jobs=9)
    two.claim("b")
    one.queues.put("q", TopicConfig(type="queue", cap_records=2))
    two.queues.leases("q", "b")
    one.produce(b"10")
    assert seqs(two.claim("b")) == [9]


def test_a_claim_after_a_put_gets_no_job_whose_new_ttl_is_over() -> None:
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(jobs=3)
    two.claim("b")
    clock.sleep(10)
    one.queues.put("q", TopicConfig(type="queue", ttl_ms=1_000))
    two.queues.leases("q", "b")
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


def test_a_delete_does_not_touch_the_jobs_of_the_next_queue_of_the_name() -> None:
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(jobs=2)

    def create_anew() -> None:
        two.queues.remove("q")
        two.create(jobs=3)

    one.wal.on("commit", create_anew)
    assert one.queues.erase("q", 10, None) == (0, 3, 1, 3, 21)
    assert seqs(two.claim("b", 9)) == [1, 2, 3]


def test_a_view_joins_no_jobs_with_the_leases_of_the_next_queue_of_the_name() -> None:
    world, clock = World(), ManualClock()
    one, reader = world.process(clock), world.process(clock)
    one.create(jobs=2)

    def create_anew() -> None:
        one.queues.remove("q")
        one.create(jobs=5)
        one.claim("a", 1)

    reader.wal.on("newest", create_anew, after=True)  # between its looks at the two logs
    with pytest.raises(TopicNotFound):
        reader.counts()
    assert reader.counts() == (4, 1, 0, 5)


def test_a_claim_that_lost_its_slot_takes_other_jobs() -> None:
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(jobs=4)
    one.claim("a", 1)
    two.wal.on("commit", lambda: one.claim("a", 1))
    assert seqs(two.claim("b", 2)) == [3, 4]


def test_a_claim_whose_answer_is_lost_is_one_claim() -> None:
    process = World().process()
    process.create(jobs=4)
    process.wal.fail("commit", after=True)
    assert seqs(process.claim("a", 2)) == [1, 2]
    assert process.counts() == (2, 2, 0, 4)


def test_a_crash_around_a_snapshot_leaves_a_queue_that_folds() -> None:
    world, clock = World(), ManualClock()
    one = world.process(clock)
    one.create(jobs=400)
    for number in range(60):
        one.claim(f"worker-{number}", 3)
    state, records = one.leases()
    assert state.projection is None and state.base is not None
    for number in range(MAX_EVENTS - (len(records) - state.base.offset)):
        one.queues.extend("q", SettleRequest("worker-1", (4,), lease_ms=40_000 + number))
    state, records = one.leases()
    assert state.base is not None and len(records) - state.base.offset == MAX_EVENTS
    before = one.folded()
    # The object is written, and the process dies before the entry.
    one.wal.fail("commit", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        one.ack("worker-1", 4)
    keys = list(world.stores.objects.list(""))
    two = world.process(clock)
    assert two.folded() == before
    assert two.counts() == (220, 180, 0, 400)
    assert two.ack("worker-1", 4).done == (4,)
    assert len(list(world.stores.objects.list(""))) == len(keys) + 1
    state, records = two.leases()
    assert state.base is not None and state.base.offset == len(records)
    # The process dies before the object is written: then no entry names it.
    three = world.process(clock)
    for number in range(MAX_EVENTS):
        three.queues.extend("q", SettleRequest("worker-2", (7,), lease_ms=40_000 + number))
    three.objects.fail("put", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        three.ack("worker-2", 7)
    assert world.process(clock).ack("worker-2", 7, 8).done == (7, 8)
    assert world.process(clock).counts() == (220, 177, 0, 397)
