"""Pushes, registrations, folds and reads, by any number of processes."""

from __future__ import annotations

import pytest

from headrace.features.errors import EventNotFound, TableNotFound
from tests.unit.features.world import World, event, table, tx


def test_a_read_shows_every_push_that_was_acknowledged_before() -> None:
    world = World(event(), table())
    other = world.other()
    for number in range(1, 8):
        world.push(tx(amount=number))
        assert world.get(by=other) == world.get() == {"c": number, "s": sum(range(number + 1))}
        if number % 3 == 0:
            assert world.fold().is_done
            assert world.get(by=other) == world.get(by=world.other()) == {"c": number, "s": sum(range(number + 1))}


def test_an_unknown_event_and_an_unknown_table_are_not_found() -> None:
    world = World(event(), table())
    with pytest.raises(EventNotFound):
        world.push(event="Other")
    with pytest.raises(TableNotFound):
        world.get(table="Other")
    with pytest.raises(TableNotFound):
        world.get(table="Tx")
