"""A process that dies before any of its calls, or whose calls another one precedes: pushes, registrations that drop state,
resets, and the relay that ends them. Folds and additive registrations are in `test_races.py`, back-fills in
`test_backfill.py`.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest

from functions.metrics import Meter, RelayMetric
from functions.queue import MemoryQueue
from functions.relay.context import assemble
from functions.relay.followers import Hint
from functions.relay.lanes import RegistryFollower
from headrace.features.define import follower
from headrace.features.errors import EventNotFound
from headrace.features.values import REGISTER, registry_name
from headrace.features.verbs import Features
from headrace.log.stores import Stores
from tests.unit.features.backfilling import late, run_jobs
from tests.unit.features.interposing import Died, Interposed, at_every_call, die
from tests.unit.features.world import NS, World, event, table, tx

NODES = [event(dedupe_key="n", lanes=2, lane_key="user"), table()]


def relay(stores: Stores, world: World) -> None:
    """Lets the relay of a process hear of the registry."""
    context = assemble(stores, MemoryQueue(), Meter(RelayMetric, lambda _: None))
    head = world.api.head(registry_name(NS))
    RegistryFollower(context).visit(follower(head.config, head.log_id, REGISTER), Hint())


@pytest.mark.parametrize(("count", "calls"), [(1, 4), (3, 4), (5_000, 5)], ids=["one", "inline", "with an object"])
def test_a_push_that_dies_at_any_call_is_whole_or_absent(count: int, calls: int) -> None:
    noise = Random(1)
    events = [tx(n=noise.getrandbits(60)) for _ in range(count)]

    def prepare() -> World:
        world = World(event(), table(), table("All", keys=[]))
        world.push(tx())
        return world

    def run(port: Interposed, world: World) -> None:
        with suppress(Died):
            Features(port.stores).push(NS, "Tx", events)
        is_done = port.action is None
        found = world.get(by=world.other())["c"]
        assert found in (1, 1 + count)
        world.push(tx())
        world.fold()
        assert world.get() == world.get("", "All", by=world.other()) == {"c": found + 1, "s": found + 1.0}
        outcomes.add((is_done, found))

    outcomes = set[tuple[bool, int]]()
    assert at_every_call(run, prepare, die) >= calls
    assert outcomes == {(True, 1), (False, 1 + count)}, "the write is the last call"


def test_the_repeat_of_a_push_that_met_another_at_any_call_counts_once() -> None:
    batch = [tx(amount=2, n=2), tx(amount=3, n=3)]

    def run(port: Interposed, world: World) -> None:
        acks = [Features(port.stores).push(NS, "Tx", batch), world.other().push(NS, "Tx", batch)]
        assert acks[1].is_replay
        assert world.get(by=world.other()) == {"c": 2, "s": 5.0}
        assert world.fold(number=acks[0].lane).is_done
        assert world.get() == {"c": 2, "s": 5.0}

    assert at_every_call(run, lambda: World(*NODES), lambda world: world.other().push(NS, "Tx", batch)) >= 4


@pytest.mark.parametrize("who", ["relay", "registration"])
def test_a_registration_that_drops_state_and_dies_at_any_call_is_whole_or_absent(who: str) -> None:
    nodes = [
        table(c=("sum", {"field": "amount"})),
        event("New", lanes=2, lane_key="user"),
        table("T", upstream="New"),
    ]

    def prepare() -> World:
        world = World(*NODES)
        world.push(tx(n=1))
        return world

    def run(port: Interposed, world: World) -> None:
        with suppress(Died):
            Features(port.stores).register(NS, {"nodes": nodes, "force": True})
        if who == "relay":
            relay(world.stores, world)
        else:
            world.other().register(NS, {"nodes": nodes, "force": True})
        view = world.other().registry(NS)
        assert not view.state.is_open
        assert (who, view.state.version) in (("relay", 1), ("relay", 2), ("registration", 2))
        world.push(tx(n=2, amount=4))
        expected: dict[str, Any] = {"c": 2, "s": 5.0} if view.state.version == 1 else {"c": 4.0}
        assert world.get() == world.get(by=world.other()) == expected
        if view.state.version == 2:
            world.push(tx(user="z"), event="New", by=world.other())
            assert world.get("z", "T") == {"c": 1, "s": 1.0}

    assert at_every_call(run, prepare, die) >= 12


def test_a_reset_that_dies_at_any_call_is_whole_or_absent() -> None:
    def prepare() -> World:
        world = World(*NODES)
        world.push(tx(n=1))
        return world

    def run(port: Interposed, world: World) -> None:
        with suppress(Died):
            Features(port.stores, may_reset=True).reset(NS)
        relay(world.stores, world)
        other = world.other()
        if other.registry(NS).state.version == 1:
            assert world.get(by=other) == {"c": 1, "s": 1.0}
            return
        with pytest.raises(EventNotFound):
            world.push(by=other)
        world.register(*NODES)
        assert world.get(by=other) == {}
        world.push(tx(n=1), by=other)
        assert world.get() == world.get(by=other) == {"c": 1, "s": 1.0}

    assert at_every_call(run, prepare, die) >= 5


def test_a_relay_that_dies_at_any_call_of_a_back_fills_end_is_replaced_by_the_next() -> None:
    def prepare() -> World:
        world = World(event(), table())
        for number in range(6):
            world.push(tx(user=f"u{number % 2}", amount=number))
        world.register(late(c="count", s=("sum", {"field": "amount"})))
        world.push(tx(user="u0", amount=10))
        relay(world.stores, world)
        run_jobs(world)
        world.fold()
        return world

    def run(port: Interposed, world: World) -> None:
        with suppress(Died):
            relay(port.stores, world)
        read = world.get("u0", "Late", by=world.other())
        assert read in ({"c": 1, "s": 10.0}, {"c": 4, "s": 16.0})
        relay(world.stores, world)
        assert not world.api.registry(NS).registry.building
        world.fold()
        for by in (world.api, world.other()):
            assert world.get("u0", "Late", by=by) == {"c": 4, "s": 16.0}

    assert at_every_call(run, prepare, die) >= 6
