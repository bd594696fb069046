"""The verb request: starts a job that a surface asked for (`headrace.jobs`); and what becomes of such jobs.

They have one place of their own (the permission for one job run), so that indexing does not wait for them. While it is
taken, a request waits in the queue: its message sends itself again. A message that is lost is sent again by the daily
audit, which lists the requests. The steps of a start, and what a crash after each leaves:

    place taken (starting)   a job that the next look at job runs starts
    run started              the same: the client token is the job's id, so that the same run is found
    start noted              the same; the first note stays
    place moved (running)    nothing

Nothing here knows what a job does.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from msgspec.structs import replace

from functions.indexer.context import Context
from functions.indexer.runs import REQUESTED_TIMEOUT_MINUTES, Outcome
from functions.queue import Message
from headrace import jobs
from headrace.jobs import Ended, Progress, Started
from headrace.objects import keys, packed
from headrace.tables.jobs import Place

PLACE = 1_000  # its number: above those of index jobs
GIVE_UP_MS = (REQUESTED_TIMEOUT_MINUTES + 30) * 60_000
_LATER_MS = 30_000


def request(context: Context, job_id: str) -> bool:
    """Starts the run of a requested job, or asks to be called again later if another one has the place. Returns whether it
    was started. Does nothing for a job that is running, has ended, or that nobody asked for.

    Raises:
        StoreTimeout, StoreThrottled: repeat later.
    """
    objects, now_ms = context.stores.objects, context.now_ms()
    if jobs.load(objects, keys.job_ended(job_id), Ended) or jobs.load_request(objects, job_id) is None:
        return False
    if not context.limits.jobs:
        end(context, job_id, "this deployment starts no jobs: setting index_jobs is 0")
        return False
    place = Place(PLACE, job_id, "starting", now_ms)
    if context.jobs.take(place):
        launch(context, place)
        return True
    holder = context.jobs.place(PLACE)
    if holder is None or holder.job_id != job_id:
        context.queue.send([Message("request", job_id=job_id, not_before_ms=now_ms + _LATER_MS)], now_ms)
    return False


def launch(context: Context, place: Place) -> bool:
    """Starts the run of a requested job, or finds it if it was started before, and notes it. Returns False if the place
    belongs to another job by now.
    """
    run_id = context.runs.start(place.job_id, requested=True)
    now_ms = context.now_ms()
    jobs.note(context.stores.objects, keys.job_started(place.job_id), Started(packed.VERSION, now_ms, run_id))
    return context.jobs.move(replace(place, phase="running", since_ms=now_ms, run_id=run_id))


def settle(context: Context, place: Place, outcome: Outcome) -> None:
    """Notes how a requested job has ended: with the reason that the job itself gave, if it failed."""
    reason = ""
    if outcome != "succeeded":
        progress = jobs.load(context.stores.objects, keys.job_progress(place.job_id), Progress)
        reason = (progress.error if progress else "") or f"job run {outcome}: run_id={place.run_id}"
    end(context, place.job_id, reason)


def end(context: Context, job_id: str, reason: str) -> None:
    """Notes that a requested job has ended; if that was noted before, the first note stays."""
    jobs.note(context.stores.objects, keys.job_ended(job_id), Ended(packed.VERSION, context.now_ms(), reason))


def remind(context: Context) -> int:
    """Sends a message for each requested job that has not ended, in case its own was lost. Returns their number. Costs a
    listing of the objects of 14 days of jobs.
    """
    found = [Message("request", job_id=job_id) for job_id in _open(context)]
    if found:
        context.queue.send(found, context.now_ms())
    return len(found)


def _open(context: Context) -> Iterator[str]:
    listed = context.stores.objects.list(keys.JOBS)
    for job_id, names in groupby(listed, key=lambda key: key.removeprefix(keys.JOBS).partition("/")[0]):
        of_job = set(names)
        if keys.job_request(job_id) in of_job and keys.job_ended(job_id) not in of_job:
            yield job_id
