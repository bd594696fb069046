"""Jobs that a surface asks for: Spark jobs beside those of indexing. Everything about one is an object under
`jobs/<job id>/`, and each but the progress is written once:

    request.json.zst     what to do; its creation notifies the indexer, which starts the job when its place is free
    started.json.zst     written by the indexer when the job run has started
    progress.json.zst    written by the job, again and again
    result.json.zst      written by the job when it is done; its form is a matter of the kind of job
    ended.json.zst       written by the indexer when the job run has ended

The objects are removed 14 days later, by a rule of the bucket.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from headrace.errors import Damaged
from headrace.objects import ObjectMissing, Objects, keys, packed

T = TypeVar("T")
State = Literal["waiting", "running", "succeeded", "failed"]


class Request(msgspec.Struct, frozen=True):
    """What is asked for. `kind` names a module of `emr_jobs`, and `input` is what that module expects."""

    version: int
    job_id: str
    kind: str
    created_ms: int
    input: msgspec.Raw


class Started(msgspec.Struct, frozen=True):
    """That the job run has started, under an id of EMR Serverless."""

    version: int
    started_ms: int
    run_id: str


class Progress(msgspec.Struct, frozen=True):
    """How far a job is: `done` of `of` steps, of which more may come to light. `error` says why it has failed."""

    version: int
    done: int
    of: int
    error: str = ""


class Ended(msgspec.Struct, frozen=True):
    """That the job run has ended; `reason` is empty if it has succeeded."""

    version: int
    ended_ms: int
    reason: str = ""


class Status(NamedTuple):
    """What is known about a job.

    Attributes:
        started_ms, ended_ms: times in epoch milliseconds; 0 for what has not happened yet.
        done, of: its progress in steps; 0 of 0 while none was reported.
        reason: why it failed; else empty.
    """

    state: State
    kind: str
    created_ms: int
    started_ms: int = 0
    ended_ms: int = 0
    done: int = 0
    of: int = 0
    reason: str = ""


def ask(objects: Objects, job_id: str, kind: str, now_ms: int, what: msgspec.Struct) -> None:
    """Asks for a job. Asking again for the same one changes nothing.

    Args:
        job_id: 13 digits of the time in ms, a dash, and random characters (`headrace.objects.keys.made_ms`).
        kind: the module of `emr_jobs` that does it.
        what: its input.

    Raises:
        StoreTimeout, StoreThrottled: it may have been asked for; repeat.
    """
    request = Request(packed.VERSION, job_id, kind, now_ms, msgspec.Raw(msgspec.json.encode(what)))
    objects.create(keys.job_request(job_id), packed.encode(request))


def load_request(objects: Objects, job_id: str) -> Request | None:
    """Loads the request of a job; None if there is none.

    Raises:
        Damaged: the object is no request, or that of another job.
        StoreTimeout, StoreThrottled: repeat later.
    """
    key = keys.job_request(job_id)
    found = load(objects, key, Request)
    if found is not None and found.job_id != job_id:
        raise Damaged(f"object is not that of the job: object={key} job_id={found.job_id}")
    return found


def status(objects: Objects, job_id: str) -> Status | None:
    """Returns what is known about a job, with up to four GETs; None if nobody has asked for it, or it is forgotten.

    Raises:
        Damaged: an object is not what it should be.
        StoreTimeout, StoreThrottled: repeat later.
    """
    request = load_request(objects, job_id)
    if request is None:
        return None
    ended = load(objects, keys.job_ended(job_id), Ended)  # first: what ends is written last
    started = load(objects, keys.job_started(job_id), Started)
    progress = load(objects, keys.job_progress(job_id), Progress) or Progress(packed.VERSION, 0, 0)
    state: State = "waiting" if started is None else "running"
    if ended is not None:
        state = "failed" if ended.reason else "succeeded"
    return Status(
        state=state,
        kind=request.kind,
        created_ms=request.created_ms,
        started_ms=started.started_ms if started else 0,
        ended_ms=ended.ended_ms if ended else 0,
        done=progress.done,
        of=progress.of,
        reason=ended.reason if ended else "",
    )


def result(objects: Objects, job_id: str, kind: type[T]) -> T | None:
    """Returns the result of a job; None if it has written none.

    Raises:
        Damaged: the object is not of this kind.
        StoreTimeout, StoreThrottled: repeat later.
    """
    return load(objects, keys.job_result(job_id), kind)


def load(objects: Objects, key: str, kind: type[T]) -> T | None:
    """Loads one object of a job; None if it does not exist. Raises what `result` raises."""
    try:
        return packed.decode(objects.get(key), kind, key)
    except ObjectMissing:
        return None


def note(objects: Objects, key: str, value: Any) -> bool:
    """Writes an object that is written once. Returns False if it exists.

    Raises:
        StoreTimeout, StoreThrottled: it may have been written; repeat.
    """
    return objects.create(key, packed.encode(value))
