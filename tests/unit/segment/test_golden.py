"""Objects written by earlier builds stay readable. The files in `golden/` are never written again."""

from __future__ import annotations

import struct
from pathlib import Path

import msgspec
import pytest

import emr_jobs.segments
from headrace.objects import keys, packed
from headrace.objects.memory import MemoryObjects
from headrace.segment import keypage
from headrace.segment.descriptor import Segment
from headrace.segment.reader import find_time, read_data, rows_of_key
from tests.support.builders import batch_of
from tests.unit.segment.samples import START_MS, mixed, records

GOLDEN = Path(__file__).parent / "golden"


def test_a_segment_of_version_1_is_read() -> None:
    segment = msgspec.json.decode((GOLDEN / "v1.descriptor.json").read_bytes(), type=Segment)
    objects = MemoryObjects()
    objects.put(segment.key, (GOLDEN / "v1.parquet").read_bytes())
    objects.put(keys.segment_keys(segment.key), (GOLDEN / "v1.keys.zst").read_bytes())
    content = mixed(96, first=1000)
    assert read_data(objects, segment, 1000, 1 << 40, 1 << 40) == [record.data for record in content]
    assert rows_of_key(objects, segment, "key-4") == [r.offset for r in content if r.key == "key-4"]
    assert find_time(objects, segment, START_MS + 5) == 1015


@pytest.mark.parametrize("has_meta", [False, True])
def test_a_key_page_has_the_documented_bytes(has_meta: bool) -> None:
    def numbers(*values: int) -> bytes:
        return struct.pack(f"<{len(values)}I", *values)

    content = [
        one._replace(
            data=b"x" * row,
            node="n" if row < 2 else None,
            hops=row % 2,
            meta=b"m" * row or None if has_meta else None,
        )
        for row, one in enumerate(records([b""] * 5))
    ]
    assert packed.unframe(keypage.encode(batch_of(content)), "k") == (
        b"\x01"
        + numbers(5, 2, 5, 1, 3)  # rows, runs of times, hops, nodes, keys
        + numbers(0, 1, 2, 3, 4)  # sizes
        + numbers(3, 2) + struct.pack("<2Q", START_MS, START_MS + 1)
        + b"\0\1\0\1\0"
        + numbers(1) + b"n" + numbers(1, 1, 0, 0, 0)
        + numbers(5, 5, 5) + b"key-1key-2key-4"
        + numbers(1, 1, 1) + numbers(1) + numbers(2) + numbers(4)
        + (numbers(0, 1, 2, 3, 4) if has_meta else b"")  # sizes of meta
    )  # fmt: skip


def test_a_segment_with_every_column_is_read_and_described() -> None:
    content = [
        one._replace(
            node=f"n{row % 2}" if row % 3 else None, meta=b'{"r":%d}' % row if row % 2 else None, hops=row % 3
        )
        for row, one in enumerate(mixed(96, first=1000))
    ]
    segment = msgspec.json.decode((GOLDEN / "v1.full.descriptor.json").read_bytes(), type=Segment)
    objects = MemoryObjects()
    objects.put(segment.key, (GOLDEN / "v1.full.parquet").read_bytes())
    objects.put(keys.segment_keys(segment.key), (GOLDEN / "v1.full.keys.zst").read_bytes())
    assert read_data(objects, segment, 1000, 1 << 40, 1 << 40) == [record.data for record in content]
    assert emr_jobs.segments.read_records(objects, segment) == batch_of(content)
    data = objects.get(keys.segment_keys(segment.key))
    page = keypage.decode(data, sha256=segment.keys_sha256, count=96, source="k")
    assert [page.nodes[code - 1] if code else None for code in page.node_codes] == [one.node for one in content]
    assert page.hops == [one.hops for one in content]
    assert list(page.sizes) == [len(one.data) for one in content]
    assert page.key_by_row() == [one.key for one in content]
