"""Processes that die at any call, or come between any two calls of another, of a fold, a push or a registration."""

from __future__ import annotations

import itertools
import random
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from headrace.errors import HeadraceError, NotFound, StoreError, StoreTimeout
from headrace.features.errors import Behind, TableNotFound, Unfolded
from headrace.features.fold import Folder
from headrace.features.pipeline.registry import pipeline_of
from headrace.features.register import Registrations
from headrace.features.tail import MAX_TAIL_BYTES
from headrace.features.values import FOLD, REGISTER, GetRequest, lane
from headrace.features.verbs import Features
from tests.support.faults import Faulty
from tests.unit.features.interposing import Died, Interposed, at_every_call, die
from tests.unit.features.world import NS, World, event, table, tx

EXPECTED = {"c": 3, "s": 6.0}


def pushed() -> World:
    """Returns a namespace with three events, one of which is folded."""
    world = World(event(), table(), table("All", keys=[]))
    world.push(tx(amount=1))
    world.fold()
    world.push(tx(amount=2))
    world.push(tx(amount=3))
    return world


def check(world: World) -> None:
    """Checks that every event counts once, however it is read."""
    for by in (world.api, world.other()):
        assert world.get(by=by) == EXPECTED
        assert world.get("", "All", by=by) == EXPECTED


def _fold(port: Interposed, world: World) -> None:
    folder = Folder(Registrations(port.stores))
    with suppress(Died):
        folder.fold(lane(NS, "Tx", 0), world.clock.monotonic() + 10)
    check(world)
    assert world.fold().is_done
    check(world)


def test_a_folder_that_dies_at_any_call_is_replaced_by_the_next() -> None:
    assert at_every_call(_fold, pushed, die) >= 7


def test_two_folders_add_no_event_twice_whenever_the_other_comes() -> None:
    assert at_every_call(_fold, pushed, lambda world: world.fold()) >= 7


@pytest.mark.parametrize("settings", [{}, {"keep_events_for_ms": 1_000}])
def test_a_folder_never_takes_a_lane_for_the_one_that_it_replaces(settings: dict[str, Any]) -> None:
    nodes = [event(**settings), table(), table("All", keys=[])]

    def prepare() -> World:
        world = World(*nodes)
        for _ in range(2):
            world.push()
            world.fold()
            world.clock.advance(1.5)
        world.push()
        return world

    def renew(world: World) -> None:
        world.api.reset(NS)
        world.register(*nodes)
        for _ in range(4):
            world.push()

    def run(port: Interposed, world: World) -> None:
        is_new = port.action is not None
        with suppress(NotFound):
            Folder(Registrations(port.stores)).fold(lane(NS, "Tx", 0), world.clock.monotonic() + 10)
        expected = 4 if port.action is None and is_new else 3
        for _ in range(2):
            assert [world.get(by=world.other())["c"], world.get("", "All")["c"]] == [expected] * 2
            assert world.fold().is_done

    assert at_every_call(run, prepare, renew) >= 7


def test_a_folder_that_remembers_rows_goes_on_after_another_has_written_them() -> None:
    world = pushed()
    other = Folder(Registrations(world.stores))
    for number in range(4):
        folder = world.folder if number % 2 else other
        assert folder.fold(lane(NS, "Tx", 0), world.clock.monotonic() + 10).folded >= 1
        world.push(tx(user="b"))
    for _ in range(2):
        world.fold()
    check_rows = {row.key.entity: row.as_of for row in world.rows.kept.values()}
    assert world.get() == EXPECTED
    assert world.get("b") == {"c": 4, "s": 4.0}
    assert check_rows["b"] == 7


def test_a_read_is_right_whenever_a_folder_comes() -> None:
    def run(port: Interposed, world: World) -> None:
        api = Features(port.stores)
        assert world.get(by=api) == EXPECTED
        world.push(tx(amount=4))
        assert world.get(by=api) == {"c": 4, "s": 10.0}

    assert at_every_call(run, pushed, lambda world: world.fold()) >= 6


def test_a_warm_read_is_right_whenever_a_folder_or_a_registration_comes() -> None:
    wider = table(c="count", s=("sum", {"field": "amount"}), m=("max", {"field": "amount"}))
    other = table(c=("sum", {"field": "amount"}))

    def folds(world: World) -> dict[str, Any]:
        world.clock.advance(2)
        world.push(tx(amount=4))
        world.fold()
        return {"c": 4, "s": 10.0}

    def widens(world: World) -> dict[str, Any]:
        world.register(wider)
        return {"c": 3, "s": 6.0, "m": None}

    def replaces(world: World) -> dict[str, Any]:
        world.register(other, force=True)
        world.push(tx(amount=5))
        return {"c": 5.0}

    for change in (folds, widens, replaces):
        for number in itertools.count(1):
            world = pushed()
            port = Interposed(world.stores)
            api = Features(port.stores)
            assert world.get(by=api) == EXPECTED
            world.clock.advance(2)
            told: list[dict[str, Any]] = []
            port.calls, port.left = 0, number
            port.action = lambda world=world, told=told, change=change: told.append(change(world))
            row = world.get(by=api)
            if not told:
                break
            assert row in ({**EXPECTED}, told[0]), (change.__name__, number)
            assert world.get(by=api) == told[0], (change.__name__, number)
        assert number >= 3, change.__name__


def test_a_batch_has_one_prefix_whenever_a_push_comes_though_one_table_is_new() -> None:
    def run(port: Interposed, world: World) -> None:
        api = Features(port.stores)
        world.get(by=api)  # it knows the registry without the new table
        world.register(table("New", c="count"))
        found = api.get(NS, [GetRequest("U", "a"), GetRequest("New", "a"), GetRequest("All", "")])
        end = found.as_of.lanes["Tx", 0]
        first, new, last = found.rows
        assert (first["c"], last["c"]) == (end, end), found  # type: ignore[index]
        assert new in ({}, {"c": end - 3}), found

    assert at_every_call(run, pushed, lambda world: world.push(tx())) >= 8


def test_a_registration_that_dies_at_any_call_is_finished_by_the_next() -> None:
    nodes = [event("New", lanes=2, lane_key="user"), table("T", upstream="New"), table("ByN", keys=["n"])]

    def run(port: Interposed, world: World) -> None:
        with suppress(Died):
            Features(port.stores).register(NS, {"nodes": nodes})
        other = world.other()
        other.register(NS, {"nodes": nodes})
        view = other.registry(NS)
        assert (view.state.version, view.state.is_open) == (2, False)
        check(world)
        for user in ("a", "b", "c"):
            world.push(tx(user=user), event="New", by=other)
            assert world.get(user, "T", by=other) == {"c": 1, "s": 1.0}
        world.push(tx(n=9, user="z"))
        assert world.get("9", "ByN") == {"c": 1, "s": 1.0}
        follows = [(one.kind, one.log_id) for one in world.stores.follows.rows.values()]  # type: ignore[attr-defined]
        assert sorted(kind for kind, _ in follows) == [FOLD, FOLD, FOLD, REGISTER]

    assert at_every_call(run, pushed, die) >= 8


def test_lanes_of_a_process_that_is_late_give_way_to_those_of_a_later_registration() -> None:
    late: list[Any] = []

    def prepare() -> World:
        world = World(event(), table())
        registry = world.api.registry(NS).registry
        late[:] = NS, registry.nodes[0], pipeline_of(registry, "Tx"), (0, registry.version)
        world.api.reset(NS)
        return world

    def register(port: Interposed, world: World) -> None:
        Registrations(port.stores).register(NS, {"nodes": [event(lanes=2, lane_key="user"), table()]})
        for number in range(8):
            world.push(tx(user=f"u{number}", amount=number))
            assert world.get(f"u{number}", by=world.other()) == {"c": 1, "s": float(number)}

    assert at_every_call(register, prepare, lambda world: world.other()._define(*late)) >= 5


def test_no_push_is_taken_under_an_old_pipeline_after_the_answer_of_a_registration() -> None:
    world = World(event(), table())
    late = world.other()
    world.push(by=late)  # it knows the first pipeline
    world.register(event(fields={"user": "str", "amount": "f64", "n": "i64", "more": "str"}, optional=["more"]))
    world.push({**tx(), "more": "x"}, by=late)
    assert world.get()["c"] == 2


def test_a_push_whose_answer_is_lost_counts_once() -> None:
    for after in (False, True):
        world = World(event(dedupe_key="n"), table())
        wal = Faulty(world.stores.wal)
        api = Features(replace(world.stores, wal=wal))
        wal.fail("commit", StoreTimeout, after=after)
        ack = api.push(NS, "Tx", [tx(n=5)])
        assert not ack.is_replay
        assert world.push(tx(n=5)).is_replay
        assert world.get() == {"c": 1, "s": 1.0}


def test_nothing_is_read_after_an_acknowledgement() -> None:
    world = World(event(), table())
    port = Interposed(world.stores)
    late = Features(port.stores)
    late.push(NS, "Tx", [tx()])
    before = port.calls
    late.push(NS, "Tx", [tx()])
    assert port.calls == before + 1, "the write alone; a read that failed would make an error of an acknowledged push"


def test_a_batch_with_an_unknown_table_looks_at_each_lane_again_and_not_at_each_entry() -> None:
    world = World(event(), table())
    world.push()
    port = Interposed(world.stores)
    api = Features(port.stores)
    known = [GetRequest("U", f"u{number}") for number in range(100)]
    api.get(NS, known)
    before = port.calls
    rows = api.get(NS, [*known, GetRequest("No", "a")]).rows
    assert isinstance(rows[-1], TableNotFound)
    assert rows[:-1] == [{}] * 100
    assert port.calls - before <= 10


def test_an_event_whose_lanes_were_made_anew_goes_to_the_lane_of_its_key() -> None:
    users = [f"u{number}" for number in range(16)]
    for lanes in (1, 2, 5):
        world = World(event(lanes=4, lane_key="user"), table())
        late = world.other()
        for user in users:
            world.push(tx(user=user), by=late)
        world.api.reset(NS)
        world.register(event(lanes=lanes, lane_key="user") if lanes > 1 else event(), table())
        for user in users:
            world.push(tx(user=user, amount=2), by=late)
        for user in users:
            assert world.get(user) == world.get(user, by=world.other()) == {"c": 1, "s": 2.0}


def test_a_refusal_of_an_event_with_lanes_is_checked_on_fresh_state() -> None:
    world = World(event(lanes=4, lane_key="user"), table())
    late = world.other()
    world.push(by=late)
    fields = {"user": "str", "amount": "f64", "n": "i64", "more": "str"}
    world.register(event(lanes=4, lane_key="user", fields=fields, optional=["more"]), force=True)
    world.push({**tx(), "more": "x"}, by=late)
    assert world.get()["c"] == 2


def test_an_answer_names_its_own_events_though_another_thread_has_read_on() -> None:
    world = pushed()
    world.get()
    read = world.api._lanes.read

    def read_and_let_others_read(*arguments: Any) -> Any:
        found = read(*arguments)
        world.push(tx(amount=4))
        read(*arguments)
        return found

    world.api._lanes.read = read_and_let_others_read
    answer = world.api.get(NS, [GetRequest("U", "a")])
    assert (answer.rows, answer.as_of.lanes) == ([EXPECTED], {("Tx", 0): 3})


def test_acknowledgements_do_not_outrun_the_folder_and_no_reader_is_left_without_the_newest() -> None:
    text = "x" * 1_000
    world = World(event(fields={"user": "str", "text": "str"}), table(c="count"))
    events = [{"user": "a", "text": text} for _ in range(1_000)]
    taken = 0
    with pytest.raises(Unfolded):
        while True:
            world.api.push(NS, "Tx", events)
            taken += len(events)
    assert 3 <= taken // 1_000 <= 4
    assert world.get() == {"c": taken}
    # Another process that does not look: more than a read may fold.
    log = world.other()
    while taken < MAX_TAIL_BYTES // 1_000:
        log._check_folded = lambda *_: None  # type: ignore[method-assign]
        log.push(NS, "Tx", events)
        taken += len(events)
    with pytest.raises(Behind):
        world.get()
    with pytest.raises(Behind):
        world.get(by=world.other())
    assert world.fold().is_done
    assert world.get() == world.get(by=world.other()) == {"c": taken}
    world.clock.advance(1.1)
    world.api.push(NS, "Tx", events)


def test_rows_that_no_pipeline_names_are_removed_twice() -> None:
    world = pushed()
    world.register(table("U", c="count", s=("sum", {"field": "n"})), force=True)
    first = world.fold()
    rows: Any = world.stores.tables["features"]
    assert {key.generation for key in rows.kept} >= {"U.1.0", "All.1.0"}
    assert first.due_ms > world.clock.now_ms()
    world.clock.advance(301)
    world.fold()
    assert {key.generation for key in rows.kept} == {"All.1.0"}
    world.clock.advance(86_401)
    assert world.fold().due_ms == 0
    assert rows.marks[next(iter(rows.marks))].dropped == ()


def test_old_events_go_when_they_are_folded_and_not_before() -> None:
    world = World(event(keep_events_for_ms=60_000), table())
    world.push()
    world.clock.advance(120)
    world.push()
    log = Registrations(world.stores)
    assert log.head(lane(NS, "Tx", 0)).state.floor == 0
    world.fold()
    assert log.head(lane(NS, "Tx", 0)).state.floor == 1
    assert world.get(by=world.other()) == {"c": 2, "s": 2.0}


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_every_answer_is_that_of_a_naive_fold(seed: int) -> None:
    rng = random.Random(seed)
    wide = {"c": "count", "s": ("sum", {"field": "amount"}), "m": ("max", {"field": "n", "window": "1m"})}
    world = World(event(), table(), table("W", **wide))
    processes = [world.api, world.other(), world.other()]
    folders = [world.folder, Folder(Registrations(world.stores))]
    for step in range(60):
        kind = rng.choice(["push", "push", "push", "batch", "fold", "get", "get", "wait", "register", "cold"])
        by = rng.choice(processes)
        if kind == "push":
            world.push(tx(rng.choice("abc"), rng.randrange(9), rng.randrange(5)), by=by)
        elif kind == "batch":
            by.push(NS, "Tx", [tx(rng.choice("abc"), rng.randrange(9)) for _ in range(rng.randrange(1, 6))])
        elif kind == "fold":
            rng.choice(folders).fold(lane(NS, "Tx", 0), world.clock.monotonic() + 10)
        elif kind == "wait":
            world.clock.advance(rng.choice([0.01, 1.5, 30, 61, 200]))
        elif kind == "register":
            number = rng.randrange(3)
            more = {**wide, f"x{number}": ("last", {"field": "amount"})} if rng.random() < 0.6 else {"c": "count"}
            by.register(NS, {"nodes": [table("W", **more)], "force": True})
        elif kind == "cold":
            processes[rng.randrange(3)] = world.other()
        for name in ("U", "W"):
            user = rng.choice("abc")
            assert world.get(user, name, by=by) == world.naive(user, name), (step, kind, name)


def test_a_read_that_fails_at_any_call_leaves_nothing_half_done() -> None:
    """Of a registration and a push that it met, the next read of the same process misses neither."""
    for number in itertools.count(1):
        world = pushed()
        port = Interposed(world.stores)
        api = Features(port.stores)
        assert world.get(by=api) == EXPECTED
        world.register(table(c=("sum", {"field": "amount"})), force=True)
        world.push(tx(amount=5))
        port.calls, port.left, port.action = 0, number, _time_out
        with suppress(HeadraceError, StoreError):
            world.get(by=api)
        if port.action is not None:
            break
        assert world.get(by=api) == {"c": 5.0}, number
    assert number > 3


def _time_out() -> None:
    raise StoreTimeout("injected")


def test_errors_of_stores_are_told_and_the_next_read_is_right() -> None:
    world = pushed()
    rows = Faulty(world.stores.tables["features"])
    api = Features(replace(world.stores, tables={"features": rows}))
    rows.fail("get", StoreTimeout)
    with pytest.raises((HeadraceError, StoreError)):
        world.get(by=api)
    assert world.get(by=api) == EXPECTED
