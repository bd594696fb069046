"""Altered objects: a read raises `Damaged` and names the object, or returns what was written. Never anything else."""

from __future__ import annotations

import hashlib
import random
import struct
import tracemalloc
import zlib

import msgspec
import pytest
import zstandard

from headrace.errors import Damaged, NewerFormat
from headrace.objects import keys, packed
from headrace.objects.memory import MemoryObjects
from headrace.segment import descriptor, keypage
from headrace.segment.descriptor import PageIndex, Segment
from headrace.segment.reader import find_time, read_data, rows_of_key
from tests.support.builders import batch_of
from tests.unit.segment.samples import mixed, stored

ALL = 1 << 40


def test_every_flipped_bit_of_the_data_pages_is_noticed() -> None:
    content, objects = mixed(60), MemoryObjects()
    segment = stored(content, objects)
    whole = objects.get(segment.key)
    start, end = segment.pages.start, segment.pages.start + sum(segment.pages.sizes)
    choose = random.Random(1)
    places = {start + offset for offset in range(40)} | {choose.randrange(start, end) for _ in range(1500)}
    for at in places:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << choose.randrange(8)
        objects.put(segment.key, bytes(damaged))
        with pytest.raises(Damaged, match=segment.key):
            read_data(objects, segment, 0, ALL, ALL)


def test_a_truncated_or_missing_segment_is_damaged() -> None:
    content, objects = mixed(200), MemoryObjects()
    segment = stored(content, objects)
    whole = objects.get(segment.key)
    end = segment.pages.start + sum(segment.pages.sizes)
    for size in (0, 1, segment.pages.start, segment.pages.start + 10, end - 1):
        objects.put(segment.key, whole[:size])
        with pytest.raises(Damaged, match=segment.key):
            read_data(objects, segment, 0, ALL, ALL)
    objects.delete([segment.key])
    with pytest.raises(Damaged, match="missing"):
        read_data(objects, segment, 0, 1, 1)


def test_another_segment_under_the_key_is_noticed() -> None:
    objects = MemoryObjects()
    segment = stored(mixed(200), objects)
    stored(mixed(201)[1:], objects)
    with pytest.raises(Damaged, match=segment.key):
        read_data(objects, segment, 0, ALL, ALL)


def test_a_page_index_that_contradicts_itself_is_damaged() -> None:
    objects = MemoryObjects()
    segment = stored(mixed(200), objects)
    pages = segment.pages
    for wrong in (
        PageIndex(pages.start, pages.sizes[1:], pages.counts, pages.payload),
        PageIndex(pages.start, pages.sizes, (pages.counts[0] + 1, *pages.counts[1:]), pages.payload),
        PageIndex(pages.start, (), (), ()),
    ):
        with pytest.raises(Damaged, match=segment.key):
            read_data(objects, msgspec.structs.replace(segment, pages=wrong), 0, ALL, ALL)


def _forged(body: bytes, *, decoded: int, payload: int, count: int) -> tuple[MemoryObjects, Segment]:
    """Returns a segment with a page whose checksum is right and whose body lies: `payload` and `count` are what the
    manifest says.
    """

    def number(value: int) -> bytes:
        raw, out = (value << 1) ^ (value >> 63), b""
        while raw >= 0x80:
            out, raw = out + bytes([raw & 0x7F | 0x80]), raw >> 7
        return out + bytes([raw])

    crc = struct.unpack("<i", struct.pack("<I", zlib.crc32(body)))[0]
    sizes = b"\x15\x00\x15" + number(decoded) + b"\x15" + number(len(body)) + b"\x15" + number(crc)
    page = sizes + b"\x1c\x15" + number(count) + b"\x15\x00\x15\x06\x15\x06\x00\x00" + body
    objects = MemoryObjects()
    segment = stored(mixed(1), objects)
    objects.put(segment.key, b"PAR1" + page)
    index = PageIndex(start=4, sizes=(len(page),), counts=(count,), payload=(payload,))
    return objects, msgspec.structs.replace(segment, count=count, pages=index)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _frame(raw: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(raw)


def test_a_forged_page_that_is_right_is_read() -> None:
    raw = b"\x03\x00\x00\x00abc"
    objects, segment = _forged(_frame(raw), decoded=7, payload=3, count=1)
    assert read_data(objects, segment, 0, 1, 1) == [b"abc"]


@pytest.mark.parametrize(
    ("raw", "payload", "count"),
    [
        (b"\x04\x00\x00\x00abc", 3, 1),  # longer than the page
        (b"\x02\x00\x00\x00abc", 3, 1),  # bytes left over
        (b"\xff\xff\xff\xffabc", 3, 1),  # four gigabytes
        (b"\x07\x00\x00\x00abcdefg\x00\x00\x00\x00", 3, 3),  # the second length is in the first record
    ],
)
def test_a_page_whose_lengths_lie_is_damaged(raw: bytes, payload: int, count: int) -> None:
    objects, segment = _forged(_frame(raw), decoded=payload + 4 * count, payload=payload, count=count)
    with pytest.raises(Damaged, match=segment.key):
        read_data(objects, segment, 0, ALL, ALL)


def test_a_page_that_would_grow_beyond_its_size_is_refused_before_it_does() -> None:
    bomb = _frame(bytes(1 << 26))
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 20))
    for body in (bomb, unsized, b"no frame at all", _frame(b"\x03\x00\x00\x00abc") + b"tail"):
        objects, segment = _forged(body, decoded=7, payload=3, count=1)
        tracemalloc.start()
        try:
            with pytest.raises(Damaged, match=segment.key):
                read_data(objects, segment, 0, ALL, ALL)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 1 << 20


def test_an_altered_or_missing_key_page_is_damaged() -> None:
    objects = MemoryObjects()
    segment = stored(mixed(100), objects)
    name = keys.segment_keys(segment.key)
    whole = objects.get(name)
    middle = segment.min_time_ms + 1
    for at in range(len(whole)):
        objects.put(name, whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(Damaged, match=name):
            rows_of_key(objects, segment, "key-1")
        objects.put(name, whole[:at])
        with pytest.raises(Damaged, match=name):
            find_time(objects, segment, middle)
    objects.delete([name])
    with pytest.raises(Damaged, match="missing"):
        find_time(objects, segment, middle)


def test_a_key_page_of_another_version_or_segment_is_damaged() -> None:
    data = keypage.encode(batch_of(mixed(9)))
    later = packed.frame(b"\x02" + packed.unframe(data, "k")[1:])
    with pytest.raises(NewerFormat, match="version"):
        keypage.decode(later, sha256=_sha256(later), count=9, source="k")
    with pytest.raises(Damaged, match="rows"):
        keypage.decode(data, sha256=_sha256(data), count=8, source="k")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00",  # no fields
        b"\x15\x00",  # ends early
        b"\x15\xff\xff\xff\xff\xff\x01",  # a number of six bytes
        b"\x15\xff\xff\xff\xff\x7f",  # more than 32 bits
        b"\x05\x00",  # field id in the long form
        b"\x18\x00\x00",  # a string where the page type belongs
        b"\x65\x00\x00",  # a field beyond ours
        b"\x15\x04\x15\x02\x15\x02\x15\x02\x1c\x15\x02\x15\x00\x00\x00",  # a dictionary page
        b"\x15\x00\x15\x02\x15\x02\x15\x02\x1c\x15\x02\x15\x10\x00\x00",  # dictionary encoding
        b"\x15\x00\x15\x02\x15\x02\x15\x02\x1c\x15\x00\x15\x00\x00\x00",  # no values
        b"\x15\x00\x15\x02\x15\x02\x15\x02\x00",  # no data page part
    ],
)
def test_what_is_no_page_header_of_ours_is_refused(raw: bytes) -> None:
    with pytest.raises(descriptor.BadHeader):
        descriptor.parse_header(raw, 0)
