"""Segments below the floor: they leave the manifest and then the bucket, and no reader is told of damage."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from msgspec import structs

from functions.sealer import drop as dropping
from functions.sealer.seal import seal
from functions.sealer.trim import sweep_orphans, trim
from headrace.batch import Record
from headrace.errors import StoreError
from headrace.manifest import manifest as manifests
from headrace.objects import keys
from headrace.query.engine import units
from headrace.query.engine.sources import Sources
from headrace.recovery.verify import verify
from tests.support import index_runs
from tests.support.faults import Faulty
from tests.support.pairs import Pairs
from tests.unit.sealer.world import SETTINGS, Dead, Dies, Stutters, World

RETIRE_S = SETTINGS.merge_retire_ms / 1000


class Queue:
    """A pair with segments of three records each."""

    def __init__(self, segments: int = 0) -> None:
        self.world = World()
        self.log_id = self.world.pairs.create("p").log_id
        self.written: list[bytes] = []
        self.floor = 0
        for _ in range(segments):
            self.grow()

    def grow(self) -> None:
        """One more segment."""
        data = [b"%d" % (len(self.written) + at) for at in range(3)]
        self.world.pairs.append("p", *data, key="k")
        self.written += data
        self.world.clock.advance(0.01)
        self.world.seal(self.log_id)

    def give_up(self, floor: int) -> None:
        """Raises the floor, and seals."""
        self.world.pairs.raise_floor("p", floor)
        self.floor = max(floor, self.floor)
        self.world.seal(self.log_id)

    def segments(self) -> list[int]:
        """The numbers of the segments whose objects stand, each with its key page."""
        found = [keys.sealed_number(key) for key in self.world.keys(self.log_id, "segments/")]
        assert found == sorted([*set(found), *set(found)])
        return sorted(set(found))

    def begin(self) -> int:
        """Where the published part begins."""
        manifest = self.world.manifest(self.log_id)
        assert manifest is not None
        return manifest.begin_offset

    def trim(self) -> None:
        """Removes what is published from the tables."""
        self.world.wait(2 * SETTINGS.trim_age_ms / 1000)
        trim(self.world.parts, self.log_id)

    def verify(self) -> None:
        """Nothing is wrong, and nothing is there that nothing names."""
        assert not verify(self.world.stores, self.log_id).findings

    def check(self, reader: Pairs | None = None) -> None:
        """Every record from the floor on is read, wherever a read begins, and none below."""
        log = (reader or Pairs(self.world.stores)).log
        for position in range(len(self.written) + 1):
            found: list[Record] = []
            page = log.records("p", position, max_records=4)
            while page.records:
                found += page.records
                page = log.records("p", page.next, max_records=4)
            first = max(position, self.floor)
            assert [one.data for one in found] == self.written[first:]
            assert [one.offset for one in found] == list(range(first, len(self.written)))
        head = log.head("p")
        assert len(log.sizes(head, 0, len(self.written))) == len(self.written) - self.floor
        assert [at for at, _ in log.tagged(head, "k", False, 0, 99)] == list(range(self.floor, len(self.written)))


def test_whole_segments_below_the_floor_leave_the_manifest_and_later_the_bucket() -> None:
    queue = Queue(6)
    for floor, begin in ((2, 0), (7, 6)):
        queue.give_up(floor)
        assert queue.begin() == begin
        queue.check()
    assert queue.segments() == [0, 1, 2, 3, 4, 5], "readers may have an older generation"
    queue.give_up(10)
    assert queue.begin() == 6, "what was dropped before is not removed yet"
    queue.world.wait(RETIRE_S)
    queue.grow()
    assert queue.begin() == 9
    assert queue.segments() == [2, 3, 4, 5, 6]
    queue.trim()
    queue.check()
    queue.verify()


def test_everything_may_be_dropped_and_the_log_goes_on() -> None:
    queue = Queue(3)
    queue.give_up(9)
    assert queue.begin() == 9
    queue.check()
    queue.trim()
    queue.check()
    queue.world.wait(6 * RETIRE_S)
    sweep_orphans(queue.world.parts, queue.log_id)
    assert queue.segments() == []
    queue.grow()
    queue.trim()
    queue.check()
    assert queue.segments() == [3]
    queue.verify()


def test_an_orphan_sweep_waits_for_readers_too() -> None:
    queue = Queue(4)
    queue.give_up(6)
    for seconds, left in ((0.0, [0, 1, 2, 3]), (5 * RETIRE_S, [0, 1, 2, 3]), (RETIRE_S, [2, 3])):
        queue.world.wait(seconds)
        sweep_orphans(queue.world.parts, queue.log_id)
        assert queue.segments() == left
    queue.check()


def test_an_orphan_sweep_drops_what_a_sealer_left() -> None:
    queue = Queue(6)
    queue.give_up(4)
    queue.give_up(10)
    queue.world.wait(6 * RETIRE_S)
    assert queue.begin() == 3
    sweep_orphans(queue.world.parts, queue.log_id)
    assert (queue.begin(), queue.segments()) == (9, [1, 2, 3, 4, 5])
    queue.check()


def test_a_floor_that_is_not_published_drops_nothing() -> None:
    queue = Queue(4)
    queue.give_up(4)
    queue.world.pairs.raise_floor("p", 10)  # a recovery from the bucket would not know of it
    queue.world.wait(6 * RETIRE_S)
    sweep_orphans(queue.world.parts, queue.log_id)
    assert (queue.begin(), queue.segments()) == (3, [1, 2, 3])
    queue.give_up(10)
    assert queue.begin() == 9


def test_very_many_objects_are_removed_in_several_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropping, "MAX_OBJECTS", 4)
    queue = Queue(8)
    queue.give_up(16)
    queue.world.wait(RETIRE_S)
    begins = []
    for _ in range(4):
        queue.grow()
        queue.give_up(20)
        begins.append((queue.begin(), queue.segments()[0]))
    assert begins == [(15, 2), (18, 5), (18, 5), (18, 5)]


def test_pages_of_dropped_segments_go_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "PAGE_SEGMENTS", 2)
    monkeypatch.setattr(manifests, "FAN_OUT", 2)
    queue = Queue(15)
    pages = len(queue.world.keys(queue.log_id, "manifests/pages/"))
    assert pages > 8
    queue.give_up(3 * 13)
    queue.check()
    queue.world.wait(RETIRE_S)
    queue.grow()
    queue.grow()
    queue.trim()
    queue.check()
    manifest = queue.world.manifest(queue.log_id)
    assert manifest is not None
    named = {page.key for page in manifest.pages}
    queue.world.wait(6 * RETIRE_S)
    sweep_orphans(queue.world.parts, queue.log_id)
    standing = queue.world.keys(queue.log_id, "manifests/pages/")
    assert named <= set(standing)
    assert len(standing) < pages
    queue.verify()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("fault", [Dies, Stutters])
def test_a_sealer_that_dies_or_gets_no_answer_drops_once(fault: type[Dies | Stutters], after: bool) -> None:
    at, needed = 0, 1
    while at < needed:
        at += 1
        queue = Queue(4)
        queue.give_up(4)
        queue.grow()
        queue.world.wait(RETIRE_S)
        queue.world.pairs.append("p", b"tail", key="k")
        queue.written.append(b"tail")
        queue.world.pairs.raise_floor("p", 8)
        queue.floor = 8
        hook = fault(at, after=after)
        parts = queue.world.watched(hook)
        with suppress(Dead, StoreError):
            seal(parts, queue.log_id, force=True)
        needed = at + 1 if hook.calls >= at else 0
        queue.check()
        queue.give_up(8)
        assert queue.begin() == 6
        queue.world.wait(6 * RETIRE_S)
        sweep_orphans(queue.world.parts, queue.log_id)
        assert (queue.begin(), queue.segments()[0]) == (6, 2)
        queue.trim()
        queue.check()
        queue.verify()
    assert at > 10


def test_a_reader_with_an_older_generation_finds_where_the_log_begins() -> None:
    queue = Queue(5)
    queue.trim()
    world = queue.world
    reader = Pairs(world.stores)
    queue.check(reader)
    queue.give_up(8)
    world.wait(6 * RETIRE_S)
    sweep_orphans(world.parts, queue.log_id)
    assert queue.segments() == [2, 3, 4]
    queue.check(reader)


def test_what_is_dropped_while_a_page_is_read_is_left_out_of_a_page_whose_head_says_so() -> None:
    for max_records in (2, 5, 99):
        for call in range(1, 8):
            queue = Queue(5)
            queue.grow()
            queue.trim()
            world = queue.world
            objects = Faulty(world.objects)

            def overtake(queue: Queue = queue) -> None:
                queue.give_up(8)
                queue.world.wait(6 * RETIRE_S)
                sweep_orphans(queue.world.parts, queue.log_id)
                queue.trim()

            reader = Pairs(replace(world.stores, objects=objects))
            objects.on("get_ranges", overtake, call=call)
            objects.on("get", overtake, call=call)
            page = reader.log.records("p", 1, max_records=max_records)
            first = page.records[0].offset
            assert first == max(1, page.head.state.floor)
            found = [one.offset for one in page.records]
            assert found == list(range(first, first + len(found)))
            assert page.next == first + len(found)
            assert [one.data for one in page.records] == queue.written[first : page.next]


def test_a_search_looks_at_no_record_below_the_floor_and_at_no_dropped_segment() -> None:
    queue = Queue(5)
    log = Pairs(queue.world.stores).log
    sources = Sources(queue.world.stores, log)
    index_runs.index(queue.world.stores, log, "p", span=2)
    assert len(sources.snapshot("p").runs) == 3
    queue.give_up(10)
    for fresh in (False, True):
        snapshot = sources.snapshot("p", fresh=fresh)
        (part,) = snapshot.parts
        assert (part.first, part.end) == (10, 15)
        assert [(one.first, one.end) for one in snapshot.runs] == [(10, 12), (12, 15)]
        assert [one.segment.number for one in snapshot.segments_outside([])] == [3, 4]
    assert units.published(snapshot) == 2


def test_a_log_with_forks_keeps_its_segments() -> None:
    world = World()
    log_id = world.create("s")
    world.fill("s", 2)
    world.fork("f", "s")
    world.seal(log_id)
    manifest = world.manifest(log_id)
    assert manifest is not None
    raised = structs.replace(manifest, state=structs.replace(manifest.state, floor=manifest.end_offset))
    assert dropping.drop(world.parts, raised, world.parts.look()) is None
    assert world.manifest(log_id) == manifest


def test_a_stream_pays_nothing_for_the_floor_of_others() -> None:
    world = World()
    log_id = world.create("s")
    world.fill("s", 2)
    objects = Faulty(world.objects)
    parts = replace(world.parts, stores=replace(world.stores, objects=objects))
    seal(parts, log_id, force=True)
    assert not objects.calls["list"]
    assert objects.calls["create"] == 1
