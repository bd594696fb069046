"""A job run that merges, and dies, meets a failing store, or meets itself: what it leaves is whole, or is not named."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from emr_jobs import job, merge, segments, stores, verify
from emr_jobs.reports import Compared
from headrace.batch import Record
from headrace.errors import Damaged, StoreTimeout
from headrace.index.job import JobResult, Task
from headrace.objects import keys
from headrace.objects.memory import MemoryObjects
from headrace.segment import keypage
from headrace.segment.descriptor import Segment
from tests.support.builders import batch_of
from tests.unit.emr_jobs import here, samples
from tests.unit.emr_jobs.test_crashes import Killed, Watched, WatchedDoor
from tests.unit.emr_jobs.test_merge import log, put, task_of

RECORDS = log([(b"data %d" % row, f"k{row % 3}", row) for row in range(9)], first=0)


class World:
    """A bucket with small segments, and the input of a job that merges them in two tasks."""

    def __init__(self) -> None:
        self.bucket = MemoryObjects()
        self.small = tuple(put(self.bucket, RECORDS[at : at + 2], at // 2) for at in range(0, 8, 2))
        self.tasks = tuple(
            replace(task_of(self.small[at : at + 2], "text/plain"), run_id=f"run{at}") for at in (0, 2)
        )
        self.input = samples.put_input(self.bucket, "j", *self.tasks)
        self.before = {key: self.bucket.get(key) for key in self.bucket.list("logs/")}

    def run(self, watched: Watched | None = None) -> JobResult:
        return job.run(None, WatchedDoor(watched or Watched(self.bucket)), self.input)  # type: ignore[arg-type]

    def check_unchanged(self) -> None:
        """Every object that was there does so still, and manifests are no business of jobs."""
        assert {key: self.bucket.get(key) for key in self.before} == self.before
        added = set(self.bucket.list("logs/")) - set(self.before)
        assert all(keys.planned_ms(key) is not None for key in added)

    def check(self, result: JobResult) -> None:
        """What is named holds the records of its task."""
        for task in self.tasks:
            if task.run_id in result.merged:
                self.check_one(task, result.merged[task.run_id])
        self.check_unchanged()

    def check_one(self, task: Task, made: Segment) -> None:
        assert segments.read_records(self.bucket, made) == batch_of(records_of(task))
        assert merge.compare_segments(self.bucket, task, made) == (4, "")

    def finish(self) -> None:
        result = self.run()
        assert set(result.merged) == {"run0", "run2"}
        assert not result.failures
        self.check(result)


def records_of(task: Task) -> list[Record]:
    return RECORDS[task.first_offset : task.end_offset]


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "run_tasks", here.looked_at)
    monkeypatch.setattr(stores, "_PAUSE_S", 0)


def each_call(run: Callable[[World, Watched, int], None]) -> int:
    """Runs with call 1, 2, … of a job; how many there are."""
    world = World()
    watched = Watched(world.bucket)
    world.run(watched)
    for number in range(1, watched.calls + 1):
        world = World()
        run(world, Watched(world.bucket), number)
    return watched.calls


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_call_it_changes_nothing_and_is_finished_by_a_repeat(after: bool) -> None:
    def run(world: World, watched: Watched, last: int) -> None:
        def die(number: int) -> None:
            if number >= last:
                raise Killed

        setattr(watched, "after" if after else "before", die)
        with pytest.raises(Killed):
            world.run(watched)
        world.check_unchanged()
        world.finish()

    assert each_call(run) == 10  # input, four segments, two objects of each task, result


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("times", [1, 4])
def test_a_store_that_fails_fails_tasks_at_most_and_names_nothing_half_made(after: bool, times: int) -> None:
    def run(world: World, watched: Watched, first: int) -> None:
        def fail(number: int) -> None:
            if first <= number < first + times:
                raise StoreTimeout("made to fail")

        setattr(watched, "after" if after else "before", fail)
        try:
            result = world.run(watched)
        except StoreTimeout:
            assert times == 4
        else:
            assert set(result.merged) | {one.run_id for one in result.failures} == {"run0", "run2"}
            assert len(result.failures) <= times - 1
            assert not any(one.damaged for one in result.failures)
            world.check(result)
        world.finish()

    each_call(run)


def test_two_at_once_make_segments_of_their_own() -> None:
    def run(world: World, watched: Watched, meeting: int) -> None:
        others: list[JobResult] = []

        def meet(number: int) -> None:
            if number == meeting:
                others.append(world.run())

        watched.before = meet
        result = world.run(watched)
        for one in (result, *others):
            assert set(one.merged) == {"run0", "run2"}
            world.check(one)
        made = {segment.key for one in (result, *others) for segment in one.merged.values()}
        assert len(made) == 4

    each_call(run)


def test_a_merged_segment_is_verified_against_the_small_ones() -> None:
    world = World()
    door = WatchedDoor(Watched(world.bucket))
    world.run()
    found = verify.run(None, door, world.input)  # type: ignore[arg-type]
    assert [(one.run_id, one.records, one.problem) for one in found.runs] == [("run0", 4, ""), ("run2", 4, "")]
    world.bucket.delete([world.small[0].key])
    (verdict, other) = verify.run(None, door, world.input).runs  # type: ignore[arg-type]
    assert "missing" in verdict.problem
    assert not other.problem


def test_a_segment_that_is_another_is_found_out() -> None:
    world = World()
    (task, _), second = world.tasks, world.small[1].key
    changed = [*RECORDS[:3], RECORDS[3]._replace(data=RECORDS[2].data)]
    assert merge.compare_segments(world.bucket, task, put(world.bucket, changed, 7)) == (
        2,
        f"differs from {second}, behind record 2",
    )
    assert "has 5 records" in merge.compare_segments(world.bucket, task, put(world.bucket, RECORDS[:5], 8))[1]
    right = put(world.bucket, RECORDS[:4], 9)
    page = keypage.encode(batch_of([record._replace(key=None) for record in RECORDS[:4]]))
    world.bucket.put(keys.segment_keys(right.key), page)
    keyless = replace(right, keys_sha256=sha256(page).hexdigest())
    assert merge.compare_segments(world.bucket, task, keyless) == (4, "has another key page")
    reports = list(here.looked_at(None, merge.Comparer(WatchedDoor(Watched(world.bucket)), [(0, task)], {})))
    assert reports == [Compared(0, 0, "segment was not made")]


def test_what_a_job_does_not_know_is_not_merged_away() -> None:
    """Columns of a later format, for instance."""
    world = World()
    table = pq.read_table(pa.BufferReader(world.bucket.get(world.small[0].key)))
    sink = pa.BufferOutputStream()
    pq.write_table(table.append_column("later", pa.array([1, 2])), sink)
    with pytest.raises(Damaged, match="other columns"):
        segments.records_in(sink.getvalue().to_pybytes(), world.small[0])
