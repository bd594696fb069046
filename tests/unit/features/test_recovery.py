"""Feature tables through sealing, trims, deletes and disasters: rows can be computed again from the bucket alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from functions.queue import MemoryQueue
from functions.sealer.context import assemble
from functions.sealer.purge import purge
from functions.sealer.seal import seal
from functions.sealer.trim import trim
from headrace.errors import StoreError
from headrace.features.errors import EventNotFound
from headrace.features.fold import Folder
from headrace.features.register import Registrations
from headrace.features.restore import restore
from headrace.features.values import FOLD, REGISTER, lane
from headrace.features.verbs import Features
from headrace.memory import memory_stores
from headrace.recovery.recover import recover
from headrace.recovery.verify import verify_all
from headrace.tables.catalog import Row
from tests.support.faults import Faulty
from tests.unit.features.backfilling import finish, late
from tests.unit.features.world import NS, World, event, table, tx


def logs_of(world: World) -> dict[str, Row]:
    """Returns the rows of all logs, by title."""
    rows: Any = world.stores.catalog
    return {one.config.title: one for row in rows.rows.values() for one in row.logs}


def seal_all(world: World) -> None:
    """Publishes and trims everything."""
    parts = assemble(world.stores, MemoryQueue())
    for row in logs_of(world).values():
        seal(parts, row.log_id, force=True)
    world.clock.advance(3_600)
    for row in logs_of(world).values():
        trim(assemble(world.stores, MemoryQueue()), row.log_id)


def lose_tables(world: World) -> None:
    """Every item of every table is gone; what is in the bucket is recovered, by new processes."""
    stores = memory_stores(world.stores.settings, world.clock, objects=world.stores.objects)
    recover(stores)
    world.stores = stores
    world.api = world.other()
    world.folder = Folder(Registrations(stores))


@pytest.fixture
def world() -> World:
    """Two lanes with a few events each, half of them folded."""
    world = World(event(lanes=2, lane_key="user"), table(), table("N", m=("mean", {"field": "n", "window": "30d"})))
    for number in range(12):
        world.push(tx(user=f"u{number % 4}", amount=number, n=number))
        if number == 5:
            world.fold(number=0)
            world.fold(number=1)
    return world


def rows(world: World) -> list[Any]:
    """Returns what a process with cold caches reads."""
    by = world.other()
    return [world.get(f"u{number}", name, by=by) for number in range(4) for name in ("U", "N")]


def test_events_are_read_and_folded_after_they_are_sealed_and_trimmed(world: World) -> None:
    expected = rows(world)
    seal_all(world)
    assert rows(world) == expected
    world.fold(number=0)
    world.fold(number=1)
    assert rows(world) == expected


def test_rows_are_computed_again_from_the_bucket_alone(world: World) -> None:
    seal_all(world)
    expected = rows(world)
    lose_tables(world)
    assert verify_all(world.stores).clean
    assert rows(world) == expected
    kinds = sorted(one.kind for one in world.stores.follows.rows.values())  # type: ignore[attr-defined]
    assert kinds == [FOLD, FOLD, REGISTER]
    for number in (0, 1):
        assert world.fold(number=number).is_done
    assert rows(world) == expected
    before = world.get("u1")["c"]
    world.push(tx(user="u1"))
    assert world.get("u1")["c"] == before + 1


def test_a_registration_that_a_disaster_took_from_the_registry_alone_is_undone_in_its_lanes(world: World) -> None:
    seal_all(world)
    world.register(table("Late", c="count"))
    world.push(tx(user="u1"))
    world.fold(number=0)
    world.fold(number=1)
    parts = assemble(world.stores, MemoryQueue())
    for title, row in logs_of(world).items():
        if ".registry" not in title:
            seal(parts, row.log_id, force=True)
    lose_tables(world)
    assert verify_all(world.stores).clean
    view = world.api.registry(NS)
    assert (view.state.is_open, view.has_table("Late")) == (False, False)
    assert world.get("u1")["c"] == 4
    world.register(table("Late", s=("sum", {"field": "amount"})))
    world.push(tx(user="u1", amount=2.5))
    assert world.get("u1", "Late") == {"s": 2.5}
    assert world.get("u1")["c"] == 5


def test_a_folder_of_before_a_disaster_lets_go_of_no_event_of_after_it() -> None:
    world = World(event(keep_events_for_ms=1_000), table())
    world.push()
    seal_all(world)
    for _ in range(3):
        world.push()
    world.clock.advance(2)
    stores, which = world.stores, lane(NS, "Tx", 0)

    def recover_before(call: Any) -> Any:
        lose_tables(world)
        world.api.push(NS, "Tx", [tx()])
        for name in ("_slots", "_entries"):
            setattr(stores.wal, name, getattr(world.stores.wal, name))
        stores.catalog.rows = world.stores.catalog.rows
        return call()

    folder = Folder(Registrations(stores))
    control = folder.log.control
    folder.log.control = lambda *given: recover_before(lambda: control(*given))
    folder.fold(which, world.clock.monotonic() + 10)
    state = world.api.head(which).state
    assert (state.floor, state.next_offset) == (0, 2)


def test_the_rows_of_lanes_that_were_removed_are_purged(world: World) -> None:
    seal_all(world)
    for number in (0, 1):
        world.fold(number=number)
    kept: Any = world.stores.tables["features"]
    assert kept.kept
    main = logs_of(world)[f"{NS}/Tx"]
    world.api.reset(NS)
    with pytest.raises(EventNotFound):
        world.push(by=world.other())
    world.clock.advance(3_600)
    parts = assemble(world.stores, MemoryQueue())
    for _ in range(3):
        purge(parts, main.log_id)
    assert not kept.kept
    assert not kept.marks


def test_the_rows_of_a_folder_that_died_before_its_mark_are_purged() -> None:
    world = World(event(), table())
    world.push()
    features = Faulty(world.stores.tables["features"])
    features.fail("put_mark", StoreError, call=2, times=9)
    folder = Folder(Registrations(replace(world.stores, tables={"features": features})))
    with pytest.raises(StoreError):
        folder.fold(lane(NS, "Tx", 0), world.clock.monotonic() + 10)
    kept: Any = world.stores.tables["features"]
    assert kept.kept, "the row was written, and the mark after it was not"
    main = logs_of(world)[f"{NS}/Tx"]
    world.api.reset(NS)
    world.clock.advance(3_600)
    for _ in range(3):
        purge(assemble(world.stores, MemoryQueue()), main.log_id)
    assert not kept.kept


def test_a_registry_that_was_recovered_gives_its_lanes_new_versions(world: World) -> None:
    seal_all(world)
    before = world.api.registry(NS).state.version
    lose_tables(world)
    view = world.api.registry(NS)
    assert view.state.version > before, "lanes may have pipelines of versions that are lost"
    assert view.state.incarnation == view.incarnation
    assert restore(world.stores, repair=False) == []


def test_a_table_that_was_back_filled_is_so_again_after_a_disaster(world: World) -> None:
    world.register(late())
    finish(world, lanes=2)
    expected = [world.get(f"u{number}", "Late") for number in range(4)]
    assert sum(row["c"] for row in expected) == 12
    seal_all(world)
    lose_tables(world)
    assert set(world.api.registry(NS).registry.building) == {"Late"}
    assert world.get("u1", "Late") == {}, "until then"
    finish(world, lanes=2)
    assert [world.get(f"u{number}", "Late") for number in range(4)] == expected


def test_a_table_that_was_back_filled_comes_back_with_the_events_that_are_kept() -> None:
    world = World(event(keep_events_for_ms=60_000), table())
    world.push()
    world.register(late())
    finish(world)
    world.clock.advance(7_200)
    world.push()
    world.fold()
    assert world.api.head(lane(NS, "Tx", 0)).state.floor == 1
    assert world.get(table="Late") == {"c": 2, "s": 2.0}
    seal_all(world)
    lose_tables(world)
    finish(world)
    assert world.get(table="Late") == world.get() == {"c": 1, "s": 1.0}


def test_a_lane_that_was_lost_and_used_again_shows_no_row_of_before(world: World) -> None:
    seal_all(world)
    world.push(tx(user="u1", amount=1_000))  # not published: it will be lost, but not its row
    world.fold(number=0)
    world.fold(number=1)
    old: Any = world.stores.tables["features"]
    stores = memory_stores(world.stores.settings, world.clock, objects=world.stores.objects)
    recover(stores)
    mixed = replace(stores, tables={"features": old})
    api, folder = Features(mixed), Folder(Registrations(mixed))
    api.push(NS, "Tx", [tx(user="u1", amount=7)])
    world.stores, world.api, world.folder = mixed, api, folder
    for _ in range(2):
        assert world.get("u1", by=world.other()) == world.get("u1") == {"c": 4, "s": 22.0}
        world.fold(number=0)
        world.fold(number=1)
