"""Streams that keep records for a while, or some bytes of them: what a reader may count on, whatever the sealer does."""

from __future__ import annotations

import random
from typing import Any

import pytest

from functions.sealer.audit import audit
from functions.sealer.seal import seal
from functions.sealer.trim import sweep_orphans, trim
from headrace.errors import BelowFloor, Conflict, Gone
from headrace.log.marks import MAX_MARKS, Mark, below, count_beyond, count_expired, joined
from headrace.log.requests import At, ReadPage
from headrace.recovery.verify import verify
from headrace.settings import Settings
from headrace.streams.values import CreateRequest, ForkRequest, Retention, StreamState, state_of
from headrace.streams.verbs import Streams
from headrace.wal.state import BEGINNING, Cursor, LogState
from tests.unit.recovery.world import HOUR_S, Ruins
from tests.unit.sealer.world import SETTINGS, Dead, Dies, World, noise

RETIRE_S = SETTINGS.merge_retire_ms / 1000
MINUTE = Retention(age_ms=60_000)
START = At(BEGINNING)


class Kept:
    """A stream with a retention, and what was written to it: each record with its time."""

    def __init__(self, retention: Retention | None, world: World | None = None) -> None:
        self.world = world or World()
        self.log_id = self.world.create("s", retention=retention)
        self.written: list[tuple[int, bytes]] = []

    def append(self, *sizes: int) -> None:
        data = [noise(f"{len(self.written) + number}", size) for number, size in enumerate(sizes)]
        self.world.append("s", *data)
        self.written += [(self.now, one) for one in data]

    @property
    def now(self) -> int:
        return self.world.clock.now_ms()

    def read(self, name: str = "s", at: At = START, logs: Streams | None = None) -> tuple[int, list[bytes]]:
        """Returns where a read begins, and every record from there on."""
        logs = logs or Streams(self.world.stores)
        page: ReadPage = logs.read(name, at, touch=False)
        start, found = page.start, list(page.data)
        while not page.up_to_date:
            page = logs.read(name, At(Cursor(page.head.incarnation, page.next)), touch=False)
            found += page.data
        return start, found

    def floor(self) -> int:
        """Returns where the records begin, which a reader sees as they were written."""
        start, found = self.read()
        assert found == [data for _, data in self.written[start:]]
        assert Streams(self.world.stores).head("s").state.floor == start
        return start

    def begin(self) -> int:
        manifest = self.world.manifest(self.log_id)
        return 0 if manifest is None else manifest.begin_offset

    def verify(self) -> None:
        assert not verify(self.world.stores, self.log_id).findings


def test_records_go_when_they_are_too_old_also_if_nothing_is_written() -> None:
    kept = Kept(MINUTE)
    kept.append(5, 5)
    kept.world.wait(40)
    kept.append(5)
    kept.world.wait(19)
    assert kept.floor() == 0
    kept.world.wait(2)
    assert kept.floor() == 2
    kept.world.wait(60)
    assert kept.floor() == 3
    assert kept.read() == (3, [])
    kept.append(7)
    assert kept.floor() == 3


def test_the_newest_bytes_are_kept_and_few_more() -> None:
    kept = Kept(Retention(bytes=1000))
    for number in range(300):
        kept.append(10)
        start = kept.floor()
        size = sum(len(data) for _, data in kept.written[start:])
        assert size >= min(1000, 10 * (number + 1))
        assert size < 1000 + 300
    assert len(state_of(kept.world.logs.head("s").state).marks) <= MAX_MARKS


def test_a_cursor_below_the_floor_is_gone_and_says_where_to_go_on() -> None:
    kept = Kept(MINUTE)
    kept.append(5, 5)
    kept.world.wait(61)
    kept.append(5)
    with pytest.raises(BelowFloor) as gone:
        kept.read(at=At(Cursor(0, 1)))
    assert isinstance(gone.value, Gone)
    logs = kept.world.logs
    assert gone.value.earliest == logs.read("s", START).text(2)
    assert kept.read(at=At(Cursor(0, 2))) == (2, [kept.written[2][1]])
    assert kept.read(at=At(since_ms=0)) == (2, [kept.written[2][1]])
    assert kept.read(at=At()) == (3, [])


def test_a_put_changes_a_retention_and_what_is_gone_stays_gone() -> None:
    kept = Kept(None)
    kept.append(5, 5)
    kept.world.wait(100)
    assert kept.floor() == 0

    def put(retention: Retention | None, **other: Any) -> StreamState:
        created = kept.world.logs.create("s", CreateRequest(retention=retention, **other))
        assert not created.created
        return state_of(created.head.state)

    assert put(MINUTE).retention == MINUTE
    assert kept.floor() == 2  # the records from before are as old as the newest of them
    assert put(None).retention == MINUTE
    entries = len(kept.world.entries(kept.log_id))
    assert put(MINUTE).retention == MINUTE
    assert len(kept.world.entries(kept.log_id)) == entries  # nothing was written
    kept.append(5)
    assert put(Retention()).retention is None
    kept.world.wait(100)
    assert kept.floor() == 2
    assert put(Retention(bytes=5)).retention == Retention(bytes=5)
    kept.append(5)
    assert kept.floor() == 3
    with pytest.raises(Conflict):
        put(MINUTE, content_type="text/plain")
    assert state_of(kept.world.logs.head("s").state).retention == Retention(bytes=5)


def test_a_stream_without_a_retention_keeps_no_marks() -> None:
    kept = Kept(None)
    kept.append(5)
    assert kept.world.logs.head("s").state.extension is None
    kept = Kept(Retention())
    assert kept.world.logs.head("s").state.extension is None


def test_sealed_bytes_go_from_the_bucket() -> None:
    kept = Kept(MINUTE)
    for _ in range(4):
        kept.append(*[10] * 10)
        kept.world.seal(kept.log_id)
        kept.world.wait(30)
    assert len(kept.world.keys(kept.log_id, "segments/")) == 8
    kept.append(1)
    kept.world.seal(kept.log_id)
    assert (kept.begin(), kept.floor()) == (10, 20)  # what was dropped before may still be read
    kept.verify()
    kept.world.wait(RETIRE_S * 6 + 1)
    kept.append(1)
    kept.world.seal(kept.log_id)
    kept.world.wait(RETIRE_S * 6 + 1)
    sweep_orphans(kept.world.parts, kept.log_id)
    assert (kept.begin(), kept.floor()) == (41, 42)
    assert len(kept.world.keys(kept.log_id, "segments/")) <= 4
    kept.verify()


def test_the_audit_lets_a_stream_at_rest_go() -> None:
    kept = Kept(MINUTE)
    kept.append(*[10] * 10)
    kept.world.seal(kept.log_id)
    trim(kept.world.parts, kept.log_id)
    assert kept.world.wal.newest(kept.log_id).state.floor == 0
    kept.world.wait(25 * 3600)
    kept.world.audit(audit, kept.world.parts)
    assert kept.world.wal.newest(kept.log_id).state.floor == 10
    kept.world.seal(kept.log_id)
    assert kept.begin() == 10
    assert kept.floor() == 10
    entries = len(kept.world.entries(kept.log_id))
    kept.world.wait(25 * 3600)
    kept.world.audit(audit, kept.world.parts)
    assert len(kept.world.entries(kept.log_id)) == entries  # once is enough
    kept.verify()


def test_a_fork_begins_at_the_floor_and_keeps_what_its_source_lets_go() -> None:
    kept = Kept(MINUTE)
    kept.append(*[10] * 10)
    kept.world.seal(kept.log_id)
    kept.world.wait(61)
    kept.append(*[10] * 10)
    kept.world.seal(kept.log_id)
    with pytest.raises(BelowFloor):
        kept.world.create("below", fork=ForkRequest("s", Cursor(0, 9)))
    fork_id = kept.world.create("f", fork=ForkRequest("s", Cursor(0, 15)), retention=Retention())
    other_id = kept.world.create("g", fork=ForkRequest("s", Cursor(0, 20)))
    whole = [data for _, data in kept.written]
    assert kept.read("f") == (10, whole[10:15])
    with pytest.raises(BelowFloor):
        kept.read("f", At(Cursor(0, 3)))
    assert state_of(kept.world.logs.head("g").state).retention == MINUTE
    kept.world.append("f", b"own")
    kept.world.wait(61)
    kept.append(1)
    kept.world.seal(kept.log_id)
    assert kept.floor() == 20
    assert kept.read("f") == (10, [*whole[10:15], b"own"])  # the source's segments stay for it
    assert kept.read("g") == (20, [])  # it has its source's retention, for what it inherited, too
    kept.world.append("g", b"new")
    for log_id in (fork_id, other_id, kept.log_id):
        kept.world.seal(log_id)
        assert not verify(kept.world.stores, log_id).findings
    assert kept.read("f", logs=Streams(kept.world.stores)) == (10, [*whole[10:15], b"own"])
    assert kept.read("g") == (20, [b"new"])
    empty = kept.world.create("e", fork=ForkRequest("s", BEGINNING))
    assert kept.read("e") == (20, [])
    assert empty


def test_a_recovery_from_the_bucket_brings_no_record_back_that_is_gone() -> None:
    world = Ruins()
    kept = Kept(Retention(age_ms=int(HOUR_S * 1000)), world)
    kept.append(*[10] * 10)
    world.seal(kept.log_id)
    world.wait(HOUR_S + 1)
    kept.append(*[10] * 10)
    world.seal(kept.log_id)
    assert kept.floor() == 10
    world.lose_tables()
    world.recover()
    start, found = kept.read(logs=Streams(world.stores))
    assert (start, found) == (10, [data for _, data in kept.written[10:]])
    assert state_of(Streams(world.stores).head("s").state).retention == Retention(age_ms=int(HOUR_S * 1000))
    assert not world.verify().findings


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_sealer_that_dies_anywhere_is_replaced_and_no_reader_meets_damage(after: bool) -> None:
    for at in range(1, 40):
        kept = Kept(MINUTE)
        for _ in range(3):
            kept.append(*[10] * 10)
            kept.world.seal(kept.log_id)
        kept.world.wait(61)
        reader = Streams(kept.world.stores)
        before = kept.read(logs=reader)[0]
        kept.append(1)
        dies = Dies(at, after=after)
        try:
            seal(kept.world.watched(dies), kept.log_id, force=True)
        except Dead:
            pass
        else:
            return
        assert kept.read(logs=reader)[0] >= before
        kept.floor()
        kept.append(1)
        kept.world.seal(kept.log_id)
        assert kept.begin() == kept.floor()
        assert kept.read(logs=reader) == kept.read()
        found = verify(kept.world.stores, kept.log_id).findings
        assert {one.kind for one in found} <= {"bucket.orphan"}  # what the dead sealer had put is swept later
    raise AssertionError("the sealer makes more calls than were tried")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_what_a_dead_sealer_has_not_dropped_goes_with_the_daily_sweep_without_another_entry(after: bool) -> None:
    left = 0
    for at in range(1, 40):
        kept = Kept(Retention(bytes=100))
        kept.append(*[10] * 10)
        kept.world.seal(kept.log_id)
        kept.append(*[10] * 10)
        try:
            seal(kept.world.watched(Dies(at, after=after)), kept.log_id, force=True)
        except Dead:
            pass
        else:
            break
        manifest = kept.world.manifest(kept.log_id)
        if manifest is None or manifest.state.floor == kept.begin():
            continue  # it died before it published, or after it dropped
        left += 1
        entries = kept.world.entries(kept.log_id)
        kept.world.wait(25 * 3600)
        _, messages = kept.world.audit(audit, kept.world.parts)
        assert "orphans" in [one.verb for one in messages]
        sweep_orphans(kept.world.parts, kept.log_id)
        assert kept.begin() == kept.floor() == 10
        assert kept.world.entries(kept.log_id) == entries
    assert left


def test_a_page_that_loses_its_records_meanwhile_says_so() -> None:
    kept = Kept(Retention(age_ms=HOUR_S * 1000))
    kept.append(*[10] * 10)
    kept.append(*[10] * 10)
    kept.world.seal(kept.log_id)
    kept.world.wait(2 * SETTINGS.trim_age_ms / 1000)
    trim(kept.world.parts, kept.log_id)
    reader = Streams(kept.world.stores)
    kept.read(logs=reader)
    fill = reader._reader.fill_all
    seen: list[int] = []

    def slowly(*args: Any) -> int:
        if not seen:
            seen.append(1)
            kept.world.wait(HOUR_S)
            kept.append(1)
            kept.world.seal(kept.log_id)
            kept.world.wait(RETIRE_S * 6 + 1)
            kept.world.objects.delete([*kept.world.keys(kept.log_id, "segments/")][:2])
        return fill(*args)

    reader._reader.fill_all = slowly
    with pytest.raises(BelowFloor):
        reader.read("s", At(Cursor(0, 1)))
    assert reader.read("s", START).start >= 20


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_what_must_be_kept_is_read(seed: int) -> None:
    draw = random.Random(seed)
    retention = draw.choice([MINUTE, Retention(bytes=400), Retention(60_000, 400)])
    kept = Kept(
        retention, World(Settings(seal_records=10, seal_bytes=10_000, spill_bytes=300, merge_retire_ms=100_000))
    )
    reader, highest = Streams(kept.world.stores), 0
    for _ in range(60):
        step = draw.random()
        if step < 0.5:
            kept.append(*[draw.randint(1, 40) for _ in range(draw.randint(1, 4))])
        elif step < 0.75:
            kept.world.wait(draw.choice([0.5, 10, 30]))
        elif step < 0.9:
            kept.world.seal(kept.log_id)
        else:
            trim(kept.world.parts, kept.log_id)
            sweep_orphans(kept.world.parts, kept.log_id)
        floor = kept.floor()
        assert floor >= highest
        highest = floor
        assert kept.read(logs=reader) == kept.read()
        gone, left = kept.written[:floor], kept.written[floor:]
        if retention.age_ms is not None and retention.bytes is None:
            assert all(time_ms < kept.now - retention.age_ms for time_ms, _ in gone)
        if retention.bytes is not None and retention.age_ms is None and gone:
            assert sum(len(data) for _, data in left) >= retention.bytes
    kept.world.seal(kept.log_id)
    kept.floor()
    kept.verify()


def test_marks() -> None:
    marks = [Mark(10, 1000, 10, 100), Mark(20, 2000, 10, 50), Mark(30, 2000, 10, 50)]
    assert [count_expired(marks, at) for at in (1000, 1001, 2000, 2001)] == [0, 1, 1, 3]
    assert [count_beyond(marks, size) for size in (1, 50, 51, 100, 101, 200)] == [2, 2, 1, 1, 0, 0]
    assert count_expired([], 5) == count_beyond([], 5) == 0
    assert below(marks, 30) == tuple(marks)
    assert below(marks, 15) == (marks[0], Mark(15, 2000, 5, 25))
    assert below(marks, 10) == (marks[0],)
    assert below(marks, 0) == ()
    many = joined([Mark(number + 1, number, 1, 1) for number in range(40)])
    assert len(many) == MAX_MARKS
    assert (sum(one.live for one in many), sum(one.bytes for one in many), many[-1].end) == (40, 40, 40)
    assert LogState().retained(5) == LogState()
