"""Hosts that are suspended in mid-write, with either clock standing still: nothing is decided on what an old picture found,
and nothing outlives an entry that is dead.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from functions.queue import MemoryQueue
from functions.sealer.context import assemble
from functions.sealer.seal import seal
from functions.sealer.trim import sweep_orphans, trim
from headrace.clock import Budget
from headrace.errors import OutcomeUnknown, Overloaded
from headrace.log.commit import Attempt
from headrace.log.context import Context, Ticket
from headrace.log.requests import At
from headrace.streams.verbs import SURFACE
from headrace.wal import Committed
from headrace.wal.state import BEGINNING
from tests.support.builders import appending, next_entry, producing
from tests.support.clocks import ManualClock
from tests.unit.log.world import Process, World

HOUR_S = 3600.0
BIG = random.Random(1).randbytes(1000)
SUSPENDED = {
    "the monotonic clock stands still": lambda clock: clock.set_back(-HOUR_S),
    "the wall clock stands still": lambda clock: (clock.advance(HOUR_S), clock.set_back(HOUR_S)),
}


class Crash(BaseException):
    """The process ends here."""


def crash() -> None:
    raise Crash


def publish_and_trim(world: World, log_id: str) -> None:
    """Runs the sealer on everything that is there, an hour later."""
    clock = ManualClock()
    sealer = world.process(clock)
    parts = assemble(sealer.stores, MemoryQueue())
    seal(parts, log_id, force=True)
    clock.advance(HOUR_S)
    trim(parts, log_id)


def used_and_trimmed(world: World, log_id: str) -> None:
    """Has another process write three records, which are published and trimmed, but for the newest entry."""
    other = world.process()
    for data in (b"1", b"2", b"3"):
        other.logs.append("s", appending(data))
    publish_and_trim(world, log_id)
    assert len(world.entries(log_id)) == 1


@pytest.mark.parametrize("suspend", SUSPENDED.values(), ids=SUSPENDED)
def test_an_append_never_follows_a_dead_item_that_an_old_picture_found(
    suspend: Callable[[ManualClock], object],
) -> None:
    """Two writers of one host hold one picture. The dead item of the first ends beyond all that is published."""
    world = World()
    first, second = world.process(), world.process()
    log_id = first.create()
    for process in (first, second):
        process.logs.head("s")

    def suspended() -> None:
        used_and_trimmed(world, log_id)
        for process in (first, second):
            suspend(process.clock)

    def the_first_one_dies() -> None:
        first.wal.on("commit", suspended)
        first.wal.on("commit", crash, after=True)
        with pytest.raises(Crash):
            first.logs.append("s", appending(*[b"dead"] * 10))

    second.wal.on("commit", the_first_one_dies)
    written = [b"1", b"2", b"3"]
    with suppress(Overloaded):  # where its time is over
        second.logs.append("s", appending(b"4"))
        written.append(b"4")
    assert world.process().read() == written
    publish_and_trim(world, log_id)
    assert world.process().read() == written


@pytest.mark.parametrize("distance", [1, 3])
def test_the_fence_demands_a_confirmed_predecessor_at_any_distance(distance: int) -> None:
    world = World()
    process = world.process()
    log_id = process.create()
    (created,) = world.entries(log_id)
    used_and_trimmed(world, log_id)
    (newest,) = world.entries(log_id)
    dead = next_entry(created, *[b"dead"] * 10)
    assert world.memory.commit(dead) == Committed()
    attempt = Attempt(Context(process.stores, SURFACE), Budget(process.clock, 3000))
    for before, is_real in ((newest, True), (dead, False)):
        for number in range(distance):
            before = next_entry(before, b"%d" % number)
            assert world.memory.commit(before) == Committed()
        assert attempt.verify_slot(before) is is_real


def test_a_producer_that_a_dead_group_commit_evicted_is_no_duplicate() -> None:
    """Nine producers share an entry, so that the first is accepted and leaves the state in the same commit."""
    world = World()
    late = world.process()
    log_id = late.create()
    late.logs.head("s")
    tickets = [Ticket(producing(f"p{n}", 0, b"%d" % n), f"r{n}", late.clock.monotonic()) for n in range(9)]

    def suspended() -> None:
        used_and_trimmed(world, log_id)
        late.clock.set_back(-HOUR_S)

    late.wal.on("commit", suspended)
    late.wal.fail("commit", Crash, call=2)
    with pytest.raises(Crash):
        late.logs.appender._commit("s", tickets)
    assert world.memory.producers.rows == {}
    repeated = world.process().logs.append("s", producing("p0", 0, b"0"))
    assert not repeated.duplicate
    assert world.process().read() == [b"1", b"2", b"3", b"0"]


def hibernation(world: World, process: Process, log_id: str) -> None:
    """Two days in which others write, and unnamed payloads are swept."""
    other = world.process()
    for data in (b"1", b"2"):
        other.logs.append("s", appending(data))
    for clock in (other.clock, process.clock):
        clock.set_back(-48 * HOUR_S)
    sweep(other, log_id)


def sweep(other: Process, log_id: str) -> None:
    """Runs the orphan sweep."""
    sweep_orphans(assemble(other.stores, MemoryQueue()), log_id)


def test_a_payload_that_was_swept_during_a_hibernation_is_written_again() -> None:
    world = World(spill_bytes=100)
    process, rival = world.process(), world.process()
    log_id = process.create()
    process.logs.head("s")
    process.wal.on("commit", lambda: rival.logs.append("s", appending(b"first")))
    process.wal.on("commit", lambda: hibernation(world, process, log_id), after=True)  # it lost the slot
    process.logs.append("s", appending(BIG))
    assert world.process().read() == [b"first", b"1", b"2", BIG]


def test_a_payload_that_was_written_for_an_old_slot_is_written_again() -> None:
    """Its own put is young, but the sweep judges it by the slot in its key."""
    world = World(spill_bytes=100)
    process, other = world.process(), world.process()
    log_id = process.create()
    process.logs.head("s")
    process.objects.on("put", lambda: hibernation(world, process, log_id))
    other.clock.set_back(-48 * HOUR_S)
    process.wal.on("commit", lambda: sweep(other, log_id), call=2, times=2)
    process.logs.append("s", appending(BIG))
    assert world.process().read() == [b"1", b"2", BIG]


def test_an_error_after_a_try_that_timed_out_leaves_the_outcome_unknown() -> None:
    process = World().process()
    process.create()
    process.wal.fail("commit", after=True)
    process.wal.fail("commit", PermissionError, call=2)
    with pytest.raises(OutcomeUnknown):
        process.logs.append("s", appending(b"x"))
    assert process.read() == [b"x"]
    process.wal.fail("commit", PermissionError)
    with pytest.raises(PermissionError):  # nothing was sent before
        process.logs.append("s", appending(b"y"))


def test_an_error_of_the_fence_leaves_the_outcome_unknown() -> None:
    process = World().process()
    process.create()
    process.logs.head("s")
    process.wal.on("commit", lambda: process.clock.advance(HOUR_S))
    process.watermarks.fail("get", PermissionError)
    with pytest.raises(OutcomeUnknown):
        process.logs.append("s", appending(b"x"))
    assert process.read() == [b"x"]


def test_an_entry_that_arrived_late_stays_until_every_picture_from_before_it_is_old() -> None:
    """A request held up by the network for long is stored with the time at which it was decided."""
    world = World()
    writer, late = world.process(), world.process()
    log_id = writer.create()
    (created,) = world.entries(log_id)
    for process in (writer, late):
        process.clock.advance(2 * HOUR_S)
    late.logs.head("s")
    held_up = next_entry(created, b"0", committed_ms=created.committed_ms)
    assert world.memory.commit(held_up) == Committed()
    writer.logs.append("s", appending(b"1"))
    parts = assemble(writer.stores, MemoryQueue())
    seal(parts, log_id, force=True)
    trim(parts, log_id)
    assert late.logs.append("s", appending(b"2")).tries == 2
    assert late.logs.read("s", At(BEGINNING)).data == [b"0", b"1", b"2"]
