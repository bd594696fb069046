"""Back-fills: whatever happens meanwhile, and wherever anything dies, a table then has every event once."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from headrace import jobs
from headrace.errors import Conflict, InvalidRequest
from headrace.features import fold
from headrace.features.errors import TableNotFound
from headrace.features.events import Entity, Event, Pipelines, read_event
from headrace.features.exports import Exports, Request
from headrace.features.fold import Folder
from headrace.features.jobs import SnapshotInput
from headrace.features.pipeline.compiled import compile_pipeline
from headrace.features.pipeline.ops.core import Sum
from headrace.features.register import Registrations
from headrace.features.restore import restore
from headrace.features.rows import read_row
from headrace.features.values import lane
from headrace.objects import keys, packed
from headrace.tables.features import MemoryFeatures
from tests.unit.features.backfilling import advance, backfills, finish, late, run_jobs, waiting_jobs
from tests.unit.features.interposing import Died, Interposed, at_every_call, die
from tests.unit.features.world import NS, World, event, poison, table, tx


def started(lanes: int = 1) -> World:
    """Returns a namespace with events, half of them folded, and a table that is being back-filled."""
    node = event(lanes=lanes, lane_key="user") if lanes > 1 else event()
    world = World(node, table())
    for number in range(10):
        world.push(tx(user=f"u{number % 5}", amount=number))
        if number == 4:
            world.fold()
    world.register(late(c="count", s=("sum", {"field": "amount"})))
    return world


def check(world: World, pushes: int = 10) -> None:
    """Checks that the table shows every event once, to processes with warm and with cold caches."""
    for by in (world.api, world.other()):
        rows = [world.get(f"u{number}", "Late", by=by) for number in range(5)]
        assert sum(row.get("c", 0) for row in rows) == pushes
        assert sum(row.get("s", 0.0) for row in rows) == sum(range(pushes))


def fold_poison(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pushes an event, of which the features of the tables fail, and makes a pass."""
    world.push(tx(user="u0", amount=10))

    with monkeypatch.context() as patch:
        patch.setattr(Sum, "fold", poison)
        Folder(Registrations(world.stores)).fold(lane(NS, "Tx", 0), world.clock.monotonic() + 10)


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_table_that_is_back_filled_has_all_events_however_many_come_meanwhile(lanes: int) -> None:
    world = started(lanes)
    warm = world.other()
    assert world.get("u1", "Late", by=warm) == {}
    number = 10
    for step in (lambda: advance(world, lanes), lambda: run_jobs(world), *[lambda: advance(world, lanes)] * 3):
        world.push(tx(user=f"u{number % 5}", amount=number))
        number += 1
        step()
    world.push(tx(user="u0", amount=number))
    check(world, number + 1)
    assert world.get("u1", "Late", by=warm) == world.get("u1", "Late")
    assert not world.api.registry(NS).registry.building
    world.clock.advance(301)
    before = len(world.rows.kept)
    for each in range(lanes):
        world.fold(number=each)
    assert len(world.rows.kept) < before, "rows of before are removed"
    check(world, number + 1)


def test_the_old_rows_are_read_until_the_new_ones_have_all_events() -> None:
    world = started()
    world.push(tx(user="u1", amount=10))
    for _ in range(3):
        assert advance(world) == 1
        assert world.get("u1", "Late") == {"c": 1, "s": 10.0}
    run_jobs(world)
    assert advance(world) == 1
    assert world.get("u1", "Late") == {"c": 1, "s": 10.0}, "the registry has not been told"
    world.push(tx(user="u2", amount=11))
    assert backfills(world.stores).advance(NS) == []
    check(world, 12)  # with an event in the tail that is older than the registration by which these rows are read


def test_no_lane_is_read_before_all_have_their_rows() -> None:
    world = started(3)
    advance(world, 3)
    run_jobs(world)
    world.fold(number=0)
    assert len(backfills(world.stores).advance(NS)) == 1
    assert world.get("u1", "Late") == {}
    finish(world, 3)
    check(world)


def test_what_came_since_is_caught_up_with_in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    world = started()
    for number in range(10, 25):
        world.push(tx(user=f"u{number % 5}", amount=number))
    advance(world)
    run_jobs(world)
    monkeypatch.setattr(fold, "_EVENTS", 2)
    for _ in range(3):
        world.folder.fold(lane(NS, "Tx", 0), world.clock.monotonic())  # its time is over at once
    world.fold()
    assert backfills(world.stores).advance(NS) == []
    check(world, 25)


def test_a_table_that_has_state_keeps_it_until_the_end_and_a_second_start_is_the_same_back_fill() -> None:
    world = started()
    first = backfills(world.stores).start(NS, "U")
    assert backfills(world.stores).start(NS, "U") == first
    assert world.get("u1") == {"c": 2, "s": 7.0}
    finish(world)
    assert world.get("u1") == {"c": 2, "s": 7.0}
    assert backfills(world.stores).start(NS, "U") != first
    with pytest.raises(TableNotFound):
        backfills(world.stores).start(NS, "Tx")


def test_a_feature_that_is_added_meanwhile_starts_then_and_a_changed_table_gives_the_back_fill_up() -> None:
    world = started()
    world.register(late(c="count", s=("sum", {"field": "amount"}), m=("max", {"field": "amount"})))
    world.push(tx(user="u0", amount=10))
    finish(world)
    check(world, 11)
    assert world.get("u0", "Late")["m"] == 10.0
    world.register(late(c="count", s=("sum", {"field": "n"})), force=True)
    world.register(table("Late", c="count"), force=True)
    assert not world.api.registry(NS).registry.building
    run_jobs(world)
    assert advance(world) == 0
    assert world.get("u0", "Late") == {}
    mark = world.rows.mark(world.api.head(lane(NS, "Tx", 0)).log_id)
    assert mark is not None
    assert not mark.builds


def test_a_back_fill_whose_job_fails_or_whose_events_fail_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    world = started()
    advance(world)
    (building,) = world.api.registry(NS).registry.building.values()
    jobs.note(world.stores.objects, keys.job_ended(building.job_id), jobs.Ended(packed.VERSION, 1, "no memory"))
    assert advance(world) == 0
    assert not world.api.registry(NS).registry.building
    backfills(world.stores).start(NS, "Late")
    run_jobs(world)
    fold_poison(world, monkeypatch)
    assert advance(world) == 0
    assert not world.api.registry(NS).registry.building


def test_events_that_are_gone_are_not_lost_to_features_of_all_time() -> None:
    windows = [table(f"W{window}", c=("count", {"window": window})) for window in ("30s", "1h")]
    world = World(event(keep_events_for_ms=60_000), table(), *windows)
    world.push()
    world.fold()
    world.clock.advance(7_200)
    world.push()
    world.fold()
    assert world.api.head(lane(NS, "Tx", 0)).state.floor == 1
    for name in ("U", "W1h"):
        with pytest.raises(Conflict):
            backfills(world.stores).start(NS, name)
    backfills(world.stores).start(NS, "W30s")
    world.register(late())
    finish(world)
    assert world.get(table="W30s") == world.get(table="W1h") == {"c": 1}
    assert world.get(table="Late") == {"c": 1, "s": 1.0}, "a new table had none of the events that are gone"
    assert world.get() == {"c": 2, "s": 2.0}
    more = ("max", {"field": "amount"})
    world.register({**table(c="count", s=("sum", {"field": "amount"}), m=more), "backfill": True})
    assert advance(world) == 0, "it is given up"
    assert world.get() == {"c": 2, "s": 2.0, "m": None}


def test_no_event_is_let_go_of_while_a_back_fill_may_read_it() -> None:
    world = World(event(keep_events_for_ms=60_000), table())
    world.push()
    world.register(late())
    world.clock.advance(7_200)
    world.push()
    advance(world)
    assert world.api.head(lane(NS, "Tx", 0)).state.floor == 0
    finish(world)
    world.clock.advance(7_200)
    world.fold()
    assert world.api.head(lane(NS, "Tx", 0)).state.floor == 2
    assert world.get(table="Late") == {"c": 2, "s": 2.0}


def test_no_event_goes_that_a_pass_wanted_to_let_go_of_before_the_back_fill_began() -> None:
    def prepare() -> World:
        world = World(event(keep_events_for_ms=60_000), table())
        world.push()
        world.fold()
        world.clock.advance(7_200)
        world.push()
        return world

    def run(port: Interposed, world: World) -> None:
        Folder(Registrations(port.stores)).fold(lane(NS, "Tx", 0), world.clock.monotonic() + 10)
        if world.api.registry(NS).registry.building:
            floor = world.api.head(lane(NS, "Tx", 0)).state.floor
            finish(world)
            assert world.get("a", by=world.other()) == {"c": 2, "s": 2.0}, floor

    def start(world: World) -> None:
        with suppress(Conflict):
            backfills(world.stores).start(NS, "U")

    assert at_every_call(run, prepare, start) >= 7


def test_a_feature_that_is_added_after_the_barrier_begins_there_for_every_entity() -> None:
    world = started()
    world.push(tx(user="u0", amount=10))
    more = ("max", {"field": "amount"})
    world.register(table("Late", c="count", s=("sum", {"field": "amount"}), m=more))
    world.push(tx(user="u1", amount=11))
    finish(world)
    check(world, 12)
    assert [world.get(f"u{number}", "Late")["m"] for number in range(3)] == [None, 11.0, None]


def test_a_generation_that_stops_when_it_has_all_events_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world = started()
    run_jobs(world)
    advance(world)
    run_jobs(world)
    world.fold()
    fold_poison(world, monkeypatch)
    assert backfills(world.stores).advance(NS) == []
    state = world.api.registry(NS).registry.tables["Late"]
    assert (state.building, state.is_backfilled) == (None, False)


def test_a_part_that_is_gone_ends_a_back_fill_and_a_damaged_table_does_not_stop_others() -> None:
    world = started()
    advance(world)
    run_jobs(world)
    objects = world.stores.objects
    objects.delete([key for key in objects.list("jobs/") if "/rows/" in key])
    backfills(world.stores).start(NS, "U")
    run_jobs(world)
    world.fold()
    assert backfills(world.stores).advance(NS) == []
    tables = world.api.registry(NS).registry.tables
    assert (tables["Late"].is_backfilled, tables["U"].is_backfilled) == (False, True)


def test_rows_of_back_filled_tables_that_are_lost_are_computed_again_by_a_recovery() -> None:
    world = started()
    finish(world)
    check(world)
    world.stores = replace(world.stores, tables={"features": MemoryFeatures()})
    world.api, world.folder = world.other(), Folder(Registrations(world.stores))
    assert restore(world.stores, repair=True) == [f"rows of a table that was back-filled are gone: table={NS}/Late"]
    finish(world)
    check(world)
    assert restore(world.stores, repair=True) == []


def exported(world: World, name: str) -> dict[str, Any]:
    """Returns what a snapshot of a table has, by user, computed from what its job is told."""
    exports = Exports(Registrations(world.stores), lambda _: None)
    job_id = exports.snapshot(Request(NS, name)).job_id
    request = jobs.load_request(world.stores.objects, job_id)
    assert request is not None
    given = packed.parse(bytes(request.input), SnapshotInput, "input")
    rows = {}
    for source in given.sources:
        pipelines = Pipelines([(one.since, compile_pipeline(one.document)) for one in source.pipelines])
        entities: dict[str, Entity] = {}
        for record in world.api.records(lane(NS, "Tx", source.number), source.first_offset).records:
            pipeline = pipelines.at(record.offset)
            at = pipeline.tables.get(name) if pipeline is not None else None
            row = read_event(pipeline, record.data) if pipeline is not None else None
            placed = at.entity_of(row) if at is not None and row is not None else None
            if at is not None and placed is not None:
                entity = entities.setdefault(placed[0], Entity())
                entity.fold(Event(at, placed[1], record.time_ms, record.offset), source.number)
        last = pipelines.last.tables[name]
        for text, entity in entities.items():
            entity.move(last)
            rows[text] = read_row(last, entity.state, given.now_ms)
    return rows


def test_a_snapshot_of_a_table_that_was_back_filled_is_what_is_read() -> None:
    world = started()
    number = 10
    for step in (lambda: advance(world), lambda: run_jobs(world), *[lambda: advance(world)] * 3, lambda: None):
        for _ in range(3):
            world.push(tx(user=f"u{number % 5}", amount=number))
            number += 1
        read = {f"u{user}": world.get(f"u{user}", "Late") for user in range(5)}
        assert exported(world, "Late") == {user: row for user, row in read.items() if row}
        step()
    check(world, number)
    world.stores.objects.put(f"labels/{NS}/l.parquet", b"")
    exports = Exports(Registrations(world.stores), lambda _: None)
    with pytest.raises(InvalidRequest, match="was back-filled"):
        exports.training_set(Request(NS, "Late"), f"labels/{NS}/")
    assert exports.training_set(Request(NS, "Late", (), is_backfilled=True), f"labels/{NS}/").job_id
    assert exports.training_set(Request(NS, "U"), f"labels/{NS}/").job_id


def _advance_in(port: Interposed, world: World) -> None:
    with suppress(Died):
        backfills(port.stores).advance(NS)
        Folder(Registrations(port.stores)).fold(lane(NS, "Tx", 0), world.clock.monotonic() + 10)
    check_and_finish(world)


def check_and_finish(world: World) -> None:
    world.push(tx(user="u1", amount=10))
    finish(world)
    check(world, 11)
    assert world.get("u1")["c"] == 3


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
@pytest.mark.parametrize("other", [die, advance], ids=["dies", "another"])
def test_whoever_goes_on_may_die_or_meet_another_at_any_call(steps: int, other: Any) -> None:
    def prepare() -> World:
        world = started()
        for _ in range(steps):
            advance(world)
            run_jobs(world)
        return world

    assert at_every_call(_advance_in, prepare, other) >= 4


@pytest.mark.parametrize("other", [die, advance], ids=["dies", "another"])
def test_a_start_may_die_or_meet_another_at_any_call(other: Any) -> None:
    def prepare() -> World:
        world = World(event(), table(), table("Late", c="count", s=("sum", {"field": "amount"})))
        for number in range(10):
            world.push(tx(user=f"u{number % 5}", amount=number))
        return world

    def start(port: Interposed, world: World) -> None:
        with suppress(Died):
            backfills(port.stores).start(NS, "Late")
        check_and_finish(world)

    assert at_every_call(start, prepare, other) >= 8


@pytest.mark.parametrize("seed", range(8))
def test_random_histories(seed: int) -> None:
    luck = random.Random(seed)
    world = started()
    steps = {
        "push": lambda: world.push(tx(user=f"u{luck.randrange(5)}", amount=luck.randrange(9)), by=world.other()),
        "fold": lambda: Folder(Registrations(world.stores)).fold(
            lane(NS, "Tx", 0), world.clock.monotonic() + luck.choice([0, 10])
        ),
        "advance": lambda: backfills(world.stores).advance(NS),
        "jobs": lambda: run_jobs(world),
        "start": lambda: backfills(world.stores).start(NS, luck.choice(["U", "Late"])),
        "clock": lambda: world.clock.advance(luck.choice([1, 61, 400])),
    }
    for _ in range(60):
        steps[luck.choice(["push", "push", *steps])]()
    finish(world)
    total = world.api.head(lane(NS, "Tx", 0)).state.next_offset
    for name in ("U", "Late"):
        assert sum(world.get(f"u{number}", name, by=world.other()).get("c", 0) for number in range(5)) == total


def test_a_start_that_meets_a_registration_with_more_lanes_leaves_the_job_to_the_relay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(event(), table("Late", c="count"))
    build = Registrations.build

    def build_after_a_reset(self: Registrations, *given: str) -> Any:
        monkeypatch.undo()
        world.api.reset(NS)
        world.register(event(lanes=2, lane_key="user"), table("Late", c="count"))
        return build(self, *given)

    monkeypatch.setattr(Registrations, "build", build_after_a_reset)
    backfills(world.stores).start(NS, "Late")
    assert waiting_jobs(world.stores.objects) == []
    finish(world, lanes=2)
    assert not world.api.registry(NS).registry.building
