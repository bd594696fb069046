"""Creates that lose or die after they wrote an object: nothing of them remains, and nothing that a log names goes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from functions.queue import MemoryQueue
from functions.sealer.audit import Swept, sweep
from functions.sealer.context import assemble
from headrace.batch import Batch
from headrace.errors import Conflict, OutcomeUnknown, Overloaded, StoreThrottled, StoreTimeout
from headrace.objects import keys
from headrace.recovery.verify import verify_all
from headrace.streams.values import STREAMS, ForkRequest
from headrace.tables.unborn import DUE_MS, UNBORN, buried
from tests.support.builders import JSON, appending
from tests.unit.log.test_definitions import NUMBERS, installing
from tests.unit.log.world import Process, World

BIG = random.Random(1).randbytes(1000)
DAY_S = DUE_MS / 1000


class Dies(BaseException):
    """The process is gone."""


def die() -> None:
    raise Dies


def start() -> tuple[World, Process, Process]:
    """Two processes that spill what is above 100 bytes, with a clock each."""
    world = World(spill_bytes=100)
    return world, world.process(), world.process()


def create_big(process: Process, name: str = "s", **fields: Any) -> str:
    return process.create(name, records=Batch.of([BIG]), **fields)


def swept(process: Process) -> Swept:
    return sweep(assemble(process.stores, MemoryQueue()))


def stored(world: World) -> list[str]:
    """Returns every object."""
    return list(world.objects.list(keys.ROOT))


def announced(world: World) -> list[str]:
    """Returns the log ids that rows announce."""
    return [name for surface, name in world.memory.catalog.rows if surface == UNBORN]


def test_a_create_that_loses_the_race_for_its_name_leaves_nothing() -> None:
    world, late, other = start()
    late.wal.on("commit", other.create)
    with pytest.raises(Conflict):
        create_big(late, ttl_ms=1)
    assert len(stored(world)) == 1, "the api may delete no object"
    assert swept(other).orphans == 1  # at once, not after a day
    assert stored(world) == [] and announced(world) == []


@pytest.mark.parametrize(("port", "method"), [("objects", "put"), ("wal", "commit")])
@pytest.mark.parametrize("after", [False, True])
def test_a_create_that_dies_leaves_nothing_after_a_day(port: str, method: str, after: bool) -> None:
    world, dying, other = start()
    getattr(dying, port).on(method, die, after=after)
    with pytest.raises(Dies):
        create_big(dying)
    before = stored(world)
    assert swept(other).orphans == 0 and stored(world) == before
    other.clock.advance(DAY_S)
    swept(other)
    lives = (port, after) == ("wal", True)
    assert stored(world) == (before if lives else []) and announced(world) == []
    if lives:
        assert other.read() == [BIG]


@pytest.mark.parametrize("after", [False, True])
def test_a_sweep_that_dies_is_done_again(after: bool) -> None:
    world, dying, _ = start()
    dying.wal.on("commit", die)
    with pytest.raises(Dies):
        create_big(dying)
    dying.clock.advance(DAY_S)
    for port, method in ((dying.catalog, "put"), (dying.objects, "delete"), (dying.catalog, "remove")):
        port.on(method, die, after=after)
        with pytest.raises(Dies):
            swept(dying)
        port.heal()
    swept(dying)
    assert stored(world) == [] and announced(world) == []


def test_a_create_that_was_held_up_for_a_day_is_refused_by_its_own_commit() -> None:
    """It would name an object that was swept."""
    world, late, other = start()

    def sweep_meanwhile() -> None:
        other.clock.advance(DAY_S)
        swept(other)

    late.wal.on("commit", sweep_meanwhile)
    create_big(late)
    assert late.read() == [BIG] and other.read() == [BIG], "decided again, with a payload of its own"
    swept(other)
    assert len(stored(world)) == 1 and announced(world) == []


def test_an_object_that_came_after_its_log_was_buried_goes_too() -> None:
    world, late, other = start()

    def sweep_meanwhile() -> None:
        other.clock.advance(DAY_S)
        swept(other)

    late.objects.on("put", sweep_meanwhile)
    late.wal.on("commit", other.create, call=2)
    with pytest.raises(Conflict):
        create_big(late, ttl_ms=1)
    swept(other)
    assert stored(world) == [] and announced(world) == []


def test_an_object_that_came_after_a_sweep_had_listed_the_others_is_left_to_the_next() -> None:
    """Its create was held up for a day, was refused, and buried the row again before the sweep's delete of it arrived."""
    world, late, other = start()
    slow = world.process(other.clock)

    def sweep_until_it_removes() -> None:
        other.clock.advance(DAY_S)
        slow.catalog.on("remove", die)
        with pytest.raises(Dies):
            swept(slow)

    late.objects.on("put", sweep_until_it_removes)
    late.wal.on("commit", other.create, call=2)
    with pytest.raises(Conflict):
        create_big(late, ttl_ms=1)
    slow.catalog.target.remove(*slow.catalog.seen[-1][1])
    assert swept(other).orphans == 2
    assert stored(world) == [] and announced(world) == []


def test_a_sweep_that_meets_a_create_in_the_middle_takes_nothing_from_it() -> None:
    world, late, other = start()
    sweeper = world.process(other.clock)

    def sweep_until_it_buries() -> None:
        other.clock.advance(DAY_S)
        sweeper.catalog.on("put", lambda: late.wal.target.commit(*late.wal.seen[-1][1]))
        swept(sweeper)

    late.wal.on("commit", sweep_until_it_buries)
    create_big(late)
    swept(other)
    assert other.read() == [BIG] and len(stored(world)) == 1 and announced(world) == []


def test_a_row_of_a_log_that_was_born_takes_nothing_from_it() -> None:
    """A message of the network that came late, or a catalog that was restored, announces a log that lives."""
    world, one, other = start()
    log_id = create_big(one)
    one.catalog.put(buried(log_id, 0))
    assert swept(other).orphans == 0
    assert other.read() == [BIG] and announced(world) == []


def test_a_log_that_only_the_bucket_still_knows_keeps_its_objects() -> None:
    """A restored catalog announces it, a restored write-ahead log lacks it, and the recovery has not run yet."""
    world, one, other = start()
    log_id = create_big(one)
    world.objects.put(keys.description(log_id), b"{}")
    kept = stored(world)
    one.catalog.put(buried(log_id, 0))
    world.memory.remove(log_id, [entry.slot for entry in world.entries(log_id)])
    assert swept(other).orphans == 0
    assert stored(world) == kept and announced(world) == []


def test_a_fork_that_dies_takes_the_definition_with_it_that_it_would_have_begun_with() -> None:
    world, dying, other = start()
    other.create("source", content_type=JSON)
    other.logs.define("source", installing(schema=NUMBERS))
    before = stored(world)
    dying.wal.on("commit", die)
    with pytest.raises(Dies):
        dying.create("fork", content_type=None, fork=ForkRequest("source"))
    assert len(stored(world)) == len(before) + 1
    other.clock.advance(DAY_S)
    assert swept(other).orphans == 1
    assert stored(world) == before and announced(world) == []


def test_a_create_without_an_object_and_an_append_announce_nothing() -> None:
    _, one, _ = start()
    one.create("s", records=Batch.of([b"small"]))
    one.logs.append("s", appending(BIG))
    assert one.catalog.calls["put"] == 0 and one.objects.calls["put"] == 1


def test_a_create_with_a_payload_is_one_write_more() -> None:
    _, one, _ = start()
    create_big(one)
    assert [method for method, _ in [*one.catalog.seen]] == ["get", "put"]
    assert (one.wal.calls.total(), one.objects.calls.total()) == (1, 1)


@pytest.mark.parametrize("error", [StoreThrottled, StoreTimeout])
def test_a_create_of_unknown_outcome_is_left_to_the_sweep(error: type[Exception]) -> None:
    world, one, other = start()
    one.wal.fail("commit", error, times=float("inf"))
    with pytest.raises((Overloaded, OutcomeUnknown)):
        create_big(one)
    assert swept(other).orphans == 0 and len(stored(world)) == 1
    other.clock.advance(DAY_S)
    assert swept(other).orphans == 1 and stored(world) == []


def test_a_create_is_not_begun_if_its_log_cannot_be_announced() -> None:
    world, one, _ = start()
    one.catalog.fail("put")
    with pytest.raises(StoreTimeout):
        create_big(one)
    assert stored(world) == []


def test_a_lost_race_is_told_though_its_row_cannot_be_buried() -> None:
    world, late, other = start()
    late.wal.on("commit", other.create)
    late.catalog.fail("put", call=2)
    with pytest.raises(Conflict):
        create_big(late, ttl_ms=1)
    other.clock.advance(DAY_S)
    assert swept(other).orphans == 1 and stored(world) == []


def test_an_unborn_log_is_no_name() -> None:
    world, dying, other = start()
    dying.wal.on("commit", die)
    with pytest.raises(Dies):
        create_big(dying)
    assert announced(world) != []
    assert other.logs.list(limit=10) == [] and other.stores.catalog.every(STREAMS, limit=10) == []
    assert [one.severity for one in verify_all(other.stores).findings] == ["warning"]
    other.create()
    assert [row.name for row in other.logs.list(limit=10)] == ["s"]
