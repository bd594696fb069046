"""Routers as the relay runs them: heard of by the stream of entries, by messages and by the sweep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from functions.metrics import Meter, RelayMetric
from functions.queue import MemoryQueue
from functions.relay.context import assemble
from functions.relay.handler import Relay
from functions.relay.routes import RouterFollower
from functions.wiring import make_logger
from headrace.memory import memory_stores
from headrace.queues.values import ClaimRequest, SettleRequest
from headrace.routers.values import ROUTER
from headrace.wal.entry import entry_item
from headrace.wal.memory import MemoryWal
from headrace.wal.state import Entry
from tests.support.clocks import ManualClock
from tests.support.faults import Faulty
from tests.unit.relay.world import message_record, record
from tests.unit.routers.world import Process


class Wal(MemoryWal):
    """A log that remembers what its stream has to tell."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[dict[str, Any]] = []

    def put(self, entry: Entry) -> None:
        super().put(entry)
        item = entry_item(entry)
        if "relay" in item or entry.kind in ("create", "delete", "expire"):
            self.told.append(record(item))


class World:
    """Tables, and two relays; a process that writes."""

    def __init__(self) -> None:
        self.clock, self.wal, self.queue = ManualClock(), Wal(), MemoryQueue()
        self.stores = memory_stores(None, self.clock, wal=self.wal)
        self.process = Process(self.stores)
        self.ports = [Faulty(self.wal), Faulty(self.wal)]
        self.relays = [self._relay(port) for port in self.ports]

    def _relay(self, wal: Any) -> Relay:
        context = assemble(replace(self.stores, wal=wal), self.queue, Meter(RelayMetric, lambda _: None))
        return Relay(context, make_logger("relay"), {ROUTER: RouterFollower(context)})

    def hear(self, relay: int = 0) -> int:
        """Gives a relay what the stream has to tell; returns how many records that were."""
        told, self.wal.told = self.wal.told, []
        if not told:
            return 0
        self.relays[relay].handle({"Records": told}, None)
        return len(told)

    def deliver(self, relay: int = 0) -> int:
        """Delivers the messages whose time has come."""
        found = self.queue.receive(self.clock.now_ms())
        if not found:
            return 0
        answer = self.relays[relay].handle({"Records": [message_record(n, one) for n, one in enumerate(found)]}, None)
        assert answer["batchItemFailures"] == []
        return len(found)

    def settle(self, relay: int = 0) -> None:
        """Lets the relay work until nothing is left to do now."""
        for _ in range(1000):
            if not self.hear(relay) + self.deliver(relay):
                return
        raise AssertionError("it never comes to rest")

    def wait(self, seconds: float) -> None:
        """Lets time pass."""
        self.clock.advance(seconds)


@pytest.fixture
def world() -> World:
    return World()


def test_an_append_is_copied_down_a_chain(world: World) -> None:
    process = world.process
    process.route("a", "b")
    process.route("b", "c")
    process.write("a", b"1", b"2")
    world.settle()
    assert process.data("c") == [b"1", b"2"]


def test_a_cycle_comes_to_rest(world: World) -> None:
    process = world.process
    process.route("a", "b", allow_cycle=True)
    process.route("b", "a", allow_cycle=True)
    process.write("a", b"1")
    world.settle()
    assert (len(process.data("a")), len(process.data("b"))) == (5, 4)


def test_logs_without_routers_tell_nothing(world: World) -> None:
    process = world.process
    process.route()
    process.routers.remove("a->b")
    world.settle()
    process.write("a", b"1")
    process.write("b", b"1")
    assert world.wal.told == []


def test_two_relays_and_lost_answers_copy_once(world: World) -> None:
    """The cursor moves in the destination's own entry, and its slot has one winner."""
    process = world.process
    process.route()
    expected = []
    for number in range(10):
        process.write("a", b"%d" % number)
        expected.append(b"%d" % number)
        told = list(world.wal.told)
        world.ports[0].fail("commit", after=number % 2 == 0)
        world.ports[1].on("commit", lambda told=told: world.relays[0].handle({"Records": told}, None))
        world.hear(1)
        world.wait(61)
        world.settle(number % 2)
    assert process.data("b") == expected


def test_a_dead_item_moves_nothing(world: World) -> None:
    """What the stream tells is a hint: an item that is in no chain is never copied."""
    process = world.process
    process.route()
    process.write("a", b"1")
    world.settle()
    head = process.topics.head("a")
    newest = world.wal.newest(head.log_id)
    assert newest is not None
    ahead = structs.replace(newest, slot=newest.slot + 10**9, request_ids=("late",))
    for relay in world.relays:
        relay.handle({"Records": [record(entry_item(ahead))]}, None)
    world.settle()
    assert (process.data("b"), process.feed().offset) == ([b"1"], 1)


def test_a_dead_end_does_not_hide_an_append(world: World) -> None:
    """A late delete may have put an item into a slot that was trimmed since; the log lives on."""
    process = world.process
    process.route()
    process.write("a", b"1")
    newest = world.wal.newest(process.topics.head("a").log_id)
    assert newest is not None
    dead = structs.replace(newest, slot=0, kind="delete", count=0, request_ids=("late",))
    world.wal.told.append(record(entry_item(dead)))
    world.settle()
    assert process.data("b") == [b"1"]


def test_room_in_a_full_topic_wakes_its_router_at_once(world: World) -> None:
    process = world.process
    process.put("b", discard="reject", cap_records=1)
    process.route()
    process.write("a", b"1", b"2", b"3")
    world.settle()
    assert process.data("b") == [b"1"]
    for number in (2, 3):
        process.topics.erase("b", number, None)
        world.settle()
        assert process.data("b") == [b"%d" % number]
    process.write("a", b"4")
    process.topics.erase("b", 4, None)
    world.settle()
    assert process.data("b") == [b"4"]


def test_an_ack_in_a_full_queue_wakes_its_router_at_once(world: World) -> None:
    process = world.process
    process.put("b", type="queue", discard="reject", cap_records=1)
    process.route()
    process.write("a", b"1", b"2")
    world.settle()
    process.topics.claim("b", ClaimRequest("n", 1))
    process.topics.ack("b", SettleRequest("n", [1]))
    world.settle()
    assert process.data("b") == [b"2"]


def test_a_router_whose_wake_up_was_lost_tries_again(world: World) -> None:
    process = world.process
    process.put("b", discard="reject", cap_records=1)
    process.route()
    process.write("a", b"1", b"2")
    world.settle()
    process.topics.erase("b", 2, None)
    world.wal.told.clear()
    for _ in range(70):
        world.wait(1)
        world.settle()
    assert process.data("b") == [b"2"]


def test_a_failed_destination_holds_up_no_other(world: World) -> None:
    process = world.process
    process.route("a", "b")
    process.route("a", "c")
    process.write("a", b"1")
    told = world.wal.told.copy()
    world.ports[0].fail("commit", times=3)
    world.hear()
    world.relays[1].handle({"Records": told}, None)
    world.wait(61)
    world.settle()
    assert (process.data("b"), process.data("c")) == ([b"1"], [b"1"])


def test_a_topic_that_goes_ends_its_routers(world: World) -> None:
    process = world.process
    process.route("a", "b")
    process.route("b", "c")
    process.write("a", b"1")
    world.settle()
    assert process.routers.remove_topic("b") == (True, ["a->b", "b->c"])
    process.write("a", b"2")
    world.settle()
    assert process.data("c") == [b"1"]
    assert world.queue.waiting == []


def test_a_rest_of_many_records_is_copied_by_messages(world: World) -> None:
    process = world.process
    process.route()
    process.write("a", *(b"%d" % number for number in range(3500)))
    world.settle()
    assert process.feed().total == 3500
