"""Names of a surface that counts them: one is counted while it lives, whatever dies between the steps."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from functions.sealer.audit import SLOTS, sweep
from functions.sealer.context import assemble
from functions.sealer.purge import purge
from headrace.errors import HeadraceError, LimitReached, StoreError, StoreThrottled, StoreTimeout
from headrace.streams.values import STREAMS
from headrace.tables.parts import SLOT, Part
from headrace.tables.slots import Limit, take
from tests.support.faults import Faulty
from tests.support.pairs import PAIRS, Pairs
from tests.unit.sealer.world import SETTINGS, World

TTL_MS = 60_000
TRIM_S = SETTINGS.trim_age_ms / 1000


def held(world: World) -> int:
    return sum(world.stores.sessions.counts(PAIRS))


def living(world: World) -> int:
    return len(world.stores.catalog.living(PAIRS, limit=1000))


def with_faults(world: World) -> tuple[Pairs, Faulty]:
    """Returns pairs whose table of sessions can fail."""
    sessions: Any = Faulty(world.stores.sessions)
    return Pairs(dataclasses.replace(world.stores, sessions=sessions), most=0), sessions


def test_a_create_beyond_the_limit_is_refused_until_a_name_ends() -> None:
    world = World()
    pairs = Pairs(world.stores, most=3)
    for name in ("a", "b", "c"):
        pairs.create(name)
    with pytest.raises(LimitReached) as raised:
        pairs.create("d")
    assert raised.value.detail == {"limit": "max_pairs", "max": 3}
    assert world.stores.catalog.get(PAIRS, "d") is None
    world.pairs.log.delete("b")
    pairs.create("d")
    with pytest.raises(LimitReached):
        pairs.create("b")
    assert held(world) == living(world) == 3


@pytest.mark.parametrize("error", [StoreTimeout, StoreThrottled])
@pytest.mark.parametrize("after", [False, True])
def test_a_delete_that_dies_before_or_after_its_mark_is_counted_off_once(error: type[Exception], after: bool) -> None:
    world = World()
    pairs, sessions = with_faults(world)
    log_id = pairs.create("a").log_id
    pairs.create("b")
    sessions.fail("commit", error, times=10, after=after and error is StoreTimeout)
    assert pairs.log.delete("a")
    for _ in range(3):
        purge(world.parts, log_id)
    assert held(world) == living(world) == 1
    world.wait(TRIM_S)
    assert purge(world.parts, log_id)
    assert held(world) == 1


def test_a_collision_at_one_shard_is_avoided_at_the_next() -> None:
    world = World()
    pairs, sessions = with_faults(world)
    pairs.create("a")
    sessions.fail("commit", StoreThrottled, times=3)
    pairs.log.delete("a")
    assert sessions.calls["commit"] == 4
    assert held(world) == living(world) == 0


def test_a_create_before_the_mark_takes_over_the_place() -> None:
    world = World()
    pairs, sessions = with_faults(world)
    old = pairs.create("a").log_id
    sessions.fail("commit", times=10)
    pairs.log.delete("a")
    assert held(world) == 1
    full = Pairs(world.stores, most=1)
    full.create("a")
    assert held(world) == 1
    world.wait(TRIM_S)
    assert purge(world.parts, old)
    assert held(world) == living(world) == 1


def test_a_mark_that_comes_between_look_and_create_makes_it_count() -> None:
    """The row was unmarked when it was read, so nothing was to be added; then the purge freed its place."""
    world = World()
    pairs, sessions = with_faults(world)
    old = pairs.create("a").log_id
    sessions.fail("commit", times=10)
    pairs.log.delete("a")
    wal: Any = Faulty(world.stores.wal)
    wal.on("commit", lambda: purge(world.parts, old))
    Pairs(dataclasses.replace(world.stores, wal=wal), most=0).create("a")
    assert wal.calls["commit"] == 2
    assert held(world) == living(world) == 1


def test_an_expired_name_is_counted_off_by_whoever_finds_it() -> None:
    world = World()
    for name in ("a", "b"):
        world.pairs.create(name, ttl_ms=TTL_MS)
    world.wait(TTL_MS / 1000)
    assert sweep(world.parts).ended == 2
    assert sweep(world.parts).ended == 0
    assert held(world) == living(world) == 0


def test_names_of_other_surfaces_are_not_counted() -> None:
    world = World()
    world.create("s")
    world.logs.delete("s")
    assert sum(world.stores.sessions.counts(STREAMS)) == 0


Step = tuple[str, int, bool]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["create", "delete", "expire", "purge"]), st.integers(0, 4), st.booleans()),
        max_size=40,
    )
)
def test_the_counter_is_the_number_of_living_names(steps: list[Step]) -> None:
    world = World()
    logs: list[str] = []
    for kind, number, fails in steps:
        with suppress(HeadraceError, StoreError):  # the name is there, or is not; or the table failed
            take_step(world, kind, number, fails, logs)
        assert held(world) == living(world)


def take_step(world: World, kind: str, number: int, fails: bool, logs: list[str]) -> None:
    pairs, sessions = with_faults(world)
    if fails:
        sessions.fail("commit", times=10)
    match kind:
        case "create":
            logs.append(pairs.create(f"n{number}", ttl_ms=TTL_MS).log_id)
        case "delete":
            pairs.log.delete(f"n{number}")
        case "expire":
            world.wait(TTL_MS / 2000)
            sweep(assemble(dataclasses.replace(world.stores, sessions=sessions), world.queue))
        case "purge" if number < len(logs):
            purge(world.parts, logs[number])


# Slots.


def open_streams(world: World, number: int, lasts_ms: int) -> None:
    limit = Limit("max_streams", "w", 10_000)
    now_ms = world.clock.now_ms()
    for one in range(number):
        assert take(
            world.stores.sessions, Part(SLOT, f"{lasts_ms}-{one}", expires_ms=now_ms + lasts_ms), [limit], now_ms
        )


def test_the_sweep_frees_the_slots_of_processes_that_died() -> None:
    world = World()
    open_streams(world, 5, 1_000)
    open_streams(world, 2, 90_000)
    assert sweep(world.parts).slots == 0
    world.wait(1)
    assert sweep(world.parts).slots == 5
    assert sum(world.stores.sessions.counts("w")) == 2
    world.wait(90)
    assert sweep(world.parts).slots == 2


def test_one_sweep_frees_so_many_slots_that_names_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("functions.sealer.audit.SLOTS", 3)
    world = World()
    open_streams(world, 5, 1_000)
    world.create("s", ttl_ms=1_000)
    world.wait(1)
    swept = sweep(world.parts)
    assert (swept.slots, swept.ended) == (3, 1)
    assert sweep(world.parts).slots == 2
    assert SLOTS >= 100


def test_slots_that_can_not_be_freed_keep_no_name_alive() -> None:
    world = World()
    sessions: Any = Faulty(world.stores.sessions)
    sessions.fail("expired")
    world.create("s", ttl_ms=1_000)
    world.wait(1)
    swept = sweep(assemble(dataclasses.replace(world.stores, sessions=sessions), world.queue))
    assert (swept.ended, swept.slots) == (1, 0)
    assert [log_id for log_id, _ in swept.failed] == [""]
