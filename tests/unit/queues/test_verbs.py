"""Queues by name: what workers ask, over several processes with cold memories."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.clock import SystemClock
from headrace.errors import InvalidRequest, OutcomeUnknown, Overloaded, StoreThrottled
from headrace.queues import forget
from headrace.queues.values import ClaimRequest, SettleRequest
from headrace.topics.errors import BatchTooLarge, NotAQueue, TopicNotFound
from headrace.topics.values import LEASES, DiffRequest, Gap, Match, TopicConfig
from tests.support.clocks import ManualClock
from tests.unit.queues.world import World, seqs


def test_a_worker_claims_and_acks() -> None:
    process = World().process()
    process.create(jobs=3)
    claimed = process.claim("a", 2)
    assert [(job.record.data, job.deliveries) for job in claimed.jobs] == [(b'"job 0"', 1), (b'"job 1"', 1)]
    assert (claimed.ready, process.counts()) == (1, (1, 2, 0, 3))
    settled = process.ack("a", 1, 2, 3)
    assert (settled.done, settled.skipped, settled.ready, settled.in_flight) == ((1, 2), (3,), 1, 0)
    assert process.counts() == (1, 0, 0, 1)
    view = process.queues.view("q")
    assert (view.head_seq, view.earliest_seq) == (3, 3)


def test_another_process_sees_what_one_did() -> None:
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(jobs=4)
    assert seqs(two.claim("b", 2)) == [1, 2]
    assert seqs(one.claim("a", 1)) == [3]
    one.produce(b"1")
    assert seqs(two.claim("b", 2)) == [4, 5], "a claim sees every job that was written before it"
    assert one.ack("b", 1).done == (1,)
    assert two.ack("b", 1, 2).done == (2,)
    assert one.counts() == two.counts() == world.process(clock).counts() == (0, 3, 0, 3)


def test_a_claim_that_gets_less_than_it_asked_for_has_looked_at_the_end() -> None:
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(jobs=4)
    two.claim("b", 2)
    one.claim("a", 1)
    one.produce(b"1")
    assert seqs(two.claim("b", 2)) == [4, 5], "it knew of jobs 3 and 4 alone"


def test_a_claim_follows_the_newest_configuration_in_every_process() -> None:
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(jobs=9)
    for lease_ms in (30_000, 40_000, 50_000):
        assert seqs(two.claim("b", 1)), "it knows more jobs than the next claim asks for"
        one.queues.put("q", TopicConfig(type="queue", lease_ms=lease_ms))
        (job,) = two.claim("b", 1).jobs
        assert job.deadline_ms == clock.now_ms() + lease_ms
    before = one.queues.head(("q", LEASES)).state.next_offset
    one.queues.put("q", TopicConfig(type="queue", lease_ms=50_000))
    assert one.queues.head(("q", LEASES)).state.next_offset == before, "what changes nothing writes nothing"


def test_requests_to_what_is_no_queue() -> None:
    process = World().process()
    process.queues.put("log", TopicConfig())
    settle, queues = SettleRequest("a", (1,), lease_ms=100), process.queues
    for name, error in (("log", NotAQueue), ("none", TopicNotFound)):
        for ask in (
            lambda name: queues.claim(name, ClaimRequest("a")),
            lambda name: queues.ack(name, settle),
            lambda name: queues.nack(name, settle),
            lambda name: queues.extend(name, settle),
            lambda name: queues.release(name, "a", "s"),
            lambda name: queues.leases(name, "a"),
        ):
            with pytest.raises(error):
                ask(name)


def test_settlements_are_checked() -> None:
    process = World().process()
    process.create(jobs=1)
    with pytest.raises(InvalidRequest, match="lease_ids"):
        process.ack("a", 1, 2, lease_ids=("lease_1",))
    with pytest.raises(BatchTooLarge):
        process.ack("a", *range(1, 1002))
    assert process.ack("a").done == ()


def test_a_lease_ends_by_the_clock_alone() -> None:
    process = World().process()
    process.create(jobs=1, lease_ms=1_000)
    process.claim("a")
    now_ms = process.clock.now_ms()
    assert [(lease.seq, lease.deadline_ms) for lease in process.queues.leases("q", "a")] == [(1, now_ms + 1_000)]
    commits = process.wal.calls["commit"]
    process.clock.advance(1.001)
    assert process.counts() == (1, 0, 0, 1)
    assert process.queues.leases("q", "a") == []
    assert process.wal.calls["commit"] == commits, "nothing is written at a deadline"
    assert process.claim("b").jobs[0].deliveries == 2


def test_nack_extend_and_release() -> None:
    process = World().process()
    process.create(jobs=3)
    process.claim("a", 2, connection="s1")
    process.claim("a", 1)
    assert process.queues.nack("q", SettleRequest("a", (1,), delay_ms=500)).done == (1,)
    assert process.counts() == (0, 2, 0, 3)
    extended = process.queues.extend("q", SettleRequest("a", (2, 3), lease_ms=60_000))
    assert set(extended.deadlines) == {2, 3}
    assert {lease.connection for lease in process.queues.leases("q", "a")} == {"s1", ""}
    assert process.queues.release("q", "a", "s1") == 1
    assert process.counts() == (1, 1, 0, 3)


def test_readers_see_no_done_jobs() -> None:
    process = World().process()
    process.create(jobs=5)
    process.claim("a", 4)
    process.ack("a", 1, 2, 4)
    page = process.queues.diff("q", DiffRequest(0))
    assert [record.offset + 1 for record in page.records] == [3, 5]
    assert (page.next_seq, page.gap, page.earliest_seq) == (5, None, 3)


def test_deleted_jobs_are_in_no_claim_and_no_ack() -> None:
    process = World().process()
    process.create()
    process.produce(b"1", b"2", key="x")
    process.produce(b"3", b"4", key="y")
    process.claim("a", 1)
    erased = process.queues.erase("q", None, Match("x"))
    assert (erased.deleted, erased.live, erased.earliest_seq, erased.head_seq) == (2, 2, 3, 4)
    assert process.ack("a", 1).skipped == (1,)
    assert process.queues.erase("q", 4, None).deleted == 1
    assert process.queues.erase("q", 4, None).deleted == 0
    assert seqs(process.claim("b", 9)) == [4]
    assert process.counts() == (0, 1, 0, 1)


def test_a_delete_does_not_count_jobs_that_have_expired() -> None:
    process = World().process()
    process.create(jobs=2, ttl_ms=1_000)
    process.clock.advance(0.8)
    process.produce(b"new")
    process.clock.advance(0.3)
    assert process.queues.erase("q", 10, None) == (1, 3, 4, 0, 0)


def test_a_deleted_queue_takes_its_leases_with_it() -> None:
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(jobs=2)
    two.claim("b", 2)
    one.queues.remove("q")
    with pytest.raises(TopicNotFound):
        two.ack("b", 1)
    one.create(jobs=1)
    assert two.ack("b", 1).skipped == (1,)
    assert seqs(two.claim("b", 2)) == [1]


# Windows.


def test_a_claim_waits_for_the_window_and_shares() -> None:
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(jobs=6, claim_jitter_ms=50)
    begun = clock.now_ms()
    assert seqs(one.claim("a", 2)) == [1, 2]
    assert clock.now_ms() == begun + 50
    got: list[list[int]] = []
    second = world.process(clock)

    def meanwhile() -> None:
        got.append(seqs(second.claim("b", 2)))

    two.wal.on("commit", meanwhile, after=True)  # joins, and its window's end is that of the first
    got.append(seqs(two.claim("a", 2)))
    assert got == [[4, 6], [3, 5]]


def test_a_window_by_a_clock_that_is_behind_ends() -> None:
    world, clock = World(), ManualClock()
    ahead = ManualClock(clock.now_ms() + 1_000)
    one, two = world.process(clock), world.process(ahead)
    one.create(jobs=2, claim_jitter_ms=50)
    assert seqs(two.claim("b", 1)) == [1]
    assert seqs(one.claim("a", 1)) == [2]


# Failures and races.


def test_eight_threads_of_two_processes_share_the_jobs() -> None:
    world = World()
    processes = [world.process(SystemClock()) for _ in range(2)]
    processes[0].create(jobs=200)
    claimed: list[int] = []
    lock = threading.Lock()

    def work(number: int) -> None:
        process, node = processes[number % 2], f"w{number}"
        while True:
            try:
                mine = seqs(process.claim(node, 5))
            except Overloaded:
                continue
            if not mine:
                return
            with lock:
                claimed.extend(mine)
            while not set(mine) <= done:
                with lock:
                    pass
                try:
                    done.update(process.ack(node, *mine).done)
                except Overloaded:
                    continue

    done: set[int] = set()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert sorted(claimed) == list(range(1, 201)), "a job was claimed twice, or never"
    assert done == set(claimed)
    cold = world.process(SystemClock())
    assert cold.counts() == (0, 0, 0, 0)
    state, _ = cold.leases()
    assert state.front == 200
    assert cold.folded().acked == 200


def test_a_store_that_refuses_gives_overloaded() -> None:
    process = World().process()
    process.create(jobs=1)
    process.wal.fail("commit", StoreThrottled, times=float("inf"))
    with pytest.raises((Overloaded, OutcomeUnknown)):
        process.claim("a")
    process.wal.heal()
    assert seqs(process.claim("a")) == [1]


def test_caps_count_the_jobs_that_are_left() -> None:
    process = World().process()
    process.create(jobs=3, cap_records=3, discard="reject")
    with pytest.raises(Exception, match="full"):
        process.produce(b"4")
    process.claim("a", 2)
    process.ack("a", 1, 2)
    process.produce(b"4", b"5")
    with pytest.raises(Exception, match="full"):
        process.produce(b"6")
    assert process.counts() == (3, 0, 0, 3)


def test_a_cap_that_discards_takes_leased_jobs_too() -> None:
    process = World().process()
    process.create(jobs=3, cap_records=3)
    process.claim("a", 2)
    process.ack("a", 2)
    process.produce(b"4")
    assert process.counts() == (2, 1, 0, 3), "what is done counts no more"
    process.produce(b"5")
    assert process.counts() == (3, 0, 0, 3)
    assert process.ack("a", 1).skipped == (1,)
    assert seqs(process.claim("b", 9)) == [3, 4, 5]


def test_done_jobs_leave_the_jobs_log_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forget, "JOBS", 4)
    process = World().process()
    process.create(jobs=10)
    process.claim("a", 6)
    process.ack("a", 1, 2, 3, 6)
    assert process.queues.head("q").state.floor == 0
    before = process.queues.view("q", touch=False)
    commits = process.wal.calls["commit"]
    process.ack("a", 4)
    assert process.queues.head("q").state.floor == 4
    assert process.wal.calls["commit"] == commits + 2
    view = process.queues.view("q", touch=False)
    assert view.live == before.live - 1 == 5
    assert (view.earliest_seq, view.queue) == (5, (4, 1, 0))
    page = process.queues.diff("q", DiffRequest(0))
    assert [record.offset + 1 for record in page.records] == [5, 7, 8, 9, 10]
    assert page.gap is None
    process.ack("a", 5)
    assert process.queues.head("q").state.floor == 4, "once for as many acks"
    assert seqs(process.claim("b", 9)) == [7, 8, 9, 10]


@pytest.mark.parametrize("is_cold", [False, True])
def test_the_calls_of_each_verb(is_cold: bool) -> None:
    world, clock = World(), ManualClock()
    process = world.process(clock)
    process.create(jobs=20)
    process.claim("a", 2)
    if is_cold:
        process = world.process(clock)
    wal = process.wal

    def during(ask: object) -> int:
        before = wal.calls["commit"]
        assert callable(ask)
        ask()
        return wal.calls["commit"] - before

    assert during(lambda: process.claim("a", 2)) == 1
    assert during(lambda: process.ack("a", 1)) == 1
    assert during(lambda: process.ack("a", 1)) == 0
    assert during(lambda: process.claim("a", 100)) == 1
    assert during(lambda: process.claim("a", 100)) == 0
    assert during(lambda: process.queues.release("q", "a", "none")) == 0
    assert during(lambda: process.queues.view("q")) == 0


def test_lease_logs_are_no_topics() -> None:
    process = World().process()
    process.create(jobs=1)
    process.claim("a")
    views, _ = process.queues.topics(limit=10)
    assert [view.name for view in views] == ["q"]
    assert views[0].queue is not None and views[0].queue.in_flight == 1
    assert process.queues.head(("q", LEASES)).config.role == LEASES


def test_done_jobs_that_were_large_do_not_cost_small_ones_their_room() -> None:
    process = World().process()
    process.create(cap_bytes=51_000, discard="old")
    process.produce(*(b'"%s"' % (b"x" * 998) for _ in range(50)))
    claimed = process.claim(max=50)
    process.ack("a", *(job.record.offset + 1 for job in claimed.jobs))
    for _ in range(25):
        process.produce(*(b'"small"' for _ in range(40)))
    assert process.counts() == (1000, 0, 0, 1000), "7,000 bytes of jobs are far below the cap"


def test_readers_learn_of_expired_jobs_that_a_claim_passed_over() -> None:
    world, clock = World(), ManualClock()
    process = world.process(clock)
    process.create(jobs=3, ttl_ms=60_000)
    clock.advance(70)
    gap = Gap(1, 3, "ttl", 3)
    assert process.queues.diff("q", DiffRequest(0)).gap == gap
    assert process.claim(max=2).jobs == []
    assert process.queues.diff("q", DiffRequest(0)).gap == gap
    process.produce(b'"new"')
    assert [job.record.data for job in process.claim().jobs] == [b'"new"']
    process.ack("a", 4)
    page = world.process(clock).queues.diff("q", DiffRequest(0))
    assert page.gap is not None and (page.gap.first, page.gap.reason) == (1, "ttl")
    assert world.process(clock).queues.diff("q", DiffRequest(3)).gap is None, "a job that is done is no loss"


def test_the_wait_of_the_oldest_job_is_known_without_a_worker() -> None:
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(jobs=1)
    assert one.queues.oldest_wait_ms("q") == 0
    clock.advance(40 * 60)
    two.produce(b"2")
    assert two.queues.oldest_wait_ms("q") == 40 * 60_000
    assert two.queues.oldest_wait_ms("q") is None, "it looked a moment ago"
    clock.advance(60)
    assert two.queues.oldest_wait_ms("q") == 41 * 60_000
    assert seqs(one.claim("a", 1)) == [1]
    clock.advance(60)
    two.produce(b"3")
    assert two.queues.oldest_wait_ms("q") == 2 * 60_000, "a job that was delivered does not wait"
    clock.advance(60)
    two.produce(b"4")
    assert seqs(one.claim("a", 9)) == [1, 2, 3, 4]
    assert two.queues.oldest_wait_ms("q") is None


def test_jobs_that_expired_do_not_wait() -> None:
    process = World().process()
    process.create(jobs=1, ttl_ms=600_000)
    process.clock.advance(3600)
    process.produce(b"2")
    process.clock.advance(1)
    assert process.queues.oldest_wait_ms("q") == 1_000


def test_the_wait_of_jobs_is_none_for_a_log_and_while_a_store_fails() -> None:
    process = World().process()
    process.queues.put("log", TopicConfig())
    process.produce(b"1", name="log")
    assert process.queues.oldest_wait_ms("log") is None
    process.create(jobs=1)
    process.wal.fail("newest", StoreThrottled)
    assert process.queues.oldest_wait_ms("q") is None
