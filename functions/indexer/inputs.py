"""The two objects of a job."""

from __future__ import annotations

from typing import TypeVar

from headrace.errors import Damaged
from headrace.index.job import VERSION, JobInput, JobResult
from headrace.objects import ObjectMissing, Objects, keys, packed

T = TypeVar("T", JobInput, JobResult)


def put_input(objects: Objects, job: JobInput) -> None:
    """Writes what a job run is told."""
    objects.put(keys.job_input(job.job_id), packed.encode(job))


def load_input(objects: Objects, job_id: str) -> JobInput | None:
    """What a job run was told; None if it was never written.

    Raises:
        Damaged: it is something else.
    """
    return _load(objects, keys.job_input(job_id), JobInput, job_id)


def load_result(objects: Objects, job_id: str) -> JobResult | None:
    """What a job run answered; None if it did not come to that.

    Raises:
        Damaged: it is something else.
    """
    return _load(objects, keys.job_result(job_id), JobResult, job_id)


def _load(objects: Objects, key: str, kind: type[T], job_id: str) -> T | None:
    try:
        found = packed.decode(objects.get(key), kind, key)
    except ObjectMissing:
        return None
    if (found.version, found.job_id) != (VERSION, job_id):
        raise Damaged(f"object is not that of the job: object={key} version={found.version} job_id={found.job_id}")
    return found
