"""Reads records of segments with all their columns, and facts about records without their data.

Data and meta are columns of the segment; everything else of a record is in the segment's key page. Key pages never
change, so a process keeps them: then a read costs one ranged GET of data and, in parallel, one of meta if a record of
the segment has some. The first read of a segment gets its key page in the same round. Entries that a
search for keys has read are kept likewise.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate, chain, repeat

from headrace.batch import Batch
from headrace.clock import Bounded
from headrace.errors import SegmentMissing
from headrace.objects import ObjectMissing, Objects, Range, keys
from headrace.segment import keypage, reader
from headrace.segment.descriptor import Segment
from headrace.segment.keypage import KeyPage

_KEPT_BYTES = 64 * 1024 * 1024  # of decoded key pages; a full segment of tiny records takes about 3 MB
_KEY_BYTES = 150  # that a key takes beside its characters


class Columns:
    """A key page, indexed by row.

    Attributes:
        page: the key page.
        time_ends: for each run of append times, the row after it.
    """

    def __init__(self, page: KeyPage) -> None:
        self.page = page
        self.time_ends = list(accumulate(run.count for run in page.times))

    @cached_property
    def key_codes(self) -> array[int]:
        """For each row, 0 for no key, else the key's position in the page's `keys` counted from 1. Made when it is first
        asked for: a search for keys does not need it.
        """
        codes = array("I", bytes(4 * len(self.page.sizes)))
        for code, differences in enumerate(self.page.key_rows, 1):
            for row in accumulate(differences):
                codes[row] = code
        return codes

    @property
    def weight(self) -> int:
        """About how many bytes this takes in memory."""
        names = sum(map(len, self.page.keys)) + _KEY_BYTES * len(self.page.keys)
        return 20 * len(self.page.sizes) + 100 * len(self.time_ends) + names

    def batch(self, first: int, data: list[bytes], meta: Sequence[bytes | None]) -> Batch:
        """Returns the records from row `first` on that have these data and meta."""
        page, end = self.page, first + len(data)
        runs = range(bisect.bisect_right(self.time_ends, first), bisect.bisect_left(self.time_ends, end) + 1)
        starts = [max(first, self.time_ends[run - 1] if run else 0) for run in runs]
        times = [
            repeat(page.times[run].time_ms, min(end, self.time_ends[run]) - start)
            for run, start in zip(runs, starts, strict=True)
        ]
        return Batch.of(
            data,
            key=[page.keys[code - 1] if code else None for code in self.key_codes[first:end]],
            node=[page.nodes[code - 1] if code else None for code in page.node_codes[first:end]] or None,
            meta=meta,
            time_ms=list(chain.from_iterable(times)),
            hops=page.hops[first:end] if isinstance(page.hops, list) else page.hops,
        )

    def row(self, row: int) -> tuple[str | None, str | None, int]:
        """Returns key, node and append time of a row."""
        page, code = self.page, self.key_codes[row]
        node = page.node_codes[row] if page.nodes else 0
        time_ms = page.times[bisect.bisect_right(self.time_ends, row)].time_ms
        return page.keys[code - 1] if code else None, page.nodes[node - 1] if node else None, time_ms

    def sizes(self, first: int, end: int) -> list[int]:
        """Returns the bytes of data and meta of the rows `[first, end)`."""
        sizes, metas = self.page.sizes[first:end], self.page.meta_sizes[first:end]
        return list(map(int.__add__, sizes, metas)) if metas else list(sizes)

    def rows(self, text: str, is_prefix: bool) -> list[int]:
        """Returns the rows whose key equals a text or, with `is_prefix`, begins with it, ascending."""
        if not is_prefix:
            return self.page.rows(text)
        at = end = bisect.bisect_left(self.page.keys, text)
        while end < len(self.page.keys) and self.page.keys[end].startswith(text):
            end += 1
        return sorted(chain.from_iterable(map(accumulate, self.page.key_rows[at:end])))


class ColumnCache:
    """A cache of key pages as columns, and the reads of records with all columns that use it. Thread-safe."""

    def __init__(self) -> None:
        self._kept: Bounded[str, Columns] = Bounded(_KEPT_BYTES, weigh=lambda columns: columns.weight)

    def columns(self, objects: Objects, segment: Segment) -> Columns:
        """Returns the columns of a segment's key page; costs one GET unless it is kept.

        Raises:
            SegmentMissing: the key page does not exist; perhaps the manifest is old.
            Damaged: the key page is altered.
        """
        return self._kept.load(segment.key, lambda: Columns(reader.key_page(objects, segment)))

    def kept(self, name: str) -> Columns | None:
        """Returns the columns that `of_records` keeps of records; None if it does not."""
        return self._kept.get(name)

    def of_records(self, name: str, read: Callable[[], Batch]) -> Columns:
        """Returns the columns of records that are in no segment, but never change; reads them unless they are kept."""
        return self._kept.load(name, lambda: Columns(keypage.of(read())))

    def read(self, objects: Objects, segment: Segment, start_offset: int, max_records: int, max_bytes: int) -> Batch:
        """Returns consecutive records from `start_offset` on. Costs one round of parallel GETs.

        Records are added while there are fewer than `max_records`, and while their data and meta together are less than
        `max_bytes`, and while the segment lasts: at least one record, and the last one may go over `max_bytes`.

        Raises:
            ValueError: `start_offset` is not in the segment.
            SegmentMissing: an object does not exist; perhaps the manifest is old.
            Damaged: an object differs from what the manifest says.
        """
        known = self._kept.get(segment.key)
        page = keys.segment_keys(segment.key)
        spans = reader.spans(segment, start_offset, max_records, max_bytes)
        ranges = [Range(segment.key, span.start, span.length) for span in spans]
        ranges += [] if known is not None else [Range(page, 0, keypage.MAX_BYTES)]
        try:
            raws = objects.get_ranges(ranges)
        except ObjectMissing as exc:
            raise SegmentMissing(f"segment or its key page is missing: object={segment.key}") from exc
        if known is None:
            known = Columns(keypage.decode(raws[-1], sha256=segment.keys_sha256, count=segment.count, source=page))
            self._kept.put(segment.key, known)
        data, *metas = (
            reader.decode(segment, pages, span, raw, max_records, max_bytes)
            for pages, span, raw in zip((segment.pages, segment.meta), spans, raws, strict=False)
            if pages is not None
        )
        meta = [one or None for one in metas[0]] if metas else [None] * len(data)
        ends = list(accumulate(len(one) + len(other or b"") for one, other in zip(data, meta, strict=False)))
        count = bisect.bisect_left(ends, max_bytes) + 1
        count = min(count, len(ends))
        return known.batch(start_offset - segment.first_offset, data[:count], meta[:count])
