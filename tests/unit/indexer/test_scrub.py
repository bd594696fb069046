"""Scrubbing from end to end: removed records are blanked in the segments, in sealed pages, too, and the runs over them are
built again; nothing else changes, whatever dies or comes first.
"""

from __future__ import annotations

import contextlib
import itertools

import pytest
from msgspec.structs import replace

from functions.indexer.context import Context, assemble
from functions.indexer.follow import follow, publish, publish_merged
from functions.indexer.look import look
from functions.indexer.runs import load_input, load_result
from functions.indexer.start import start
from functions.sealer.trim import sweep_orphans, trim
from headrace.errors import StoreError
from headrace.index.job import Task
from headrace.log.stores import Stores
from headrace.manifest import manifest as manifests
from headrace.manifest.invariants import check
from headrace.manifest.manifest import Manifest
from headrace.manifest.merging import DeadRecords
from headrace.recovery.verify import verify
from headrace.segment import reader
from headrace.segment.descriptor import Segment
from headrace.settings import Settings
from tests.unit.indexer.test_merging import read_all
from tests.unit.indexer.world import World, each_call
from tests.unit.sealer.world import Dead, Dies, Hook, Interrupts, Stutters, noise

SETTINGS = Settings(
    seal_records=30,
    seal_bytes=10_000,
    index_segments=100,
    index_age_ms=60_000,
    index_retire_age_ms=300_000,
    merge_segments=0,
    merge_retire_ms=7_200_000,
)
DAY_S = 24 * 3600


class Scrubbing(World):
    """A log of segments with three records each, some of which are removed."""

    def __init__(self, segments: int = 4) -> None:
        super().__init__(SETTINGS)
        self._numbers = itertools.count()
        self.dead: list[tuple[int, int]] = []
        self.expired_ms: int | None = None
        self.indexer = self._indexer(self.stores)
        self.log_id = self.create("a")
        self.written = self.publish("a", self.log_id, segments)
        self.wait(SETTINGS.trim_age_ms / 1000 + 1)
        trim(self.parts, self.log_id)

    def fill(self, name: str, batches: int, records: int = 3, size: int = 10) -> list[bytes]:
        """As in any world, but no record is like another, whenever it is written."""
        written = []
        for _ in range(batches):
            data = [noise(f"{next(self._numbers)}", size) for _ in range(records)]
            self.append(name, *data)
            written += data
            self.clock.advance(0.01)
        return written

    def _indexer(self, stores: Stores) -> Context:
        def find_dead(manifest: Manifest, _: int) -> DeadRecords:
            assert manifest.log_id == self.log_id
            return DeadRecords(tuple(self.dead), self.expired_ms)

        return assemble(stores, self.jobs, self.runs, self.wakes, dead=find_dead)

    def watched_indexer(self, hook: Hook) -> Context:
        """As in any world, with the same removed records."""
        return (
            super()
            .watched_indexer(hook)
            .__class__(
                **{
                    name: getattr(super(Scrubbing, self).watched_indexer(hook), name)
                    for name in Context.__dataclass_fields__
                    if name != "dead"
                },
                dead=self.indexer.dead,
            )
        )

    def scrub(self, parts: Context | None = None) -> None:
        """A job that scrubs, from look to publication."""
        look(parts or self.indexer, self.log_id)
        start(parts or self.indexer)
        self.work_all()
        follow(parts or self.indexer)

    @property
    def segments(self) -> list[Segment]:
        """The segments that the newest manifest names."""
        manifest = self.manifest(self.log_id)
        assert manifest is not None
        return list(self.stores.manifests().segments_from(manifest, 0))

    @property
    def expected(self) -> list[bytes]:
        """What was written, without what is removed."""
        return [b"" if self.is_dead(offset) else one for offset, one in enumerate(self.written)]

    def is_dead(self, offset: int) -> bool:
        """Returns whether the record at an offset is removed."""
        return any(first <= offset < end for first, end in self.dead)

    def check_scrubbed(self) -> None:
        """The living records are as they were, and nothing but a blank is where the others were."""
        assert self.published(self.log_id) == self.expected
        assert sum(one.blanked for one in self.segments) == sum(map(self.is_dead, range(len(self.written))))
        for segment in self.segments:
            page = reader.key_page(self.objects, segment)
            keyed = {segment.first_offset + row for row, key in enumerate(page.key_by_row()) if key is not None}
            assert not any(self.is_dead(offset) for offset in keyed)
        findings = verify(self.stores, self.log_id).findings  # of the parts of runs, this world knows no hash
        assert [one for one in findings if one.severity == "error" and one.kind != "index.damaged"] == []
        store, newest = self.stores.manifests(), self.manifest(self.log_id)
        assert newest is not None
        for generation in range(2, newest.generation + 1):
            before, after = store.load(self.log_id, generation - 1), store.load(self.log_id, generation)
            if before is not None and after is not None:  # else it was removed after its day
                check(before, after)

    def planned(self) -> tuple[Task, Segment]:
        """Plans and makes one scrub without publishing it; returns its task and its segment."""
        look(self.indexer, self.log_id)
        start(self.indexer)
        (job_id,) = self.runs.under_way
        self.work_all()
        job, result = load_input(self.objects, job_id), load_result(self.objects, job_id)
        assert job is not None and result is not None
        (task,) = [task for task in job.tasks if task.dead]
        return task, result.merged[task.run_id]


def test_a_segment_with_enough_removed_records_is_written_again_without_them() -> None:
    world = Scrubbing()
    before = world.segments
    world.dead = [(1, 2), (3, 6)]
    world.scrub()
    world.check_scrubbed()
    after = world.segments
    assert [one.blanked for one in after] == [1, 3, 0, 0]
    assert [one.key != other.key for one, other in zip(before, after, strict=True)] == [True, True, False, False]
    spans = [(one.number, one.first_offset, one.count, one.min_time_ms, one.max_time_ms) for one in before]
    assert [(one.number, one.first_offset, one.count, one.min_time_ms, one.max_time_ms) for one in after] == spans
    look(world.indexer, world.log_id)
    start(world.indexer)
    assert not any(task.dead for job_id in world.runs.under_way for task in load_input(world.objects, job_id).tasks)  # type: ignore[union-attr]


def test_nothing_is_left_of_a_removed_record_once_replaced_objects_are_gone() -> None:
    world = Scrubbing()
    secret = world.written[4]
    world.dead = [(3, 6)]
    assert any(_holds(world, key, secret) for key in world.keys(world.log_id, "segments/"))
    world.scrub()
    world.wait(12 * SETTINGS.merge_retire_ms / 1000)
    assert sweep_orphans(world.parts, world.log_id) == 2
    assert [key for key in world.keys(world.log_id) if _holds(world, key, secret)] == []
    world.check_scrubbed()


def _holds(world: World, key: str, data: bytes) -> bool:
    if not key.endswith(".parquet") or "/segments/" not in key:
        return data in world.objects.get(key)
    segments = {one.key: one for one in _all_segments(world, key.split("/")[1])}
    return key in segments and data in reader.read_data(
        world.objects, segments[key], segments[key].first_offset, 100, 10**6
    )


def _all_segments(world: World, log_id: str) -> list[Segment]:
    """Returns the segments of every generation that exists."""
    store = world.stores.manifests()
    found = [store.load(log_id, generation) for generation in store.standing(log_id)]
    return [one for manifest in found if manifest is not None for one in store.segments_from(manifest, 0)]


def test_a_few_removed_records_wait_for_the_logs_day_of_the_week() -> None:
    world = Scrubbing(segments=1)
    world.written += world.fill("a", 3, records=8)
    world.seal(world.log_id)
    assert [one.count for one in world.segments] == [3, 24]
    world.dead = [(4, 6)]
    seen = [_blanked_each_half_day(world)]
    world.check_scrubbed()
    world.dead = [(4, 7)]
    seen.append(_blanked_each_half_day(world))
    world.check_scrubbed()
    assert seen == [[0] * 3 + [2] * 11, [2] * 3 + [3] * 11]


def _blanked_each_half_day(world: Scrubbing) -> list[int]:
    """Looks twice a day for a week; how many records were blank each time."""
    found = []
    for _ in range(14):
        world.scrub()
        found.append(world.segments[1].blanked)
        world.wait(DAY_S / 2)
    return found


def test_index_runs_over_a_scrubbed_segment_are_built_again() -> None:
    world = Scrubbing()
    world.settle(world.log_id)
    (run,) = world.check(world.log_id).runs
    world.dead = [(3, 6)]
    world.scrub()
    assert [one.id for one in world.check(world.log_id).runs] == []
    assert [one.run.id for one in world.check(world.log_id).retired] == [run.id]
    world.settle(world.log_id)
    assert world.covered(world.log_id)
    assert run.id not in [one.id for one in world.check(world.log_id).runs]
    assert not world.keys(world.log_id, f"index/runs/{run.id}")


def test_a_run_that_was_built_from_the_old_segment_is_not_published() -> None:
    world = Scrubbing()
    look(world.indexer, world.log_id)
    world.wait(61)
    start(world.indexer)
    (job_id,) = world.runs.under_way
    job = load_input(world.objects, job_id)
    assert job is not None
    (build,) = [task for task in job.tasks if task.work == "build"]
    world.work_all()
    world.dead = [(3, 6)]
    segment = world.segments[1]
    task = Task("merge", world.log_id, build.run_id + "x", 0, "", 3, 6, "", "", (segment,), (), (3, 6))
    from emr_jobs.merge import merge_segments

    made = merge_segments(world.objects, task, world.clock.now_ms(), world.stores.request_ids)
    assert publish_merged(world.indexer, task, made)
    assert publish(world.indexer, world.log_id, [build]) == (0, [])
    assert world.index(world.log_id).runs == ()
    world.settle(world.log_id)
    world.check_scrubbed()
    assert world.covered(world.log_id)


def test_a_sealer_that_publishes_first_loses_nothing_whenever_it_comes() -> None:
    def run(at: int) -> bool:
        world = Scrubbing()
        world.dead = [(3, 6)]
        task, made = world.planned()
        hook = Interrupts(at, lambda: world.written.extend(world.publish("a", world.log_id, 1)))
        assert publish_merged(world.watched_indexer(hook), task, made)
        world.check_scrubbed()
        return hook.calls >= at

    assert each_call(run) > 6


@pytest.mark.parametrize("after", [False, True])
def test_an_indexer_that_dies_while_scrubbing_is_replaced_by_the_next(after: bool) -> None:
    def run(at: int) -> bool:
        world = Scrubbing(3)
        world.settle(world.log_id)
        world.dead = [(3, 6)]
        old = {one.id for one in world.index(world.log_id).runs}
        try:
            world.scrub(world.watched_indexer(Dies(at, after=after)))
            died = False
        except (Dead, StoreError):
            died = True
        world.work_all()
        world.settle(world.log_id)
        world.check_scrubbed()
        assert not old & {one.id for one in world.index(world.log_id).runs}
        assert world.covered(world.log_id)
        return died

    assert each_call(run) > 20


@pytest.mark.parametrize("after", [False, True])
def test_a_call_that_times_out_while_scrubbing_is_repeated_without_harm(after: bool) -> None:
    def run(at: int) -> bool:
        world = Scrubbing(3)
        world.dead = [(3, 6)]
        hook = Stutters(at, after=after)
        with contextlib.suppress(StoreError):
            world.scrub(world.watched_indexer(hook))
        world.settle(world.log_id)
        world.check_scrubbed()
        return hook.calls >= at

    assert each_call(run) > 20


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sealed pages of two segments, and of two pages."""
    monkeypatch.setattr(manifests, "PAGE_SEGMENTS", 2)
    monkeypatch.setattr(manifests, "FAN_OUT", 2)


@pytest.mark.usefixtures("small_pages")
def test_a_segment_of_a_sealed_page_is_scrubbed_and_every_page_above_it_written_again() -> None:
    world = Scrubbing(9)
    manifest = world.manifest(world.log_id)
    assert manifest is not None
    assert max(page.level for page in manifest.pages) >= 1
    old_pages = world.keys(world.log_id, "manifests/pages/")
    world.dead = [(1, 2), (9, 12)]
    for _ in range(2):
        world.scrub()
    world.check_scrubbed()
    new = world.manifest(world.log_id)
    assert new is not None
    assert [page.level for page in new.pages] == [page.level for page in manifest.pages]
    assert {page.key for page in new.pages} != {page.key for page in manifest.pages}
    gone = [one.key for one in new.replaced if "/pages/" in one.key]
    assert gone and set(gone) <= {*old_pages, *world.keys(world.log_id, "manifests/pages/")}
    assert sweep_orphans(world.parts, world.log_id) == 0, "readers may hold the generation before"
    assert set(gone) <= set(world.keys(world.log_id, "manifests/pages/"))
    world.written += world.publish("a", world.log_id, 2)
    world.wait(SETTINGS.merge_retire_ms / 1000 + 1)
    world.written += world.publish("a", world.log_id, 1)
    assert not set(gone) & set(world.keys(world.log_id, "manifests/pages/")), "two generations and the age later"
    world.check_scrubbed()
    assert read_all_blank(world)


def read_all_blank(world: Scrubbing) -> bool:
    """Returns whether a reader finds every record where it was."""
    from headrace.streams.verbs import Streams

    return read_all(Streams(world.stores)) == world.expected


@pytest.mark.usefixtures("small_pages")
def test_a_scrub_of_a_sealed_page_and_a_sealer_come_in_any_order() -> None:
    def run(at: int) -> bool:
        world = Scrubbing(5)
        world.dead = [(0, 3)]
        task, made = world.planned()
        hook = Interrupts(at, lambda: world.written.extend(world.publish("a", world.log_id, 1)))
        assert publish_merged(world.watched_indexer(hook), task, made)
        assert publish_merged(world.indexer, task, made), "again, after a lost answer"
        world.check_scrubbed()
        return hook.calls >= at

    assert each_call(run) > 6


def test_a_segment_that_says_it_is_scrubbed_and_was_not_planned_so_is_refused() -> None:
    world = Scrubbing()
    world.dead = [(3, 6)]
    task, made = world.planned()
    other = replace(task, segments=(replace(task.segments[0], sha256="0" * 64),))
    assert not publish_merged(world.indexer, other, made)
    assert [one.blanked for one in world.segments] == [0, 0, 0, 0]
