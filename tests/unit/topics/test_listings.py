"""Listings by an index that lags: their rows may be of logs that have lost their names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.errors import Damaged
from headrace.topics.values import LEASES, TOPICS, TopicView
from headrace.wal.memory import MemoryWal
from tests.support.faults import LaggingIndex
from tests.unit.queues.world import Process, World


class Lagging:
    """A process whose index still has the first log of the topic t, beside another topic."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.world = World()
        self.first: Process = self.world.process()
        self.create("a")
        self.old = self.create("t", b"1", b"2")
        self.process = self.world.process(self.first.clock)
        self.process.catalog.target = LaggingIndex(self.world.stores.catalog)

    @property
    def wal(self) -> MemoryWal:
        wal = self.world.stores.wal
        assert isinstance(wal, MemoryWal)
        return wal

    def create(self, name: str, *data: bytes) -> str:
        self.first.create(name, type=self.kind)
        if data:
            self.first.produce(*data, name=name)
        return self.first.queues.head(name).log_id

    def listed(self) -> dict[str, TopicView]:
        views, more = self.process.queues.topics(limit=10, touch=True)
        assert more is None
        return {view.name: view for view in views}


def has_ended(_: Lagging) -> None:
    """The old log is as its end left it."""


def is_lost(world: Lagging) -> None:
    """A disaster took the entries of the old log."""
    world.wal.remove(world.old, [entry.slot for entry in world.wal.read(world.old).entries])


def seems_to_live(world: Lagging) -> None:
    """A disaster took the entry that had ended the old log, and a recovery left it alone, for it had lost its name."""
    newest = world.wal.newest(world.old)
    assert newest is not None and newest.state.ended
    world.wal.remove(world.old, [newest.slot])


FATES = [has_ended, is_lost, seems_to_live]


@pytest.mark.parametrize("kind", ["log", "queue"])
@pytest.mark.parametrize("fate", FATES)
def test_a_topic_that_was_created_again_is_listed(kind: str, fate: Callable[[Lagging], None]) -> None:
    world = Lagging(kind)
    world.first.queues.remove("t")
    world.create("t", b"3")
    fate(world)
    found = world.listed()
    assert list(found) == ["a", "t"]
    is_old = kind == "log" and fate is seems_to_live  # the index lags, and nothing tells
    assert found["t"].head_seq == (2 if is_old else 1)
    assert (found["t"].queue is not None) == (kind == "queue")


@pytest.mark.parametrize("fate", FATES)
def test_nothing_is_written_to_the_log_that_a_listing_has_found(fate: Callable[[Lagging], None]) -> None:
    world = Lagging("log")
    world.first.queues.remove("t")
    world.create("t", b"3")
    fate(world)
    world.listed()
    world.process.produce(b"4", name="t")
    assert world.first.queues.view("t").head_seq == 2


@pytest.mark.parametrize("kind", ["log", "queue"])
@pytest.mark.parametrize("fate", [has_ended, is_lost])
def test_a_topic_that_has_ended_is_left_out(kind: str, fate: Callable[[Lagging], None]) -> None:
    world = Lagging(kind)
    world.first.queues.remove("t")
    fate(world)
    assert list(world.listed()) == ["a"]


@pytest.mark.parametrize(("kind", "role"), [("log", ""), ("queue", ""), ("queue", LEASES)])
def test_a_topic_whose_own_log_has_no_entry_hides_no_other(
    kind: str, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = Lagging(kind)
    row = world.world.stores.catalog.get(TOPICS, "t")
    assert row is not None
    log = row.log(role)
    assert log is not None
    world.wal.remove(log.log_id, [entry.slot for entry in world.wal.read(log.log_id).entries])
    assert list(world.listed()) == ["a"]
    reason = f"log has no entry: log_id={log.log_id} name=t"
    assert caplog.messages == [f"log could not be listed: name=t reason={reason}"]
    with pytest.raises(Damaged, match=reason):
        world.process.queues.view("t")


def test_a_topic_that_was_created_again_shows_when_it_was_read() -> None:
    world = Lagging("log")
    world.first.queues.remove("t")
    world.create("t", b"3")
    world.first.queues.view("t")
    world.first.clock.advance(1)
    assert world.listed()["t"].last_read_ts == world.first.clock.now_ms() - 1000
