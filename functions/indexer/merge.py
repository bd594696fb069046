"""Merged segments that a job wrote, into the manifest of their log: created if absent, in the place of the small ones.

A sealer may take the generation first: then the newest one is looked at again, and as long as the very same segments stand
in its open page, they are replaced there. Else the merged segment stays an orphan. What a crash after each step leaves:

    manifest generation   small segments that are replaced; the watermark is behind
    watermark             nothing
"""

from __future__ import annotations

import hashlib

from functions.indexer.context import Context
from headrace.errors import Damaged, StoreThrottled
from headrace.index.job import Task
from headrace.manifest import merging
from headrace.manifest.manifest import Manifest
from headrace.objects import ObjectMissing, keys
from headrace.segment import keypage
from headrace.segment.descriptor import Segment

_TRIES = 8


def publish_merged(context: Context, task: Task, made: Segment) -> bool:
    """Publishes what a task made; False if that has come too late.

    Raises:
        Damaged: it is not a segment of the log, or does not hold the records of those that it stands for.
        StoreThrottled: others published all the time; repeat later. StoreTimeout: it may be published; repeat later.
    """
    log_id = task.log_id
    planned_ms = keys.planned_ms(made.key)
    if planned_ms is None or not made.key.startswith(keys.segments(log_id)):
        raise Damaged(f"merged segment stands in the wrong place: log_id={log_id} object={made.key}")
    manifest: Manifest | None = None
    is_checked = False
    for _ in range(_TRIES):
        generation = context.stores.watermarks.get(log_id).generation
        manifest = context.manifests.newest(log_id, manifest, generation)
        if manifest is None:
            return False
        if merging.names(manifest, made.key):
            _raise_watermark(context, manifest)
            return True
        now_ms = context.now_ms()  # after the look: who takes an orphan away relies on that
        if now_ms - planned_ms > merging.PUBLISH_MS:
            return False
        successor = merging.merged(manifest, task.segments, made, now_ms)
        if successor is None:
            return False
        if not is_checked:
            _check(context, made)
            is_checked = True
        if context.manifests.publish(successor):
            _raise_watermark(context, successor)
            return True
    raise StoreThrottled(f"manifest moves on: log_id={log_id}")


def remove_merged(context: Context, log_id: str) -> int:
    """Removes what jobs made for a log after its purge; returns how many objects.

    Before it, everything stays: tables that are restored to an earlier time can bring the log back.
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
    """Both objects stand there as the job said, each byte of them: nothing is given up for less."""
    objects, page_key = context.stores.objects, keys.segment_keys(made.key)
    try:
        data, page = objects.get(made.key), objects.get(page_key)
    except ObjectMissing as exc:
        raise Damaged(f"merged segment is missing: object={exc}") from exc
    if len(data) != made.size or hashlib.sha256(data).hexdigest() != made.sha256:
        raise Damaged(f"merged segment is not what the job said: object={made.key} sha256={made.sha256}")
    keypage.decode(page, sha256=made.keys_sha256, count=made.count, source=page_key)


def _raise_watermark(context: Context, manifest: Manifest) -> None:
    context.stores.watermarks.publish(
        manifest.log_id, manifest.generation, manifest.end_slot, manifest.end_offset, manifest.sealed_bytes
    )
