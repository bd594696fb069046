"""The verbs that remove objects of indexes: retire, rebuild, generations, orphans.

retire        removes the objects of replaced runs, once no reader can still have a manifest that names them. Objects go
              first, then a manifest is published that no longer names them: after a crash in between, the removal is
              repeated. A reader that is slower still finds an object missing, loads the newest manifest, and asks
                  again.
rebuild       retires every run of a log, so that all runs are built again from its segments. Until that is done,
              searches scan segments as far as their budget goes, and say so in their coverage.
generations   removes old generations of an index manifest, once no reader can still use them. The first one stays: it
              says that there are others. The watermark names the newest one before any is removed, so a reader that
              uses the watermark finds no gap, and one that does not lists again when its own generation is old.
orphans       removes objects of runs that no index manifest names or will ever name. A run's id tells when it was
              planned. It is published with a look that ended within `PUBLISH_MS`, and no look counts for more than half
              a day, so what is not named a day later never will be: runs that were refused or never finished, and parts
              from another attempt of a task.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from functions.indexer import policy
from functions.indexer.context import Context
from functions.indexer.look import is_over, look
from functions.indexer.policy import Picture
from headrace.errors import Damaged, StoreThrottled
from headrace.index.descriptors import Descriptor, Run
from headrace.index.manifest import IndexManifest, retired_over, with_retired, without
from headrace.manifest.store import KEPT_MS, NewestLook, outdated
from headrace.objects import ObjectMissing, keys, packed


def retire(context: Context, index: IndexManifest, began: NewestLook) -> IndexManifest:
    """Removes the objects of retired runs that no reader can still use, and publishes a manifest without them. Returns
    the manifest that is the newest one afterwards, as far as this call knows. `began` is the look that found `index`.
    """
    removable = policy.expired(index, context.now_ms(), context.limits)
    if not removable:
        return index
    for run in removable:
        remove_run(context, index.log_id, run.id)
    successor = without(index, {run.id for run in removable}, context.now_ms())
    return successor if context.publish(successor, began) else context.newest_index(index.log_id)


def retire_passed(context: Context, picture: Picture, began: NewestLook) -> bool:
    """Retires the runs that hold too many records below the log's floor. Returns whether there were any: then the picture
    is no longer true. `began` is the look that found its index manifest.
    """
    now_ms = context.now_ms()
    runs = policy.passed(picture, now_ms)
    if runs:
        context.publish(
            with_retired(picture.manifest, runs, now_ms), began
        )  # else another did, and the next look tells
    return bool(runs)


def remove_run(context: Context, log_id: str, run_id: str) -> int:
    """Removes all objects of an index run, its descriptor first. Returns the number of removed objects, 0 if there were
    none.
    """
    objects = context.stores.objects
    descriptor = keys.run_descriptor(log_id, run_id)
    found = sorted(objects.list(keys.run(log_id, run_id)), key=lambda key: key != descriptor)
    if found:
        objects.delete(found)
    return len(found)


_TRIES = 8


def rebuild(context: Context, log_id: str) -> int:
    """Retires all index runs of a log in one new manifest, and notes that new ones are due. Returns the number of
    retired runs.

    Raises:
        StoreThrottled: other publishers won every time; repeat later.
    """
    for _ in range(_TRIES):
        began = context.look()
        index = context.newest_index(log_id)
        end = max((run.end_offset for run in index.runs), default=0)
        if not index.runs or context.publish(retired_over(index, 0, end, context.now_ms()), began):
            look(context, log_id)
            return len(index.runs)
    raise StoreThrottled(f"index manifest moves on: log_id={log_id}")


def retire_over(context: Context, log_id: str, first: int, end: int) -> None:
    """Retires the index runs that overlap the records `[first, end)`, which were scrubbed: the runs hold what the records
    no longer do. A process that is about to publish a run has to look again, and finds the segment of its task replaced.

    Raises:
        StoreThrottled: other publishers won every time; repeat later.
    """
    for _ in range(_TRIES):
        began = context.look()
        index = context.newest_index(log_id)
        if context.publish(retired_over(index, first, end, context.now_ms()), began):
            return
    raise StoreThrottled(f"index manifest moves on: log_id={log_id}")


def remove_generations(context: Context, log_id: str) -> int:
    """Removes generations of a log's index manifest that were replaced so long ago that no reader uses them, except the
    first. Returns the number of removed ones.

    Raises:
        Damaged: the object of a generation is not that generation, or breaks a rule; nothing was removed.
        StoreTimeout, StoreThrottled: repeat later.
    """
    standing = context.indexes.standing(log_id)

    def made_ms(generation: int) -> int:
        found = context.indexes.load(log_id, generation)
        return found.created_ms if found is not None else 0  # another call has just removed it

    removable = outdated(standing, made_ms, context.now_ms() - KEPT_MS, max(standing, default=0))
    if removable:
        context.stores.watermarks.publish_index(log_id, standing[-1])
        context.stores.objects.delete([keys.index_manifest(log_id, generation) for generation in removable])
    return len(removable)


_DAY_MS = 24 * 3600 * 1000  # longer than that and the longest life of a look (`NewestLook.check`), by hours


def sweep_orphans(context: Context, log_id: str) -> int:
    """Removes index objects, planned a day ago or earlier, that no index manifest of a living log names. Returns the
    number of removed objects; 0 for a log that has ended.
    """
    newest = context.stores.wal.newest(log_id)
    if newest is None or is_over(newest.state):
        return 0  # purge removes everything
    began, now_ms = context.look(), context.now_ms()  # what is a day old now, and not named after it, never will be
    prefix = keys.run(log_id, "").removesuffix("/")
    found = list(context.stores.objects.list(prefix))  # before the manifest: what is named since is not in this list
    orphans = list(_orphans(context, context.newest_index(log_id), prefix, found, now_ms, began))
    began.check()
    if orphans:
        context.stores.objects.delete(orphans)
    return len(orphans)


def _orphans(
    context: Context, index: IndexManifest, prefix: str, found: list[str], now_ms: int, began: NewestLook
) -> Iterator[str]:
    named = {run.id: run for run in index.runs}
    retired = {one.run.id for one in index.retired}  # their time comes, and then everything of them goes
    for run_id, group in groupby(found, key=lambda key: key.removeprefix(prefix).partition("/")[0]):
        planned_ms = keys.made_ms(run_id)
        if planned_ms is None or now_ms - planned_ms < _DAY_MS or run_id in retired:
            continue
        kept = _named_by(context, index.log_id, named[run_id], began) if run_id in named else frozenset()
        yield from (key for key in group if key not in kept)


def _named_by(context: Context, log_id: str, run: Run, began: NewestLook) -> frozenset[str]:
    try:
        descriptor = packed.decode_msgpack(context.stores.objects.get(run.descriptor), Descriptor, run.descriptor)
    except ObjectMissing as exc:
        began.check()
        raise Damaged(f"descriptor of a run is missing: log_id={log_id} object={run.descriptor}") from exc
    return frozenset({run.descriptor, *(part.key for family in descriptor.parts.values() for part in family)})
