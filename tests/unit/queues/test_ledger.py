"""The projection in the state of a lease log: inline or as a snapshot and events, and what a process remembers of it."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace

from headrace.batch import Record
from headrace.errors import Damaged
from headrace.queues import events, ledger
from headrace.queues.decide import Claim, Settle
from headrace.queues.ledger import LeaseState, leases_of
from headrace.queues.projection import Projection, fold
from headrace.queues.values import ClaimRequest, SettleRequest
from headrace.wal.extension import decode_extension
from headrace.wal.state import Recovery
from tests.unit.queues.desk import NOW_MS, Desk, filled, recovered

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
    for desk in (filled(3), deep(3)):
        desk.claim("a", 2)
        data = msgspec.json.encode(desk.leases)
        assert msgspec.json.decode(data, type=type(desk.leases), dec_hook=decode_extension) == desk.leases
