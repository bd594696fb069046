"""A segment as a manifest describes it: enough to fetch any of its records with one ranged read."""

from __future__ import annotations

import msgspec


class PageIndex(msgspec.Struct, frozen=True, array_like=True):
    """The positions of a column's data pages in the object. The three lists have one element per page.

    Attributes:
        start: byte offset of the first page's header.
        sizes: bytes of each page, its header included; pages are contiguous.
        counts: number of records in each page.
        payload: decoded bytes of values in each page, without length prefixes.
    """

    start: int
    sizes: tuple[int, ...]
    counts: tuple[int, ...]
    payload: tuple[int, ...]


class Segment(msgspec.Struct, frozen=True, omit_defaults=True):
    """One published segment.

    Attributes:
        number: its position in the log, from 0 on.
        key: the object's key; its key page is at `headrace.objects.keys.segment_keys(key)`.
        first_offset, count: the range of its records; consecutive segments have adjacent ranges.
        min_time_ms, max_time_ms: append times of its first and last record, in epoch milliseconds.
        payload_bytes: decoded bytes of record data.
        size: bytes of the object.
        sha256: hash of the object, in hex.
        keys_sha256: hash of the key page object, in hex.
        pages: the page index of the `data` column.
        meta: the page index of the `meta` column; None if no record has meta.
    """

    number: int
    key: str
    first_offset: int
    count: int
    min_time_ms: int
    max_time_ms: int
    payload_bytes: int
    size: int
    sha256: str
    keys_sha256: str
    pages: PageIndex
    meta: PageIndex | None = None

    @property
    def end_offset(self) -> int:
        """The offset after its last record."""
        return self.first_offset + self.count
