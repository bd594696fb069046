"""An audit of feature tables finds every row that is not what the events of its lane say, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.features.audit import Audited, audit
from headrace.features.fold import Folder
from headrace.features.pipeline.ops.core import Sum
from headrace.features.register import Registrations
from headrace.features.values import lane
from tests.unit.features.backfilling import backfills, run_jobs
from tests.unit.features.world import NS, World, event, poison, table, tx

USERS = tuple("abcdefgh")
WINDOWED = table("W", c=("count", {"window": "1h"}), s=("sum", {"field": "amount", "window": "1h"}))


def look(world: World, share: int = 1, number: int = 0) -> Audited:
    return audit(Registrations(world.stores), lane(NS, "Tx", number), share)


def filled(**node: Any) -> World:
    """Returns a world with two events of each user, folded into a table with all events and one with a window."""
    world = World(event(**node), table(), WINDOWED)
    for number in range(16):
        world.push(tx(USERS[number % 8], number, number))
        if number == 7:
            world.fold()
            world.clock.advance(60)
    world.fold()
    return world


def test_rows_are_what_the_events_say() -> None:
    world = filled()
    assert look(world) == Audited(rows=16)
    world.push(tx("a"))
    assert look(world) == Audited(rows=16), "what is not folded yet is no fault"
    assert look(World(event(), table())) == Audited()


def test_a_row_that_is_wrong_or_missing_is_named() -> None:
    world = filled()
    rows = world.rows
    keys = {(key.generation.partition(".")[0], key.entity): key for key in rows.kept}
    del rows.kept[keys["U", "a"]]
    rows.kept[keys["W", "b"]] = rows.kept[keys["W", "c"]]._replace(key=keys["W", "b"])
    rows.kept[keys["U", "d"]] = rows.kept[keys["U", "d"]]._replace(data=b"damaged")
    assert look(world) == Audited(rows=16, wrong=(("U", "a"), ("W", "b"), ("U", "d")))


def test_an_event_that_a_folder_lost_or_counted_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled()
    folder, fold = Folder(Registrations(world.stores)), Sum.fold
    with monkeypatch.context() as patch:
        patch.setattr(Sum, "fold", lambda *given: (fold(*given), fold(*given)))
        world.push(tx("e", 5))
        folder.fold(lane(NS, "Tx", 0), world.clock.monotonic() + 10)
    assert look(world).wrong == (("U", "e"), ("W", "e"))


def test_a_part_of_the_entities_can_be_compared_always_the_same() -> None:
    world = filled()
    some = look(world, share=3)
    assert 0 < some.rows < 16 and some == look(world, share=3)


def test_rows_that_change_meanwhile_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled()
    mark_of = Registrations.mark_of

    def then_a_push(self: Registrations, head: Any) -> Any:
        mark = mark_of(self, head)
        monkeypatch.undo()
        world.push(tx("a"))
        world.fold()
        return mark

    monkeypatch.setattr(Registrations, "mark_of", then_a_push)
    assert look(world) == Audited(rows=14, moved=2)


def test_each_event_counts_under_the_pipeline_of_its_time() -> None:
    world = filled()
    world.register(table(c="count", s=("sum", {"field": "amount"}), late="count"), table("New"))
    world.push(tx("a"))
    world.fold()
    assert look(world) == Audited(rows=17), "the new table has one row"
    world.register(table(c=("count", {"where": "(n > 1)"})), force=True)
    world.push(tx("b"))
    world.fold()
    assert look(world) == Audited(rows=8 + 2 + 1), "the table that was forced has one row"


def test_a_table_that_was_back_filled_has_the_events_before_its_registration() -> None:
    world = filled()
    world.register({**table("Late"), "backfill": True})
    assert len(backfills(world.stores).advance(NS)) == 1  # asks for the job
    run_jobs(world)
    world.fold()
    assert backfills(world.stores).advance(NS) == []
    world.push(tx("a"))
    world.fold()
    assert world.get("b", "Late")["c"] == 2
    assert look(world) == Audited(rows=24)
    late = next(key for key in world.rows.kept if key.generation.startswith("Late") and key.entity == "b")
    world.rows.kept[late] = world.rows.kept[late]._replace(data=world.rows.kept[late._replace(entity="c")].data)
    assert look(world).wrong == (("Late", "b"),)


def test_each_lane_has_rows_of_its_own() -> None:
    world = World(event(lanes=2, lane_key="user"), table())
    for user in USERS:
        world.push(tx(user))
    for number in range(2):
        world.fold(number=number)
    found = [look(world, number=number) for number in range(2)]
    assert sum(one.rows for one in found) == 8 and min(one.rows for one in found) > 0
    assert not any(one.wrong or one.left_out for one in found)


def test_tables_whose_events_are_gone_or_that_have_stopped_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled(keep_events_for="1h")
    world.clock.advance(3_000)
    world.push(tx("a"))
    world.clock.advance(600)
    world.fold()
    world.fold()
    assert world.api.head(f"{NS}/Tx").state.floor > 0
    found = look(world)
    assert found.left_out == (("U", "it has events that are no longer kept"),)
    assert (found.rows, found.wrong) == (8, ()), "what has a window of the time for which events are kept is compared"

    world = World(event(), table(), table("C", c="count"))
    monkeypatch.setattr(Sum, "fold", poison)
    world.push()
    world.fold()
    assert look(world) == Audited(rows=1, left_out=(("U", "it has stopped"),))
