"""Records at scattered offsets, of many segments at once: the ranges to fetch, and what their bytes say.

For the hits of a search. Each page that holds some of them is a range of its own: anyone who fetches joins those that stand
close to each other, and keeps them one by one.
"""

from __future__ import annotations

import bisect
from collections.abc import Generator, Sequence
from itertools import accumulate
from typing import NamedTuple

from headrace.errors import Damaged
from headrace.objects import Range
from headrace.segment.descriptor import Segment
from headrace.segment.reader import page_rows


class _Page(NamedTuple):
    """A page, the offset of its first record, and which of its records are wanted."""

    segment: Segment
    number: int
    first: int
    offsets: Sequence[int]
    where: Range


def read(wanted: Sequence[tuple[Segment, Sequence[int]]]) -> Generator[list[Range], list[bytes], dict[int, bytes]]:
    """Yields the data of records, by offset: asks for ranges once, and is sent their bytes.

    Args:
        wanted: segments with ascending offsets that are in them.

    Raises:
        Damaged: an object is not what the manifest says.
    """
    pages = [page for segment, offsets in wanted for page in _pages(segment, offsets)]
    raws = yield [page.where for page in pages]
    found: dict[int, bytes] = {}
    for page, raw in zip(pages, raws, strict=True):
        if len(raw) != page.where.length:
            place = f"object={page.where.key} expected={page.where.length} found={len(raw)}"
            raise Damaged(f"segment is truncated: {place}")
        rows = [offset - page.first for offset in page.offsets]
        records = page_rows(page.segment, page.number, memoryview(raw), rows)
        found.update(zip(page.offsets, records, strict=True))
    return found


def _pages(segment: Segment, offsets: Sequence[int]) -> list[_Page]:
    ends = list(accumulate(segment.pages.counts, initial=segment.first_offset))
    starts = list(accumulate(segment.pages.sizes, initial=segment.pages.start))
    found: list[_Page] = []
    at = 0
    while at < len(offsets):
        number = bisect.bisect_right(ends, offsets[at]) - 1
        stop = bisect.bisect_left(offsets, ends[number + 1], at)
        where = Range(segment.key, starts[number], segment.pages.sizes[number])
        found.append(_Page(segment, number, ends[number], offsets[at:stop], where))
        at = stop
    return found
