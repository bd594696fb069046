"""Reads records of segments, in ranges or scattered, through an `Objects` port. Never imports pyarrow.

A page of the `data` column is `header | zstd(u32 length, bytes, u32 length, bytes, …)`. The manifest says where pages
are and what they hold. Every number in the object is checked against it, and every page against its CRC-32, before
memory is allocated or anything is returned.
"""

from __future__ import annotations

import bisect
import struct
import threading
import zlib
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from io import BytesIO
from itertools import accumulate, repeat
from typing import NamedTuple

import zstandard

from headrace.errors import Damaged, SegmentMissing
from headrace.objects import ObjectMissing, Objects, Range, keys
from headrace.segment import descriptor, keypage
from headrace.segment.descriptor import PageIndex, Segment

_RUN_BYTES = 1024 * 1024  # payload that one GET of scattered rows fetches
_LENGTH = struct.Struct("<I")
_local = threading.local()


class Span(NamedTuple):
    """Pages `[first, end)`, their bytes `[start, start + length)`, and the number of records to skip in the first
    page.
    """

    first: int
    end: int
    start: int
    length: int
    skip: int


def read_data(objects: Objects, segment: Segment, start_offset: int, max_records: int, max_bytes: int) -> list[bytes]:
    """Returns the data of consecutive records from `start_offset` on, with one ranged GET.

    Records are added while there are fewer than `max_records` and their data together are less than
    `max_bytes`, and while the segment lasts: at least one record, and the last one may go over `max_bytes`.

    Raises:
        ValueError: `start_offset` is not in the segment.
        SegmentMissing: the object does not exist; perhaps the manifest is old.
        Damaged: the object differs from what the manifest says.
        StoreTimeout, StoreThrottled: from the object store.
    """
    pages = segment.pages
    span = _span(segment, pages, _row(segment, start_offset), max_records, max_bytes)
    try:
        raw = objects.get_range(segment.key, span.start, span.length)
    except ObjectMissing as exc:
        raise SegmentMissing(f"segment is missing: object={segment.key}") from exc
    return decode(segment, pages, span, raw, max_records, max_bytes)


def spans(segment: Segment, start_offset: int, max_records: int, max_bytes: int) -> list[Span]:
    """Returns the pages of the data column that are certain to hold the requested records, as in `read_data`; and those
    of the meta column that belong to them, if there is one.

    Raises:
        ValueError: `start_offset` is not in the segment.
        Damaged: the page index contradicts itself.
    """
    row = _row(segment, start_offset)
    data = _span(segment, segment.pages, row, max_records, max_bytes)
    if segment.meta is None:
        return [data]
    held = sum(segment.pages.counts[data.first : data.end]) - data.skip
    return [data, _span(segment, segment.meta, row, min(max_records, held), max_bytes)]


def _row(segment: Segment, offset: int) -> int:
    if not segment.first_offset <= offset < segment.end_offset:
        held = range(segment.first_offset, segment.end_offset)
        raise ValueError(f"offset is not in the segment: offset={offset} held={held}")
    return offset - segment.first_offset


def find_time(objects: Objects, segment: Segment, time_ms: int) -> int:
    """Returns the offset of the first record appended at `time_ms` or later; the segment's end offset if there is none.

    Costs one GET of the key page, none if the answer is the segment's first record or its end.

    Raises:
        SegmentMissing: the key page does not exist; perhaps the manifest is old.
        Damaged: the key page is altered.
        StoreTimeout, StoreThrottled: from the object store.
    """
    if time_ms <= segment.min_time_ms:
        return segment.first_offset
    if time_ms > segment.max_time_ms:
        return segment.end_offset
    return segment.first_offset + key_page(objects, segment).row_at(time_ms)


def rows_of_key(objects: Objects, segment: Segment, key: str) -> list[int]:
    """Returns the offsets of the records with this key, ascending. Costs one GET of the key page.

    Raises:
        SegmentMissing: the key page does not exist; perhaps the manifest is old.
        Damaged: the key page is altered.
        StoreTimeout, StoreThrottled: from the object store.
    """
    return [segment.first_offset + row for row in key_page(objects, segment).rows(key)]


def read_rows(objects: Objects, segment: Segment, offsets: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Yields the data of records at ascending offsets, each with its offset. Costs one ranged GET for each run of pages
    that hold some of them.

    Raises:
        SegmentMissing, Damaged, StoreTimeout, StoreThrottled: as `read_data`.
    """
    row_ends = list(accumulate(segment.pages.counts))
    at = 0
    while at < len(offsets):
        first, room = offsets[at], 0
        last_page = bisect.bisect_right(row_ends, first - segment.first_offset)
        end = at
        while end < len(offsets) and room < _RUN_BYTES:
            page = bisect.bisect_right(row_ends, offsets[end] - segment.first_offset)
            if page > last_page + 1:
                break
            if page > last_page or end == at:
                room += segment.pages.payload[page]
            last_page = page
            end += 1
        data = read_data(objects, segment, first, offsets[end - 1] - first + 1, segment.payload_bytes + 1)
        for offset in offsets[at:end]:
            yield offset, data[offset - first]
        at = end


def page_rows(segment: Segment, page: int, view: memoryview, rows: Sequence[int]) -> list[bytes]:
    """Returns the data of some records of page number `page`, whose bytes are `view`. `rows` are positions in the page,
    ascending.

    Raises:
        Damaged: the bytes are not that page.
    """
    body = _page_body(segment, segment.pages, page, view, 0)
    found: list[bytes] = []
    row = at = 0
    try:
        for wanted in rows:
            while row < wanted:
                at += _LENGTH.size + _LENGTH.unpack_from(body, at)[0]
                row += 1
            (size,) = _LENGTH.unpack_from(body, at)
            begin = at + _LENGTH.size
            if begin + size > len(body):
                raise Damaged(f"page ends inside a record: object={segment.key} page={page}")
            found.append(body[begin : begin + size])
    except struct.error as exc:
        raise Damaged(f"page ends inside a record: object={segment.key} page={page}") from exc
    return found


def key_page(objects: Objects, segment: Segment) -> keypage.KeyPage:
    """Returns the decoded key page of a segment. Costs one GET.

    Raises:
        SegmentMissing: the key page does not exist; perhaps the manifest is old.
        Damaged: the key page is altered.
    """
    source = keys.segment_keys(segment.key)
    try:
        data = objects.get(source)
    except ObjectMissing as exc:
        raise SegmentMissing(f"key page is missing: object={source}") from exc
    return keypage.decode(data, sha256=segment.keys_sha256, count=segment.count, source=source)


def _span(segment: Segment, pages: PageIndex, row: int, max_records: int, max_bytes: int) -> Span:
    """Returns the fewest pages that are certain to hold the requested records from `row` on. Raises Damaged if the page
    index contradicts itself.
    """
    row_ends = list(accumulate(pages.counts))
    if not len(pages.sizes) == len(pages.counts) == len(pages.payload) or row_ends[-1:] != [segment.count]:
        raise Damaged(f"page index contradicts itself: object={segment.key}")
    if pages.start < 0 or min(pages.sizes) < 1 or min(pages.counts) < 1 or min(pages.payload) < 0:
        raise Damaged(f"page index has no sane sizes: object={segment.key}")
    first = bisect.bisect_right(row_ends, row)
    skip = row - (row_ends[first] - pages.counts[first])
    # How much of a page's payload is behind a row in its middle is not known: it counts for nothing.
    sure_bytes = 0 if skip else pages.payload[first]
    end = first + 1
    while end < len(row_ends) and row_ends[end - 1] - row < max_records and sure_bytes < max_bytes:
        sure_bytes += pages.payload[end]
        end += 1
    start = pages.start + sum(pages.sizes[:first])
    return Span(first, end, start, sum(pages.sizes[first:end]), skip)


def decode(
    segment: Segment, pages: PageIndex, span: Span, raw: bytes, max_records: int, max_bytes: int
) -> list[bytes]:
    """Returns the values of a column that `_read` returns, from the bytes of a span of its pages. Raises Damaged if they
    are not those that were published.
    """
    if len(raw) != span.length:
        raise Damaged(f"segment is truncated: object={segment.key} expected={span.length} found={len(raw)}")
    found: list[bytes] = []
    view = memoryview(raw)
    skip, at = span.skip, 0
    for page in range(span.first, span.end):
        body = _page_body(segment, pages, page, view, at)
        found += _split(body, pages.counts[page], f"object={segment.key} page={page}")[skip:]
        skip = 0
        at += pages.sizes[page]
    ends = list(accumulate(map(len, found)))
    return found[: min(max(max_records, 1), bisect.bisect_left(ends, max_bytes) + 1)]


def _split(body: bytes, count: int, where: str) -> list[bytes]:
    """Splits a page's body into its `count` values. Raises Damaged if it does not hold exactly those."""
    read = BytesIO(body).read
    # Each step of the outer map reads a length, then so many bytes: a loop that Python does not see.
    lengths: Iterator[int] = map(int.from_bytes, iter(partial(read, _LENGTH.size), b""), repeat("little"))  # type: ignore[arg-type]
    values = list(map(read, lengths))
    found = (len(values), sum(map(len, values)))
    # All lengths but the last are true, or the numbers differ; beyond the end there is nothing to read.
    is_whole = found == (count, len(body) - _LENGTH.size * count)
    if not is_whole or body[-len(values[-1]) - _LENGTH.size :][: _LENGTH.size] != _LENGTH.pack(len(values[-1])):
        raise Damaged(f"page does not hold its records exactly: {where} expected={count} found={found}")
    return values


def _page_body(segment: Segment, index: PageIndex, page: int, view: memoryview, at: int) -> bytes:
    """Checks, decompresses and returns the body of page `page`, whose header begins at `view[at]`. Raises Damaged if it
    is not the page that was published.
    """
    where = f"object={segment.key} page={page}"
    size, count, decoded = index.sizes[page], index.counts[page], index.payload[page] + 4 * index.counts[page]
    try:
        header = descriptor.parse_header(view, at)
    except descriptor.BadHeader as exc:
        raise Damaged(f"{exc}: {where}") from exc
    published, found = (size, count, decoded), (header.size + header.body, header.values, header.decoded)
    if found != published:
        raise Damaged(f"page is not the one published: {where} expected={published} found={found}")
    body = view[at + header.size : at + size]
    if zlib.crc32(body) != header.crc:
        raise Damaged(f"page fails its checksum: {where}")
    try:
        if zstandard.frame_content_size(body) not in (decoded, -1):  # -1: the frame does not say
            raise Damaged(f"page has another size inside: {where}")
        whole = _decompressor().decompress(body, max_output_size=decoded, allow_extra_data=False)
    except zstandard.ZstdError as exc:
        raise Damaged(f"page does not decompress: {where}") from exc
    if len(whole) != decoded:
        raise Damaged(f"page has another size inside: {where}")
    return whole


def _decompressor() -> zstandard.ZstdDecompressor:
    """Returns this thread's decompressor, because decompressors can't be shared by threads."""
    found: zstandard.ZstdDecompressor | None = getattr(_local, "decompressor", None)
    if found is None:
        found = _local.decompressor = zstandard.ZstdDecompressor()
    return found


class _Page(NamedTuple):
    """A page by its number, the offset of its first record, the requested offsets in it, and its range of bytes."""

    segment: Segment
    number: int
    first: int
    offsets: Sequence[int]
    where: Range


def read_scattered(
    wanted: Sequence[tuple[Segment, Sequence[int]]],
) -> Generator[list[Range], list[bytes], dict[int, bytes]]:
    """Returns the data of scattered records, by offset. It is a generator that yields the needed ranges once, and is
    sent their bytes.

    Args:
        wanted: segments, each with ascending offsets in it.

    Raises:
        Damaged: an object differs from what the manifest says.
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
