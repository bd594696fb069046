"""Drops the segments of a log that hold only records below its floor. What a crash after each step leaves:

    objects of what was dropped earlier   a manifest that says that they were dropped
    manifest generation                   dropped segments; the watermark is behind, the next seal raises it
    watermark                             nothing

The floor is that of the published state: what a bucket alone brings back still has all records above its floor. A surface
that knows better what nobody needs (jobs that are done) raises the floor with an entry.

The objects go when segments are dropped again, or with the orphan sweep, but only after the time for which those of merged
segments are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, takewhile

from functions.sealer.context import Context
from headrace.manifest import dropping
from headrace.manifest.manifest import MAX_REPLACED, Begin, Manifest, ManifestPage
from headrace.manifest.store import NewestLook
from headrace.objects import keys

MAX_OBJECTS = 10_000  # of dropped segments that one run removes


def drop(parts: Context, manifest: Manifest, look: NewestLook) -> Manifest | None:
    """Publishes a generation without the segments below the floor. Returns it; None if there are none, or if it is too
    early, because objects that were dropped before may still be read.

    Args:
        manifest: the newest generation, found by `look`.
    """
    stores, state = parts.stores, manifest.state
    if not dropping.is_worth(manifest) or state.forks:  # forks may read what is below
        return None
    if not dropping.is_removable(manifest, parts.now_ms(), stores.settings.merge_retire_ms):
        return None
    first = next(parts.manifests.segments_from(manifest, state.floor), None)
    number, sealed = manifest.segment_count, manifest.sealed_count
    if first is not None:
        number, sealed = first.number, keys.sealed_number(first.key)
    if number <= manifest.begin_number:
        return None
    gone = list(islice(dropped_objects(parts, manifest), MAX_OBJECTS))
    if gone:
        stores.objects.delete(gone)
    if len(gone) == MAX_OBJECTS:
        return None  # the next run goes on
    room = max(0, MAX_REPLACED - len(manifest.replaced))  # without room a page stays until the log is purged
    pages = islice(_pages(parts, manifest.pages, manifest.begin_number, number), room)
    successor = dropping.dropped(manifest, first, sealed, tuple(pages), parts.now_ms())
    if successor is None or not parts.manifests.publish(successor, look):
        return None
    stores.watermarks.publish(
        successor.log_id, successor.generation, successor.end_slot, successor.end_offset, successor.sealed_bytes
    )
    return successor


def dropped_objects(parts: Context, manifest: Manifest) -> Iterator[str]:
    """Yields the keys of the objects of all dropped segments that are there, ascending."""
    begin = manifest.begin
    if isinstance(begin, Begin):
        found = parts.stores.objects.list(keys.segments(manifest.log_id))
        yield from takewhile(lambda key: keys.sealed_number(key) < begin.sealed, found)


def _pages(parts: Context, pages: Sequence[ManifestPage], begin: int, end: int) -> Iterator[str]:
    """Yields the keys of the sealed pages whose last segment has a number in `[begin, end)`."""
    for page in pages:
        if page.end_number <= begin or page.first_number >= end:
            continue
        if page.level:
            yield from _pages(
                parts, [one for one in parts.manifests.parts(page) if isinstance(one, ManifestPage)], begin, end
            )
        if page.end_number <= end:
            yield page.key
