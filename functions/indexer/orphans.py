"""Verb: orphans. Removes objects of runs that no index manifest names and none can come to name.

A run's id says when it was planned. A day later its job is over, published or given up, so what is not named then never
will be: runs that were refused or never finished, and parts of a run that another attempt of its task left behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from functions.indexer.context import Context, made_ms
from functions.indexer.picture import is_over
from headrace.errors import Damaged
from headrace.index.descriptors import Descriptor, Run
from headrace.index.manifest import IndexManifest
from headrace.objects import ObjectMissing, keys, packed

_DAY_MS = 24 * 3600 * 1000


def sweep_orphans(context: Context, log_id: str) -> int:
    """Removes orphans of a living log; returns how many objects."""
    newest = context.stores.wal.newest(log_id)
    if newest is None or is_over(newest.state):
        return 0  # purge removes everything
    prefix = keys.run(log_id, "").removesuffix("/")
    found = list(context.stores.objects.list(prefix))  # before the manifest: what is named since is not in this list
    index = context.indexes.newest(log_id)
    doomed = list(_orphans(context, index, prefix, found))
    if doomed:
        context.stores.objects.delete(doomed)
    return len(doomed)


def _orphans(context: Context, index: IndexManifest, prefix: str, found: list[str]) -> Iterator[str]:
    named = {run.id: run for run in index.runs}
    retired = {one.run.id for one in index.retired}  # their time comes, and then everything of them goes
    for run_id, group in groupby(found, key=lambda key: key.removeprefix(prefix).partition("/")[0]):
        planned_ms = made_ms(run_id)
        if planned_ms is None or context.now_ms() - planned_ms < _DAY_MS or run_id in retired:
            continue
        kept = _named_by(context, index.log_id, named[run_id]) if run_id in named else frozenset()
        yield from (key for key in group if key not in kept)


def _named_by(context: Context, log_id: str, run: Run) -> frozenset[str]:
    try:
        descriptor = packed.decode_msgpack(context.stores.objects.get(run.descriptor), Descriptor, run.descriptor)
    except ObjectMissing as exc:
        raise Damaged(f"descriptor of a run is missing: log_id={log_id} object={run.descriptor}") from exc
    return frozenset({run.descriptor, *(part.key for family in descriptor.parts.values() for part in family)})
