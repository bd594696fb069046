"""Index runs without Spark: the steps of `emr_jobs.job`, with the frame sorted in this process; and their publication."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from emr_jobs import job, layout, reports
from emr_jobs.job import Reader
from emr_jobs.parts import Finisher, Puts
from emr_jobs.reports import Report
from functions.queue import MemoryQueue
from functions.sealer.context import assemble
from functions.sealer.seal import seal
from headrace.definition import key_of
from headrace.index import descriptors
from headrace.index import manifest as manifests
from headrace.index.descriptors import Run
from headrace.index.job import Task
from headrace.index.manifest import IndexManifestStore
from headrace.log.logs import Log
from headrace.log.requests import Head
from headrace.log.seam import Which
from headrace.log.stores import Stores
from headrace.objects import Objects
from headrace.segment.descriptor import Segment

CREATED_MS = 1_700_000_000_000
_numbers = itertools.count(1)


@dataclass(frozen=True, eq=False)
class Here:
    """A door to objects of this process; two of them are never equal."""

    objects: Objects

    def open(self) -> Objects:
        """Returns the objects."""
        return self.objects


def make(objects: Objects, tasks: Sequence[Task]) -> list[Run]:
    """Does tasks as a job run would; the first failure is raised."""
    door = Here(objects)
    todo = {number: job.prepare(door, number, task) for number, task in enumerate(tasks)}
    plan = layout.plan([one for work in todo.values() for one in work.wanted])
    packs = job.pack_items(item for work in todo.values() for item in work.items)
    numbers = pa.RecordBatch.from_arrays([pa.array(range(len(packs)), pa.int64())], names=["id"])
    rows = Reader(door, tasks, plan.buckets, packs)([numbers])
    table = pa.Table.from_batches(rows, layout.ARROW)
    ordered = table.sort_by([("bucket", "ascending"), ("term", "ascending"), ("first", "ascending")])
    found: dict[int, list[Report]] = {number: [] for number in todo}
    for batch in Finisher(door, tasks, plan.buckets, Puts())(ordered.combine_chunks().to_batches()):
        for data in batch.column(0).to_pylist():
            report = reports.decode(data)
            assert not isinstance(report, reports.Failed), report
            found[report.task].append(report)
    made = []
    for number, work in todo.items():
        descriptor = reports.describe_run(work.task, work.plan, work.times, work.counts, found[number], CREATED_MS)
        made.append(job.create_run(objects, work.task, descriptor))
    return made


def sealed(stores: Stores, logs: Log, which: Which) -> list[Segment]:
    """Seals everything of a log, such as a stream's own; its segments."""
    head = logs.head(which)
    seal(assemble(stores, MemoryQueue()), head.log_id, force=True)
    return segments_of(stores, head)


def segments_of(stores: Stores, head: Head) -> list[Segment]:
    """Returns the published segments of a log."""
    store = stores.manifests()
    manifest = store.newest(head.log_id, None, 0)
    return [] if manifest is None else list(store.segments_from(manifest, head.config.base_offset))


def index(stores: Stores, logs: Log, which: Which, *, span: int = 16, skip: int = 0) -> list[Run]:
    """Builds and publishes runs over the published segments that none of the current plan covers.

    Args:
        span: segments of a run.
        skip: segments at the end that are left out.
    """
    head = logs.head(which)
    plan = descriptors.hash_of(logs.definition_of(head))
    store = IndexManifestStore(stores.objects)
    before = store.newest(head.log_id)
    covered = max((run.end_offset for run in before.of_plan(plan)), default=head.config.base_offset)
    segments = [one for one in segments_of(stores, head) if one.first_offset >= covered]
    segments = segments[: len(segments) - skip]
    tasks = []
    for at in range(0, len(segments), span):
        some = tuple(segments[at : at + span])
        first, end = some[0].first_offset, some[-1].end_offset
        tasks.append(_task("build", head, plan, 0, first, end, segments=some))
    runs = make(stores.objects, tasks) if tasks else []
    after = manifests.with_runs(before, runs, CREATED_MS, plan=plan)
    if after is not before:
        assert store.publish(after)
    return runs


def compact(stores: Stores, logs: Log, name: str) -> Run:
    """Merges all runs of the current plan into one, and publishes it."""
    head = logs.head(name)
    plan = descriptors.hash_of(logs.definition_of(head))
    store = IndexManifestStore(stores.objects)
    before = store.newest(head.log_id)
    inputs = before.of_plan(plan)
    level = max(run.level for run in inputs) + 1
    task = _task("compact", head, plan, level, inputs[0].first_offset, inputs[-1].end_offset, inputs=inputs)
    (run,) = make(stores.objects, [task])
    assert store.publish(manifests.with_runs(before, [run], CREATED_MS, plan=plan))
    return run


def _task(work: str, head: Head, plan: str, level: int, first: int, end: int, **sources: object) -> Task:
    return Task(
        work=work,  # type: ignore[arg-type]
        log_id=head.log_id,
        run_id=f"run-{next(_numbers)}",
        level=level,
        plan=plan,
        first_offset=first,
        end_offset=end,
        definition=key_of(head.log_id, head.state.definition),
        content_type=head.config.content_type,
        **sources,  # type: ignore[arg-type]
    )
