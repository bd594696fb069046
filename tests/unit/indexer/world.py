"""A deployment in memory with an indexer that can be made to fail, and job runs that do what a test says."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

from emr_jobs import merge
from functions.indexer.context import Context, assemble
from functions.indexer.follow import PLANNING_MS, follow
from functions.indexer.handler import Indexer
from functions.indexer.look import look, see
from functions.indexer.runs import Outcome, load_input
from functions.indexer.start import start
from functions.queue import MemoryQueue
from headrace.index.descriptors import Descriptor, Part
from headrace.index.job import VERSION, Failure, JobResult, Task
from headrace.index.manifest import IndexManifest, gaps
from headrace.objects import Objects, keys, packed
from headrace.settings import Settings
from headrace.tables.jobs import MemoryJobs
from tests.unit.sealer import world as sealer
from tests.unit.sealer.world import PORTS, Hook, Silent, Watched

SETTINGS = Settings(
    seal_records=10,
    seal_bytes=10_000,
    index_segments=2,
    compact_fanout=2,
    index_age_ms=60_000,
    index_retire_age_ms=300_000,
)
_PART = b"rows" * 4  # nobody opens it


class FakeRuns:
    """The port `JobRuns`: a run is over when the test says so."""

    def __init__(self) -> None:
        self.jobs: dict[str, str] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.most = 0  # that were under way at once

    def start(self, job_id: str, *, requested: bool = False) -> str:
        """Starts a job run; returns the same run for the same job."""
        run_id = self.jobs.setdefault(job_id, f"run{len(self.jobs)}")
        self.outcomes.setdefault(run_id, "running")
        self.most = max(self.most, len(self.under_way))
        return run_id

    def outcome(self, run_id: str) -> Outcome:
        """As told."""
        return self.outcomes.get(run_id, "failed")

    @property
    def under_way(self) -> list[str]:
        """Jobs whose runs are not over."""
        return [job_id for job_id, run_id in self.jobs.items() if self.outcomes.get(run_id) == "running"]


class World(sealer.World):
    """Also a table of jobs, an index queue, and job runs."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        super().__init__(settings)
        self.jobs, self.wakes, self.runs = MemoryJobs(), MemoryQueue(), FakeRuns()
        self.indexer = assemble(self.stores, self.jobs, self.runs, self.wakes)
        self.poisoned: set[str] = set()  # logs whose tasks fail
        self.deadly: set[str] = set()  # logs that take the whole job run with them

    def publish(self, name: str, log_id: str, segments: int = 1) -> list[bytes]:
        """Writes and seals so many segments."""
        written: list[bytes] = []
        for _ in range(segments):
            written += self.fill(name, 1, records=3)
            self.seal(log_id)
        return written

    def work(self, job_id: str, objects: Objects | None = None) -> None:
        """Does a job to its end, as Spark would."""
        objects = objects or self.objects
        job = load_input(objects, job_id)
        assert job is not None
        run_id = self.runs.jobs[job_id]
        if any(task.log_id in self.deadly for task in job.tasks):
            self.runs.outcomes[run_id] = "failed"
            return
        runs, failures, merged = {}, [], {}
        for task in job.tasks:
            if task.log_id in self.poisoned:
                failures.append(Failure(task.log_id, task.run_id, True, "poisoned"))
            elif task.work == "merge":
                merged[task.run_id] = merge.merge_segments(objects, task, job.created_ms, self.stores.request_ids)
            else:
                self._make(objects, task, job.created_ms)
        result = JobResult(VERSION, job_id, runs, tuple(failures), merged)
        objects.put(keys.job_result(job_id), packed.encode(result))
        self.runs.outcomes[run_id] = "succeeded"

    def _make(self, objects: Objects, task: Task, created_ms: int) -> None:
        self.check_inputs(task)
        part = keys.run_part(task.log_id, task.run_id, "lex", 0, self.stores.request_ids())
        objects.put(part, _PART)
        descriptor = Descriptor(
            version=1,
            log_id=task.log_id,
            run_id=task.run_id,
            level=task.level,
            plan=task.plan,
            first_offset=task.first_offset,
            end_offset=task.end_offset,
            min_time_ms=0,
            max_time_ms=0,
            least_timestamp=None,
            greatest_timestamp=None,
            schema_version=0,
            inputs=tuple(run.id for run in task.inputs),
            parts={"lex": (Part(part, len(_PART), "", 1, _PART[-8:], (b"k",), (0,), ()),)},
            fields={},
            rollups=(),
            created_ms=created_ms,
        )
        objects.create(keys.run_descriptor(task.log_id, task.run_id), packed.encode_msgpack(descriptor))

    def check_inputs(self, task: Task) -> None:
        """Segments and runs of a task reach over its whole range."""
        if task.work == "build":
            ends = [(segment.first_offset, segment.end_offset) for segment in task.segments]
        else:
            ends = [(run.first_offset, run.end_offset) for run in task.inputs]
            assert {run.plan for run in task.inputs} == {task.plan}
        assert ends[0][0] <= task.first_offset < task.end_offset <= ends[-1][1]
        assert all(before[1] == after[0] for before, after in itertools.pairwise(ends))

    def work_all(self) -> None:
        """Ends every run that is under way."""
        for job_id in self.runs.under_way:
            self.work(job_id)

    def tick(self, parts: Context | None = None) -> None:
        """What the schedule asks for."""
        parts = parts or self.indexer
        follow(parts)
        start(parts)

    def settle(self, *log_ids: str) -> None:
        """Time passes, everything healthy, until nothing more comes of it."""
        for log_id in log_ids:
            look(self.indexer, log_id)
        for _ in range(12):
            self.wait(PLANNING_MS / 1000)
            self.tick()
            self.work_all()

    def index(self, log_id: str) -> IndexManifest:
        """Returns the newest index manifest, from the bucket alone."""
        return self.indexer.indexes.newest(log_id)

    def check(self, log_id: str) -> IndexManifest:
        """Checks the laws: every run that was ever named exists whole while it may be read, and none overlaps
        another. Returns the newest manifest.
        """
        newest = self.index(log_id)
        for generation in range(1, newest.generation + 1):
            found = self.indexer.indexes.load(log_id, generation)
            assert found is not None
        for run in newest.runs:
            data = self.objects.get(run.descriptor)
            descriptor = packed.decode_msgpack(data, Descriptor, run.descriptor)
            assert (descriptor.first_offset, descriptor.end_offset) == (run.first_offset, run.end_offset)
            for part in descriptor.parts["lex"]:
                self.objects.get(part.key)
        return newest

    def covered(self, log_id: str) -> bool:
        """Returns whether everything published is covered by runs of the plan in force."""
        picture = see(self.indexer, log_id)
        assert picture is not None
        return not gaps(self.index(log_id).of_plan(picture.plan), picture.base_offset, picture.end_offset)

    def watched_indexer(self, hook: Hook) -> Context:
        """Returns the indexer's parts, with `hook` around every call to a store, the queue, or EMR Serverless."""
        ports: dict[str, Any] = {name: Watched(getattr(self.stores, name), hook) for name in PORTS}
        stores = dataclasses.replace(self.stores, **ports)
        jobs: Any = Watched(self.jobs, hook)
        runs: Any = Watched(self.runs, hook)
        wakes: Any = Watched(self.wakes, hook)
        return assemble(stores, jobs, runs, wakes)

    def events_of(self, log_id: str) -> list[dict[str, Any]]:
        """Returns what S3 says of the log's manifests, one message each."""
        return [
            {"Records": [{"eventSource": "aws:s3", "s3": {"object": {"key": key}}}]}
            for key in self.keys(log_id, "manifests/0")
        ]


def dispatcher(context: Context) -> tuple[Indexer, Silent]:
    """Returns an indexer, and the object that is its logger and its meter, which keeps what it is told."""
    silent: Any = Silent()
    return Indexer(dataclasses.replace(context, meter=silent), silent), silent


def each_call(run: Callable[[int], bool], most: int = 600, every: int = 1) -> int:
    """Runs with a fault at call 1, 2, …, or at every third of them and so on, until a run needs fewer calls; about how many
    that is.
    """
    for at in range(1, most, every):
        if not run(at):
            return at - 1
    raise AssertionError("never ends")
