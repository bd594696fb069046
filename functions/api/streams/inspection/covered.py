"""How many published segments lie in index runs. Runs cover offsets, and know of no segments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

from functions.api.streams.inspection.seen import Coverage, Published
from headrace.index.descriptors import Run
from headrace.index.manifest import gaps
from headrace.manifest.manifest import Manifest, ManifestPage
from headrace.manifest.store import ManifestStore
from headrace.segment.descriptor import Segment


class Block(NamedTuple):
    """Neighbouring segments with records `[first, end)`; `size` of them, `segments` reads them."""

    first: int
    end: int
    size: int
    segments: Callable[[], Sequence[Segment]]


def of_segment(segment: Segment) -> Block:
    """One segment."""
    return Block(segment.first_offset, segment.end_offset, 1, lambda: (segment,))


def of_page(page: ManifestPage, store: ManifestStore, manifest: Manifest) -> Block:
    """The segments of a sealed page of a manifest."""

    def segments() -> Sequence[Segment]:
        found = store.segments_from(manifest, page.first_offset)
        return tuple(takewhile(lambda segment: segment.first_offset < page.end_offset, found))

    return Block(page.first_offset, page.end_offset, page.count, segments)


def nothing(published: Published) -> Coverage:
    """Without a run."""
    return Coverage(missing_ms=published.oldest_ms)


def coverage(blocks: Iterable[Block], runs: Sequence[Run]) -> Coverage:
    """Which segments lie wholly in the union of these runs.

    Args:
        blocks: all that is published, ascending. One that runs cover in part, or the first that they leave out, is read.

    Raises:
        Damaged: a sealed page is missing or altered.
    """
    found = Coverage()
    for block in blocks:
        missing = gaps(runs, block.first, block.end)
        if not missing:
            found = _with(found, block.size)
        elif missing == [(block.first, block.end)] and found.missing_ms is not None:
            continue
        else:
            for segment in block.segments():
                if gaps(runs, segment.first_offset, segment.end_offset):
                    found = found._replace(missing_ms=_first(found.missing_ms, segment.min_time_ms))
                else:
                    found = _with(found, 1)
    return found


def _with(found: Coverage, count: int) -> Coverage:
    contiguous = found.contiguous + (count if found.missing_ms is None else 0)
    return found._replace(segments=found.segments + count, contiguous=contiguous)


def _first(known: int | None, found: int) -> int:
    return found if known is None else known
