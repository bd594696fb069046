"""Claims, acks, nacks, extends and releases, decided on values."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

<<<<<<< HEAD
from headrace.errors import Overloaded
from headrace.queues import events, ledger
from headrace.queues.decide import Claim, Settle
from headrace.queues.ledger import leases_of
=======
from headrace.batch import Record
from headrace.errors import Damaged, Overloaded
from headrace.queues import decide, events, feed, ledger
from headrace.queues.cohort import share
from headrace.queues.decide import Claim, Dealing, Settle
from headrace.queues.ledger import LeaseState, Points, leases_of
>>>>>>> 5038954 (Queues: a member of a claim window gets as much of a scattered share as can be read, not a refusal while its jobs stay leased)
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


<<<<<<< HEAD
=======
# Windows.


def test_a_window_shares_jobs_in_turn() -> None:
    desk = filled(7, claim_jitter_ms=50)
    first, second, third = desk.join("a", 4), desk.join("b", 1), desk.join("c", 4)
    (answer,) = desk.ask(first)
    assert answer.ms == 50
    desk.now_ms += 50
    answers = desk.ask(second, first)
    assert [seqs(one.claimed) for one in answers] == [[2], [1, 4, 6]]
    desk.forget()
    assert [seqs(one.claimed) for one in desk.ask(third)] == [[3, 5, 7]]
    assert desk.projection().joins == ()
    assert desk.ack("c", 3, 5, 7).done == (3, 5, 7)


def test_a_member_gets_as_much_of_a_scattered_share_as_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = filled(12, claim_jitter_ms=50)
    first, second, third = desk.join("a", 4), desk.join("b", 4), desk.join("c", 4)
    desk.now_ms += 50
    desk.ask(first)
    desk.forget()
    monkeypatch.setattr(feed, "MAX_READS", 2)
    monkeypatch.setattr(decide, "_NEAR", 1)
    assert [seqs(one.claimed) for one in desk.ask(second, third)] == [[2, 5], []]
    assert desk.ack("b", 2, 5, 8).done == (2, 5, 8), "the rest is leased, too"


def test_who_comes_later_joins_the_window_that_is_open() -> None:
    desk = filled(4, claim_jitter_ms=50)
    first = desk.join("a", 2)
    desk.now_ms += 20
    second = desk.join("b", 2)
    assert second.joined.closes_ms == first.joined.closes_ms
    desk.now_ms += 30
    assert [seqs(one.claimed) for one in desk.ask(first, second)] == [[1, 3], [2, 4]]


def test_a_member_with_little_room_gets_its_first_job_whatever_its_size() -> None:
    desk = filled(3, claim_jitter_ms=100)
    small = Claim(ClaimRequest("a", 3, max_bytes=1))
    joined = desk.ask(small)[0]
    desk.now_ms = joined.closes_ms
    assert seqs(desk.ask(Dealing(small, joined))[0].claimed) == [1]


def test_a_window_that_nobody_deals_lapses() -> None:
    desk = filled(2, claim_jitter_ms=50)
    late = desk.join("a", 4)
    desk.now_ms += 5_051
    assert desk.ask(late)[0].claimed.jobs == []
    assert desk.written[1:] == []


def test_a_join_after_a_window_opens_another_one() -> None:
    desk = filled(2, claim_jitter_ms=50)
    first = desk.join("a", 1)
    desk.now_ms += 50
    second = desk.join("b", 1)
    assert second.joined.closes_ms == first.joined.closes_ms + 50
    desk.now_ms += 50
    assert [seqs(one.claimed) for one in desk.ask(second, first)] == [[1], [2]]


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 40)), min_size=1, max_size=4), st.data())
def test_shares_are_even_and_within_bounds(members: list[tuple[int, int]], data: st.DataObject) -> None:
    desk = Desk()
    sizes = data.draw(st.lists(st.integers(0, 30), max_size=12))
    desk.produce(*(b"x" * size for size in sizes))
    joins = [
        events.Join(at=1, id=str(number), node="n", max=most, lease_ms=1, max_bytes=room, closes=1)
        for number, (most, room) in enumerate(members)
    ]
    hands = share(joins, desk._records)
    dealt = sorted(record.offset for hand in hands for record in hand)
    assert dealt == list(range(len(dealt))), "jobs were left out"
    for hand, (most, room) in zip(hands, members, strict=True):
        assert len(hand) <= most
        assert len(hand) <= 1 or sum(len(record.data) for record in hand) <= room
    if all(room >= 400 for _, room in members):
        counts = [len(hand) for hand in hands]
        assert all(
            count >= max(counts) - 1 or count == most for count, (most, _) in zip(counts, members, strict=True)
        )


# The state.


def deep(events_after: int = 0) -> Desk:
    """A queue whose projection is too large for its state."""
    desk = filled(400)
    for number in range(40):
        desk.claim(f"worker-{number}", 2)
    for number in range(events_after):
        desk.settle("extend", "worker-1", (3,), lease_ms=1_000 + number)
    return desk


def test_a_small_projection_stands_in_the_state() -> None:
    desk = filled(3)
    desk.claim("a", 2)
    assert desk.is_inline
    desk.pages.clear()
    desk.forget()
    desk.ack("a", 1)
    assert desk.pages == [], "nothing is read for an ack"
    assert not desk.objects


def test_a_large_projection_is_a_snapshot_and_the_events_after_it() -> None:
    desk = deep(ledger.MAX_EVENTS)
    assert not desk.is_inline
    assert len(desk.objects) == 2
    base = leases_of(desk.leases).base
    assert base is not None and len(desk.written) - base.offset <= ledger.MAX_EVENTS
    whole = fold(Projection(), [events.decode(data, "l") for data in desk.written])
    assert desk.projection() == whole
    desk.pages.clear()
    desk.ack("worker-1", 3)
    assert desk.pages == [], "this process knows the projection"
    desk.forget()
    desk.ack("worker-1", 4)
    assert [log for log, *_ in desk.pages] == ["l"], "another one reads the events once"


def test_a_queue_that_becomes_small_needs_no_snapshot() -> None:
    desk = deep()
    for number in range(40):
        desk.ack(f"worker-{number}", 2 * number + 1, 2 * number + 2)
    assert desk.is_inline
    assert desk.projection().front == 80


def test_a_decision_that_lost_its_slot_is_forgotten() -> None:
    desk = deep(3)
    desk.decide(Settle("ack", SettleRequest("worker-1", (3,))))  # not committed
    desk.pages.clear()
    assert desk.ack("worker-2", 5).done == (5,)
    assert desk.pages == [], "what was known before still counts"
    assert desk.ack("worker-1", 3).done == (3,)


def test_a_slot_that_another_process_got_counts_and_not_the_decision_that_lost_it() -> None:
    desk = deep(3)
    mine = desk.surface
    desk.decide(Settle("ack", SettleRequest("worker-1", (3,))))  # not committed
    desk.forget()
    desk.ack("worker-2", 5)
    desk.surface = mine
    assert desk.ack("worker-1", 3).done == (3,)
    assert desk.ack("worker-2", 5).skipped == (5,)


def test_a_history_that_a_recovery_took_back_is_known_as_another_one() -> None:
    desk = deep(3)
    before, mine = (desk.leases, list(desk.written)), desk.surface
    for seq in (3, 4):
        desk.ack("worker-1", seq)
    desk.leases, desk.written = before
    desk.forget()
    for seq in (5, 6, 7):
        desk.settle("extend", "worker-2", (seq,), lease_ms=5_000)
    desk.surface = mine
    assert desk.ack("worker-1", 3, 4).done == (3, 4)
    assert desk.projection() == fold(Projection(), [events.decode(data, "l") for data in desk.written])


def test_records_that_were_read_of_another_log_are_not_handed_out() -> None:
    desk = filled(2)
    old = Record(0, NOW_MS, None, b"old")
    for log in (("j", 1), ("other", 0)):
        (taken,) = desk.decide(Claim(ClaimRequest("a"), (old,), log)).answers
        assert taken.claimed.jobs[0].record.data == b"job0"
    (taken,) = desk.decide(Claim(ClaimRequest("a"), (old,), ("j", 0))).answers
    assert taken.claimed.jobs[0].record.data == b"old", "nothing is read twice"


def test_records_that_were_read_before_a_recovery_are_read_again() -> None:
    desk = filled(2)
    asked = [SimpleNamespace(request=Claim(ClaimRequest("a")), request_id="r", memo=None)]
    (taken,) = desk.surface.decide(desk.looks(), asked, desk, desk.now_ms, desk).answers
    assert taken.claimed.jobs[0].record.data == b"job0"  # and this lost its slot
    recovered(desk, Recovery(0, 1))
    desk.produce(b"other")
    (taken,) = desk.surface.decide(desk.looks(), asked, desk, desk.now_ms, desk).answers
    assert taken.claimed.jobs[0].record.data == b"other"


def test_events_that_do_not_continue_their_snapshot_are_damage() -> None:
    desk = deep(3)
    desk.written[-2] = desk.written[-1]
    with pytest.raises(Damaged, match="do not continue"):
        desk.projection()
    desk.leases = replace(desk.leases, extension=LeaseState("abc"))
    with pytest.raises(Damaged, match="no snapshot"):
        desk.projection()


def test_a_state_survives_its_encoding() -> None:
    import msgspec

    for desk in (filled(3), deep(3)):
        desk.claim("a", 2)
        data = msgspec.json.encode(desk.leases)
        assert msgspec.json.decode(data, type=type(desk.leases), dec_hook=decode_extension) == desk.leases


>>>>>>> 5038954 (Queues: a member of a claim window gets as much of a scattered share as can be read, not a refusal while its jobs stay leased)
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
