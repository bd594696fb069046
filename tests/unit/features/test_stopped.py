"""Tables that an operator or a row makes fail: they stop alone, and no folder that dies is taken for such a failure."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from headrace.features import fold
from headrace.features.errors import Stopped
from headrace.features.fold import Folder
from headrace.features.pipeline.ops.core import Sum
from headrace.features.register import Registrations
from headrace.features.values import GetRequest, lane
from tests.unit.features.interposing import Died, Interposed
from tests.unit.features.world import NS, World, event, poison, table, tx


def test_an_operator_that_fails_stops_its_own_table_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(event(), table("Good", c="count"), table("Bad", s=("sum", {"field": "amount"})))
    world.push(tx(amount=1))
    world.fold()

    monkeypatch.setattr(Sum, "fold", poison)
    folder = Folder(Registrations(world.stores))
    world.push(tx(amount=2))
    done = folder.fold(lane(NS, "Tx", 0), world.clock.monotonic() + 10)
    assert ([stop.generation for stop in done.stopped], done.is_done) == (["Bad.1.0"], True)
    monkeypatch.undo()
    other = world.other()
    with pytest.raises(Stopped):
        world.get(table="Bad", by=other)
    assert world.get(table="Good", by=other) == {"c": 2}
    world.register(table("Bad", s=("sum", {"field": "n"})), force=True)
    world.push(tx(n=3))
    world.fold()
    assert world.get(table="Bad") == {"s": 3.0}


@pytest.mark.parametrize("method", ["fold", "read"])
def test_an_event_that_makes_features_fail_refuses_reads_of_its_table_alone(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(event(), table("Good", c="count"), table("Bad", s=("sum", {"field": "amount"})))
    world.push()
    monkeypatch.setattr(Sum, method, poison)
    good, bad = world.other().get(NS, [GetRequest("Good", "a"), GetRequest("Bad", "a")]).rows
    assert good == {"c": 1}
    assert isinstance(bad, Stopped)


def test_a_pass_with_many_rows_ends_in_time_and_stops_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row takes a second here, and a folder that is not back in time dies without a word."""
    names, users = ("A", "B", "C", "D"), [f"u{number}" for number in range(25)]
    world = World(event(), *(table(name, c="count") for name in names))
    for user in users:
        world.push(tx(user=user))
    monkeypatch.setattr(fold, "MAX_ROWS", 8)
    tries = passes = 0
    is_done = False
    while not is_done:
        tries, passes = tries + 1, passes + 1
        assert passes < 30
        port = Interposed(world.stores)
        rows: Any = port.stores.tables["features"]
        began, real = world.clock.monotonic(), rows.put

        def put(row: Any, replaces: Any, began: float = began, real: Any = real) -> Any:
            world.clock.advance(1)
            if world.clock.monotonic() > began + 20:
                raise Died
            return real(row, replaces)

        rows.__dict__["put"] = put
        with suppress(Died):
            folder = Folder(Registrations(port.stores))
            done = folder.fold(lane(NS, "Tx", 0), world.clock.monotonic() + 10, tries)
            assert done.stopped == ()
            is_done, tries = done.is_done, 0
    assert [world.get(user, name, by=world.other()) for user in users for name in names] == [{"c": 1}] * 100


def test_what_ends_folders_without_a_word_is_found_and_stopped() -> None:
    world = World(event(), table("Good", c="count"), table("Bad", s=("sum", {"field": "amount"})))
    world.push()
    ends = 0
    for tries in range(1, 8):
        port = Interposed(world.stores)
        folder = Folder(Registrations(port.stores))
        rows: Any = port.stores.tables["features"]
        real = rows.put

        def put(row: Any, replaces: Any, real: Any = real) -> Any:
            if row.key.generation.startswith("Bad"):
                raise Died
            return real(row, replaces)

        rows.__dict__["put"] = put
        try:
            done = folder.fold(lane(NS, "Tx", 0), world.clock.monotonic() + 10, tries)
        except Died:
            ends += 1
            continue
        assert done.is_done
        break
    assert ends == 3, "twice as a whole, once alone"
    assert world.get(table="Good", by=world.other()) == {"c": 1}
    with pytest.raises(Stopped):
        world.get(table="Bad", by=world.other())
