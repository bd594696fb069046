"""The sealer has each lane folded that it seals: the relay's message may have been lost."""

from __future__ import annotations

from functions.fold_queue import Fold, MemoryFoldQueue
from functions.sealer.context import assemble
from functions.sealer.seal import seal
from headrace.features.values import event_name, registry_name
from tests.unit.features.world import NS, World, event, table, tx
from tests.unit.sealer.world import MemoryQueue


def test_a_generation_of_a_lane_leads_to_a_message_for_the_folder_and_no_other_does() -> None:
    world = World(event(lanes=2, lane_key="user"), table())
    parts = assemble(world.stores, MemoryQueue())
    assert isinstance(parts.folds, MemoryFoldQueue)
    for user in "abcdef":
        world.push(tx(user))
    name = event_name(NS, "Tx")
    lane = world.api.head((name, "lane.1")).log_id
    assert seal(parts, lane, force=True).generations == 1
    assert parts.folds.take() == [Fold(lane, name, "lane.1")]
    assert seal(parts, lane, force=True).generations == 0
    registry = world.api.head(registry_name(NS)).log_id
    assert seal(parts, registry, force=True).generations == 1
    assert parts.folds.take() == []
