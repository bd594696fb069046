"""The limit of the bytes of all topics: what they hold is reserved before, and given back."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from functions.queue import MemoryQueue
from functions.sealer.context import assemble
from functions.sealer.purge import purge
from headrace.batch import Batch
from headrace.errors import HeadraceError, LimitReached, Overloaded, StoreTimeout
from headrace.log.context import Ticket
from headrace.log.stores import Stores
from headrace.memory import memory_stores
from headrace.queues.values import ClaimRequest, SettleRequest
from headrace.queues.verbs import Queues
from headrace.recovery.counts import check_counts
from headrace.recovery.report import Counted
from headrace.settings import Settings
from headrace.tables.counters import SHARDS, TOTAL_BYTES, part_of
from headrace.topics.quota import LEAST, spread, wanted
from headrace.topics.values import TOPICS, TopicConfig, WriteRequest, topic_of
from tests.support.clocks import ManualClock
from tests.support.faults import Faulty

MOST = 1_000_000


class World:
    """Topics as processes on the same stores see them."""

    def __init__(self, most: int = MOST) -> None:
        self.clock = ManualClock()
        self.stores: Stores = memory_stores(Settings(max_total_bytes=most), self.clock)
        self.processes = [Queues(self.stores) for _ in range(2)]

    def append(self, name: str, size: int, process: int = 0, config: TopicConfig | None = None) -> None:
        records = Batch.of([b"x" * size])
        self.processes[process].append(name, WriteRequest(records=records, config=config or TopicConfig()))

    def reserved(self) -> int:
        """What the counter says."""
        return sum(self.stores.sessions.counts(TOTAL_BYTES))

    def held(self) -> tuple[int, int]:
        """What the states of unmarked names say: reserved bytes, and bytes."""
        states = [self.stores.wal.newest(row.log_id) for row in self.stores.catalog.living(TOPICS, limit=100)]
        topics = [topic_of(newest.state) for newest in states if newest is not None]
        return sum(topic.reserved for topic in topics), sum(topic.bytes for topic in topics)


def fill(world: World, name: str, size: int) -> int:
    """Appends until it is refused; returns the number of records."""
    for number in range(1_000):
        try:
            world.append(name, size, number % 2)
        except LimitReached as exc:
            assert exc.detail == {"limit": "max_total_bytes", "max": MOST}
            return number
    raise AssertionError("it was never refused")


def test_topics_hold_as_many_bytes_as_they_may() -> None:
    world = World()
    assert fill(world, "a", 30_000) == 33
    with pytest.raises(LimitReached):
        world.append("b", 30_000)
    assert world.stores.catalog.get(TOPICS, "b") is None
    world.append("b", 9_000)
    assert world.held()[1] <= world.reserved() <= MOST


def test_a_write_that_does_not_fit_refuses_no_other_of_its_group() -> None:
    world = World()
    world.append("a", 900_000)
    appender, sizes = world.processes[0].appender, [20_000, 600_000, 30_000, 40_000, 700_000]
    tickets = [
        Ticket(WriteRequest(records=Batch.of([b"x" * size])), f"id-{size}", world.clock.monotonic()) for size in sizes
    ]
    appender._commit_batch("a", tickets)
    assert [isinstance(one.error, LimitReached) for one in tickets] == [False, True, False, False, True]
    assert [one.answer.first_seq for one in tickets if one.answer is not None] == [2, 3, 4]
    assert world.held()[1] == 990_000


def test_writes_that_fit_are_not_kept_waiting_by_looks_for_those_that_do_not() -> None:
    world = World()
    world.append("a", 900_000)
    wal: Any = Faulty(world.stores.wal)
    wal.on("newest", lambda: world.clock.sleep(0.1), times=float("inf"))
    queues, began = Queues(replace(world.stores, wal=wal)), world.clock.monotonic()
    tickets = [
        Ticket(WriteRequest(records=Batch.of([b"x" * size])), f"id-{number}", began)
        for number, size in enumerate([600_000] * 60 + [10])
    ]
    queues.appender._commit_batch("a", tickets)
    assert tickets[-1].answer is not None
    assert {type(one.error) for one in tickets[:-1]} <= {LimitReached, Overloaded}


def test_what_was_deleted_has_room_again() -> None:
    world = World()
    count = fill(world, "a", 30_000)
    world.processes[0].erase("a", count, None)
    assert world.reserved() < 100_000
    assert fill(world, "b", 30_000) >= count - 3
    world.processes[0].remove("a")
    world.append("b", 30_000)
    assert world.reserved() == world.held()[0]


def test_a_topic_that_ends_gives_back_all_even_if_its_process_dies() -> None:
    world = World()
    world.append("a", 200_000)
    log_id = world.stores.catalog.get(TOPICS, "a").log_id  # type: ignore[union-attr]
    catalog: Any = world.stores.sessions
    commit = catalog.commit
    catalog.commit = _failing
    world.processes[0].remove("a")
    catalog.commit = commit
    assert world.reserved() >= 200_000
    world.append("a", 100)  # over the row that is not marked: it takes over the name, not the bytes
    assert world.reserved() == world.held()[0] < 50_000
    parts = assemble(world.stores, MemoryQueue())
    world.clock.advance(10_000)
    assert purge(parts, log_id)
    assert world.reserved() == world.held()[0]
    world.processes[1].remove("a")
    assert world.reserved() == 0


def _failing(_: Any) -> None:
    raise StoreTimeout("no answer")


def test_a_cap_gives_back_what_it_discards() -> None:
    world = World()
    config = TopicConfig(cap_bytes=100_000)
    for _ in range(40):
        world.append("a", 40_000, config=config)
    assert world.held()[1] <= 100_000
    assert world.reserved() < 200_000


def test_jobs_that_are_done_count_no_more() -> None:
    world = World()
    queue = world.processes[0]
    for _ in range(60):
        world.append("q", 50_000, config=TopicConfig(type="queue"))
        claimed = queue.claim("q", ClaimRequest("w", 1))
        queue.ack("q", SettleRequest(seqs=tuple(job.record.offset + 1 for job in claimed.jobs), node="w"))
    assert world.reserved() <= MOST


def test_a_limit_that_is_set_later_counts_what_is_there_with_the_next_write() -> None:
    world = World(most=0)
    world.append("a", 300_000)
    assert world.reserved() == 0
    limited = World()
    limited.stores = memory_stores(Settings(max_total_bytes=MOST), wal=world.stores.wal)  # type: ignore[arg-type]
    limited.processes = [Queues(limited.stores)]
    limited.append("a", 10)
    assert limited.reserved() >= 300_010


def test_lost_counters_are_set_right_from_the_states() -> None:
    world = World()
    world.append("a", 200_000)
    reserved = world.reserved()
    world.stores.sessions.counters.clear()  # type: ignore[attr-defined]
    assert check_counts(world.stores, repair=True) == [Counted(TOPICS, 1, 0), Counted(TOTAL_BYTES, reserved, 0)]
    assert world.reserved() == reserved
    assert check_counts(world.stores) == []


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_topic_reserves_what_it_holds_and_not_far_more(used: int, reserved: int) -> None:
    for ahead in (True, False):
        after = wanted(used, reserved, ahead=ahead)
        assert used <= after <= used + 2 * max(LEAST, used // 8)
        assert wanted(used, after) == after, "the next entry changes nothing"
    assert wanted(0, reserved) == 0


@given(
    st.lists(st.integers(-1_000, 100), min_size=SHARDS, max_size=SHARDS),
    st.integers(1, 2_000),
    st.integers(1, 20_000),
    st.integers(0, SHARDS - 1),
)
def test_a_change_is_spread_over_the_shards_with_room(counts: list[int], most: int, change: int, first: int) -> None:
    shares = spread(counts, most, change, first)
    room = sum(max(0, part_of(shard, most) - held) for shard, held in enumerate(counts))
    assert (shares is None) == (room < change)
    if shares is not None:
        assert sum(share for _, share in shares) == change
        assert len({shard for shard, _ in shares}) == len(shares)
        assert all(0 < share <= part_of(shard, most) - counts[shard] for shard, share in shares)


Step = tuple[str, int, int]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "append", "erase", "remove"]), st.integers(0, 3), st.integers(1, 300_000)
        ),
        max_size=30,
    )
)
def test_the_counter_is_what_the_states_have_reserved(steps: list[Step]) -> None:
    world = World()
    for kind, number, size in steps:
        name, process = f"t{number}", world.processes[size % 2]
        with suppress(HeadraceError):
            if kind == "append":
                world.append(name, size, size % 2)
            elif kind == "erase":
                process.erase(name, size % 9 + 1, None)
            else:
                process.remove(name)
        reserved, held = world.held()
        assert held <= reserved == world.reserved() <= MOST
