"""Followers: the log's state counts those that stay, and says until when others may hear; no append after the returned head
is unheard.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from headrace.errors import Conflict, NotFound, OutcomeUnknown, StoreTimeout
from headrace.log.following import followed
from headrace.log.requests import Head
from headrace.memory import memory_stores
from headrace.streams.values import CreateRequest, ForkRequest
from headrace.streams.verbs import Streams
from headrace.tables.follows import Follow
from headrace.wal.entry import entry_item
from headrace.wal.state import Entry, LogState
from tests.support.builders import BYTES, appending
from tests.support.clocks import ManualClock
from tests.support.counting import Counted, counted_stores
from tests.support.pairs import NOTES, PAIRS, Pairs, pairs_wal
from tests.unit.log.world import Process, World

LASTS_MS = 10_000


def router(log: str, name: str = "r") -> Follow:
    return Follow(log, "router", name, b"{}")


def bell(log: str, process: Process, name: str = "b") -> Follow:
    return Follow(log, "bell", name, b"[7]", process.clock.now_ms() + LASTS_MS)


def is_told(entry: Entry) -> bool:
    """Whether the relay gets the entry."""
    return "relay" in entry_item(entry)


# The rules.


def test_only_those_that_stay_are_counted() -> None:
    state = LogState(next_offset=7)
    stays, lasts = Follow("l", "router", "r"), Follow("l", "bell", "b", until_ms=1_000)
    assert followed(state, stays, None, 0) == replace(state, followers=1)
    assert followed(replace(state, followers=3), None, stays, 0) == replace(state, followers=2)
    assert followed(replace(state, followers=3), stays, stays, 0) == replace(state, followers=3)
    assert followed(replace(state, followed_ms=5_000), None, lasts, 0) == replace(state, followed_ms=5_000)
    assert followed(state, None, stays, 0) == state, "a count that a disaster left too low does not fall below none"


def test_the_deadline_is_never_before_that_of_a_row_and_rises_seldom() -> None:
    state, raised = LogState(), []
    for now_ms in range(0, 100_000, 5_000):  # renewed at half of its time
        after = followed(state, Follow("l", "bell", "b", until_ms=now_ms + LASTS_MS), None, now_ms)
        assert after.followed_ms >= now_ms + LASTS_MS
        assert after.followed_ms <= now_ms + 2 * LASTS_MS
        raised += [now_ms] if after != state else []
        state = after
    assert raised == list(range(0, 100_000, 15_000))
    assert followed(state, Follow("l", "bell", "b", until_ms=1), None, 100_000) == state


# Those that stay.


def test_one_that_stays_comes_and_goes_with_an_entry() -> None:
    world = World()
    process = world.process()
    log = process.create()
    process.logs.append("s", appending(b"x"))
    head = process.logs.follow("s", router(log))
    assert (head.state.followers, head.state.next_offset) == (1, 1)
    row = world.stores.follows.get(log, "router", "r")
    assert row == replace(router(log), version=1)
    process.logs.append("s", appending(b"y"))
    assert process.logs.unfollow("s", row)
    process.logs.append("s", appending(b"z"))
    entries = world.entries(log)
    assert [entry.kind for entry in entries] == ["create", "data", "follow", "data", "unfollow", "data"]
    assert [is_told(entry) for entry in entries] == [False, False, True, True, False, False]
    assert world.stores.follows.of(log) == []
    assert process.read() == [b"x", b"y", b"z"]


def test_a_log_that_nobody_follows_costs_what_it_did() -> None:
    world = World()
    log = world.process().create()
    (entry,) = world.entries(log)
    item = entry_item(entry)
    assert "relay" not in item
    assert "follow" not in item["state"]["S"]


def test_to_follow_again_does_nothing_more() -> None:
    world = World()
    process = world.process()
    log = process.create()
    for _ in range(2):
        assert process.logs.follow("s", router(log)).state.followers == 1
    row = world.stores.follows.get(log, "router", "r")
    assert row is not None
    assert world.stores.follows.put(replace(row, due_ms=5), row), "the relay visited it"
    assert process.logs.follow("s", router(log)).state.followers == 1
    assert [entry.kind for entry in world.entries(log)] == ["create", "follow"]
    with pytest.raises(Conflict, match="follower changed meanwhile"):
        process.logs.follow("s", replace(router(log), data=b"[]"))
    with pytest.raises(Conflict, match="follower changed meanwhile"):
        process.logs.follow("s", replace(router(log), data=b"[]"), replaces=row)
    row = world.stores.follows.get(log, "router", "r")
    assert process.logs.follow("s", replace(router(log), data=b"[]"), replaces=row).state.followers == 1
    found = world.stores.follows.get(log, "router", "r")
    assert found is not None and found.data == b"[]"
    assert len(world.entries(log)) == 2


def test_one_is_removed_in_whatever_version_its_row_is_and_once() -> None:
    world = World()
    one, two = world.process(), world.process()
    log = one.create()
    for name in ("r", "q"):
        one.logs.follow("s", router(log, name))
    row = world.stores.follows.get(log, "router", "r")
    assert row is not None

    def visit() -> None:
        assert world.stores.follows.put(replace(row, due_ms=5), row)

    one.wal.on("commit", visit)
    one.wal.on("commit", lambda: two.logs.append("s", appending(b"x")), call=2)
    assert one.logs.unfollow("s", row)
    assert not two.logs.unfollow("s", row)
    assert one.logs.head("s").state.followers == 1
    assert [row.id for row in world.stores.follows.of(log)] == ["q"]


def test_two_that_remove_one_count_it_once() -> None:
    world = World()
    one, two = world.process(), world.process()
    log = one.create()
    for name in ("r", "q"):
        one.logs.follow("s", router(log, name))
    row = replace(router(log), version=1)
    found = []
    one.wal.on("commit", lambda: found.append(two.logs.unfollow("s", row)))
    assert not one.logs.unfollow("s", row)
    assert found == [True]
    assert one.logs.head("s").state.followers == 1


def test_an_answer_that_was_lost_counts_once() -> None:
    world = World()
    process = world.process()
    log = process.create()
    process.wal.fail("commit", after=True)
    assert process.logs.follow("s", router(log)).state.followers == 1
    process.wal.fail("commit", after=True)
    assert process.logs.unfollow("s", replace(router(log), version=1))
    assert (process.logs.head("s").state.followers, world.stores.follows.of(log)) == (0, [])


@pytest.mark.parametrize("after", [False, True])
def test_whether_one_follows_is_found_out_by_doing_it_again(after: bool) -> None:
    world = World()
    process = world.process()
    log = process.create()
    process.wal.fail("commit", times=1_000, after=after)
    with pytest.raises(OutcomeUnknown):
        process.logs.follow("s", router(log))
    assert len(world.stores.follows.of(log)) == int(after)
    again = world.process(process.clock)
    assert again.logs.follow("s", router(log)).state.followers == 1
    assert len(world.stores.follows.of(log)) == 1


# Those that last for a while.


def test_most_that_last_for_a_while_need_no_entry() -> None:
    world = World()
    process = world.process()
    log = process.create()
    process.logs.follow("s", bell(log, process))
    process.logs.follow("s", bell(log, process, "c"))
    process.clock.advance(LASTS_MS / 2000)
    row = world.stores.follows.get(log, "bell", "b")
    head = process.logs.follow("s", bell(log, process), replaces=row)
    assert [entry.kind for entry in world.entries(log)] == ["create", "follow"]
    assert head.state.followers == 0
    assert all(row.until_ms <= head.state.followed_ms for row in world.stores.follows.of(log))
    process.logs.append("s", appending(b"x"))
    assert is_told(world.entries(log)[-1])
    process.clock.advance(2 * LASTS_MS / 1000)
    process.logs.append("s", appending(b"y"))
    assert not is_told(world.entries(log)[-1])


def test_one_that_lasts_for_a_while_goes_without_an_entry() -> None:
    world = World()
    process = world.process()
    log = process.create()
    process.logs.follow("s", bell(log, process))
    row = world.stores.follows.get(log, "bell", "b")
    assert row is not None
    process.follows.on("remove", lambda: world.stores.follows.put(replace(row, due_ms=5), row))
    assert process.logs.unfollow("s", row)
    assert not process.logs.unfollow("s", row)
    assert [entry.kind for entry in world.entries(log)] == ["create", "follow"]
    assert world.stores.follows.of(log) == []


@pytest.mark.parametrize("after", [False, True])
def test_a_row_whose_write_was_not_answered_is_written_again(after: bool) -> None:
    world = World()
    process = world.process()
    log = process.create()
    process.logs.follow("s", bell(log, process, "first"))
    process.follows.fail("put", after=after)
    with pytest.raises(StoreTimeout):
        process.logs.follow("s", bell(log, process))
    process.logs.follow("s", bell(log, process))
    assert world.stores.follows.get(log, "bell", "b") == replace(bell(log, process), version=1)


# What is appended meanwhile.

CALLS = [
    *((port, method, after) for port, method in (("wal", "commit"), ("wal", "newest")) for after in (False, True)),
    *(("follows", "put", after) for after in (False, True)),
    ("catalog", "get", True),
]


@pytest.mark.parametrize("kind", ["router", "bell", "another bell"])
@pytest.mark.parametrize(("port", "method", "after"), CALLS)
@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("is_warm", [True, False])
def test_a_follower_hears_what_is_appended_after_the_head(
    kind: str, port: str, method: str, after: bool, call: int, is_warm: bool
) -> None:
    world, clock = World(), ManualClock()
    one, other = world.process(clock), world.process(clock)
    log = other.create()
    if kind == "another bell":
        other.logs.follow("s", bell(log, one, "first"))
    other.logs.append("s", appending(b"before"))  # its picture is of now
    if is_warm:
        one.logs.head("s")
    unheard: list[int] = []
    wanted = router(log) if kind == "router" else bell(log, one)

    def append() -> None:
        other.logs.append("s", appending(b"x"))
        entry = world.entries(log)[-1]
        if not is_told(entry) or world.stores.follows.get(log, wanted.kind, wanted.id) is None:
            unheard.append(entry.offset)

    getattr(one, port).on(method, append, call=call, after=after)
    head = one.logs.follow("s", wanted)
    append()
    assert all(offset < head.state.next_offset for offset in unheard)


# Ends, forks, companions.


def follow(process: Process, name: str) -> Head:
    return process.logs.follow(name, router(process.logs.head(name).log_id))


def test_a_fork_has_no_followers_and_its_source_keeps_its_own() -> None:
    world = World()
    process = world.process()
    process.create()
    follow(process, "s")
    process.logs.create("f", CreateRequest(fork=ForkRequest("s")))
    assert process.logs.head("f").state.followers == 0
    assert (process.logs.head("s").state.followers, process.logs.head("s").state.forks) == (1, 1)


def test_a_log_that_has_ended_gets_no_follower_and_loses_none() -> None:
    world = World()
    process = world.process()
    log = process.create()
    follow(process, "s")
    process.logs.delete("s")
    with pytest.raises(NotFound):
        process.logs.follow("s", router(log, "q"))
    assert not process.logs.unfollow("s", replace(router(log), version=1))
    new = process.create()
    with pytest.raises(NotFound, match="has ended"):
        process.logs.follow("s", router(log, "q"))
    assert not process.logs.unfollow("s", replace(router(log), version=1))
    assert process.logs.follow("s", router(new)).state.followers == 1


def test_the_head_of_the_next_log_of_the_name_is_not_where_following_begins() -> None:
    world = World()
    one, other = world.process(), world.process()
    log = other.create()

    def create_again() -> None:
        other.logs.delete("s")
        other.create()

    one.wal.on("commit", create_again, after=True)
    with pytest.raises(NotFound, match="has ended"):
        one.logs.follow("s", router(log))


def test_a_companion_is_followed_by_its_role() -> None:
    wal = pairs_wal()
    pairs = Pairs(memory_stores(wal=wal, surfaces=(PAIRS,)))
    (notes,) = pairs.create("p").companions
    head = pairs.log.follow(("p", NOTES), router(notes.log_id))
    assert (head.log_id, head.state.followers) == (notes.log_id, 1)
    assert pairs.log.head("p").state.followers == 0


# Costs.


@pytest.fixture(scope="module")
def aws() -> Iterator[Counted]:
    with counted_stores() as counted:
        yield Counted(*counted)


def test_what_it_costs_to_follow(aws: Counted) -> None:
    until_ms = aws.stores.clock.now_ms() + LASTS_MS
    logs = Streams(aws.stores)
    log = logs.create("followed", CreateRequest(content_type=BYTES)).head.log_id
    with aws.calls.during() as made:
        Streams(aws.stores).follow("followed", router(log))
    assert dict(made) == {"GetItem": 1, "Query": 2, "TransactWriteItems": 1}
    logs.head("followed")
    for number, write in enumerate(("TransactWriteItems", "PutItem", "PutItem")):
        with aws.calls.during() as made:
            logs.follow("followed", Follow(log, "bell", str(number), until_ms=until_ms))
        assert dict(made) == {write: 1, "Query": 1}
    with aws.calls.during() as made:
        logs.append("followed", appending(b"x"))
    assert dict(made) == {"PutItem": 1}


def test_an_append_costs_the_same_whoever_follows(aws: Counted) -> None:
    logs = Streams(aws.stores)
    log = logs.create("source", CreateRequest(content_type=BYTES)).head.log_id
    for followers in range(30):
        logs.append("source", appending(b"x"))
        with aws.calls.during() as made:
            logs.append("source", appending(b"y"))
        assert dict(made) == {"PutItem": 1}, followers
        logs.follow("source", router(log, str(followers)))
