"""Races between processes, each staged at the one call where it bites."""

from __future__ import annotations

import random

import pytest

from functions.queue import MemoryQueue
from functions.sealer.context import assemble
from functions.sealer.seal import seal
from functions.sealer.trim import trim
from headrace.clock import Budget
from headrace.errors import Damaged, OutcomeUnknown, Overloaded, StoreThrottled, StoreTimeout
from headrace.log.commit import Attempt
from headrace.log.context import Context, Pictures
from headrace.log.requests import At
from headrace.objects import keys
from headrace.streams.values import CreateRequest, ForkRequest
from headrace.streams.verbs import SURFACE
from headrace.wal import Committed
from headrace.wal.state import BEGINNING, Cursor
from tests.support.builders import BYTES, appending, next_entry
from tests.support.clocks import ManualClock
from tests.unit.log.world import Process, World

BIG = random.Random(1).randbytes(1000)


@pytest.mark.timeout(20)
def test_a_read_ends_when_the_stream_was_renewed_and_grew_after_its_look_at_the_tail() -> None:
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(ttl_ms=10_000)
    two.logs.head("s")
    clock.advance(6)
    one.logs.read("s", At(BEGINNING))  # renews; the other process does not know
    clock.advance(6)
    two.watermarks.on("get", lambda: one.logs.append("s", appending(b"x")))
    assert two.logs.read("s", At(BEGINNING)).data in ([], [b"x"])


def test_a_read_that_expires_a_log_never_shows_it_under_the_name_of_the_next_one() -> None:
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(ttl_ms=10_000)
    one.logs.append("s", appending(b"old", b"older"))
    two.logs.head("s")
    clock.advance(11)

    def recreate() -> None:
        one.create()
        one.logs.append("s", appending(b"new"))

    two.catalog.on("mark_ended", recreate, after=True)
    page = two.logs.read("s", At(BEGINNING))
    assert (page.data, page.head.incarnation) == ([b"new"], 1)


@pytest.mark.parametrize("kind", ["cold", "warm"])
def test_a_page_repeats_nothing_when_a_payload_is_trimmed_under_it(kind: str) -> None:
    world = World(spill_bytes=100)
    writer, reader = world.process(), world.process()
    log_id = writer.create()
    written = [b"0", BIG, b"2", BIG[::-1], b"4"]
    for data in written:
        writer.logs.append("s", appending(data))
    if kind == "warm":
        reader.logs.head("s")

    def seal_and_trim() -> None:
        parts = assemble(writer.stores, MemoryQueue())
        seal(parts, log_id, force=True)
        writer.clock.advance(3600)
        assert trim(parts, log_id).items

    reader.objects.on("get", seal_and_trim)
    page = reader.logs.read("s", At(BEGINNING))
    assert page.data == written[: len(page.data)]
    assert page.next == len(page.data)
    assert reader.read() == written


def test_a_spilled_payload_goes_with_the_log_that_names_it() -> None:
    world = World(spill_bytes=100)
    one, two = world.process(), world.process()
    old = one.create()
    two.logs.append("s", appending(b"small"))
    one.logs.delete("s")
    new = one.create()
    two.logs.append("s", appending(BIG))  # spilled for the log that two knew, committed to the next one
    world.objects.delete(list(world.objects.list(keys.log_prefix(old))))  # the old log is purged
    assert world.entries(new)[-1].payload_key.startswith(keys.log_prefix(new))
    assert one.read() == [BIG]


def test_a_picture_learnt_from_a_taken_slot_is_no_younger_than_the_one_before_it() -> None:
    """Trimmed as early as the settings allow, by a writer that two requests bring to a slot used before."""
    world = World(trim_age_ms=65_001)
    late, other = world.process(), world.process()
    log_id = late.create()
    late.logs.append("s", appending(b"0"))
    other.clock.advance(1)
    for data in (b"1", b"2", b"3"):
        other.logs.append("s", appending(data))
    late.clock.advance(59)
    late.wal.fail("commit", StoreThrottled, call=2, times=float("inf"))
    with pytest.raises(Overloaded):  # after it learnt, from its slot, of record 1 alone
        late.logs.append("s", appending(b"refused"))
    late.wal.heal()
    end = world.entries(log_id)[-1]
    world.memory.watermarks.publish(log_id, 1, end.next_slot(), end.next_offset, 4)
    world.memory.remove(log_id, [entry.slot for entry in world.entries(log_id)[:-1]])
    late.clock.advance(50)
    late.logs.append("s", appending(b"late"))
    assert world.process().logs.read("s", At(Cursor(0, 3))).data == [b"3", b"late"]


def deleted_fork(world: World) -> tuple[Process, str]:
    process = world.process()
    source = process.create("source")
    process.logs.create("fork", CreateRequest(content_type=BYTES, fork=ForkRequest("source")))
    return process, source


def test_a_delete_that_committed_is_answered_whatever_fails_after_it() -> None:
    process, _ = deleted_fork(World())
    process.catalog.fail("mark_ended")
    assert process.logs.delete("fork")
    process, _ = deleted_fork(World())
    process.catalog.fail("mark_ended", Damaged)
    assert process.logs.delete("fork"), "it was told as a failure that changed nothing"
    process, source = deleted_fork(world := World())
    process.wal.fail("commit", StoreThrottled, call=2, times=float("inf"))
    assert process.logs.delete("fork")
    process.wal.heal()
    row = world.memory.catalog.rows["streams", "fork"]
    process.logs.controls.release_source(row.log_id, row.config)  # as the purge does, later
    newest = world.memory.newest(source)
    assert newest is not None
    assert newest.state.forks == 0


def test_reads_do_not_rely_on_what_the_cache_of_manifests_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was dropped between two calls was told as damage."""
    world = World()
    process = world.process()
    log_id = process.create("s")
    for number in range(5):
        process.logs.append("s", appending(b"%d" % number))
    seal(assemble(process.stores, MemoryQueue()), log_id, force=True)
    world.memory.remove(log_id, [entry.slot for entry in world.entries(log_id)[:-1]])
    monkeypatch.setattr(Pictures, "manifest", lambda *_: None)
    assert world.process().read("s") == [b"%d" % number for number in range(5)]


def test_the_cascade_of_a_release_goes_on_from_wherever_it_stopped() -> None:
    calls = 1
    while True:
        world = World()
        process = world.process()
        names = ["a", "b", "c"]
        logs = [process.create("a")]
        for name, source in (("b", "a"), ("c", "b")):
            request = CreateRequest(content_type=BYTES, fork=ForkRequest(source))
            logs.append(process.logs.create(name, request).head.log_id)
        process.logs.delete("a")
        process.logs.delete("b")
        before = process.wal.calls.total()
        crash_at(process, calls)
        try:
            process.logs.delete("c")
            finished = True
        except Crash:
            finished = False
        process.wal.heal()
        again = world.process()
        for name, log_id in reversed(list(zip(names, logs, strict=True))):  # what each log's purge does
            newest = world.memory.newest(log_id)
            assert newest is not None
            if newest.state.ended:
                row = world.memory.catalog.rows["streams", name]
                again.logs.controls.release_source(log_id, row.config)
        ends = [world.memory.newest(log_id) for log_id in logs]
        deleted = ends[2] is not None and ends[2].state.ended
        for end in ends[:2]:
            assert end is not None
            assert (end.state.forks == 0) == bool(deleted)
        if finished:
            assert deleted
            assert process.wal.calls.total() > before
            return
        calls += 1


class Crash(BaseException):
    """The process ends here."""


def crash_at(process: Process, call: int) -> None:
    """Ends the process before its call number `call` to the write-ahead log."""
    made = 0

    def count() -> None:
        nonlocal made
        made += 1
        if made == call:
            raise Crash

    for method in ("commit", "newest", "read"):
        process.wal.on(method, count, times=float("inf"))


def test_the_fence_never_removes_the_newest_entry_though_it_was_sealed_meanwhile() -> None:
    world = World()
    process = world.process()
    log_id = process.create()

    def sealed_while_the_answer_travels() -> None:
        [_, newest] = world.entries(log_id)
        world.memory.watermarks.publish(log_id, 1, newest.next_slot(), newest.next_offset, 1)
        process.clock.advance(3600)

    process.wal.on("commit", sealed_while_the_answer_travels, after=True)
    process.logs.append("s", appending(b"x"))
    assert world.entries(log_id)[-1].next_offset == 1


def test_a_fork_is_never_counted_in_a_trimmed_slot_of_its_source() -> None:
    """Its data would go with the source."""
    world = World()
    process, other = world.process(), world.process()
    source = process.create("source")

    def trimmed_meanwhile() -> None:
        for data in (b"1", b"2"):
            other.logs.append("source", appending(data))
        end = world.entries(source)[-1]
        world.memory.watermarks.publish(source, 1, end.next_slot(), end.next_offset, 2)
        world.memory.remove(source, [entry.slot for entry in world.entries(source)[:-1]])
        process.clock.advance(3600)

    process.wal.on("commit", trimmed_meanwhile)
    with pytest.raises(Overloaded):
        process.logs.create("fork", CreateRequest(fork=ForkRequest("source")))
    assert [entry.kind for entry in world.entries(source)] == ["data"]
    assert world.memory.catalog.get("streams", "fork") is None
    process.logs.create("fork", CreateRequest(fork=ForkRequest("source")))
    assert world.entries(source)[-1].state.forks == 1


def test_two_dead_items_do_not_vouch_for_each_other() -> None:
    """One writer slept with its append decided; a second one took that item for the newest, and slept too."""
    world = World()
    living, first, second = world.process(), world.process(), world.process()
    log_id = living.create()
    for process in (first, second):
        process.logs.head("s")

    def trimmed_meanwhile() -> None:
        for data in (b"1", b"2", b"3"):
            living.logs.append("s", appending(data))
        end = world.entries(log_id)[-1]
        world.memory.watermarks.publish(log_id, 1, end.next_slot(), end.next_offset, 3)
        world.memory.remove(log_id, [entry.slot for entry in world.entries(log_id)[:-1]])
        first.clock.advance(3600)

    def the_second_one_follows() -> None:
        entry = world.entries(log_id)[0]
        follower = next_entry(entry, b"dead too")
        assert world.memory.commit(follower) == Committed()
        attempt = Attempt(Context(second.stores, SURFACE), Budget(second.clock, 3000))
        assert not attempt.verify_slot(follower)
        assert world.memory.commit(follower) == Committed()  # it comes once more, late

    first.wal.on("commit", trimmed_meanwhile)
    first.wal.on("commit", the_second_one_follows, after=True)
    with pytest.raises(OutcomeUnknown):
        first.logs.append("s", appending(b"dead"))
    assert first.wal.calls["remove_dead"] == 1


def test_an_unknown_outcome_stays_unknown_when_a_guard_refuses_long_after() -> None:
    """The first try may have been sealed and trimmed meanwhile, so the answer must not be that nothing was written."""
    world = World()
    process, other = world.process(), world.process()
    source = process.create("source")

    def slept() -> None:
        other.logs.append("source", appending(b"meanwhile"))
        process.clock.set_back(-3600)  # frozen: the monotonic clock stood still
        raise StoreTimeout

    process.wal.on("commit", slept)
    with pytest.raises(OutcomeUnknown):
        process.logs.create("fork", CreateRequest(fork=ForkRequest("source")))
    assert world.entries(source)[-1].state.forks == 0
