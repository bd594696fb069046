"""Merged segments that a job wrote, into the manifest of their log: created if absent, in the place of the small ones.

A sealer may take the generation first: then the newest one is looked at again, and as long as the very same segments stand
in its open page, they are replaced there. Else the merged segment stays an orphan. What a crash after each step leaves:

    manifest generation   small segments that are replaced; the watermark is behind
    watermark             nothing
"""

from __future__ import annotations

from functions.indexer.parts import Parts
from headrace.errors import Damaged, StoreThrottled
from headrace.index.job import Task
from headrace.manifest import merging
from headrace.manifest.manifest import Manifest
from headrace.objects import ObjectMissing, keys
from headrace.segment import keypage
from headrace.segment.descriptor import Segment

_TRIES = 8
_MAGIC = b"PAR1"


def publish_merged(parts: Parts, task: Task, made: Segment) -> bool:
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
        generation = parts.stores.watermarks.get(log_id).generation
        manifest = parts.manifests.newest(log_id, manifest, generation)
        if manifest is None:
            return False
        if merging.names(manifest, made.key):
            _raise_watermark(parts, manifest)
            return True
        now_ms = parts.now_ms()  # after the look: who takes an orphan away relies on that
        if now_ms - planned_ms > merging.PUBLISH_MS:
            return False
        forget_ms = parts.stores.settings.merge_retire_ms
        successor = merging.merged(manifest, task.segments, made, now_ms=now_ms, forget_ms=forget_ms)
        if successor is None:
            return False
        if not is_checked:
            _check(parts, made)
            is_checked = True
        if parts.manifests.publish(successor):
            _raise_watermark(parts, successor)
            return True
    raise StoreThrottled(f"manifest moves on: log_id={log_id}")


def remove_merged(parts: Parts, made: Segment) -> None:
    """Removes what a task made for a log that is over."""
    parts.stores.objects.delete([made.key, keys.segment_keys(made.key)])


def _check(parts: Parts, made: Segment) -> None:
    """Both objects are there, and of the right size or hash: nothing is given up for less."""
    objects, page_key = parts.stores.objects, keys.segment_keys(made.key)
    try:
        end = objects.get_range(made.key, made.size - len(_MAGIC), len(_MAGIC) + 1)
        page = objects.get(page_key)
    except ObjectMissing as exc:
        raise Damaged(f"merged segment is missing: object={exc}") from exc
    if end != _MAGIC:
        raise Damaged(f"merged segment is not what the job said: object={made.key} expected={made.size} bytes")
    keypage.decode(page, sha256=made.keys_sha256, count=made.count, source=page_key)


def _raise_watermark(parts: Parts, manifest: Manifest) -> None:
    parts.stores.watermarks.publish(
        manifest.log_id, manifest.generation, manifest.end_slot, manifest.end_offset, manifest.sealed_bytes
    )
