"""The verb follow: asks for the state of job runs, publishes their results, and frees their places.

An event that a run has changed its state is only a hint, and a schedule does the same. The state that EMR Serverless
answers counts, so a lost or repeated event does no harm. Every step may be repeated; the place is freed last.

Index runs are added to the index manifest of their log, created if absent, together with what others published. A
compacted run counts only while every run that it was made of is still read. Otherwise its content was replaced, by a
rebuild or under another plan, and would come back. Runs that do not fit, or come too late, are left to the orphan sweep.
What a publication is decided by is read after the index manifest that it continues: the plan, and each run's descriptor.
A run that was retired and removed before that manifest has none any more; one that is retired later is named by the next
generation, whose number is then taken.

Merged segments replace the small ones in their log's manifest. If a sealer takes the generation first, the newest one
is read again; as long as exactly the same segments are in its open page, they are replaced there. Otherwise the merged
segment stays an orphan. A scrubbed segment replaces its original in the open page or in a sealed page, which is written
again with the pages above it; then the index runs over it are retired. A run that was built from the original is refused
from then on. What a crash leaves after

    sealed pages          orphans
    manifest generation   replaced segments; the watermark is behind, and runs over scrubbed ones are still read
    watermark             the same, but for the watermark
    index generation      nothing
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import groupby, takewhile
from typing import NamedTuple

from msgspec.structs import replace

from functions.indexer import policy, requests
from functions.indexer.context import Context
from functions.indexer.look import is_over, wake
from functions.indexer.retire import remove_run, retire_over
from functions.indexer.runs import Outcome, load_input, load_result
from functions.indexer.start import GIVE_UP_MS, free_rows, launch
from headrace.errors import Damaged, StoreError, StoreThrottled
from headrace.index.descriptors import hash_of
from headrace.index.job import JobInput, Task, find_run
from headrace.index.manifest import PUBLISH_MS, IndexManifest, with_runs
from headrace.log import join
from headrace.manifest import merging
from headrace.manifest.manifest import Manifest
from headrace.objects import ObjectMissing, keys
from headrace.segment import keypage
from headrace.segment.descriptor import Segment
from headrace.tables.jobs import Place, Waiting

PLANNING_MS = 6 * 60_000  # longer than this function may run
STARTING_MS = 60_000


class Followed(NamedTuple):
    """The result of one call of `follow`.

    Attributes:
        jobs, jobs_failed: number of job runs that have ended, and of those that did not succeed.
        published, merged: number of index runs and of merged segments that were published.
        failed: ids of logs for which a job failed, each with the reason.
        poisoned: number of those for which a repeat would fail again, because their data is damaged.
        ages_ms: ages of the job runs that have not ended.
        took_ms: durations of the job runs that have ended.
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
        """Returns the sum of both results; tuples are concatenated."""
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
    """Looks at the job run in every place (a permission for one job run). Publishes the results of those that have
    ended, and frees their places.

    Raises:
        StoreError: the results of a job that has ended could not be stored; repeat later. All other places were
            handled.
    """
    done = Followed()
    trouble: StoreError | None = None
    for number in (*range(max(1, context.limits.jobs)), requests.PLACE):
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
    is_requested = place.number == requests.PLACE
    if place.phase == "planning":
        if age_ms >= PLANNING_MS:
            _abandon(context, place)
        return Followed()
    if place.phase == "starting":
        if age_ms >= STARTING_MS:
            (requests.launch if is_requested else launch)(context, place)
        return Followed()
    outcome = context.runs.outcome(place.run_id)
    if outcome == "running" and age_ms < (requests.GIVE_UP_MS if is_requested else GIVE_UP_MS):
        return Followed() if is_requested else Followed(ages_ms=(age_ms,))
    if is_requested:
        requests.settle(context, place, outcome)
        context.jobs.release(place)
        return Followed(jobs=1, jobs_failed=int(outcome != "succeeded"))
    found = _settle(context, place, outcome)
    context.jobs.release(place)
    return found._replace(jobs_failed=int(outcome != "succeeded"), took_ms=(age_ms,))


def _abandon(context: Context, place: Place) -> None:
    """Frees a place (the permission for one job run) whose planner has died, then the rows of its logs. In this order a
    planner that is alive after all can start nothing.
    """
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
    """The answer of a job: reasons of failures by run id, with whether the log's data is damaged; the reason for all
    other tasks without a result; and the merged segments.
    """

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
    published, missing = publish(context, log_id, [task for task in tasks if task.work != "merge"])
    merged = sum(publish_merged(context, task, made_segment) for task, made_segment in segments)
    missing += [task for task in tasks if task.work == "merge" and task.run_id not in answered.merged]
    reason, damaged = "", False
    if missing:
        reason, damaged = answered.by_run.get(missing[0].run_id, (answered.otherwise, False))
    return _note(context, job, log_id, reason, damaged=damaged)._replace(published=published, merged=merged)


def _note(context: Context, job: JobInput, log_id: str, reason: str, *, damaged: bool) -> Followed:
    """Updates the log's row after a job: due now if `reason` is empty, else due later because the job failed for it.
    Does nothing if another job has the row. Returns a result with the failure, empty if there is none.
    """
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


_TRIES = 8


def publish(context: Context, log_id: str, tasks: Sequence[Task]) -> tuple[int, list[Task]]:
    """Adds the index runs that tasks have made to the log's index manifest. Leaves out a run that comes too late, or was
    compacted from runs that are no longer in the manifest. Returns the number of runs added, and the tasks whose run does
    not exist.

    Raises:
        Damaged: a descriptor contradicts itself, or does not fit its task.
        StoreThrottled: other publishers won every time; repeat later.
        StoreTimeout: it may have been published; repeat later.
    """
    if not tasks:
        return 0, []
    for _ in range(_TRIES):
        began = context.look()
        index = context.newest_index(log_id)
        plan = _plan(context, log_id)
        found = [(task, find_run(context.stores.objects, task)) for task in tasks]
        missing = [task for task, run in found if run is None]
        manifest = join.newest_manifest(context.stores, context.manifests, log_id)
        now_ms = context.now_ms()  # after the look: the orphan sweep relies on that
        fitting = [
            run
            for task, run in found
            if run is not None and _fits(index, task, now_ms) and not _is_scrubbed(context, manifest, task)
        ]
        successor = with_runs(index, fitting, now_ms, plan=plan)
        if successor is index:
            return 0, missing
        if context.publish(successor, began):
            return len({run.id for run in successor.runs} - {run.id for run in index.runs}), missing
    raise StoreThrottled(f"index manifest moves on: log_id={log_id}")


def _fits(index: IndexManifest, task: Task, now_ms: int) -> bool:
    """Returns whether the run of a task may still be published, and every run that it was made of is in the manifest."""
    is_late = now_ms - (keys.made_ms(task.run_id) or 0) > PUBLISH_MS
    return not is_late and {run.id for run in index.runs}.issuperset(one.id for one in task.inputs)


def _is_scrubbed(context: Context, manifest: Manifest | None, task: Task) -> bool:
    """Returns whether a segment from which a task has built a run was scrubbed since."""
    if manifest is None or not task.segments:
        return False
    known = {segment.key for segment in task.segments}
    inside = takewhile(
        lambda one: one.first_offset < task.end_offset, context.manifests.segments_from(manifest, task.first_offset)
    )
    return any(one.blanked and one.key not in known for one in inside)


def _plan(context: Context, log_id: str) -> str:
    newest = context.stores.wal.newest(log_id)
    return hash_of(context.definitions.of(log_id, newest.state)) if newest is not None else ""


def publish_merged(context: Context, task: Task, made: Segment) -> bool:
    """Replaces segments in the log's manifest by the merged or scrubbed segment of a task; also True if that was done
    before. Returns False if it is too late, or the manifest no longer has the originals; then nothing names the segment.

    Raises:
        Damaged: it is not a segment of the log, or does not hold the records of those that it replaces.
        StoreThrottled: other publishers won every time; repeat later.
        StoreTimeout: it may have been published; repeat later.
    """
    log_id = task.log_id
    planned_ms = keys.planned_ms(made.key)
    if planned_ms is None or not made.key.startswith(keys.segments(log_id)):
        raise Damaged(f"merged segment is in the wrong place: log_id={log_id} object={made.key}")
    manifest: Manifest | None = None
    is_checked = False
    for _ in range(_TRIES):
        began = context.look()
        manifest = join.newest_manifest(context.stores, context.manifests, log_id, manifest)
        if manifest is None:
            return False
        if _is_named(context, manifest, made):
            _settle_merged(context, manifest, task)
            return True
        now_ms = context.now_ms()  # after the look: who takes an orphan away relies on that
        if now_ms - planned_ms > merging.PUBLISH_MS:
            return False
        successor = merging.merged(manifest, task.segments, made, now_ms)
        if successor is None and task.dead:
            successor = _rewrite_page(context, manifest, task.segments[0], made, now_ms)
        if successor is None:
            return False
        if not is_checked:
            try:
                _check(context, made)
            except ObjectMissing as exc:
                began.check()  # else the next generation may have been swept, too
                if context.manifests.load(log_id, manifest.generation + 1) is None:
                    raise Damaged(f"merged segment is missing: object={exc}") from exc
                continue  # this process slept for a day, and an orphan sweep saw a newer generation
            is_checked = True
        if context.manifests.publish(successor, began):
            _settle_merged(context, successor, task)
            return True
    raise StoreThrottled(f"manifest moves on: log_id={log_id}")


def _is_named(context: Context, manifest: Manifest, made: Segment) -> bool:
    if merging.names(manifest, made.key):
        return True
    held = next(context.manifests.segments_from(manifest, made.first_offset), None)
    return held is not None and held.key == made.key


def _rewrite_page(
    context: Context, manifest: Manifest, replaced: Segment, made: Segment, now_ms: int
) -> Manifest | None:
    """Returns the generation in which a scrubbed segment replaces its original in a sealed page, after storing the new
    pages; None if no sealed page names the original.
    """
    found = merging.rewritten(manifest, context.manifests.parts, replaced, made, now_ms, context.stores.request_ids)
    if found is None:
        return None
    for key, data in found.pages.items():
        context.stores.objects.put(key, data)
    return found.manifest


def _settle_merged(context: Context, manifest: Manifest, task: Task) -> None:
    _raise_watermark(context, manifest)
    if task.dead:
        retire_over(context, task.log_id, task.first_offset, task.end_offset)


def remove_merged(context: Context, log_id: str) -> int:
    """Removes merged segments that jobs wrote after the log was purged. Returns the number of removed objects; 0 if the
    log was not purged.

    Before the purge nothing is removed, because tables that are restored to an earlier time can bring the log back.
    """
    objects = context.stores.objects
    try:
        objects.get(keys.tombstone(log_id))
    except ObjectMissing:
        return 0
    found = [key for key in objects.list(keys.segments(log_id)) if keys.planned_ms(key) is not None]
    if found:
        objects.delete(found)
    return len(found)


def _check(context: Context, made: Segment) -> None:
    """Checks that both objects of a merged segment have the hashes that the job reported. Only then are the small segments
    given up.

    Raises:
        Damaged: one is not what the job said.
        ObjectMissing: one does not exist.
    """
    objects, page_key = context.stores.objects, keys.segment_keys(made.key)
    data, page = objects.get(made.key), objects.get(page_key)
    if len(data) != made.size or hashlib.sha256(data).hexdigest() != made.sha256:
        raise Damaged(f"merged segment is not what the job said: object={made.key} sha256={made.sha256}")
    keypage.decode(page, sha256=made.keys_sha256, count=made.count, source=page_key)


def _raise_watermark(context: Context, manifest: Manifest) -> None:
    context.stores.watermarks.publish(
        manifest.log_id, manifest.generation, manifest.end_slot, manifest.end_offset, manifest.sealed_bytes
    )
