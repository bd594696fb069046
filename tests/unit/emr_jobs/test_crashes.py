"""A job run that dies, meets a failing store, or meets itself: what it leaves is whole, and a repeat finishes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pytest
from msgspec.structs import replace

from emr_jobs import job, stores
from headrace.errors import StoreTimeout
from headrace.index.job import JobResult, Task, find_run
from headrace.objects import Objects, Range, keys
from headrace.objects.memory import MemoryObjects
from tests.unit.emr_jobs import here, samples

DEFINITION = samples.definition()
RECORDS = samples.records(
    [
        (
            {"at": 1_767_323_045_678 + row, "service": f"s{row % 2}", "cost": row + 0.5, "note": f"word {row}"},
            f"k{row}",
        )
        for row in range(6)
    ]
)
WANTED = samples.expected(RECORDS, DEFINITION)


class Killed(BaseException):
    """The process is gone."""


class Watched:
    """Objects of this process whose every call is numbered; `on_call` may raise, before or after it has had its effect."""

    def __init__(self, target: Objects) -> None:
        self.target = target
        self.calls = 0
        self.before: Callable[[int], None] = lambda number: None
        self.after: Callable[[int], None] = lambda number: None

    def _call(self, call: Callable[[], Any]) -> Any:
        self.calls += 1
        number = self.calls
        self.before(number)
        found = call()
        self.after(number)
        return found

    def get(self, key: str) -> Any:
        return self._call(lambda: self.target.get(key))

    def get_range(self, key: str, start: int, length: int) -> Any:
        return self._call(lambda: self.target.get_range(key, start, length))

    def get_ranges(self, ranges: Sequence[Range], /) -> Any:
        return self._call(lambda: self.target.get_ranges(ranges))

    def put(self, key: str, data: bytes) -> Any:
        return self._call(lambda: self.target.put(key, data))

    def create(self, key: str, data: bytes) -> Any:
        return self._call(lambda: self.target.create(key, data))

    def list(self, prefix: str, *, after: str = "") -> Iterator[str]:
        return self.target.list(prefix, after=after)

    def delete(self, keys: Any) -> None:
        self.target.delete(keys)


@dataclass(frozen=True, eq=False)
class WatchedDoor:
    """A door to watched objects."""

    objects: Watched

    def open(self) -> Objects:
        return self.objects


class Copied(MemoryObjects):
    """Objects that begin as a copy of others."""

    def __init__(self, origin: MemoryObjects) -> None:
        super().__init__()
        for key in origin.list(""):
            self.put(key, origin.get(key))


@lru_cache(maxsize=1)
def prepared() -> tuple[MemoryObjects, tuple[Task, ...]]:
    """Returns a bucket with two segments and a run of each, and two tasks: to build one run of the segments, and to
    merge the runs.
    """
    bucket = MemoryObjects()
    key = samples.put_definition(bucket, DEFINITION)
    segments = samples.put_segments(bucket, RECORDS, [4])
    build = samples.task("build", "built", DEFINITION, key, segments=segments)
    halves = [samples.task("build", f"half{at}", DEFINITION, key, segments=[one]) for at, one in enumerate(segments)]
    runs = job.run(None, WatchedDoor(Watched(bucket)), samples.put_input(bucket, "halves", *halves)).runs
    return bucket, (build, samples.task("compact", "merged", DEFINITION, key, inputs=list(runs.values())))


class World:
    """A bucket with the input of a job of one build and one compaction."""

    def __init__(self) -> None:
        origin, self.tasks = prepared()
        self.bucket = Copied(origin)
        self.input = samples.put_input(self.bucket, "j", *self.tasks)

    def run(self, watched: Watched | None = None) -> JobResult:
        return job.run(None, WatchedDoor(watched or Watched(self.bucket)), self.input)

    def check(self) -> JobResult:
        """Checks that a repeat finishes the job and that its runs hold what they must; returns its result."""
        result = self.run()
        assert not result.failures
        assert set(result.runs) == {"built", "merged"}
        for task in self.tasks:
            run = result.runs[task.run_id]
            assert run == find_run(self.bucket, task)
            rows = samples.rows_of(self.bucket, run)
            assert [row["_offset"] for row in rows.pop("col")] == [record.offset for record in RECORDS]
            rows["agg"] = samples.groups_of(rows["agg"])
            assert rows == WANTED
        return result

    def check_made(self) -> None:
        """Whatever exists by now is whole."""
        for task in self.tasks:
            run = find_run(self.bucket, task)
            if run is not None:
                rows = samples.rows_of(self.bucket, run)
                rows["agg"] = samples.groups_of(rows["agg"])
                del rows["col"]
                assert rows == WANTED


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "run_pass", here.run_pass)
    monkeypatch.setattr(stores, "_PAUSE_S", 0)


def _calls() -> int:
    world = World()
    watched = Watched(world.bucket)
    world.run(watched)
    return watched.calls


def test_a_job_run_answers_with_its_runs() -> None:
    world = World()
    result = world.check()
    assert world.run().runs == result.runs
    watched = Watched(world.bucket)
    world.run(watched)
    assert watched.calls == 4  # input, two descriptors, result: what exists is not done again


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_call_it_leaves_nothing_wrong_and_is_finished_by_a_repeat(after: bool) -> None:
    calls = _calls()
    assert calls > 20
    for last in range(1, calls + 1):
        world = World()
        watched = Watched(world.bucket)

        def die(number: int, last: int = last) -> None:
            if number >= last:
                raise Killed

        setattr(watched, "after" if after else "before", die)
        with pytest.raises(Killed):
            world.run(watched)
        world.check_made()
        world.check()


@pytest.mark.parametrize("after", [False, True])
def test_a_store_that_fails_once_is_asked_again(after: bool) -> None:
    for failing in range(1, _calls() + 1):
        world = World()
        watched = Watched(world.bucket)

        def fail(number: int, failing: int = failing) -> None:
            if number == failing:
                raise StoreTimeout("made to fail")

        setattr(watched, "after" if after else "before", fail)
        assert set(world.run(watched).runs) == {"built", "merged"}
        world.check()


@pytest.mark.parametrize("after", [False, True])
def test_a_store_that_fails_for_good_fails_tasks_that_a_repeat_can_do(after: bool) -> None:
    for first in range(1, _calls() + 1):
        world = World()
        watched = Watched(world.bucket)

        def fail(number: int, first: int = first) -> None:
            if first <= number < first + 4:  # as often as anything is tried
                raise StoreTimeout("made to fail")

        setattr(watched, "after" if after else "before", fail)
        try:
            result = world.run(watched)
        except StoreTimeout:
            pass
        else:
            assert set(result.runs) | {one.run_id for one in result.failures} == {"built", "merged"}
            assert not any(one.damaged for one in result.failures)
        world.check_made()
        world.check()


def test_two_at_once_make_the_same_runs() -> None:
    for meeting in range(1, _calls() + 1):
        world = World()
        watched = Watched(world.bucket)
        others: list[JobResult] = []

        def meet(number: int, meeting: int = meeting, others: list[JobResult] = others, world: World = world) -> None:
            if number == meeting:
                others.append(world.run())

        watched.before = meet
        result = world.run(watched)
        assert result.runs == others[0].runs == world.check().runs


def test_what_is_damaged_fails_its_task_alone() -> None:
    world = World()
    (segment, *_) = world.tasks[0].segments
    world.bucket.delete([segment.key])
    result = world.run()
    assert set(result.runs) == {"merged"}
    (failure,) = result.failures
    assert (failure.run_id, failure.damaged) == ("built", True)
    assert segment.key in failure.reason


@pytest.mark.parametrize("what", ["flip", "cut"])
def test_altered_objects_are_noticed(what: str) -> None:
    world = World()
    names = [key for key in world.bucket.list("logs/") if "/segments/" in key and key.endswith(".parquet")]
    names += [key for key in world.bucket.list("logs/") if "/index/" in key]
    for name in names:
        data = world.bucket.get(name)
        middle = len(data) // 2
        altered = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :] if what == "flip" else data[:-1]
        world.bucket.put(name, altered)
        result = world.run()
        assert any(name in failure.reason and failure.damaged for failure in result.failures), name
        world.bucket.put(name, data)
        world.bucket.delete([keys.run_descriptor(task.log_id, task.run_id) for task in world.tasks])


def test_a_plan_that_is_not_the_definitions_makes_no_run() -> None:
    world = World()
    world.input = samples.put_input(world.bucket, "k", replace(world.tasks[0], plan="f" * 16))
    (failure,) = world.run().failures
    assert failure.damaged
    assert "plan is not that of the definition" in failure.reason


def test_a_run_that_is_another_ones_is_not_taken_for_ones_own() -> None:
    world = World()
    world.check()
    world.input = samples.put_input(world.bucket, "k", replace(world.tasks[0], first_offset=1))
    (failure,) = world.run().failures
    assert failure.damaged
    assert "run is not the one asked for" in failure.reason
