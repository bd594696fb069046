"""Routers after a disaster: the bucket alone has them, in the states of their destinations."""

from __future__ import annotations

import pytest

from functions.queue import MemoryQueue
from functions.sealer.context import assemble
from functions.sealer.seal import seal
from headrace.memory import memory_stores
from headrace.recovery.recover import recover
from headrace.recovery.verify import verify_all
from headrace.routers import steps
from headrace.routers.values import ROUTER, ROUTERS
from headrace.topics.values import Match, topic_of
from headrace.wal.memory import MemoryWal
from tests.unit.routers.world import Process, World


def publish(process: Process, *names: str) -> None:
    """Puts everything of these topics into the bucket."""
    parts = assemble(process.stores, MemoryQueue())
    for name in names:
        seal(parts, process.topics.head(name).log_id, force=True)


def ruin(world: World, wal: MemoryWal | None = None) -> Process:
    """Returns a process after all tables were lost, or replaced by others, and recovered."""
    world.stores = memory_stores(world.stores.settings, world.clock, wal=wal, objects=world.stores.objects)
    world.clock.advance(1)
    report = recover(world.stores)
    assert report.clean
    assert not recover(world.stores).changed
    return world.process()


def kinds(process: Process) -> set[str]:
    """Returns what a verification finds of routers and followers."""
    found = verify_all(process.stores).findings
    return {one.kind for one in found if one.kind.startswith(("row", "follower", "counter"))}


def test_the_bucket_alone_has_the_routers() -> None:
    world = World()
    process = world.process()
    process.route("a", "b", filter=Match("x"), exactly_once=True)
    process.route("b", "c")
    process.write("a", b"1", key="x")
    process.settle("a", "b")
    process.settle("b", "c")
    publish(process, "a", "b", "c")
    assert kinds(process) == set()
    after = ruin(world)
    assert [one.name for one in after.routers.routers(limit=9)[0]] == ["a->b", "b->c"]
    view = after.view("a->b")
    assert (view.routing.filter, view.routing.exactly_once, view.forwarded, view.lag) == (Match("x"), True, 1, 0)
    assert sum(after.stores.sessions.counts(ROUTERS)) == 2
    assert after.topics.head("a").state.followers == 1
    assert kinds(after) == set()
    after.write("a", b"2", key="x")
    after.settle("a", "b")
    after.settle("b", "c")
    assert after.data("b") == after.data("c") == [b"1", b"2"]
    assert after.routers.remove_topic("b") == (True, ["a->b", "b->c"])


def test_copies_that_were_lost_are_made_again() -> None:
    """Cursor and copies are in the same entries: what is lost of one is lost of the other."""
    world = World()
    process = world.process()
    process.route()
    process.write("a", b"1")
    process.settle()
    publish(process, "b")
    process.write("a", b"2")
    process.settle()
    publish(process, "a")
    after = ruin(world)
    assert after.data("b") == [b"1"]
    after.settle()
    assert after.data("b") == [b"1", b"2"]


def test_a_source_that_lost_records_goes_on_where_it_is() -> None:
    world = World()
    process = world.process()
    process.route()
    process.write("a", b"1")
    publish(process, "a")
    process.write("a", b"2", b"3")
    process.settle()
    publish(process, "b")
    after = ruin(world)
    assert (after.data("a"), after.data("b")) == ([b"1"], [b"1", b"2", b"3"])
    after.write("a", b"new")
    after.settle()
    assert after.data("b") == [b"1", b"2", b"3", b"new"]
    assert after.view().lag == 0


def test_a_source_that_lost_records_is_read_on_past_pages_of_which_nothing_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cursor is above the page's end then."""
    monkeypatch.setattr(steps, "STEP_RECORDS", 2)
    world = World()
    process = world.process()
    process.route(filter=Match("x"))
    publish(process, "a")
    process.write("a", *(b"lost" for _ in range(5)), key="x")
    process.settle()
    publish(process, "b")
    after = ruin(world)
    after.write("a", *(b"other" for _ in range(9)), key="y")
    after.write("a", b"new", key="x")
    after.settle()
    assert after.data("b") == [*(b"lost" for _ in range(5)), b"new"]
    assert after.view().lag == 0


def test_a_router_without_its_source_is_gone() -> None:
    world = World()
    process = world.process()
    process.route("a", "b")
    process.write("b", b"1")
    publish(process, "b")
    after = ruin(world)
    assert after.routers.routers(limit=9)[0] == []
    assert topic_of(after.topics.head("b").state).fed_by == ()
    assert kinds(after) == set()
    assert after.route("x", "b")


def test_rows_without_a_feed_go() -> None:
    world = World()
    process = world.process()
    process.put("a")
    process.put("b")
    publish(process, "a", "b")
    process.route()
    wal = process.wal.target
    head = process.topics.head("b")
    wal._entries = {key: one for key, one in wal._entries.items() if key[0] != head.log_id or one.kind != "route"}
    wal._slots[head.log_id] = [slot for log, slot in sorted(wal._entries) if log == head.log_id]
    assert kinds(world.process()) >= {"row.differs"}
    after = ruin(world, wal)
    assert after.routers.routers(limit=9)[0] == []
    assert after.stores.follows.of(after.topics.head("a").log_id, ROUTER) == []
    assert after.topics.head("a").state.followers == 0
    assert kinds(after) == set()
    assert after.route()
