"""The relay's followers of feature tables: lanes are folded, and registrations end, whatever died."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from functions.fold_queue import Fold, MemoryFoldQueue
from functions.metrics import Meter, RelayMetric
from functions.queue import MemoryQueue
from functions.relay import context as relay
from functions.relay.followers import Hint
from functions.relay.kinds import FOLLOWERS
from functions.relay.lanes import BUILD_MS, DONE
from headrace.errors import StoreTimeout
from headrace.features import register
from headrace.features.fold import DROP_AGAIN_MS, DROP_MS
from headrace.features.values import FOLD, REGISTER, event_name, registry_name
from headrace.tables.features import TABLE, MemoryFeatures
from headrace.tables.follows import Follow
from tests.unit.features.backfilling import run_jobs
from tests.unit.features.world import NS, World, event, table, tx

LANES = {"lanes": 3, "lane_key": "user"}


class Relayed:
    """A world, and the followers of its logs as the relay visits them."""

    def __init__(self) -> None:
        self.world = World()
        self.queue, self.folds = MemoryQueue(), MemoryFoldQueue()
        self.lines: list[dict[str, Any]] = []
        meter = Meter(RelayMetric, lambda line: self.lines.append(json.loads(line)))
        self.context = replace(relay.assemble(self.world.stores, self.queue, meter), folds=self.folds)
        self.followers = {kind: FOLLOWERS[kind](self.context) for kind in (FOLD, REGISTER)}

    def follow(self, name: str, kind: str, role: str = "") -> Follow:
        """Returns the row by which the relay hears of a log."""
        which = (name, role) if role else name
        found = self.world.stores.follows.get(self.world.api.head(which).log_id, kind, "-")
        assert found is not None, "it came with the log"
        return found

    def visit(self, name: str, kind: str, said: str = "", role: str = "") -> float | None:
        return self.followers[kind].visit(self.follow(name, kind, role), Hint(said))

    def visit_registry(self, said: str = "") -> None:
        assert self.visit(registry_name(NS), REGISTER, said) is None


@pytest.fixture
def relayed() -> Relayed:
    """Returns a namespace with nothing in it."""
    return Relayed()


def test_an_entry_of_a_lane_leads_to_one_message_for_the_folder(relayed: Relayed) -> None:
    relayed.world.register(event(**LANES), table())
    name = event_name(NS, "Tx")
    for role in ("", "lane.2", "lane.2"):
        assert relayed.visit(name, FOLD, "data", role) is None
    log_ids = [relayed.world.api.head(which).log_id for which in (name, (name, "lane.2"))]
    assert relayed.folds.take() == [Fold(log_ids[0], name), Fold(log_ids[1], name, "lane.2")]
    relayed.world.clock.advance(2)
    relayed.visit(name, FOLD, "data")
    assert relayed.folds.take() == [Fold(log_ids[0], name)]


def test_a_registration_whose_process_died_is_ended(relayed: Relayed, monkeypatch: pytest.MonkeyPatch) -> None:
    relayed.world.register(event(), table())

    def died(*_: object) -> None:
        raise StoreTimeout("the process has died")

    with monkeypatch.context() as patch:
        patch.setattr(register.Registrations, "finish", died)
        with pytest.raises(StoreTimeout):
            relayed.world.register(event("New", **LANES), table("Later"), table("V", "New", c="count"))
    assert relayed.world.other().registry(NS).state.is_open
    relayed.visit_registry("register")
    view = relayed.world.other().registry(NS)
    assert not view.state.is_open
    assert relayed.world.push(tx(), "New").registry_version == view.registry.version
    assert relayed.queue.waiting == [], "the entry that ends it leads to the later visits"


def test_rows_that_nothing_names_are_removed_without_any_event(relayed: Relayed) -> None:
    world, name = relayed.world, event_name(NS, "Tx")
    rows: MemoryFeatures = world.stores.tables[TABLE]  # type: ignore[assignment]
    world.register(event(**LANES), table())
    for number in range(20):
        world.push(tx(f"user{number}"))
    lanes = [name, (name, "lane.1"), (name, "lane.2")]

    def fold_all() -> None:
        for which in lanes:
            world.folder.fold(which, world.clock.monotonic() + 1)

    fold_all()
    world.register(event(**LANES), table(c=("mean", {"field": "n"})), force=True)
    fold_all()
    relayed.visit_registry(DONE)
    follow = relayed.follow(registry_name(NS), REGISTER)
    assert [message.followers for message in relayed.queue.waiting] == [(follow.key,), (follow.key,)]
    now_ms = world.clock.now_ms()
    soon, later = [message.not_before_ms - now_ms for message in relayed.queue.waiting]
    assert DROP_MS < soon < DROP_MS + 60_000
    assert soon + DROP_AGAIN_MS < later < DROP_AGAIN_MS + 3_600_000
    relayed.visit_registry()
    assert relayed.folds.take() == [], "their time has not come"
    world.clock.advance(soon / 1000)
    relayed.visit_registry()
    asked = relayed.folds.take()
    assert [one.role for one in asked] == ["", "lane.1", "lane.2"]
    assert len({one.log_id for one in asked}) == 3
    fold_all()
    living = {generation for mark in rows.marks.values() for generation in mark.generations}
    assert {key.generation for key in rows.kept} <= living
    relayed.visit_registry()
    assert relayed.folds.take() == []
    world.clock.advance((later - soon) / 1000)
    relayed.visit_registry()
    assert len(relayed.folds.take()) == 3
    fold_all()
    assert not any(mark.dropped for mark in rows.marks.values())
    assert len(relayed.queue.waiting) == 2, "a visit without news asks for none"


def test_a_back_fill_goes_on_with_visits_until_it_is_done(relayed: Relayed) -> None:
    world = relayed.world
    world.register(event(), table())
    for number in range(3):
        world.push(tx(f"user{number}"))
    world.register({**table("Late", keys=[]), "backfill": True})
    relayed.visit_registry(DONE)
    next_ms = min(message.not_before_ms for message in relayed.queue.waiting)
    assert next_ms == world.clock.now_ms() + BUILD_MS
    run_jobs(world)
    assert [fold.name for fold in relayed.folds.take()] == [event_name(NS, "Tx")]
    world.fold()
    world.clock.advance(BUILD_MS / 1000)
    relayed.visit_registry()
    assert relayed.folds.take() == []
    assert world.get("", "Late") == {"c": 3, "s": 3.0}
    relayed.context.meter.flush()
    assert relayed.lines[-1]["BackfillAgeMs"] == [0], "at the first visit; at the second it was done"


def test_a_back_fill_goes_on_though_the_next_visit_could_not_be_asked_for(
    relayed: Relayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    relayed.world.register(event(), table())
    relayed.world.push()
    relayed.world.register({**table("Late", keys=[]), "backfill": True})

    def fail(*_: object) -> None:
        raise StoreTimeout("the queue does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(relayed.queue, "send", fail)
        with pytest.raises(StoreTimeout):
            relayed.visit_registry()
    relayed.world.clock.advance(0.5)
    relayed.visit_registry()  # it is repeated soon
    assert len(relayed.queue.waiting) == 1
