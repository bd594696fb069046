"""What a job is told, and what it answers: two small objects of the bucket under `jobs/<job id>/`."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.errors import Damaged
from headrace.index.descriptors import Run, decode, describe
from headrace.objects import ObjectMissing, Objects, keys
from headrace.segment.descriptor import Segment

VERSION = 1

Work = Literal["build", "compact", "merge"]


class Task(msgspec.Struct, frozen=True):
    """One run to make, or one segment.

    Attributes:
        work: `build` from segments, `compact` from runs of one plan, `merge` segments into one.
        log_id: whose.
        run_id: of the run to make, chosen by the indexer: a task that runs twice makes one run.
        level, plan, first_offset, end_offset: of the run to make; of `merge`, 0, empty, and the records of the segments.
        definition: key of the definition object that the plan comes from; empty without one (then `lex` alone is built).
        content_type: of the log's records.
        segments: that hold the records, ascending; of `build` and of `merge`.
        inputs: to be merged, ascending and adjacent; of `compact`.
    """

    work: Work
    log_id: str
    run_id: str
    level: int
    plan: str
    first_offset: int
    end_offset: int
    definition: str
    content_type: str
    segments: tuple[Segment, ...] = ()
    inputs: tuple[Run, ...] = ()


class JobInput(msgspec.Struct, frozen=True):
    """Written before the job is started. `created_ms` becomes that of its runs, so that repeats make equal ones."""

    version: int
    job_id: str
    created_ms: int
    tasks: tuple[Task, ...]


class Failure(msgspec.Struct, frozen=True):
    """A task that made no run. `damaged`: what it reads contradicts itself, and a repeat will meet it again."""

    log_id: str
    run_id: str
    damaged: bool
    reason: str


class JobResult(msgspec.Struct, frozen=True):
    """Written last. A task's run exists if its descriptor does, whether or not this object was written.

    Attributes:
        runs: by run id.
        failures: the tasks that failed; they don't fail the job.
        merged: segments that were made, by run id; their number is that of the first that they stand for.
    """

    version: int
    job_id: str
    runs: dict[str, Run]
    failures: tuple[Failure, ...]
    merged: dict[str, Segment] = {}


def find_run(objects: Objects, task: Task) -> Run | None:
    """Returns the run that a task made, from its descriptor, which alone decides; None if there is none.

    Raises:
        Damaged: the descriptor contradicts itself, or is not what the task asks for.
        StoreTimeout, StoreThrottled: repeat later.
    """
    key = keys.run_descriptor(task.log_id, task.run_id)
    try:
        data = objects.get(key)
    except ObjectMissing:
        return None
    descriptor = decode(data, key)
    expected = (task.log_id, task.run_id, task.level, task.plan, task.first_offset, task.end_offset)
    found = (
        *(descriptor.log_id, descriptor.run_id, descriptor.level, descriptor.plan),
        *(descriptor.first_offset, descriptor.end_offset),
    )
    if found != expected:
        raise Damaged(f"run is not the one asked for: object={key} expected={expected} found={found}")
    return describe(descriptor, key, data)
