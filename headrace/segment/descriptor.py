"""A segment as a manifest describes it, enough to fetch any of its records with one ranged read; and the headers of its
Parquet data pages.

A page header is Thrift's compact protocol, as far as our pages use it: page type, both sizes, CRC-32 and the data page part
(values and encodings). Anything else is refused: the writer would notice at once, and a reader must not guess.
"""

from __future__ import annotations

import re
from typing import NamedTuple

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
        blanked: number of its records of which only offset and append time are left, because they were removed.
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
    blanked: int = 0

    @property
    def end_offset(self) -> int:
        """The offset after its last record."""
        return self.first_offset + self.count


_I32 = rb"([\x80-\xff]{0,4}[\x00-\x7f])"
# Each byte in front of a number is a field: how far its id is beyond the one before, and its type (5: i32, 12: struct).
_HEADER = re.compile(
    rb"\x15\x00"  # 1 type: DATA_PAGE
    rb"\x15" + _I32 + rb"\x15" + _I32 + rb"\x15" + _I32 +  # 2 and 3 sizes, 4 crc
    rb"\x1c\x15" + _I32 + rb"\x15\x00\x15\x06\x15\x06\x00"  # 5 data page: values, PLAIN, RLE, RLE
    rb"\x00",
    re.DOTALL,
)  # fmt: skip


class BadHeader(ValueError):
    """The bytes are not the header of one of our data pages."""


class PageHeader(NamedTuple):
    """What a reader needs to know about a page.

    Attributes:
        size: size of the header itself in bytes; the page's body follows.
        body: compressed size of the body in bytes.
        decoded: decompressed size of the body in bytes.
        crc: CRC-32 of the compressed body.
        values: number of records in the page.
    """

    size: int
    body: int
    decoded: int
    crc: int
    values: int


def parse_header(data: bytes | memoryview, at: int) -> PageHeader:
    """Parses the header that begins at `data[at]`.

    Raises:
        BadHeader: there is no header, or it is of a page that is not plain data with a checksum.
    """
    found = _HEADER.match(data, at)
    if found is None:
        raise BadHeader("page header is not that of plain data with a checksum")
    decoded, body, crc, count = map(_i32, found.groups())
    if decoded < 0 or body < 0 or count < 1:
        raise BadHeader(f"page has no sane size: decoded={decoded} body={body} count={count}")
    return PageHeader(size=found.end() - at, body=body, decoded=decoded, crc=crc & 0xFFFFFFFF, values=count)


def _i32(raw: bytes) -> int:
    value = 0
    for byte in reversed(raw):
        value = value << 7 | byte & 0x7F
    if value >= 1 << 32:
        raise BadHeader("page header holds a number that is too long")
    return (value >> 1) ^ -(value & 1)
