"""What earlier builds wrote outside of segments and manifests stays readable, and is still written alike.

The files in `golden/` are never written again. Items of DynamoDB stand there as its JSON, binary values in base64.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from headrace import offset
from headrace.errors import Damaged
from headrace.manifest.marks import Description, Tombstone
from headrace.record import NewRecord, decode_frames, encode_frames
from headrace.tables.catalog import Row, item_row, row_item
from headrace.tables.items import Item
from headrace.tables.producers import producer_item
from headrace.wal.entry import entry_item, item_entry
from headrace.wal.state import Entry, Producer
from tests.unit.formats import samples

GOLDEN = Path(__file__).parent / "golden"


def _item(name: str) -> Item:
    def typed(value: dict[str, Any]) -> dict[str, Any]:
        return {"B": base64.b64decode(value["B"])} if "B" in value else value

    return {attribute: typed(value) for attribute, value in json.loads((GOLDEN / name).read_text()).items()}


def test_frames_of_version_1_are_read() -> None:
    assert decode_frames((GOLDEN / "v1.frames.zst").read_bytes(), "golden") == samples.RECORDS


def test_frames_have_the_documented_bytes() -> None:
    raw = zstandard.ZstdDecompressor().decompress(encode_frames(samples.RECORDS))
    assert raw == (
        b"\x01"  # version
        b"\x05\x00\x00\x00\xff\xfffirst"
        b"\x00\x00\x00\x00\x06\x00orders"
        b"\x00\x01\x00\x00\x02\x00\xc3\xa9" + bytes(range(256)) + b'\x0a\x00\x00\x00\x00\x00{"n": 1.0}'
    )
    frame = zstandard.get_frame_parameters(encode_frames(samples.RECORDS))
    assert frame.has_checksum and frame.content_size == len(raw)


def test_truncated_frames_are_damaged() -> None:
    whole = (GOLDEN / "v1.frames.zst").read_bytes()
    for size in range(len(whole)):
        assert _read_or_refused(whole[:size]) is None


def test_flipped_bits_of_frames_are_noticed() -> None:
    whole = (GOLDEN / "v1.frames.zst").read_bytes()
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        assert _read_or_refused(bytes(flipped)) in (None, samples.RECORDS)
        flipped[4] ^= 4  # and the bit that says that there is a checksum
        assert _read_or_refused(bytes(flipped)) in (None, samples.RECORDS)


def _read_or_refused(payload: bytes) -> list[NewRecord] | None:
    try:
        return decode_frames(payload, "golden")
    except Damaged as exc:
        assert "golden" in str(exc)
        return None


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("v1.entry.json", samples.ENTRY),
        ("v1.entry.control.json", samples.CONTROL),
        ("v1.entry.spilled.json", samples.SPILLED),
    ],
)
def test_an_entry_of_version_1_is_read_and_written_alike(name: str, entry: Entry) -> None:
    assert item_entry(_item(name)) == entry
    assert entry_item(entry) == _item(name)


@pytest.mark.parametrize("attribute", ["log_id", "slot", "v", "kind", "count", "ids", "state", "committed"])
def test_an_entry_without_an_attribute_is_damaged(attribute: str) -> None:
    item = _item("v1.entry.json")
    del item[attribute]
    with pytest.raises(Damaged, match="slot="):
        item_entry(item)


def test_an_entry_of_another_version_is_damaged() -> None:
    with pytest.raises(Damaged, match=samples.LOG):
        item_entry({**_item("v1.entry.json"), "v": {"N": "2"}})


@pytest.mark.parametrize(("name", "row"), [("v1.row.json", samples.ROW), ("v1.row.living.json", samples.LIVING_ROW)])
def test_a_catalog_row_is_read_and_written_alike(name: str, row: Row) -> None:
    assert item_row(_item(name)) == row
    assert row_item(row) == _item(name)


def test_a_producer_row_has_the_documented_attributes() -> None:
    expected = {"log_id": {"S": samples.LOG}, "producer": {"S": "p"}, "epoch": {"N": "1"}, "seq": {"N": "2"}}
    assert producer_item(samples.LOG, Producer("p", 1, 2)) == expected


def test_a_log_description_of_version_1_is_read_and_written_alike() -> None:
    data = (GOLDEN / "v1.log.json").read_bytes()
    assert msgspec.json.decode(data, type=Description) == samples.DESCRIPTION
    assert msgspec.json.encode(samples.DESCRIPTION) == data


def test_a_tombstone_of_version_1_is_read_and_written_alike() -> None:
    data = (GOLDEN / "v1.deleted.json").read_bytes()
    assert msgspec.json.decode(data, type=Tombstone) == samples.TOMBSTONE
    assert msgspec.json.encode(samples.TOMBSTONE) == data


@pytest.mark.parametrize(
    ("text", "incarnation", "position"),
    [
        ("0" * 26, 0, 0),
        ("0000000000000000003G000000", 0, 7),
        ("000000R00000000000W0000000", 3, 56),
        ("ZZZZZZZZZZZZZZZZZZZG000000", 2**32 - 1, 2**64 - 1),
    ],
)
def test_a_cursor_has_the_documented_text(text: str, incarnation: int, position: int) -> None:
    assert offset.encode(incarnation, position) == text
    assert offset.decode(text) == (incarnation, position)
