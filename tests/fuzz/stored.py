"""The parsers of what is stored: payloads, segments, manifests, entries and rows."""

from __future__ import annotations

import hashlib

import msgspec

from headrace.batch import Batch, decode_frames, encode_frames
from headrace.errors import Damaged, NewerFormat
from headrace.manifest import invariants
from headrace.manifest import manifest as manifests
from headrace.manifest.manifest import Manifest
from headrace.objects.memory import MemoryObjects
from headrace.segment import descriptor, keypage, reader
from headrace.segment.descriptor import Segment
from headrace.tables.catalog import item_row, row_item
from headrace.tables.items import Item
from headrace.wal.entry import entry_item, item_entry
from tests.fuzz import samples
from tests.fuzz.samples import EDITED, FORGED, RAW, SOURCE, check_edits, edited, framed, mode, named, unframed


def frames(data: bytes) -> None:
    """Raw bytes, edits of a payload, or content in a right frame."""
    how, rest = mode(data)
    if how == EDITED:
        found = named(SOURCE, lambda: decode_frames(edited(samples.payload(), rest), SOURCE))
        assert found is None or found == samples.batch(), "wrong data"
        return
    given = rest if how == RAW else framed(rest)
    records = named(SOURCE, lambda: decode_frames(given, SOURCE))
    if records is not None:
        assert isinstance(records, Batch)
        assert decode_frames(encode_frames(records), SOURCE) == records
        assert how == RAW or len(unframed(encode_frames(records))) <= len(rest)  # a list of equal values is none


def page_header(data: bytes) -> None:
    """A page header that is accepted is of the one form that we write, and says where its body is."""
    at = data[0] % 4 if data else 0
    try:
        header = descriptor.parse_header(memoryview(data), at)
    except descriptor.BadHeader:
        return
    assert 0 < header.size <= len(data) - at and header.values >= 1
    assert header.body >= 0 and header.decoded >= 0 and 0 <= header.crc < 1 << 32
    assert descriptor.parse_header(data[at : at + header.size], 0) == header


def segment(data: bytes) -> None:
    """Edits of a segment's object: any read gives the records that were sealed. Or edits of its descriptor."""
    how, rest = mode(data)
    valid, objects = samples.segment(), MemoryObjects()
    start, count, size = (*rest[:3], 0, 0, 0)[:3]
    if how == FORGED:
        objects.put(valid.segment.key, valid.data)
        _read_by(edited(samples.segment_text(), rest[3:]), objects, count)
        return
    objects.put(valid.segment.key, edited(valid.data, rest[3:]))
    first = valid.segment.first_offset + start % valid.segment.count
    wanted = (first, count, 1 + size * 1024)
    found = named(valid.segment.key, lambda: reader.read_data(objects, valid.segment, *wanted))
    assert found is None or found == _expected(valid, *wanted), "wrong data"


def _expected(valid: samples.StoredSegment, first: int, max_records: int, max_bytes: int) -> list[bytes]:
    """Returns what a read must return, by the rule and nothing else."""
    found: list[bytes] = []
    for record in valid.content[first - valid.segment.first_offset :]:
        found.append(record.data)
        max_bytes -= len(record.data)
        if len(found) >= max_records or max_bytes <= 0:
            break
    return found


def _read_by(text: bytes, objects: MemoryObjects, count: int) -> None:
    """Reads by a descriptor that may lie: the reader's own checks must hold, whatever the manifest says."""
    try:
        lying = msgspec.json.decode(text, type=Segment)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if lying.count > 0:
        named(lying.key, lambda: reader.read_data(objects, lying, lying.first_offset, count, 1 << 20))


def key_page(data: bytes) -> None:
    """Edits of a key page, or a forged one whose hash the manifest holds."""
    how, rest = mode(data)
    valid = samples.key_page()
    if how == EDITED:
        check_edits(SOURCE, valid, rest, lambda changed: _key_page(changed, _sha256(valid), 40))
        return
    forged = framed(rest if how == RAW else edited(unframed(valid), rest))
    page = named(SOURCE, lambda: _key_page(forged, _sha256(forged), 40))
    if page is not None:
        assert isinstance(page, keypage.KeyPage)
        assert all(row < 40 for row in page.rows("key-1"))
        assert page.row_at(samples.NOW_MS) <= 40
        assert len(page.key_by_row()) == sum(run.count for run in page.times) == 40


def _key_page(data: bytes, sha256: str, count: int) -> keypage.KeyPage:
    return keypage.decode(data, sha256=sha256, count=count, source=SOURCE)


def manifest(data: bytes) -> None:
    """Raw bytes, edits of a generation's object, or of its text in a right frame."""
    how, rest = mode(data)
    if how == EDITED:
        changed = edited(samples.manifest_object(), rest)
        found = named(SOURCE, lambda: manifests.decode(changed, SOURCE))
        assert found is None or found == samples.manifest(), "wrong data"
        return
    given = rest if how == RAW else framed(edited(unframed(samples.manifest_object()), rest))
    decoded = named(SOURCE, lambda: manifests.decode(given, SOURCE))
    if decoded is not None:
        assert isinstance(decoded, Manifest)
        assert manifests.decode(manifests.encode(decoded), SOURCE) == decoded
        named(f"{decoded.log_id}/{decoded.generation}", lambda: invariants.check_whole(decoded))


def manifest_page(data: bytes) -> None:
    """Edits of a sealed page's object, or a forged one whose hash the manifest holds."""
    how, rest = mode(data)
    page, valid = samples.manifest_page()
    if how == EDITED:
        check_edits(page.key, valid, rest, lambda changed: manifests.decode_page(changed, page))
        return
    forged = framed(rest if how == RAW else edited(unframed(valid), rest))
    lying = msgspec.structs.replace(page, sha256=_sha256(forged))
    segments = named(page.key, lambda: manifests.decode_page(forged, lying))
    if segments is not None:
        assert isinstance(segments, tuple) and len(segments) == page.count
        assert segments[0].number == page.first_number and segments[-1].end_offset == page.end_offset


def entry(data: bytes) -> None:
    """An item of the write-ahead log, with attributes that the input replaces."""
    item = _changed(samples.item(), data)
    try:
        found = item_entry(item)
    except (Damaged, NewerFormat) as exc:
        assert str(item.get("log_id")) in str(exc) and str(item.get("slot")) in str(exc)
        return
    assert item_entry(entry_item(found)) == found


def row(data: bytes) -> None:
    """A catalog row, with attributes that the input replaces."""
    item = _changed(samples.row(), data)
    try:
        found = item_row(item)
    except (Damaged, NewerFormat) as exc:
        assert str(item.get("bucket")) in str(exc) and str(item.get("name")) in str(exc)
        return
    assert item_row(row_item(found)) == found


def _changed(item: Item, data: bytes) -> Item:
    """Changes an item and returns it: each line `NAME TYPE VALUE` replaces an attribute, or without a type removes
    it.
    """
    for line in data.split(b"\n"):
        name, _, typed = line.partition(b" ")
        kind, _, value = typed.partition(b" ")
        attribute, type_ = name.decode("latin-1"), kind.decode("latin-1")
        if type_ == "":
            item.pop(attribute, None)
        elif type_ in ("S", "N"):
            item[attribute] = {type_: value.decode("utf-8", "replace")}
        elif type_ in ("B", "BOOL"):
            item[attribute] = {type_: value if type_ == "B" else value == b"1"}
    return item


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
