"""Claim windows, decided on values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.queues import decide, events, feed
from headrace.queues.cohort import share
from headrace.queues.decide import Claim, Dealing
from headrace.queues.ledger import Points
from headrace.queues.values import ClaimRequest
from tests.unit.queues.desk import Desk, filled, seqs

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


def test_a_share_of_a_large_window_is_read_in_few_stretches() -> None:
    desk = Desk(claim_jitter_ms=50)
    desk.produce(*(b"%d" % number for number in range(4000)))
    members = [desk.join(f"w{number}", 100) for number in range(40)]
    desk.now_ms += 50
    assert len(desk.ask(members[0])[0].claimed.jobs) == 100
    desk.pages.clear()
    desk.surface.points = Points()  # another process
    (last,) = desk.ask(members[-1])
    assert [job.record.offset for job in last.claimed.jobs] == [*range(39, 4000, 40)]
    assert sum(log == "j" for log, _, __ in desk.pages) == 1
