"""Runs a job that a surface asked for (`headrace.jobs`): finds the module for its kind, reports progress, and writes the
result, created if absent: of a job that runs twice, the first result counts.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec
from pyspark.sql import SparkSession

from emr_jobs import asof, fold, snapshot, stores
from emr_jobs.stores import Door
from headrace.errors import Damaged, HeadraceError, StoreError
from headrace.features.jobs import ASOF, FOLD, SNAPSHOT
from headrace.jobs import Progress, Request, load_request
from headrace.objects import ObjectMissing, Objects, keys, packed

Kind = Callable[[SparkSession, Door, Request], msgspec.Struct]
KINDS: Mapping[str, Kind] = {FOLD: fold.run, SNAPSHOT: snapshot.run, ASOF: asof.run}
_PAUSE_S = 5.0
_MAX_REASON = 500


def run(spark: SparkSession, door: Door, key: str) -> None:
    """Runs the job whose request has this key. Does nothing if it has a result.

    Raises:
        Damaged: there is no such request, or its kind is unknown.
        Exception: the job failed; the reason is in its progress, too.
    """
    job_id = keys.requested_job(key)
    objects = stores.open_bucket(door)
    request = stores.retry(lambda: load_request(objects, job_id)) if job_id is not None else None
    if request is None:
        raise Damaged(f"job request is missing: object={key}")
    if _exists(objects, keys.job_result(request.job_id)):
        return
    try:
        if request.kind not in KINDS:
            raise Damaged(f"job is of an unknown kind: kind={request.kind} known={sorted(KINDS)}")
        with reporting(spark, objects, request.job_id):
            result = KINDS[request.kind](spark, door, request)
    except Exception as exc:
        _report(objects, request.job_id, Progress(packed.VERSION, 0, 0, reason_of(exc)))
        raise
    stores.retry(lambda: objects.create(keys.job_result(request.job_id), packed.encode(result)))


def _exists(objects: Objects, key: str) -> bool:
    try:
        stores.retry(lambda: objects.get(key))
    except ObjectMissing:
        return False
    return True


_OURS = re.compile(r"^(?:headrace|emr_jobs)[.\w]*: (.*)$", re.MULTILINE)


def reason_of(exc: Exception) -> str:
    """Returns why a job failed, for people: of an error that Spark reports, the message of the worker's own."""
    text = str(exc)
    if not isinstance(exc, HeadraceError | StoreError):
        inner = _OURS.findall(text)
        text = inner[-1] if inner else f"{type(exc).__name__}: {text.strip().splitlines()[0] if text.strip() else ''}"
    return text[:_MAX_REASON]


@contextmanager
def reporting(spark: SparkSession, objects: Objects, job_id: str, pause_s: float = _PAUSE_S) -> Iterator[None]:
    """While the block runs, writes the job's progress every few seconds, in tasks of Spark."""
    over = threading.Event()

    def look() -> None:
        seen = (-1, -1)
        while not over.wait(pause_s):
            found = count_tasks(spark)
            if found != seen:
                seen = found
                _report(objects, job_id, Progress(packed.VERSION, *found))

    thread = threading.Thread(target=look, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def count_tasks(spark: SparkSession) -> tuple[int, int]:
    """Returns the finished tasks of the active Spark jobs, and all tasks of their stages that are known."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getActiveJobsIds()]
    stages = [tracker.getStageInfo(number) for job in jobs if job is not None for number in job.stageIds]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)


def _report(objects: Objects, job_id: str, progress: Progress) -> None:
    """Writes the progress. Ignores errors, because no job may fail because of it."""
    try:
        objects.put(keys.job_progress(job_id), packed.encode(progress))
    except StoreError:
        return
