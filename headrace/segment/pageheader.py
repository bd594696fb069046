"""The header in front of a Parquet data page: Thrift's compact protocol, as far as our pages use it.

A header of ours holds five fields: page type, both sizes, CRC-32 and the data page part (values and
encodings). Anything else is refused: the writer would notice at once, a reader must not guess.
"""

from __future__ import annotations

from typing import NamedTuple

_I32, _STRUCT = 5, 12
_DATA_PAGE, _PLAIN, _RLE = 0, 0, 3
_NESTED = 100
_MAX_HEADER = 128


class BadHeader(ValueError):
    """These bytes are not the header of one of our data pages."""


class PageHeader(NamedTuple):
    """What a reader needs to know about a page.

    Attributes:
        size: bytes of the header itself; the page's body follows.
        body: bytes of the body, compressed.
        decoded: bytes of the body, decompressed.
        crc: CRC-32 of the compressed body.
        values: how many records the page holds.
    """

    size: int
    body: int
    decoded: int
    crc: int
    values: int


class _Cursor:
    def __init__(self, data: bytes | memoryview, at: int) -> None:
        self.data = data
        self.at = at
        self.end = min(len(data), at + _MAX_HEADER)

    def byte(self) -> int:
        if self.at >= self.end:
            raise BadHeader("page header is truncated or too long")
        value = self.data[self.at]
        self.at += 1
        return value

    def i32(self) -> int:
        raw = 0
        for shift in range(0, 35, 7):
            byte = self.byte()
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                if raw >= 1 << 32:
                    break
                return (raw >> 1) ^ -(raw & 1)
        raise BadHeader("page header holds a number that is too long")

    def fields(self, expected: dict[int, int]) -> dict[int, int]:
        """The i32 fields of a struct up to its stop byte; those of the nested struct count from 100."""
        found: dict[int, int] = {}
        last = 0
        while head := self.byte():
            field, kind = last + (head >> 4), head & 0x0F
            if field == last or expected.get(field) != kind:
                raise BadHeader(f"page header holds a field that is not ours: field={field} type={kind}")
            last = field
            if kind == _I32:
                found[field] = self.i32()
            else:
                found |= {_NESTED + key: value for key, value in self.fields(_DATA_PAGE_FIELDS).items()}
        return found


_PAGE_FIELDS = {1: _I32, 2: _I32, 3: _I32, 4: _I32, 5: _STRUCT}
_DATA_PAGE_FIELDS = {1: _I32, 2: _I32, 3: _I32, 4: _I32}


def parse(data: bytes | memoryview, at: int) -> PageHeader:
    """The header that begins at `data[at]`.

    Raises:
        BadHeader: it does not stand there, or describes a page that is not plain data with a checksum.
    """
    cursor = _Cursor(data, at)
    found = cursor.fields(_PAGE_FIELDS)
    try:
        kind, decoded, body, crc = found[1], found[2], found[3], found[4]
        count, *encodings = (found[_NESTED + field] for field in _DATA_PAGE_FIELDS)
    except KeyError as exc:
        raise BadHeader("page header lacks a field") from exc
    if kind != _DATA_PAGE or encodings != [_PLAIN, _RLE, _RLE]:  # values, then levels (of which there are none)
        raise BadHeader(f"page is not plain data: type={kind} encodings={encodings}")
    if decoded < 0 or body < 0 or count < 1:
        raise BadHeader(f"page has no sane size: decoded={decoded} body={body} count={count}")
    return PageHeader(size=cursor.at - at, body=body, decoded=decoded, crc=crc & 0xFFFFFFFF, values=count)
