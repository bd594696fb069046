"""What earlier builds wrote outside of segments and manifests stays readable, and is still written alike.

The files in `golden/` are never written again. Items of DynamoDB are there as its JSON, binary values in base64.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import zstandard
from msgspec.structs import replace

from headrace.batch import Batch, decode_frames, encode_frames
from headrace.errors import Damaged
from headrace.manifest.manifest import Description, Tombstone, decode, encode
from headrace.objects import packed
from headrace.queues import events
from headrace.queues.ledger import Snapshot, decode_snapshot, save
from headrace.tables.catalog import Row, item_row, row_item
from headrace.tables.items import Item
from headrace.tables.producers import Key, PutKey, producer_item
from headrace.topics.removed import Page, Root
from headrace.topics.runs import Runs
from headrace.wal.entry import entry_item, item_entry
from headrace.wal.extension import Extension
from headrace.wal.state import Entry, Producer, decode_cursor, encode_cursor
from tests.unit.formats import samples
from tests.unit.manifest.samples import grown

GOLDEN = Path(__file__).parent / "golden"


def _item(name: str) -> Item:
    def typed(value: dict[str, Any]) -> dict[str, Any]:
        return {"B": base64.b64decode(value["B"])} if "B" in value else value

    return {attribute: typed(value) for attribute, value in json.loads((GOLDEN / name).read_text()).items()}


@pytest.mark.parametrize(
    ("name", "batch"), [("", samples.RECORDS), (".listed", samples.LISTED), (".constant", samples.CONSTANT)]
)
def test_frames_of_version_1_are_read(name: str, batch: Batch) -> None:
    assert decode_frames((GOLDEN / f"v1.frames{name}.zst").read_bytes(), "golden") == batch


def test_frames_have_the_documented_bytes() -> None:
    def raw(batch: Batch) -> bytes:
        return zstandard.ZstdDecompressor().decompress(encode_frames(batch))

    assert raw(Batch.of([b"first", b""])) == b"\x01\x00\x02\0\0\0\x05\0\0\0\0\0\0\0first"
    assert raw(samples.LISTED) == (
        b"\x01\xaa\x02\0\0\0"  # version, four lists, count
        b"\x01\0\0\0\xff\xff\xff\xffk"  # keys
        b"\xff\xff\xff\xff\x03\0\0\0n\xc3\xa9"  # nodes
        b'\x07\0\0\0\xff\xff\xff\xff{"a":1}'  # meta
        b"\x00\x03"  # hops
        b"\x01\0\0\0\x02\0\0\0abc"  # sizes, data
    )
    assert raw(samples.CONSTANT) == (
        b"\x01\x55\x02\0\0\0"
        b"\x01\0\0\0k"
        b"\x01\0\0\0n"
        b"\x02\0\0\0{}"
        b"\x02"
        b"\x01\0\0\0\x02\0\0\0abc"
    )  # fmt: skip
    frame = zstandard.get_frame_parameters(encode_frames(samples.LISTED))
    assert frame.has_checksum and frame.content_size == len(raw(samples.LISTED))


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


def _read_or_refused(payload: bytes) -> Batch | None:
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


def test_an_extension_of_an_unknown_surface_is_written_as_it_was_read() -> None:
    text = '{"next_offset":75,"extension":{"kind":"unheard","of":[1.5,{"by":null}]}}'
    item = {**_item("v1.entry.spilled.json"), "state": {"S": text}}
    entry = item_entry(item)
    assert isinstance(entry.state.extension, Extension) and not entry.state.is_final
    assert entry_item(entry) == item
    manifest = replace(grown(None, 5), state=replace(entry.state, next_offset=5))
    assert decode(encode(manifest), "m") == manifest


@pytest.mark.parametrize("extension", ['"stream"', "[]", '{"kind":"stream","closed":1}'])
def test_an_extension_that_is_none_is_damaged(extension: str) -> None:
    with pytest.raises(Damaged, match="slot="):
        item_entry({**_item("v1.entry.json"), "state": {"S": f'{{"extension":{extension}}}'}})


@pytest.mark.parametrize("attribute", ["log_id", "slot", "v", "kind", "count", "ids", "state", "committed"])
def test_an_entry_without_an_attribute_is_damaged(attribute: str) -> None:
    item = _item("v1.entry.json")
    del item[attribute]
    with pytest.raises(Damaged, match="slot="):
        item_entry(item)


def test_an_entry_of_another_version_is_damaged() -> None:
    with pytest.raises(Damaged, match=samples.LOG):
        item_entry({**_item("v1.entry.json"), "v": {"N": "0"}})


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("v1.row.json", samples.ROW),
        ("v1.row.living.json", samples.LIVING_ROW),
        ("v1.row.companions.json", samples.PAIR_ROW),
    ],
)
def test_a_catalog_row_is_read_and_written_alike(name: str, row: Row) -> None:
    assert item_row(_item(name)) == row
    assert row_item(row) == _item(name)


def test_a_producer_row_has_the_documented_attributes() -> None:
    expected = {"log_id": {"S": samples.LOG}, "producer": {"S": "p"}, "epoch": {"N": "1"}, "seq": {"N": "2"}}
    assert producer_item(samples.LOG, Producer("p", 1, 2)) == expected


def test_a_key_row_has_the_documented_attributes() -> None:
    member = PutKey(samples.LOG, "d1", Key(3, 5, 1_700_000_000_999, "r1"), 7).member({"producers": "P"})
    assert member["Put"]["Item"] == {
        "log_id": {"S": samples.LOG},
        "producer": {"S": "key#d1"},
        "first": {"N": "3"},
        "end": {"N": "5"},
        "until_ms": {"N": "1700000000999"},
        "request": {"S": "r1"},
        "expires_at": {"N": "1700003600"},
    }


def test_removed_records_have_the_documented_bytes() -> None:
    root = Root([Page(1, "n1", 0, 400, 303, 3), Page(3, "n2", 400, 401, 1, 1)])
    raw = zstandard.ZstdDecompressor().decompress(root.encode())
    pages = [[1, "n1", 0, 400, 303, 3], [3, "n2", 400, 401, 1, 1]]
    assert msgspec.msgpack.decode(raw) == {"pages": pages, "version": 1}
    assert Root.decode((GOLDEN / "v1.removed.root.zst").read_bytes(), "golden") == root
    runs = Runs.of([(0, 2), (5, 6), (100, 400)])
    raw = zstandard.ZstdDecompressor().decompress(runs.encode())
    assert msgspec.msgpack.decode(raw) == {"steps": [0, 2, 3, 1, 94, 300], "version": 1}
    assert Runs.decode((GOLDEN / "v1.removed.zst").read_bytes(), "golden") == runs


def test_the_state_of_a_lease_log_is_read_and_written_alike() -> None:
    item = {**_item("v1.entry.spilled.json"), "state": {"S": (GOLDEN / "v1.leases.json").read_text()}}
    entry = item_entry(item)
    assert entry.state == samples.LEASE_STATE
    assert entry_item(entry) == item


def test_a_snapshot_of_leases_has_the_documented_bytes() -> None:
    data = packed.encode_msgpack(Snapshot("ab12", samples.PROJECTION))
    document = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(data))
    assert list(document) == ["digest", "projection", "version"]
    assert document["projection"][:7] == [1, samples.START_MS + 3, 7, 20, 8, 1, [9, 10, 12, 14]]
    golden = decode_snapshot((GOLDEN / "v1.snapshot.msgpack.zst").read_bytes(), "golden")
    assert (golden.digest, save(golden.projection)) == ("ab12", samples.PROJECTION)


def test_lease_events_have_the_documented_form() -> None:
    texts = (GOLDEN / "v1.events.jsonl").read_bytes().splitlines()
    found = [events.decode(text, "golden") for text in texts]
    assert [events.encode(event) for event in found] == texts
    assert [type(event) for event in found] == list(get_args(events.AnyEvent))
    assert found[7] == samples.JOIN
    assert events.chain("", texts[:2]) == "abcacad16e34d2097c"
    assert events.lease_id("c1", 7) == "lease_5a33ea4a2a69a07f"


def test_the_state_of_a_topic_is_read_and_written_alike() -> None:
    text = (GOLDEN / "v1.topic.json").read_text()
    item = {**_item("v1.entry.spilled.json"), "state": {"S": text}}
    entry = item_entry(item)
    assert entry.state == samples.TOPIC_STATE
    assert entry_item(entry) == item


@pytest.mark.parametrize(
    ("name", "description"), [("v1.log.json", samples.DESCRIPTION), ("v1.log.companion.json", samples.COMPANION)]
)
def test_a_log_description_of_version_1_is_read_and_written_alike(name: str, description: Description) -> None:
    data = (GOLDEN / name).read_bytes()
    assert msgspec.json.decode(data, type=Description) == description
    assert msgspec.json.encode(description) == data


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
    assert encode_cursor(incarnation, position) == text
    assert decode_cursor(text) == (incarnation, position)
