"""Sessions: which rows they have, where their streams go on, and when they end."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from headrace.errors import InvalidRequest, LimitReached
from headrace.topics.errors import TopicNotFound
from headrace.watch.errors import Fenced, WatchNotFound
from headrace.watch.frames import Records, Tombstone
from headrace.watch.stream import Stream
from headrace.watch.values import MAX_TOPICS, SESSIONS, TTL_MS, Cursor, Cursors, Session, Start
from tests.unit.topics.world import write
from tests.unit.watch.world import STREAM_MS, Meanwhile, Process, World, drain, records


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def process(world: World) -> Process:
    return world.process()


def counted(world: World) -> int:
    return sum(world.wal.sessions.counts(SESSIONS))


def test_a_session_goes_on_in_another_process(world: World, process: Process) -> None:
    write(process.topics, "t", b"1", b"2")
    wid = process.create("t")
    stream = process.open(wid)
    assert records(drain(stream)) == {"t": [1, 2]}
    stream.save()
    write(process.topics, "t", b"3")
    assert records(drain(world.process().open(wid))) == {"t": [3]}


def test_what_was_not_saved_is_sent_again(process: Process) -> None:
    write(process.topics, "t", b"1", b"2")
    wid = process.create("t")
    assert records(drain(process.open(wid))) == {"t": [1, 2]}, "and then the process dies"
    assert records(drain(process.open(wid))) == {"t": [1, 2]}


@pytest.mark.parametrize("names", [("t",), tuple(f"t{number}" for number in range(70))], ids=["few", "many"])
def test_an_id_of_before_a_topic_began_anew_loses_none_of_its_records(
    process: Process, names: tuple[str, ...]
) -> None:
    """What was sent of the new topic was saved, but lost on its way."""
    name = names[-1]
    for one in names:
        write(process.topics, one, b"1", b"2")
    wid = process.create(*names)
    stream = process.open(wid)
    last = next(id_ for topic, frame, id_ in drain(stream) if topic == name and isinstance(frame, Records))
    process.topics.remove(name)
    write(process.topics, name, b"1", b"2", b"3", b"4")
    drain(stream)
    stream.save()
    for _ in range(2):
        found = [frame for topic, frame, _ in drain(process.open(wid, last)) if topic == name]
        assert isinstance(found[0], Tombstone) and found[0].reason == "recreated"
        assert isinstance(found[1], Records) and len(found[1].records) == 4


def test_a_session_without_a_stream_ends_after_its_time(world: World, process: Process) -> None:
    write(process.topics, "t", b"1")
    wid = process.create("t", limit=1)
    world.clock.advance(TTL_MS / 1000 - 1)
    with pytest.raises(LimitReached):
        process.create("t", limit=1)
    process.watches.find(wid)
    world.clock.advance(1)
    with pytest.raises(WatchNotFound):
        process.open(wid)
    assert counted(world) == 1
    process.create("t", limit=1)
    assert counted(world) == 1, "the old one made room"


def test_a_session_with_a_stream_is_never_reclaimed(world: World, process: Process) -> None:
    write(process.topics, "t", b"1")
    wid = process.create("t", limit=1)
    world.clock.advance(TTL_MS / 1000 - 1)
    stream = process.open(wid)
    world.clock.advance(STREAM_MS / 1000)
    with pytest.raises(LimitReached):
        process.create("t", limit=1)
    drain(stream)
    stream.save()
    world.clock.advance(TTL_MS / 1000 - 1)  # the process was killed: the time counts from the end that the stream had
    process.watches.find(wid)
    world.clock.advance(1)
    with pytest.raises(WatchNotFound):
        process.watches.find(wid)


def test_a_stream_that_ends_early_leaves_the_whole_time(world: World, process: Process) -> None:
    write(process.topics, "t", b"1")
    wid = process.create("t", limit=1)
    stream = process.open(wid)
    drain(stream)
    stream.close()
    assert process.watches.find(wid).row.expires_ms == world.clock.now_ms() + TTL_MS
    assert records(drain(process.open(wid))) == {}, "it was saved"
    assert counted(world) == 1


def test_a_newer_stream_fences_the_one_before(world: World, process: Process) -> None:
    write(process.topics, "t", b"1")
    wid = process.create("t")
    before = process.open(wid)
    drain(before)
    after = world.process().open(wid)
    for act in (before.save, before.check):
        with pytest.raises(Fenced):
            act()
    before.close()
    write(process.topics, "t", b"2")
    assert records(drain(after)) == {"t": [1, 2]}, "the older one has moved nothing"
    after.save()
    after.check()


def test_a_write_of_cursors_that_arrived_late_fences_nobody(world: World, process: Process) -> None:
    write(process.topics, "t", b"1")
    stream = process.open(process.create("t"))
    drain(stream)
    at = world.wal.sessions.part("watch", "wid_0", "at")
    assert at is not None
    world.wal.sessions.put_part(at, at)  # its outcome was unknown, and the stream took it for failed
    stream.save()
    assert stream.is_saved
    stream.check()


def is_current(stream: Stream) -> bool:
    try:
        stream.check()
    except Fenced:
        return False
    return True


def test_two_streams_that_open_at_once_leave_one() -> None:
    """Whatever moment of the one the other comes at: one goes on, and the other is fenced."""
    won = Counter[str]()
    for at in range(1, 30):
        world = World()
        write(world.process().topics, "t", b"1")
        wid = world.process().create("t")
        meanwhile = Meanwhile(at, lambda world=world, wid=wid: world.process().open(wid))
        meanwhile.begin()
        try:
            first = world.process(meanwhile).open(wid)
        except Fenced:
            first = None
        meanwhile.end()
        if meanwhile.done is None:
            break
        current = [stream for stream in (first, meanwhile.done) if stream is not None and is_current(stream)]
        assert len(current) == 1, at
        assert records(drain(current[0])) == {"t": [1]}
        won["first" if current[0] is first else "second"] += 1
    assert min(won["first"], won["second"]) > 1, won


def test_absent_topics(process: Process) -> None:
    write(process.topics, "t", b"1")
    with pytest.raises(TopicNotFound):
        process.create("t", "absent")
    wid, watched = process.watches.create(
        {"absent": Start(), "t": Start(tail=True)},
        process.watches.find(process.create("t")).definition.options,
        "",
        lenient=True,
    )
    assert list(watched) == ["t"]
    assert records(drain(process.open(wid))) == {}


def test_names_that_are_too_long_together(process: Process) -> None:
    starts = {"t" * 200 + str(number): Start() for number in range(1500)}
    with pytest.raises(InvalidRequest, match="too long together"):
        process.create(starts=starts)


def test_so_many_topics_that_their_cursors_would_not_fit_into_a_row(process: Process) -> None:
    starts = {str(number): Start() for number in range(MAX_TOPICS + 1)}
    with pytest.raises(InvalidRequest, match="too many topics"):
        process.create(starts=starts)
    longest = Cursor(2**32 - 1, 2**53 - 1)
    most = (longest,) * MAX_TOPICS
    for value in (Cursors(2**53, most, 2**53), Session("k" * 8, 2**53, most)):
        assert len(msgspec.json.encode(value)) < 390_000, "an item has 400 KB"


def test_counts_are_as_many_as_sessions(world: World, process: Process) -> None:
    write(process.topics, "t", b"1")
    for _ in range(20):
        process.create("t", limit=100)
    assert counted(world) == 20
    world.clock.advance(TTL_MS / 1000)
    process.create("t", limit=20)
    assert counted(world) <= 20
