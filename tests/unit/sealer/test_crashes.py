"""A crash at any store call of any verb loses nothing, doubles nothing, and needs no hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from functions.sealer.context import Context
from functions.sealer.purge import purge
from functions.sealer.seal import seal
from functions.sealer.trim import trim
from headrace.errors import StoreError
from tests.unit.sealer.world import SETTINGS, Dead, Dies, Hook, Stutters, World

MAX_CALLS = 400


def each_call(make: Callable[[int], Hook], run: Callable[[Hook], bool]) -> int:
    """Runs with a fault at call 1, 2, … until a run needs fewer calls; how many that is."""
    for at in range(1, MAX_CALLS):
        if not run(make(at)):
            return at - 1
    raise AssertionError("never ends")


def fails(verb: Callable[[Context], object], parts: Context) -> bool:
    """Runs a verb; returns whether it raised the fault: it may survive it."""
    try:
        verb(parts)
    except (Dead, StoreError):
        return True
    return False


@pytest.mark.parametrize("after", [False, True])
def test_a_sealer_that_dies_is_replaced_by_the_next(after: bool) -> None:
    def run(hook: Hook) -> bool:
        world = World()
        source = world.create("s")
        inherited = world.fill("s", 2)
        log_id = world.fork("a", "s")
        written = world.fill("a", 9)
        died = fails(lambda parts: seal(parts, log_id, force=True), world.watched(hook))
        written += world.fill("a", 1)
        world.seal(log_id)
        assert world.published(log_id) == written
        assert world.published(source) == inherited
        manifest = world.manifest(log_id)
        assert manifest is not None
        assert world.stores.watermarks.get(log_id).generation == manifest.generation
        world.wait(SETTINGS.trim_age_ms / 1000)
        verbs = [message.verb for message in world.queue.receive(world.clock.now_ms())]
        assert "trim" in verbs  # anyone who published has asked for it
        return died

    assert each_call(lambda at: Dies(at, after=after), run) > 30


@pytest.mark.parametrize("after", [False, True])
def test_a_call_that_times_out_publishes_once(after: bool) -> None:
    def run(hook: Stutters) -> bool:
        world = World()
        log_id = world.create("a")
        written = world.fill("a", 9)
        fails(lambda parts: seal(parts, log_id, force=True), world.watched(hook))
        world.seal(log_id)
        assert world.published(log_id) == written
        return hook.calls >= hook.at

    assert each_call(lambda at: Stutters(at, after=after), run) > 20  # type: ignore[arg-type]


@pytest.mark.parametrize("after", [False, True])
def test_a_trim_that_dies_leaves_a_log_that_can_be_trimmed(after: bool) -> None:
    def run(hook: Hook) -> bool:
        world = World()
        log_id = world.create("a")
        written = world.fill("a", 9)
        world.seal(log_id)
        world.wait(SETTINGS.trim_age_ms / 1000)
        died = fails(lambda parts: trim(parts, log_id), world.watched(hook))
        slots = [entry.slot for entry in world.entries(log_id)]
        trim(world.parts, log_id)
        assert len(slots) in (1, 10) and len(world.entries(log_id)) == 1
        written += world.fill("a", 1)
        world.seal(log_id)
        assert world.published(log_id) == written
        return died

    assert each_call(lambda at: Dies(at, after=after), run) >= 5


@pytest.mark.parametrize("after", [False, True])
def test_a_purge_that_dies_is_finished_by_the_next(after: bool) -> None:
    def run(hook: Hook) -> bool:
        world = World()
        source = world.create("s")
        log_id = world.fork("a", "s")
        world.fill("a", 5)
        world.seal(log_id)
        world.fill("a", 5)  # published in part only
        world.logs.delete("a")
        world.wait(SETTINGS.trim_age_ms / 1000)
        died = fails(lambda parts: purge(parts, log_id), world.watched(hook))
        assert log_id in world.wal.unpurged(2**62) or len(world.keys(log_id)) == 2
        world.wait(SETTINGS.trim_age_ms / 1000)
        assert purge(world.parts, log_id)
        (left,) = world.entries(log_id)
        assert left.state.ended == "deleted" and not left.state.holds_source
        assert world.stores.watermarks.get(log_id).end_slot >= left.slot
        assert [key.rpartition("/")[2] for key in world.keys(log_id)] == ["deleted.json", "log.json"]
        newest = world.wal.newest(source)
        assert newest is not None and newest.state.forks == 0
        assert list(world.wal.unpurged(2**62)) == []
        return died

    assert each_call(lambda at: Dies(at, after=after), run) > 10
