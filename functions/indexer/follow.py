"""Verb: follow. Asks what became of job runs, publishes what they made, and frees their places.

An event that a run changed its state is a hint, and a schedule does the same: the state asked for is what counts, so a lost
or repeated event does nothing. Every step may be repeated; the place is freed last.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace

from functions.indexer import policy
from functions.indexer.context import Context
from functions.indexer.inputs import load_input, load_result
from functions.indexer.look import wake
from functions.indexer.merge import publish_merged, remove_merged
from functions.indexer.picture import is_over
from functions.indexer.publish import publish
from functions.indexer.retire import remove_run
from functions.indexer.runs import Outcome
from functions.indexer.start import GIVE_UP_MS, free_rows, launch
from headrace.errors import Damaged, StoreError
from headrace.index.job import JobInput, Task, find_run
from headrace.index.plan import hash_of
from headrace.segment.descriptor import Segment
from headrace.tables.jobs import Place, Waiting

PLANNING_MS = 6 * 60_000  # longer than this function may run
STARTING_MS = 60_000


class Followed(NamedTuple):
    """What a run of the verb did.

    Attributes:
        jobs, jobs_failed: job runs that are over, and those of them that did not succeed.
        failed: logs for which a job made nothing, with the reason.
        poisoned: those of them that are to blame themselves.
        ages_ms: of the job runs that are not over.
        took_ms: how old the job runs were that are.
    """

    jobs: int = 0
    published: int = 0
    failed: tuple[tuple[str, str], ...] = ()
    merged: int = 0
    jobs_failed: int = 0
    poisoned: int = 0
    ages_ms: tuple[int, ...] = ()
    took_ms: tuple[int, ...] = ()

    def plus(self, other: Followed) -> Followed:
        """Both together."""
        return Followed(
            jobs=self.jobs + other.jobs,
            published=self.published + other.published,
            failed=self.failed + other.failed,
            merged=self.merged + other.merged,
            jobs_failed=self.jobs_failed + other.jobs_failed,
            poisoned=self.poisoned + other.poisoned,
            ages_ms=self.ages_ms + other.ages_ms,
            took_ms=self.took_ms + other.took_ms,
        )


def follow(context: Context) -> Followed:
    """Looks at every place.

    Raises:
        StoreError: of a job that is over and could not be settled; repeat later. The other places were looked at.
    """
    done = Followed()
    trouble: StoreError | None = None
    for number in range(max(1, context.limits.jobs)):
        try:
            place = context.jobs.place(number)
            if place is not None:
                done = done.plus(_follow(context, place))
        except StoreError as exc:
            trouble = exc
    if trouble is not None:
        raise trouble
    return done


def _follow(context: Context, place: Place) -> Followed:
    age_ms = context.now_ms() - place.since_ms
    if place.phase == "planning":
        if age_ms >= PLANNING_MS:
            _abandon(context, place)
        return Followed()
    if place.phase == "starting":
        if age_ms >= STARTING_MS:
            launch(context, place)
        return Followed()
    outcome = context.runs.outcome(place.run_id)
    if outcome == "running" and age_ms < GIVE_UP_MS:
        return Followed(ages_ms=(age_ms,))
    found = _settle(context, place, outcome)
    context.jobs.release(place)
    return found._replace(jobs_failed=int(outcome != "succeeded"), took_ms=(age_ms,))


def _abandon(context: Context, place: Place) -> None:
    """Its planner is gone. The place goes first, so that a planner that is not can start nothing more."""
    if context.jobs.release(place):
        job = load_input(context.stores.objects, place.job_id)
        if job is not None:
            free_rows(context, job)


def _settle(context: Context, place: Place, outcome: Outcome) -> Followed:
    try:
        job = load_input(context.stores.objects, place.job_id)
    except Damaged:
        job = None
    if job is None:  # its rows come free when their claim is over
        return Followed(1, 0, (("", f"job has no input: job_id={place.job_id}"),))
    answered = _answered(context, job, f"job run {outcome}: run_id={place.run_id}")
    done = Followed(jobs=1)
    trouble: StoreError | None = None
    for log_id, tasks in groupby(sorted(job.tasks, key=lambda task: task.log_id), key=lambda task: task.log_id):
        try:
            settled = _settle_log(context, job, log_id, list(tasks), answered)
        except StoreError as exc:
            if context.now_ms() - place.since_ms < GIVE_UP_MS:
                trouble = exc
                continue
            settled = _note(context, job, log_id, str(exc), damaged=False)
        except Exception as exc:  # noqa: BLE001 - one poisoned log must not hold up the others
            settled = _note(context, job, log_id, str(exc), damaged=True)
        done = done.plus(settled)
    if trouble is not None:
        raise trouble
    return done


class _Answered(NamedTuple):
    """Why tasks made nothing: by run id, with whether it is the log's fault, and otherwise; and segments they made."""

    by_run: dict[str, tuple[str, bool]]
    otherwise: str
    merged: dict[str, Segment]


def _answered(context: Context, job: JobInput, otherwise: str) -> _Answered:
    try:
        result = load_result(context.stores.objects, job.job_id)
    except Damaged as exc:
        result, otherwise = None, str(exc)
    failures = result.failures if result is not None else ()
    merged = result.merged if result is not None else {}
    return _Answered({one.run_id: (one.reason, one.damaged) for one in failures}, otherwise, merged)


def _settle_log(context: Context, job: JobInput, log_id: str, tasks: Sequence[Task], answered: _Answered) -> Followed:
    segments = [(task, answered.merged[task.run_id]) for task in tasks if task.run_id in answered.merged]
    newest = context.stores.wal.newest(log_id)
    if newest is None or is_over(newest.state):
        for task in tasks:  # its purge may have been before the job's last object
            remove_run(context, log_id, task.run_id)
        remove_merged(context, log_id)
        row = context.jobs.get(log_id)
        if row is not None:
            context.jobs.drop(row)
        return Followed()
    runs = [(task, find_run(context.stores.objects, task)) for task in tasks if task.work != "merge"]
    found = [(run, tuple(one.id for one in task.inputs)) for task, run in runs if run is not None]
    plan = hash_of(context.definitions.of(log_id, newest.state))
    published = publish(context, log_id, found, plan) if found else 0
    merged = sum(publish_merged(context, task, made_segment) for task, made_segment in segments)
    missing = [task for task, run in runs if run is None]
    missing += [task for task in tasks if task.work == "merge" and task.run_id not in answered.merged]
    reason, damaged = "", False
    if missing:
        reason, damaged = answered.by_run.get(missing[0].run_id, (answered.otherwise, False))
    return _note(context, job, log_id, reason, damaged=damaged)._replace(published=published, merged=merged)


def _note(context: Context, job: JobInput, log_id: str, reason: str, *, damaged: bool) -> Followed:
    """The log's row after the job: to be looked at again, or later if there is a reason why it failed."""
    for _ in range(8):
        row = context.jobs.get(log_id)
        now_ms = context.now_ms()
        if row is not None and row.job_id != job.job_id:
            break  # another job has it, or it was noted since
        row = row or Waiting(log_id, now_ms, since_ms=now_ms)
        if reason:
            changed = policy.failed(row, now_ms, reason, damaged=damaged)
        else:
            changed = replace(row, due_ms=now_ms, job_id="", failures=0, reason="")
        if context.jobs.put(changed) is not None:
            wake(context, changed.due_ms)
            break
    return Followed(failed=((log_id, reason),), poisoned=int(damaged)) if reason else Followed()
