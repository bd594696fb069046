"""A recovery that sleeps, dies, or meets a process that went on."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from headrace.recovery.recover import recover
from tests.unit.recovery.world import HOUR_S, Ruins
from tests.unit.sealer.world import PORTS, Dead, Dies, Watched


def test_a_recovery_on_a_machine_whose_clock_is_ahead_restores_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Ruins()
    log_id = world.create("a")
    data = world.fill("a", 2)
    world.seal(log_id)
    world.lose_tables()
    ask, answered = world.stores.watermarks.get, list[str]()

    def tell_the_time(asked: str) -> Any:
        """The first answer of a table sets the clock back."""
        if not answered:
            world.clock.set_back(5)
        answered.append(asked)
        return ask(asked)

    monkeypatch.setattr(world.stores.watermarks, "get", tell_the_time)
    (found,) = recover(world.stores).logs
    assert (found.log_id, found.status) == (log_id, "restored")
    assert world.read("a") == data


def test_a_recovery_that_slept_for_half_a_day_publishes_nothing() -> None:
    world = Ruins()
    log_id = world.create("a")
    data = world.fill("a", 2)
    world.seal(log_id)
    world.lose_tables()
    before = world.stores.manifests().standing(log_id)

    def sleep(what: str, done: int, total: int) -> None:
        if what == "recovering" and not done:
            world.wait(13 * HOUR_S)

    (found,) = recover(world.stores, progress=sleep).logs
    assert (found.status, found.wrote) == ("refused", ())
    assert world.stores.manifests().standing(log_id) == before
    assert world.recovered()[log_id].status == "restored"
    assert world.read("a") == data


@pytest.mark.parametrize("after", [False, True])
def test_a_recovery_that_dies_anywhere_is_finished_by_the_next(after: bool) -> None:
    at_call = 0
    while True:
        at_call += 1
        world = Ruins()
        source = world.create("s")
        data = world.fill("s", 2)
        fork = world.fork("f", "s")
        own = world.fill("f", 1)
        world.seal(fork)
        world.fill("s", 1)
        world.lose_tables()
        hook = Dies(at_call, after=after)
        ports = {name: Watched(getattr(world.stores, name), hook) for name in PORTS}
        try:
            recover(dataclasses.replace(world.stores, **ports))  # type: ignore[arg-type]
            break
        except Dead:
            pass
        world.recover()
        assert world.read("s") == data
        assert world.read("f") == data + own
        assert world.logs.head("s").state.forks == 1
        assert not world.verify().findings
        world.fill("s", 1)
        world.fill("f", 1)
        world.seal(source)
        world.seal(fork)
        assert not world.verify().findings
    assert at_call > 15


def test_a_process_that_went_on_sees_the_raised_incarnation() -> None:
    """A process that remembers the name from before needs no restart to hand out the new incarnation."""
    world = Ruins()
    log_id = world.create("a")
    world.fill("a", 2)
    world.seal(log_id)
    remembering = world.logs
    remembering.head("a")
    world.wal.remove(log_id, [entry.slot for entry in world.entries(log_id)])
    world.lose_catalog()
    world.recover()
    assert remembering.head("a").incarnation == world.seconds()
