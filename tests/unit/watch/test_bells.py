"""Watches of many topics: nothing is missed while topics begin to ring, and while the bell is silenced."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from headrace.errors import StoreTimeout
from headrace.topics.errors import TopicNotFound
from headrace.watch.errors import Fenced
from headrace.watch.frames import TopicDeleted
from headrace.watch.stream import Stream
from tests.unit.topics.world import write
from tests.unit.watch.world import STREAM_MS, Meanwhile, Process, World, drain, records

NAMES = [f"t{number}" for number in range(10)]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def process(world: World) -> Process:
    process = world.process()
    for name in NAMES:
        write(process.topics, name, b"1")
    return process


def hear_all(stream: Stream) -> dict[str, list[int]]:
    """Reads what has rung until nothing rings; returns the records."""
    found: dict[str, list[int]] = {}
    while numbers := list(stream.hear()):
        found |= records(drain(stream, numbers))
    return found


def test_a_topic_rings_by_its_number(world: World, process: Process) -> None:
    stream = process.open(process.create(*NAMES))
    assert records(drain(stream)) == {name: [1] for name in NAMES}
    assert list(stream.hear()) == []
    other = world.process().topics
    write(other, "t7", b"2")
    write(other, "t3", b"2")
    for name in ("t7", "t3"):
        assert world.relay_newest(other, name)
    assert list(stream.hear()) == [3, 7]
    assert list(stream.hear()) == []
    assert records(drain(stream, [3, 7])) == {"t3": [2], "t7": [2]}


def race(at: int) -> tuple[World, Meanwhile, Stream]:
    """Returns a stream of a process in which another one appends to a topic, and the relay hears of it, at moment `at`."""
    world = World()
    for name in NAMES:
        write(world.process().topics, name, b"1")

    def append() -> tuple[bool]:
        other = world.process().topics
        write(other, "t0", b"2")
        return (world.relay_newest(other, "t0"),)

    meanwhile = Meanwhile(at, append)
    return world, meanwhile, world.process(meanwhile).open(world.process().create(*NAMES))


def test_the_entry_that_lets_a_topic_ring_does_not_ring(world: World, process: Process) -> None:
    stream = process.open(process.create(*NAMES))
    drain(stream)
    for name in NAMES:
        world.relay_newest(process.topics, name)
    assert list(stream.hear()) == []


def test_an_append_at_any_moment_while_a_topic_begins_to_ring() -> None:
    """It is in the page, or the bell rings (hazard: follower misses an append)."""
    met = Counter[str]()
    for at in range(1, 60):
        _, meanwhile, stream = race(at)
        meanwhile.begin()
        read = records(drain(stream, [0]))["t0"]
        meanwhile.end()
        if meanwhile.done is None:
            break
        heard = hear_all(stream).get("t0", [])
        assert read + heard == [1, 2], at
        met["rung" if heard else "read"] += 1
    assert met["read"] > 3, met
    assert met["rung"], met


def test_a_ring_at_any_moment_while_the_bell_is_silenced() -> None:
    """The bell is taken whole, and topics are read after that (hazard: bell rung while cleared)."""
    met = Counter[str]()
    for at in range(1, 60):
        world, meanwhile, stream = race(at)
        drain(stream)
        write(writer := world.process().topics, "t0", b"x")
        assert world.relay_newest(writer, "t0")
        meanwhile.begin()
        first = records(drain(stream, list(stream.hear()))).get("t0", [])
        meanwhile.end()
        if meanwhile.done is None:
            break
        assert meanwhile.done == (True,)
        rest = hear_all(stream).get("t0", [])
        assert first + rest == [2, 3], at
        met["later" if rest else "at once"] += 1
    assert met["later"] and met["at once"], met


def test_an_unknown_outcome_of_silencing_reads_every_topic(
    world: World, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = process.open(process.create(*NAMES))
    drain(stream)
    write(process.topics, "t2", b"2")
    world.relay_newest(process.topics, "t2")
    taken = world.wal.sessions.take_bell

    def lost(wid: str) -> None:
        taken(wid)

    monkeypatch.setattr(world.wal.sessions, "take_bell", lost)
    assert list(stream.hear()) == list(range(10))


def test_what_has_rung_is_heard_later_if_the_session_can_not_be_read(
    world: World, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = process.open(process.create(*NAMES))
    drain(stream)
    write(process.topics, "t2", b"2")
    world.relay_newest(process.topics, "t2")

    def fail(*_: str) -> None:
        raise StoreTimeout("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(world.wal.sessions, "part", fail)
        with pytest.raises(StoreTimeout):
            stream.hear()
    assert list(stream.hear()) == [2]
    assert list(stream.hear()) == []


def test_a_fenced_stream_gives_the_rings_back(world: World, process: Process) -> None:
    wid = process.create(*NAMES)
    before = process.open(wid)
    drain(before)
    before.save()
    after = world.process().open(wid)
    drain(after)
    write(process.topics, "t6", b"2")
    world.relay_newest(process.topics, "t6")
    with pytest.raises(Fenced):
        before.hear()
    assert hear_all(after) == {"t6": [2]}


def test_later_streams_follow_again_only_when_the_time_is_nearly_over(world: World, process: Process) -> None:
    wid = process.create(*NAMES)
    stream = process.open(wid)
    drain(stream)
    stream.close()
    rows = dict(world.wal.follows.rows)
    for _ in range(3):
        world.clock.advance(STREAM_MS / 1000)
        stream = process.open(wid)
        drain(stream)
        stream.close()
    assert world.wal.follows.rows == rows
    world.clock.advance(250)
    drain(stream := process.open(wid))
    stream.close()
    world.clock.advance(250)
    drain(process.open(wid))
    assert all(row.until_ms > world.clock.now_ms() + STREAM_MS for row in world.wal.follows.rows.values())
    assert len(world.wal.follows.rows) == len(NAMES)


def test_a_topic_that_began_anew_rings_too(world: World, process: Process) -> None:
    wid = process.create(*NAMES)
    stream = process.open(wid)
    drain(stream)
    stream.save()
    log_id = process.topics.head("t1").log_id
    process.topics.remove("t1")
    newest = world.wal.newest(log_id)
    assert newest is not None
    assert world.relay(newest)
    write(process.topics, "t1", b"a")
    found = drain(stream, list(stream.hear()))
    assert records(found) == {"t1": [1]}
    write(process.topics, "t1", b"b")
    assert world.relay_newest(process.topics, "t1"), "it is another log, and rings"
    assert hear_all(stream) == {"t1": [2]}


def test_a_topic_that_begins_anew_between_the_follow_and_the_read_rings(
    world: World, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, follow = process.open(process.create(*NAMES)), process.topics.follow

    def begin_anew_after(name: str, *asked: object, **more: object) -> object:
        monkeypatch.undo()
        head = follow(name, *asked, **more)  # type: ignore[arg-type]
        process.topics.remove(name)
        write(process.topics, name, b"a")
        return head

    monkeypatch.setattr(process.topics, "follow", begin_anew_after)
    assert records(drain(stream, [1])) == {"t1": [1]}
    write(process.topics, "t1", b"b")
    assert world.relay_newest(process.topics, "t1"), "it is another log, and rings"
    assert hear_all(stream) == {"t1": [2]}


def test_a_stream_that_follows_again_leaves_the_visit_for_which_its_topic_waits(
    world: World, process: Process
) -> None:
    """The visit is one that failed: without it nothing would ring for what was appended (hazard: follower misses an
    append).
    """
    wid = process.create(*NAMES)
    first = process.open(wid)
    drain(process.open(wid), [1])
    log_id = process.topics.head("t1").log_id
    row = world.wal.follows.get(log_id, "bell", wid)
    assert row is not None
    assert world.stores.follows.put(replace(row, due_ms=5_000, until_ms=row.until_ms + 1_000), row)
    drain(first, [1])
    after = world.wal.follows.get(log_id, "bell", wid)
    assert after is not None and (after.due_ms, after.until_ms) == (5_000, row.until_ms + 1_000)


def test_a_topic_that_was_gone_when_it_was_to_ring_and_came_back_rings(
    world: World, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = process.open(process.create(*NAMES))
    follow, refused = process.topics.follow, list[str]()

    def refuse_once(name: str, *asked: object, **more: object) -> object:
        if not refused:
            refused.append(name)
            raise TopicNotFound(name)
        return follow(name, *asked, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(process.topics, "follow", refuse_once)
    assert records(drain(stream)) == {name: [1] for name in NAMES}
    write(process.topics, refused[0], b"2")
    assert world.relay_newest(process.topics, refused[0]), "it rings"
    assert hear_all(stream) == {refused[0]: [2]}


def test_a_deleted_topic_rings_and_is_gone(world: World, process: Process) -> None:
    stream = process.open(process.create(*NAMES))
    drain(stream)
    log_id = process.topics.head("t1").log_id
    process.topics.remove("t1")
    newest = world.wal.newest(log_id)
    assert newest is not None
    world.relay(newest)
    [(name, frame, _)] = drain(stream, list(stream.hear()))
    assert (name, frame) == ("t1", TopicDeleted(1, 1))
    assert 1 not in stream.living


def test_a_topic_that_can_not_be_followed_says_why_and_is_tried_again(
    world: World, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = process.open(process.create(*NAMES))
    with monkeypatch.context() as patch:

        def fail(*_: object, **__: object) -> None:
            raise StoreTimeout("away")

        patch.setattr(process.topics, "follow", fail)
        news = stream.read([0, 1])
        assert [type(one.error) for one in news] == [StoreTimeout, StoreTimeout]
    assert records(drain(stream)) == {name: [1] for name in NAMES}
    write(process.topics, "t0", b"2")
    assert world.relay_newest(process.topics, "t0")
