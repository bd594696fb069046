"""The input and the result of an index job: two small objects under `jobs/<job id>/`."""

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
    """One run, or one merged segment, that a job is asked to make.

    Attributes:
        work: `build` from segments, `compact` from runs of one plan, `merge` segments into one, or scrub one.
        log_id: the log.
        run_id: id of the run to make. The indexer chooses it, so a task that runs twice makes one run.
        level, plan, first_offset, end_offset: level, plan and range of the run; for `merge` 0, empty, and the range of
            the segments.
        definition: key of the definition that gives the plan (`headrace.definition.key_of`); if empty, only `lex` is
            built.
        content_type: content type of the log's records.
        segments: for `build` and `merge`, the segments that hold the records, ascending.
        inputs: for `compact`, the runs to merge, ascending and adjacent.
        dead: for `merge`, the records to blank, as runs `(first, end, first, end, …)` of offsets.
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
    dead: tuple[int, ...] = ()


class JobInput(msgspec.Struct, frozen=True):
    """What a job is asked to do: its tasks; written before it starts. `created_ms` becomes that of its runs, so that
    repeated jobs make equal runs.
    """

    version: int
    job_id: str
    created_ms: int
    tasks: tuple[Task, ...]


class Failure(msgspec.Struct, frozen=True):
    """A task that failed, by its log and run, with the reason. `damaged` says whether its inputs contradict themselves, so
    that a repeat would fail, too.
    """

    log_id: str
    run_id: str
    damaged: bool
    reason: str


class JobResult(msgspec.Struct, frozen=True):
    """What a job did; written last. A task's run exists if its descriptor does, whether or not this object was written.

    Attributes:
        runs: the runs that were made, by run id.
        failures: the tasks that failed; they don't fail the job.
        merged: the merged segments, by run id; each has the number of the first segment that it replaces.
    """

    version: int
    job_id: str
    runs: dict[str, Run]
    failures: tuple[Failure, ...]
    merged: dict[str, Segment] = {}


def find_run(objects: Objects, task: Task) -> Run | None:
    """Returns the run that a task has made; None if its descriptor does not exist.

    Raises:
        Damaged: the descriptor contradicts itself, or does not fit the task.
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
