"""Lanes of feature tables are indexed only if their event says that it is searched: each job run is paid for."""

from __future__ import annotations

import dataclasses

import pytest

from functions.indexer.look import look
from headrace.features.values import event_name
from headrace.features.verbs import Features
from headrace.tables.features import TABLE, MemoryFeatures
from tests.unit.features.world import NS, event, table, tx
from tests.unit.indexer.test_triggers import queue_event
from tests.unit.indexer.world import SETTINGS, World, dispatcher


def lane(world: World, **node: object) -> str:
    """Registers an event with a table, and pushes and seals events; returns the lane's log id."""
    features = Features(dataclasses.replace(world.stores, tables={TABLE: MemoryFeatures()}))
    features.register(NS, {"nodes": [event(**node), table()]})
    log_id = features.head(event_name(NS, "Tx")).log_id
    for number in range(4):
        for user in ("a", "b", "c"):
            features.push(NS, "Tx", [tx(user, number)])
        world.seal(log_id)
    return log_id


@pytest.mark.parametrize("is_searched", [False, True])
def test_a_lane_gets_job_runs_only_if_it_is_searched(is_searched: bool) -> None:
    world = World()
    log_id = lane(world, **({"search": True} if is_searched else {}))
    worker, _ = dispatcher(world.indexer)
    worker.handle(queue_event(*world.events_of(log_id)), None)
    assert look(world.indexer, log_id) == is_searched
    world.wait(2 * SETTINGS.index_age_ms / 1000)
    world.tick()
    assert bool(world.runs.jobs) == is_searched
