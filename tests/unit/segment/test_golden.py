"""Objects written by earlier builds stay readable. The files in `golden/` are never written again."""

from __future__ import annotations

from pathlib import Path

import msgspec
import zstandard

from headrace.objects import keys
from headrace.objects.memory import MemoryObjects
from headrace.segment import keypage
from headrace.segment.descriptor import Segment
from headrace.segment.reader import find_time, read_data, rows_of_key
from tests.support.builders import batch_of
from tests.unit.segment.samples import START_MS, mixed

GOLDEN = Path(__file__).parent / "golden"


def test_a_segment_of_version_1_is_read() -> None:
    segment = msgspec.json.decode((GOLDEN / "v1.descriptor.json").read_bytes(), type=Segment)
    objects = MemoryObjects()
    objects.put(segment.key, (GOLDEN / "v1.parquet").read_bytes())
    objects.put(keys.segment_keys(segment.key), (GOLDEN / "v1.keys.json.zst").read_bytes())
    content = mixed(96, first=1000)
    assert read_data(objects, segment, 1000, 1 << 40, 1 << 40) == [record.data for record in content]
    assert rows_of_key(objects, segment, "key-4") == [r.offset for r in content if r.key == "key-4"]
    assert find_time(objects, segment, START_MS + 5) == 1015


def test_a_key_page_has_the_documented_text() -> None:
    raw = zstandard.ZstdDecompressor().decompress(keypage.encode(batch_of(mixed(8))))
    runs = f"[[3,{START_MS}],[3,{START_MS + 1}],[2,{START_MS + 2}]]".encode()
    named = b'[["key-0",[5]],["key-1",[1]],["key-2",[2,5]],["key-4",[4]]]'
    assert raw == b'{"version":1,"keys":' + named + b',"times":' + runs + b"}"
