"""Claims, acks, nacks, extends and releases, decided on values."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.errors import Overloaded
from headrace.queues import events, ledger
from headrace.queues.decide import Claim, Settle
from headrace.queues.ledger import leases_of
from headrace.queues.projection import Projection, fold
from headrace.queues.values import Claimed, ClaimRequest, SettleRequest
from headrace.tables.catalog import Row
from headrace.topics.errors import NotAQueue, TopicNotFound
from headrace.topics.values import LEASES
from headrace.wal.state import Companion, Recovery
from tests.unit.queues.desk import NOW_MS, Desk, filled, recovered, seqs


def test_jobs_are_leased_in_order_and_only_once() -> None:
    desk = filled()
    first, second = desk.claim("a", 3), desk.claim("b", 3)
    assert (seqs(first), seqs(second)) == ([1, 2, 3], [4, 5, 6])
    assert [job.record.data for job in first.jobs] == [b"job0", b"job1", b"job2"]
    assert {job.deadline_ms for job in first.jobs} == {NOW_MS + 30_000}
    assert {job.deliveries for job in first.jobs} == {1}
    assert len({job.lease_id for job in first.jobs + second.jobs}) == 6
    assert (first.ready, second.ready) == (7, 4)
    assert seqs(desk.claim("c", 100)) == [7, 8, 9, 10]


def test_an_empty_claim_writes_nothing() -> None:
    desk = Desk()
    assert desk.claim() == Claimed([], 0)
    desk.produce(b"x")
    desk.claim()
    written = list(desk.written)
    assert desk.claim("b", 5) == Claimed([], 0)
    assert desk.written == written


def test_claims_of_one_process_share_an_entry_and_no_job() -> None:
    desk = filled(7)
    decision = desk.decide(*(Claim(ClaimRequest(node, 3)) for node in "abc"))
    desk.commit(decision)
    assert [seqs(one.claimed) for one in decision.answers] == [[1, 2, 3], [4, 5, 6], [7]]
    (draft,) = decision.entries
    assert draft.requests == (0, 1), "the third got fewer than it asked for: perhaps there are more"
    assert decision.tells
    again = Desk(lease_ms=1)
    again.produce(b"1", b"2")
    assert not again.decide(Claim(ClaimRequest("a", 3), is_fresh=True)).tells
    assert [one.claimed.ready for one in decision.answers] == [4, 1, 0]
    decision = desk.decide(Settle("ack", SettleRequest("a", (1,))), Claim(ClaimRequest("d")))
    assert decision.entries[0].requests == (0,), "an empty claim has no part in the entry"
    assert decision.tells


def test_an_ack_is_of_the_holder_alone_and_repeats_do_nothing() -> None:
    desk = filled()
    desk.claim("a", 4)
    settled = desk.ack("a", 1, 3, 9, 3)
    assert (settled.done, settled.skipped) == ((1, 3), (9,))
    assert (settled.ready, settled.in_flight) == (6, 2)
    assert desk.ack("b", 2).skipped == (2,)
    assert desk.ack("a", 1).skipped == (1,)
    assert desk.ack("a", 0, -5, 2**63).skipped == (0, -5, 2**63)
    assert desk.ack("a").done == ()
    desk.now_ms += 30_001
    assert desk.ack("a", 2).skipped == (2,), "its lease has ended"
    assert seqs(desk.claim("b", 10)) == [2, 4, 5, 6, 7, 8, 9, 10]


def test_a_nacked_job_is_claimed_first_and_counts_its_deliveries() -> None:
    desk = filled(3)
    desk.claim("a", 2)
    assert desk.settle("nack", "a", (2,)).ready == 2
    claimed = desk.claim("b", 2)
    assert [(job.record.offset + 1, job.deliveries) for job in claimed.jobs] == [(2, 2), (3, 1)]


def test_a_delayed_job_is_in_no_counter() -> None:
    desk = filled(2)
    desk.claim("a", 2)
    settled = desk.settle("nack", "a", (1, 2), delay_ms=500)
    assert (settled.ready, settled.in_flight) == (0, 0)
    assert desk.claim("b") == Claimed([], 0)
    desk.now_ms += 500
    assert seqs(desk.claim("b", 2)) == [1, 2]


def test_an_extend_sets_the_deadline_and_keeps_the_lease_id() -> None:
    desk = filled(2)
    claimed = desk.claim("a", 2)
    desk.now_ms += 1_000
    settled = desk.settle("extend", "a", (1, 5), lease_ms=200)
    assert (settled.done, settled.skipped, settled.deadlines) == ((1,), (5,), {1: NOW_MS + 1_200})
    assert desk.ack("a", 1, lease_ids=(claimed.jobs[0].lease_id,)).done == (1,)
    desk.now_ms += 30_000
    assert desk.settle("extend", "a", (2,), lease_ms=200).skipped == (2,), "an ended lease can't be extended"


def test_a_fence_lets_only_the_current_lease_through() -> None:
    desk = filled(3)
    first = desk.claim("a", 2)
    old = tuple(job.lease_id for job in first.jobs)
    desk.settle("nack", "a", (1,))
    again = desk.claim("a", 1)
    assert seqs(again) == [1]
    settled = desk.ack("a", 1, 2, lease_ids=old)
    assert (settled.done, settled.skipped) == ((2,), (1,)), "the lease of job 1 is another one now"
    assert desk.ack("a", 1, 1, lease_ids=("lease_0", again.jobs[0].lease_id)).done == (1,)


def test_an_answer_has_room_for_its_first_job_whatever_its_size() -> None:
    desk = Desk()
    desk.produce(b"x" * 100, b"y" * 10, b"z" * 10, meta=b'{"k":1}')
    assert seqs(desk.claim("a", 3, max_bytes=50)) == [1]
    assert seqs(desk.claim("a", 3, max_bytes=34)) == [2, 3]


def test_a_connection_that_ends_gives_back_what_it_holds() -> None:
    desk = filled(4)
    desk.claim("a", 2, connection="s1")
    desk.claim("a", 1, connection="s2")
    desk.claim("a", 1)
    assert desk.release("b", "s1") == 0
    assert desk.release("a", "s1") == 2
    assert desk.release("a", "s1") == 0
    assert seqs(desk.claim("b", 4)) == [1, 2]


def test_expired_jobs_are_passed_over_and_gone() -> None:
    desk = Desk(ttl_ms=1_000)
    desk.produce(b"old", b"older")
    desk.now_ms += 800
    desk.produce(b"new")
    desk.now_ms += 201
    assert seqs(desk.claim("a", 3)) == [3]
    assert desk.projection().live(3) == 1


def test_jobs_below_the_floor_are_gone() -> None:
    desk = filled(6)
    desk.claim("a", 2)
    desk.raise_floor(4)
    settled = desk.ack("a", 1, 2)
    assert (settled.skipped, settled.ready, settled.in_flight) == ((1, 2), 2, 0)
    assert seqs(desk.claim("b", 9)) == [5, 6]
    assert desk.projection().front == 4


def test_a_recovered_jobs_log_takes_its_jobs_with_it() -> None:
    desk = filled(6)
    desk.claim("a", 5)
    desk.ack("a", 2, 5)
    desk.jobs = replace(desk.jobs, next_offset=4, recoveries=(Recovery(4, 1),))
    desk._records = desk._records[:4]
    desk.produce(b"other")
    assert desk.ack("a", 5).skipped == (5,), "job 5 is another one now"
    assert seqs(desk.claim("b", 9)) == [5]
    assert desk.ack("a", 1, 4).done == (1, 4)
    stale = (desk.looks()[0], desk.looks()[1]._replace(state=replace(desk.jobs, recoveries=())))
    decision = desk.decide(Claim(ClaimRequest("c")), looks=stale)
    assert decision.tells and not decision.entries, "an old picture of the jobs log is looked at again"


def test_what_a_recovery_lost_is_neither_leased_nor_given_back() -> None:
    desk = filled(8)
    desk.claim("a", 7)
    desk.settle("nack", "a", [6, 7])
    recovered(desk, Recovery(4, 1))
    desk.produce(b"other", b"another", b"one more")
    assert desk.ack("a", 5).skipped == (5,)
    assert [(job.record.data, job.deliveries) for job in desk.claim("b", 9).jobs] == [
        (b"other", 1),
        (b"another", 1),
        (b"one more", 1),
    ]
    desk.produce(b"fresh")
    stale = (desk.looks()[0], desk.looks()[1]._replace(state=replace(desk.jobs, recoveries=())))
    decision = desk.decide(Claim(ClaimRequest("c")), looks=stale)
    assert decision.tells and not decision.entries, "its picture of the jobs log may have the job that was lost"


def test_of_several_recoveries_the_deepest_counts() -> None:
    desk = filled(8)
    desk.claim("a", 8)
    recovered(desk, Recovery(4, 1), Recovery(6, 2))
    assert desk.ack("a", 5, 6).skipped == (5, 6), "they were lost, and others came in their place"
    assert desk.ack("a", 4).done == (4,)


def test_expired_jobs_that_a_recovery_lost_are_no_loss_of_those_that_follow() -> None:
    desk = Desk(ttl_ms=1_000)
    desk.produce(*[b"old"] * 6)
    desk.now_ms += 1_001
    desk.produce(b"new")
    assert seqs(desk.claim("a")) == [7]
    assert leases_of(desk.leases).lapsed == 6
    recovered(desk, Recovery(3, 1))
    desk.produce(b"other")
    assert seqs(desk.claim("b")) == [4]
    assert leases_of(desk.leases).lapsed == 3


def test_where_a_recovery_lost_the_last_expired_job_readers_learn_of_a_loss_up_to_there() -> None:
    """Whether one of the jobs before it expired, too, nobody knows any more: they are done."""
    desk = Desk(ttl_ms=1_000)
    desk.produce(b"acked", b"old")
    desk.claim("a", 1)
    desk.ack("a", 1)
    desk.now_ms += 1_001
    desk.produce(b"new")
    assert seqs(desk.claim("a")) == [3]
    leases = desk.leases
    recovered(desk, Recovery(1, 1))
    assert (ledger.lapsed_of(leases, None), ledger.lapsed_of(leases, events.Lost(1, 1))) == (2, 1)
    desk.produce(b"other")
    assert seqs(desk.claim("b")) == [2]
    assert leases_of(desk.leases).lapsed == 1


def test_leases_of_the_queue_before_of_a_name_are_none_of_this_one() -> None:
    desk = filled(2)
    desk.claim("a", 1)
    leases, jobs = desk.looks()
    again = replace(jobs.row.config, incarnation=1, companions=(Companion(LEASES, "l2", "x"),))
    decision = desk.decide(Claim(ClaimRequest("b")), looks=(leases, jobs._replace(row=Row("j2", again))))
    assert decision.tells and not decision.entries
    assert isinstance(decision.answers[0], Overloaded)


def test_only_a_living_queue_has_claims() -> None:
    assert isinstance(Desk(type="log").decide(Claim(ClaimRequest("a"))).answers[0], NotAQueue)
    desk = Desk()
    desk.jobs = replace(desk.jobs, ended="deleted")
    assert isinstance(desk.decide(Claim(ClaimRequest("a"))).answers[0], TopicNotFound)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(1, 5)), max_size=40), st.booleans())
def test_each_job_has_one_lease_and_an_acked_one_no_other(steps: list[tuple[int, int, int]], is_cold: bool) -> None:
    desk = Desk(lease_ms=300)
    done: set[int] = set()
    leased: dict[int, int] = {}  # seq: when its lease ends
    for what, number, count in steps:
        if is_cold:
            desk.forget()
        node = f"n{number % 3}"
        if what == 0:
            desk.produce(*[b"x"] * count)
        elif what == 1:
            desk.now_ms += 100 * number
        elif what in (2, 3):
            for job in desk.claim(node, count).jobs:
                seq = job.record.offset + 1
                assert seq not in done
                assert leased.get(seq, 0) < desk.now_ms, "a second lease"
                leased[seq] = job.deadline_ms
        else:
            asked = range(number, number + count)
            settled = desk.settle("ack" if what == 4 else "nack", node, asked)
            for seq in settled.done:
                assert leased.pop(seq) >= desk.now_ms
            done |= set(settled.done) if what == 4 else set()
            live = desk.jobs.next_offset - len(done)
            assert settled.ready + settled.in_flight == live
    assert desk.projection() == fold(Projection(), [events.decode(data, "l") for data in desk.written])


def test_a_small_claim_passes_many_expired_jobs() -> None:
    desk = Desk(ttl_ms=60_000)
    desk.produce(*(b"old" for _ in range(5000)))
    desk.now_ms += 70_000
    desk.produce(b"new")
    claimed = desk.claim("a", 1)
    assert ([job.record.data for job in claimed.jobs], claimed.ready) == ([b"new"], 0)
    assert len(desk.pages) < 20
