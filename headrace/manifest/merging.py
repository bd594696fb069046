"""Merging: neighbouring small segments of the open page are replaced by one that holds the same records. Does no I/O.

A slow log seals a small segment per seal age. A generation that merges changes nothing else: a reader with an older
generation reads the same records from the replaced objects, which are therefore kept for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from headrace.manifest.manifest import Manifest, Replaced
from headrace.segment.descriptor import Segment

PUBLISH_MS = 12 * 3600 * 1000  # after it was planned, a merged segment is not published any more
ABANDONED_MS = 24 * 3600 * 1000  # and a generation made so much later says that it never will be
IDLE_AGES = 6  # an idle log has no further generations: then age alone decides
_ROW_BYTES = 64  # approximate overhead of a record in addition to its data
_DOMINANT = 4  # a segment with more than this part of a group would be written again for too little


class MergeLimits(NamedTuple):
    """The limits that decide which segments are merged.

    Attributes:
        segments: the least number of segments to merge at once; 0 turns merging off.
        payload_bytes, records: the maximum size of a merged segment.
        age_ms: the least age of a segment's newest record.
    """

    segments: int
    payload_bytes: int
    records: int
    age_ms: int


def groups(open_page: Sequence[Segment], now_ms: int, limits: MergeLimits) -> list[tuple[Segment, ...]]:
    """Returns the groups of segments to merge now, oldest first: neighbours that together fit one segment."""
    old = 0
    while old < len(open_page) and open_page[old].max_time_ms <= now_ms - limits.age_ms:
        old += 1
    return _groups(open_page[:old], limits)


def due_ms(open_page: Sequence[Segment], limits: MergeLimits) -> int | None:
    """Returns the time (epoch ms) at which `groups` will find something at the latest if nothing changes; None if it
    will not.
    """
    found = _groups(open_page, limits)
    return found[0][-1].max_time_ms + limits.age_ms if found else None


def _groups(segments: Sequence[Segment], limits: MergeLimits) -> list[tuple[Segment, ...]]:
    """Returns groups by tiers: a segment that makes up most of a group waits until it has neighbours of its own
    size.
    """
    found: list[tuple[Segment, ...]] = []
    at = 0
    while limits.segments and at + limits.segments <= len(segments):
        end, payload, records = at, 0, 0
        while end < len(segments):
            payload += segments[end].payload_bytes
            records += segments[end].count
            if payload > limits.payload_bytes or records > limits.records:
                break
            end += 1
        group = tuple(segments[at:end])
        if len(group) >= max(2, limits.segments) and _is_worth(group):
            found.append(group)
            at = end
        else:
            at += 1
    return found


def _is_worth(group: Sequence[Segment]) -> bool:
    weights = [segment.payload_bytes + _ROW_BYTES * segment.count for segment in group]
    return len(group) < _DOMINANT or max(weights) * _DOMINANT <= sum(weights)


def merged(manifest: Manifest, replaced: Sequence[Segment], by: Segment, now_ms: int) -> Manifest | None:
    """Returns the generation after `manifest` in which the segment `by` takes the place of `replaced`.

    Args:
        replaced: neighbouring segments; their numbers may have changed since.
        now_ms: the server's clock.

    Returns:
        None if these segments are no longer in the open page as neighbours.
    """
    start = next((at for at, one in enumerate(manifest.open_page) if one.key == replaced[0].key), None)
    if start is None:
        return None
    end = start + len(replaced)
    if [_unnumbered(one) for one in manifest.open_page[start:end]] != [_unnumbered(one) for one in replaced]:
        return None
    fewer = len(replaced) - 1
    generation = manifest.generation + 1
    return replace(
        manifest,
        generation=generation,
        created_ms=now_ms,
        sealed_ms=manifest.end_published_ms,
        segment_count=manifest.segment_count - fewer,
        open_page=(
            *manifest.open_page[:start],
            replace(by, number=manifest.open_page[start].number),
            *(replace(one, number=one.number - fewer) for one in manifest.open_page[end:]),
        ),
        merged_away=manifest.merged_away + fewer,
        replaced=(*manifest.replaced, *(Replaced(one.key, generation, now_ms) for one in replaced)),
    )


def names(manifest: Manifest, key: str) -> bool:
    """Returns whether a segment of the open page, or one replaced recently, has this key."""
    in_force = {one.key for one in manifest.open_page}
    return key in in_force or any(one.key == key for one in manifest.replaced)


def removable(manifest: Manifest, now_ms: int, age_ms: int) -> list[str]:
    """Returns the keys of replaced segments that no reader can need any more: at least two generations and `age_ms` have
    passed.

    If there was no second generation, six times `age_ms` must have passed.
    """
    return [
        one.key
        for one in manifest.replaced
        if now_ms - one.at_ms >= age_ms * (1 if _is_passed(manifest, one) else IDLE_AGES)
    ]


def forgettable(manifest: Manifest, now_ms: int, age_ms: int) -> list[str]:
    """Returns those of the removable keys that the next generation need not name, once their objects are removed."""
    return [one.key for one in manifest.replaced if now_ms - one.at_ms >= age_ms and _is_passed(manifest, one)]


def _is_passed(manifest: Manifest, replaced: Replaced) -> bool:
    return manifest.generation - replaced.generation >= 2


def _unnumbered(segment: Segment) -> Segment:
    return replace(segment, number=0)
