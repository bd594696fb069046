"""Merging and scrubbing: segments are replaced by one that holds the same records. Does no I/O.

Merging: a slow log seals a small segment per seal age; neighbours of the open page become one. Scrubbing: records that
were removed (deleted, or expired) are blanked, so that nothing is left of them but offset and append time; this replaces
one segment, wherever the manifest names it. A generation that does either changes nothing else: a reader with an older
generation reads from the replaced objects, which are therefore kept for a while.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from headrace.manifest.manifest import Manifest, ManifestPage, Parts, Replaced, describe_page, encode_page
from headrace.objects import keys
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
    """Returns the generation after `manifest` in which the segment `by` takes the place of `replaced` in the open page.

    Args:
        replaced: neighbouring segments, or one that is scrubbed; their numbers may have changed since.
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


class Rewritten(NamedTuple):
    """A generation in which a segment of a sealed page is replaced, and the new pages by key, to be stored before it."""

    manifest: Manifest
    pages: dict[str, bytes]


def rewritten(
    manifest: Manifest,
    parts: Callable[[ManifestPage], Parts],
    replaced: Segment,
    by: Segment,
    now_ms: int,
    nonce: Callable[[], str],
) -> Rewritten | None:
    """Returns the generation after `manifest` in which the segment `by` takes the place of `replaced` in a sealed page.
    Each page above it is written again, under a new key.

    Args:
        parts: returns what a sealed page lists.
        now_ms: the server's clock.
        nonce: returns random letters and digits for the key of a page.

    Returns:
        None if no sealed page names the segment, or if it was dropped.
    """
    if replaced.first_offset < manifest.begin_offset:
        return None
    generation = manifest.generation + 1
    pages: dict[str, bytes] = {}
    gone = [replaced.key]

    def place(found: Parts) -> Parts | None:
        at = bisect.bisect_right(found, replaced.first_offset, key=lambda part: part.end_offset)
        part = found[at] if at < len(found) else None
        new: Segment | ManifestPage
        if isinstance(part, ManifestPage):
            below = place(parts(part))
            if below is None:
                return None
            key, data = keys.manifest_page(manifest.log_id, generation, nonce()), encode_page(below)
            pages[key] = data
            gone.append(part.key)
            new = describe_page(key, data, below)
        elif part is not None and _unnumbered(part) == _unnumbered(replaced):
            new = replace(by, number=part.number)
        else:
            return None
        return (*found[:at], new, *found[at + 1 :])

    changed = place(manifest.pages)
    if changed is None:
        return None
    successor = replace(
        manifest,
        generation=generation,
        created_ms=now_ms,
        sealed_ms=manifest.end_published_ms,
        pages=changed,
        replaced=(*manifest.replaced, *(Replaced(key, generation, now_ms) for key in gone)),
    )
    return Rewritten(successor, pages)


class DeadRecords(NamedTuple):
    """The removed records of a log.

    Attributes:
        runs: runs `[first, end)` of offsets, ascending.
        expired_ms: all records appended before this time (epoch ms) are removed, too; None without a time.
    """

    runs: tuple[tuple[int, int], ...] = ()
    expired_ms: int | None = None


FindDead = Callable[[Manifest, int], DeadRecords]
"""The function that returns the removed records of a log, given its newest manifest and the time (epoch ms). What it says
is removed stays so, even after a recovery from the published part.
"""


def find_none(_: Manifest, __: int) -> DeadRecords:
    """Returns that no record is removed."""
    return DeadRecords()


SHARE = 4  # a segment is scrubbed as soon as one in so many of its records is to be blanked
DAY_MS = 24 * 3600 * 1000


class Scrub(NamedTuple):
    """A segment to be scrubbed, and its removed records as runs `(first, end, first, end, …)` of offsets."""

    segment: Segment
    dead: tuple[int, ...]


def with_dead(segments_from: Callable[[int], Iterator[Segment]], dead: Iterable[tuple[int, int]]) -> Iterator[Scrub]:
    """Yields each segment with removed records, ascending.

    Args:
        segments_from: returns the segments from the one on that holds an offset.
        dead: the runs `[first, end)` of removed records, ascending.
    """
    segment: Segment | None = None
    found: list[int] = []
    for first, end in dead:
        at = first
        while at < end:
            if segment is None or at >= segment.end_offset:
                if segment is not None and found:
                    yield Scrub(segment, tuple(found))
                segment, found = next(segments_from(at), None), []
                if segment is None:
                    return
                at = max(at, segment.first_offset)  # those before it were dropped
            if at >= end:
                break
            upto = min(end, segment.end_offset)
            found += (at, upto)
            at = upto
    if segment is not None and found:
        yield Scrub(segment, tuple(found))


def is_day(log_id: str, now_ms: int) -> bool:
    """Returns whether it is the log's day of the week, on which few removed records are reason enough."""
    return now_ms // DAY_MS % 7 == int(log_id[:8], 16) % 7


def is_due(scrub: Scrub, log_id: str, now_ms: int, floor: int) -> bool:
    """Returns whether to scrub a segment now: if enough of its records are removed and not blanked yet or, on one day of
    the week, if any is, unless it was scrubbed that day already.

    The segment in which the log's floor is waits for that day: as a rule, it is dropped before.
    """
    segment, dead = scrub
    left = sum(dead[1::2]) - sum(dead[::2]) - segment.blanked
    if left <= 0:
        return False
    if left * SHARE >= segment.count and not segment.first_offset < floor < segment.end_offset:
        return True
    is_scrubbed = segment.blanked and (keys.planned_ms(segment.key) or 0) // DAY_MS == now_ms // DAY_MS
    return is_day(log_id, now_ms) and not is_scrubbed


def holds_up(group: Iterable[Segment], log_id: str, now_ms: int) -> bool:
    """Returns whether a merge of these segments now could put off a scrub for a week: by the key of a merged segment with
    blanked records, it would seem that it was scrubbed on the log's day. That is planned a while after it is due.
    """
    is_near = is_day(log_id, now_ms) or is_day(log_id, now_ms + DAY_MS)
    return is_near and any(segment.blanked for segment in group)


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
