"""Dropping: segments at the front that hold only records below the log's floor leave the manifest. Does no I/O.

A generation that drops changes nothing else. A reader with an older generation still reads the dropped segments, whose
objects are therefore kept for a while; one that finds them missing looks for the newest generation, and learns where the
log begins. No segments are dropped before the objects of those that were dropped earlier are removed: so a generation
need not list them, and however many there are, dropping them costs the same.
"""

from __future__ import annotations

from msgspec.structs import replace

from headrace.manifest.manifest import Begin, Manifest, Replaced
from headrace.manifest.merging import IDLE_AGES
from headrace.segment.descriptor import Segment


def is_worth(manifest: Manifest) -> bool:
    """Returns whether there may be segments to drop: the published floor is above where the segments begin."""
    return manifest.state.floor > manifest.begin_offset


def is_removable(manifest: Manifest, now_ms: int, age_ms: int) -> bool:
    """Returns whether no reader can need the objects of dropped segments any more: at least two generations and `age_ms`
    have passed since. If there was no second generation, six times `age_ms` must have passed.
    """
    begin = manifest.begin
    if not isinstance(begin, Begin):
        return True
    is_passed = manifest.generation - begin.generation >= 2
    return now_ms - begin.at_ms >= age_ms * (1 if is_passed else IDLE_AGES)


def dropped(
    manifest: Manifest, first: Segment | None, sealed: int, pages: tuple[str, ...], now_ms: int
) -> Manifest | None:
    """Returns the generation after `manifest` that begins with the segment `first`, which holds the record at the floor;
    None if it begins there already.

    Args:
        first: None if no segment reaches the floor.
        sealed: the number in the key of `first`; if that is None, in the key of the next segment.
        pages: keys of sealed pages that are not needed any more.
        now_ms: the server's clock.
    """
    number = first.number if first is not None else manifest.segment_count
    if number <= manifest.begin_number:
        return None
    generation = manifest.generation + 1
    offset = first.first_offset if first is not None else manifest.end_offset
    return replace(
        manifest,
        generation=generation,
        created_ms=now_ms,
        sealed_ms=manifest.end_published_ms,
        begin=Begin(number, offset, sealed, generation, now_ms),
        pages=tuple(page for page in manifest.pages if page.end_number > number),
        open_page=tuple(segment for segment in manifest.open_page if segment.number >= number),
        replaced=(*manifest.replaced, *(Replaced(key, generation, now_ms) for key in pages)),
    )
