"""Laws of purging: it waits, spares what forks need, fences late writers, and leaves what says that it ended."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from functions.queue import Message
from functions.sealer import purge as purging
from functions.sealer.handler import Sealer
from functions.sealer.purge import purge
from functions.sealer.seal import Sealed
from headrace.clock import Budget
from headrace.errors import NotFound, OutcomeUnknown
from headrace.log.commit import Attempt
from headrace.log.context import Context
from headrace.objects import keys
from headrace.streams.values import STREAMS
from headrace.streams.verbs import SURFACE
from headrace.wal import Committed
from tests.unit.sealer.world import SETTINGS, World, dispatcher

AGE_S = SETTINGS.trim_age_ms / 1000


def test_a_log_that_lives_is_never_purged() -> None:
    world = World()
    log_id = world.create("a")
    world.fill("a", 3)
    world.wait(AGE_S)
    before = world.entries(log_id)
    assert not purge(world.parts, log_id)
    assert world.entries(log_id) == before


def test_purge_waits_for_the_trim_age() -> None:
    world = World()
    log_id = world.create("a")
    world.fill("a", 3)
    world.logs.delete("a")
    before = world.entries(log_id)
    world.wait(AGE_S - 1)
    sealer, _ = dispatcher(world.parts)
    sealer.run(Message("purge", log_id))
    assert world.entries(log_id) == before
    (message,) = world.queue.waiting
    assert message.verb == "purge"
    world.wait(1)
    assert world.queue.receive(world.clock.now_ms()) == [message]
    sealer.run(message)
    assert len(world.entries(log_id)) == 1


def test_purge_leaves_the_end_and_a_tombstone() -> None:
    world = World()
    log_id = world.create("a")
    world.fill("a", 9)
    world.seal(log_id)
    world.logs.delete("a")
    world.wait(AGE_S)
    assert purge(world.parts, log_id)
    (left,) = world.entries(log_id)
    assert left.kind == "delete"
    assert set(world.keys(log_id)) == {keys.description(log_id), keys.tombstone(log_id)}
    said = json.loads(world.objects.get(keys.tombstone(log_id)))
    assert (said["config"]["name"], said["ended"], said["next_offset"]) == ("a", "deleted", 27)
    assert world.seal(log_id) == Sealed()
    assert purge(world.parts, log_id)  # again, and nothing changes
    assert world.entries(log_id) == [left]


def test_a_log_that_was_never_sealed_can_be_purged_twice() -> None:
    world = World()
    log_id = world.create("a")
    world.fill("a", 3)
    world.logs.delete("a")
    world.wait(AGE_S)
    assert purge(world.parts, log_id)
    assert world.keys(log_id) == [keys.tombstone(log_id)]
    assert purge(world.parts, log_id)
    assert len(world.entries(log_id)) == 1


def test_a_log_whose_events_were_lost_is_purged_when_the_sealer_works_again() -> None:
    """The sealer was off for longer than the table's stream keeps events, or a message ended in the dead letters."""
    world = World()
    sealer, told = dispatcher(world.parts)
    log_id, living, source = (world.create(name) for name in ("a", "b", "s"))
    world.fill("a", 9)
    world.seal(log_id)
    world.fork("f", "s")
    for name in ("a", "s"):
        world.logs.delete(name)
    new = world.create("a")
    assert overdue_of(world, sealer) == []  # a message may still be on its way
    world.wait(25 * 3600)
    assert overdue_of(world, sealer) == [Message("purge", log_id)]
    assert told.counts["WorkMissed"] == 1
    assert [entry.kind for entry in world.entries(log_id)] == ["delete"]
    assert set(world.keys(log_id)) == {keys.description(log_id), keys.tombstone(log_id)}
    assert all(world.entries(one)[0].kind == "create" for one in (living, new, source))
    world.logs.delete("f")
    world.wait(25 * 3600)
    assert {message.log_id for message in overdue_of(world, sealer)} > {source}
    assert overdue_of(world, sealer) == []


def overdue_of(world: World, sealer: Sealer) -> list[Message]:
    """Runs the hourly schedule, with no event or message of before; returns the messages that it sends, and runs them."""
    world.queue.receive(2**62)
    sealer.dispatch({"verb": "overdue"})
    messages = world.queue.receive(world.clock.now_ms())
    for message in messages:
        sealer.run(message)
    return messages


def test_the_walk_ends_in_time_and_every_log_gets_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purging, "_BATCH", 2)
    world = World()
    for number in range(9):
        world.create(f"n{number}")
        world.logs.delete(f"n{number}")
    world.wait(2 * AGE_S)
    slow = world.watched(lambda name, after: world.wait(purging.WALK_S / 3) if name == "send" and after else None)
    sealer, _ = dispatcher(slow)
    assert [len(overdue_of(world, sealer)) for _ in range(3)] == [6, 3, 0]


def test_a_name_created_again_is_not_touched() -> None:
    world = World()
    old = world.create("a")
    world.fill("a", 3)
    world.logs.delete("a")
    new = world.create("a")
    written = world.fill("a", 3)
    world.wait(AGE_S)
    assert purge(world.parts, old)
    world.seal(new)
    assert world.published(new) == written
    row = world.stores.catalog.get(STREAMS, "a")
    assert row is not None and row.log_id == new and not row.ended


def test_purge_spares_forks_and_follows_when_the_last_one_goes() -> None:
    world = World()
    source = world.create("s")
    inherited = world.fill("s", 5)
    fork = world.fork("f", "s")
    world.logs.delete("s")
    world.wait(AGE_S)
    assert not purge(world.parts, source)
    world.seal(fork)
    assert world.published(source) == inherited
    world.logs.delete("f")
    world.wait(AGE_S)
    assert purge(world.parts, fork)
    assert purge(world.parts, source)
    assert len(world.entries(source)) == 1


def test_a_deleted_source_leaves_the_listing_though_who_deleted_it_died() -> None:
    world = World()
    source = world.create("s")
    world.fork("f", "s")
    row = world.stores.catalog.get(STREAMS, "s")
    world.logs.delete("s")
    assert row is not None
    world.wal.catalog.rows[STREAMS, "s"] = row  # as if the mark had never been written
    assert not purge(world.parts, source)
    assert [one.name for one in world.logs.list(limit=9)] == ["f"]


def test_an_expired_fork_gives_back_its_source() -> None:
    world = World()
    source = world.create("s")
    fork = world.fork("f", "s")
    world.fill("f", 1)
    row = world.stores.catalog.get(STREAMS, "f")
    newest = world.wal.newest(fork)
    assert row is not None and newest is not None
    ended = replace(
        newest,
        slot=newest.next_slot(),
        kind="expire",
        prev_slot=newest.slot,
        prev_id=newest.id,
        request_ids=("x",),
        count=0,
        payload=None,
        times=(),
        state=replace(newest.state, ended="expired"),
    )
    world.wal.commit(ended)
    world.wait(AGE_S)
    assert purge(world.parts, fork)
    assert world.wal.newest(source).state.forks == 0  # type: ignore[union-attr]
    after = world.stores.catalog.get(STREAMS, "f")
    assert after is not None and after.ended


def test_a_late_writer_is_not_acknowledged_into_a_purged_log() -> None:
    """Its slot was never published: without the raised watermark the fence would let it through."""
    world = World()
    log_id = world.create("a")
    world.fill("a", 3)
    context = Context(world.stores, SURFACE)
    picture = context.pictures.look("a")
    late = replace(
        picture.newest,
        slot=picture.newest.next_slot(),
        prev_slot=picture.newest.slot,
        prev_id=picture.newest.id,
        request_ids=("late",),
    )
    world.fill("a", 3)
    world.logs.delete("a")
    world.wait(AGE_S)
    assert purge(world.parts, log_id)
    try:
        outcome = Attempt(context, Budget(world.clock, 3000)).put(late, [], picture.read)
    except OutcomeUnknown:
        outcome = None
    assert not isinstance(outcome, Committed)
    assert [entry.kind for entry in world.entries(log_id)] == ["delete"]
    try:
        world.logs.head("a")
    except NotFound:
        return
    raise AssertionError("a purged log answers")
