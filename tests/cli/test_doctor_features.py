"""What `headrace doctor` finds out about feature tables, on stores in memory."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import jobs
from headrace.features.fold import Folder
from headrace.features.jobs import FOLD
from headrace.features.pipeline.ops.core import Sum
from headrace.features.register import Registrations
from headrace.features.values import lane
from headrace.objects import keys, packed
from operators.doctor.facts import FailedJobFacts, FeatureFacts, LaneFacts, RegistryFacts
from operators.doctor.features import Features
from tests.unit.features.backfilling import backfills
from tests.unit.features.world import NS, World, event, poison, table, tx

MINUTE_MS = 60_000


def look(world: World) -> FeatureFacts:
    return Features(world.stores).look()


def test_nothing_there_is_nothing_found() -> None:
    assert look(World()) == FeatureFacts()


def test_a_lane_tells_how_long_its_oldest_event_waits_to_get_into_rows() -> None:
    world = World(event(), event("Two", lanes=2, lane_key="user"), table())
    world.push()
    world.fold()
    idle = (LaneFacts("default/Two"), LaneFacts("default/Two (lane.1)"))
    assert look(world) == FeatureFacts((*idle, LaneFacts("default/Tx")), (RegistryFacts(NS),))
    world.push()
    world.clock.advance(60)
    world.push()
    world.clock.advance(60)
    assert look(world).lanes == (*idle, LaneFacts("default/Tx", 2 * MINUTE_MS))


def test_a_table_that_has_stopped_is_told_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(event(), table("Good", c="count"), table("Bad", s=("sum", {"field": "amount"})))
    world.push()

    monkeypatch.setattr(Sum, "fold", poison)
    Folder(Registrations(world.stores)).fold(lane(NS, "Tx", 0), world.clock.monotonic() + 10)
    assert look(world).lanes == (LaneFacts("default/Tx", 0, ("Bad: OverflowError at offset 0",)),)


def test_a_registration_that_not_all_lanes_have_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(event(), table())
    with monkeypatch.context() as patch:
        patch.setattr(Registrations, "finish", lambda *_: None)
        world.register(table("Late"))
    world.clock.advance(60)
    assert look(world).registries == (RegistryFacts(NS, open_ms=MINUTE_MS),)
    world.api.finish(NS)
    assert look(world).registries == (RegistryFacts(NS),)


def test_back_fills_and_jobs_that_failed_are_told() -> None:
    world = World(event(), table())
    world.push(tx())
    building = backfills(world.stores).start(NS, "U")
    world.clock.advance(60)
    assert look(world).registries == (RegistryFacts(NS, building_ms={"U": MINUTE_MS}),)
    ended: Any = jobs.Ended(packed.VERSION, world.clock.now_ms(), "out of memory")
    assert jobs.note(world.stores.objects, keys.job_ended(building.job_id), ended)
    assert look(world).failed == (FailedJobFacts(building.job_id, FOLD, "out of memory"),)
    assert backfills(world.stores).advance(NS) == []
    assert look(world).registries == (RegistryFacts(NS),)
    world.clock.advance(25 * 3600)
    assert look(world).failed == ()


def test_a_lane_that_can_not_be_read_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(event(), table())
    world.push()

    def mark(log_id: str) -> None:
        raise RuntimeError("does not parse")

    monkeypatch.setattr(world.rows, "mark", mark)
    assert look(world).lanes == (LaneFacts("default/Tx", error="RuntimeError: does not parse"),)
