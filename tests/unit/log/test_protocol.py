"""The commit protocol's hazards, each staged, each with the answer that the rules give (docs/architecture.md)."""

from __future__ import annotations

import threading

import pytest

from headrace.errors import Gone, NotFound, OutcomeUnknown, Overloaded, StoreThrottled
from headrace.log.requests import At
from headrace.streams.errors import ProducerGap, SequenceConflict, StaleProducer, StreamClosed
from headrace.streams.values import CreateRequest, ForkRequest
from headrace.wal.state import BEGINNING, Cursor, first_slot
from tests.support.builders import BYTES, appending, closing, first_entry, producing
from tests.support.clocks import ManualClock
from tests.unit.log.world import World


def test_a_lost_answer_is_answered_from_what_stands() -> None:
    process = World().process()
    process.create()
    process.wal.fail("commit", after=True)
    appended = process.logs.append("s", appending(b"x"))
    assert not appended.duplicate
    assert process.read() == [b"x"]
    (sent, again) = [arguments[0] for method, arguments in process.wal.seen if method == "commit"][-2:]
    assert sent == again, "an entry of unknown fate was changed"


def test_an_unknown_outcome_is_never_regrouped_and_says_so() -> None:
    process = World().process()
    process.create()
    process.wal.fail("commit", times=float("inf"))
    with pytest.raises(OutcomeUnknown):
        process.logs.append("s", appending(b"x"))
    sent = {arguments[0] for method, arguments in process.wal.seen if method == "commit"}
    assert len({entry for entry in sent if entry.kind == "data"}) == 1
    process.wal.heal()
    assert process.read() == []


def test_an_unknown_outcome_that_meets_another_writer_was_not_written() -> None:
    world = World()
    process, other = world.process(), world.process()
    process.create()
    process.wal.fail("commit")
    process.wal.on("commit", lambda: other.logs.append("s", appending(b"other")), call=2)
    process.logs.append("s", appending(b"mine"))
    assert process.read() == [b"other", b"mine"]


def test_throttling_to_the_end_is_an_overload_that_wrote_nothing() -> None:
    process = World().process()
    process.create()
    process.wal.fail("commit", StoreThrottled, times=float("inf"))
    with pytest.raises(Overloaded) as caught:
        process.logs.append("s", appending(b"x"))
    assert caught.value.retry_after_s >= 1
    assert not caught.value.may_have_written
    process.wal.heal()
    assert process.read() == []


def test_throttling_after_a_timeout_stays_unknown() -> None:
    process = World().process()
    process.create()
    process.wal.fail("commit")
    process.wal.fail("commit", StoreThrottled, call=2, times=float("inf"))
    with pytest.raises(OutcomeUnknown):
        process.logs.append("s", appending(b"x"))


def test_a_taken_slot_is_decided_again_on_what_stands_there() -> None:
    world = World()
    one, two = world.process(), world.process()
    one.create()
    two.read()
    one.logs.append("s", appending(b"1"))
    assert two.logs.append("s", appending(b"2")).tries == 2
    assert one.logs.append("s", appending(b"3")).tries == 2
    assert one.read() == [b"1", b"2", b"3"]


def test_endless_contention_ends_in_an_overload() -> None:
    world = World()
    process, other = world.process(), world.process()
    process.create()
    process.wal.on("commit", lambda: other.logs.append("s", appending(b"o")), times=float("inf"))
    with pytest.raises(Overloaded):
        process.logs.append("s", appending(b"mine"))
    process.wal.heal()
    assert b"mine" not in process.read()


def stale_writer_in_a_trimmed_slot(world: World, *, pause_s: float, successor_stays: bool) -> tuple[object, str]:
    """Has a writer decide, sleep, and put into a slot whose entry has been sealed and trimmed meanwhile; returns what
    it is told, and the log id.
    """
    writer, other = world.process(), world.process()
    log_id = writer.create()
    writer.logs.append("s", appending(b"0"))

    def meanwhile() -> None:
        for number in range(3):
            other.logs.append("s", appending(b"other%d" % number))
        end = world.entries(log_id)[-1]
        world.memory.watermarks.publish(log_id, 1, end.next_slot(), end.next_offset, 1)
        kept = world.entries(log_id)[-2:] if successor_stays else world.entries(log_id)[-1:]
        world.memory.remove(log_id, [e.slot for e in world.entries(log_id) if e.slot < kept[0].slot])
        writer.clock.advance(pause_s)

    writer.wal.on("commit", meanwhile)
    try:
        return writer.logs.append("s", appending(b"late")), log_id
    except OutcomeUnknown as exc:
        return exc, log_id


@pytest.mark.parametrize("successor_stays", [True, False])
def test_the_ack_fence_refuses_a_dead_item_and_removes_it(successor_stays: bool) -> None:
    world = World()
    answer, log_id = stale_writer_in_a_trimmed_slot(world, pause_s=3600, successor_stays=successor_stays)
    assert isinstance(answer, OutcomeUnknown)
    slots_left = [entry.slot for entry in world.entries(log_id)]
    assert first_slot(1) not in slots_left, "the dead item is left"


def test_a_clock_that_ran_backwards_is_verified() -> None:
    world = World()
    process = world.process()
    process.create()
    process.logs.append("s", appending(b"0"))
    process.wal.on("commit", lambda: process.clock.set_back(10))
    process.logs.append("s", appending(b"1"))
    assert process.watermarks.calls["get"] == 1
    assert process.read() == [b"0", b"1"]


def test_a_slow_but_genuine_writer_is_acknowledged() -> None:
    world = World()
    process = world.process()
    process.create()
    process.wal.on("commit", lambda: process.clock.advance(3600))
    process.logs.append("s", appending(b"slow"))
    assert process.read() == [b"slow"]


def test_a_dead_item_is_never_served() -> None:
    world = World()
    process = world.process()
    log_id = process.create()
    for number in range(20):
        process.logs.append("s", appending(b"%d" % number))
    dead = first_entry(log_id, b"dead")
    position = 5
    world.memory.remove(log_id, [first_slot(position)])
    dead = type(dead)(**{**{f: getattr(dead, f) for f in dead.__struct_fields__}, "slot": first_slot(position)})
    world.memory.commit(dead)
    with pytest.raises(Exception, match="gap"):  # nothing is published, so nothing can stand in for it
        world.process().read(position=position, incarnation=0)
    assert b"dead" not in world.process().read(position=12, incarnation=0)


def test_refusals_and_repeats_are_checked_on_fresh_state() -> None:
    world = World()
    one, two = world.process(), world.process()
    one.create()
    two.logs.append("s", producing("p", 0, b"0"))
    one.logs.append("s", producing("p", 1, b"1"))
    repeated = two.logs.append("s", producing("p", 0, b"0"))
    assert repeated.duplicate
    assert repeated.producer is not None
    assert repeated.producer.seq == 1, "answered from an old picture"
    one.logs.append("s", appending(b"", seq="b"))
    one.logs.delete("s")
    one.create()
    two.logs.append("s", appending(b"new", seq="a"))  # the old stream would have refused it
    assert one.read() == [b"new"]


def test_producers_are_exactly_once_whatever_their_number() -> None:
    world = World()
    process = world.process()
    process.create()
    for number in range(30):
        process.logs.append("s", producing(f"p{number}", 0, b"%d" % number))
    for number in range(30):
        for other in (process, world.process()):
            assert other.logs.append("s", producing(f"p{number}", 0, b"again")).duplicate
    assert len(process.read()) == 30
    process.logs.append("s", producing("p0", 1, b"next"))
    with pytest.raises(ProducerGap) as gap:
        process.logs.append("s", producing("p3", 5, b""))
    assert (gap.value.expected, gap.value.received) == (1, 5)
    process.logs.append("s", producing("p4", 0, b"", epoch=2))
    with pytest.raises(StaleProducer) as stale:
        process.logs.append("s", producing("p4", 9, b"", epoch=1))
    assert stale.value.epoch == 2


def test_a_sequence_must_rise_byte_by_byte() -> None:
    process = World().process()
    process.create()
    process.logs.append("s", appending(b"", seq="09"))
    process.logs.append("s", appending(b"", seq="10"))
    with pytest.raises(SequenceConflict):
        process.logs.append("s", appending(b"", seq="1"))


def test_close_is_final_for_every_process_at_once() -> None:
    world = World()
    one, two = world.process(), world.process()
    one.create()
    two.logs.append("s", appending(b"0"))
    one.logs.append("s", closing(b"last"))
    with pytest.raises(StreamClosed):
        two.logs.append("s", appending(b"late"))
    assert two.logs.append("s", closing(content_type=None)).duplicate
    assert two.read() == [b"0", b"last"]


def test_delete_is_final_and_a_recreated_name_never_meets_its_old_data() -> None:
    world = World()
    one, two = world.process(), world.process()
    one.create()
    two.logs.append("s", appending(b"old"))
    assert one.logs.delete("s")
    with pytest.raises(NotFound):
        two.logs.append("s", appending(b"late"))
    with pytest.raises(NotFound):
        two.read()
    assert not two.logs.delete("s")
    one.create()
    two.logs.append("s", appending(b"new"))
    assert two.read() == one.read() == [b"new"]
    with pytest.raises(Gone):
        two.read(position=0, incarnation=0)
    assert one.read(position=0, incarnation=1) == [b"new"]


def test_requests_of_one_process_are_merged_and_each_gets_its_own_answer() -> None:
    world = World()
    process = world.process()
    log_id = process.create()
    held = threading.Event()
    process.wal.on("commit", lambda: held.wait(5), after=True)
    answers: dict[int, str] = {}

    def append(number: int) -> None:
        answers[number] = process.logs.append("s", appending(b"%d" % number)).next_offset

    threads = [threading.Thread(target=append, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    held.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    records = process.read()
    assert sorted(records) == sorted(b"%d" % number for number in range(40))
    assert len(set(answers.values())) == 40
    assert len(world.entries(log_id)) < 41, "nothing was merged"


def test_a_delete_gets_its_turn_among_appenders() -> None:
    world = World()
    process = world.process()
    process.create()
    stop = threading.Event()

    def append_for_ever() -> None:
        while not stop.is_set():
            try:
                process.logs.append("s", appending(b"x"))
            except (NotFound, Overloaded):
                return

    threads = [threading.Thread(target=append_for_ever) for _ in range(8)]
    for thread in threads:
        thread.start()
    deleted = process.logs.delete("s")
    stop.set()
    for thread in threads:
        thread.join(10)
    assert deleted


def test_create_survives_a_lost_answer_and_is_idempotent() -> None:
    world = World()
    process = world.process()
    process.wal.fail("commit", after=True)
    log_id = process.create()
    again = world.process().logs.create("s", CreateRequest(content_type=BYTES))
    assert (again.created, again.head.log_id) == (False, log_id)


def test_expiry_is_decided_on_the_touch_row_and_is_final() -> None:
    world = World()
    clock = ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(ttl_ms=10_000)
    clock.advance(6)
    one.logs.read("s", At(BEGINNING))  # renews; the other process does not know
    clock.advance(6)
    two.logs.append("s", appending(b"alive"))
    clock.advance(6)
    two.logs.head("s")  # does not renew
    clock.advance(4.5)
    with pytest.raises(NotFound, match="expired"):
        one.logs.head("s")
    with pytest.raises(NotFound):
        two.logs.append("s", appending(b"late"))
    one.create()
    assert two.read() == []


def test_a_renewal_beats_an_expiry_that_was_decided_before_it() -> None:
    world = World()
    clock = ManualClock()
    one, two = world.process(clock), world.process(clock)
    log_id = one.create(ttl_ms=1_000)
    two.logs.read("s", At(BEGINNING))
    clock.advance(1.5)
    one.wal.on("commit", lambda: world.memory.watermarks.touch(log_id, clock.now_ms()))
    one.logs.append("s", appending(b"x"))  # decided to expire it, met the touch, and looked again
    assert one.read() == [b"x"]


def test_forks_share_count_and_release_their_source_through_crashes() -> None:
    world = World()
    process = world.process()
    source = process.create("source")
    process.logs.append("source", appending(b"a", b"b", b"c"))
    for name, parent, at in (("f1", "source", 2), ("f2", "f1", 1)):
        process.logs.create(name, CreateRequest(fork=ForkRequest(parent, Cursor(0, at))))
        process.logs.append(name, appending(name.encode()))
    assert process.read("f2") == [b"a", b"f2"]
    process.logs.append("source", appending(b"later"))
    assert process.read("f1") == [b"a", b"b", b"f1"]
    assert process.logs.delete("source")
    with pytest.raises(Gone):
        process.logs.head("source")
    assert process.logs.delete("f1")
    assert world.process().read("f2") == [b"a", b"f2"]
    # The process that deletes the last fork fails before it gives the source back.
    process.wal.fail("commit", RuntimeError, call=2)
    assert process.logs.delete("f2")
    assert world.memory.newest(source).state.forks == 1  # type: ignore[union-attr]
    other = world.process()
    row = world.memory.catalog.rows["streams", "f2"]
    other.logs.controls.release_source(row.log_id, row.config)
    other.logs.controls.release_source(row.log_id, row.config)
    assert world.memory.newest(source).state.forks == 0  # type: ignore[union-attr]
    with pytest.raises(NotFound):
        other.logs.head("source")


def test_sub_offsets_take_part_of_a_record() -> None:
    process = World().process()
    process.create("source")
    process.logs.append("source", appending(b"first"))
    process.logs.append("source", appending(b"second"))
    process.logs.create("fork", CreateRequest(fork=ForkRequest("source", Cursor(0, 1), 3)))
    process.logs.append("fork", appending(b"!"))
    assert process.read("fork") == [b"first", b"sec", b"!"]
