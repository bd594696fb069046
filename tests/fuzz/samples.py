"""Valid objects for the fuzzer to damage, and the two ways in which it does: edits of the bytes, and forged content."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import msgspec
import zstandard

from headrace.batch import Batch, Record, encode_frames
from headrace.errors import Damaged, NewerFormat
from headrace.manifest import manifest as manifests
from headrace.manifest.manifest import Manifest, ManifestPage
from headrace.objects.memory import MemoryObjects
from headrace.segment import keypage
from headrace.segment.descriptor import Segment
from headrace.streams.values import StreamState
from headrace.tables.catalog import Row, row_item
from headrace.tables.items import Item
from headrace.wal.entry import entry_item
from headrace.wal.state import Ancestor, DefinitionRef, Entry, ForkSource, LogConfig, LogState, Producer, TimeRun
from tests.support.builders import batch_of
from tests.unit.manifest.samples import controlled, grown
from tests.unit.segment.samples import mixed, records, stored

SOURCE = "logs/the-object"
MAX_EDITS = 16
LOG = "0123456789abcdef" * 2
NOW_MS = 1_700_000_000_000
RAW, EDITED, FORGED = range(3)


def mode(data: bytes) -> tuple[int, bytes]:
    """Returns one of three ways to use the rest of the data, and that rest."""
    return (data[0] % 3 if data else RAW), data[1:]


def edited(valid: bytes, edits: bytes) -> bytes:
    """`valid`, damaged: each three bytes of `edits` are a place and the bits to flip there; none cut the rest off."""
    out = bytearray(valid)
    for at in range(0, min(len(edits), 3 * MAX_EDITS) - 2, 3):
        place = int.from_bytes(edits[at : at + 2], "big") % (len(out) + 1)
        if edits[at + 2] and place < len(out):
            out[place] ^= edits[at + 2]
        else:
            del out[place:]
    return bytes(out)


def framed(content: bytes) -> bytes:
    """Returns an object that decompresses to `content`, with its size and a checksum that is right."""
    return zstandard.ZstdCompressor(level=1, write_checksum=True).compress(content)


def unframed(data: bytes) -> bytes:
    """Returns the text in a packed object."""
    return zstandard.ZstdDecompressor().decompress(data)


def named(source: str, decode: Callable[[], object]) -> object | None:
    """Returns what `decode` returns; None if it says that the object is damaged, and names it."""
    try:
        return decode()
    except (Damaged, NewerFormat) as exc:
        assert source in str(exc), f"does not name the object: {exc}"
        return None


def check_edits(source: str, valid: bytes, edits: bytes, decode: Callable[[bytes], object]) -> None:
    """Edits an object whose hash is known elsewhere: it is taken if it is the same, and only then."""
    changed = edited(valid, edits)
    found = named(source, lambda: decode(changed))
    assert (found is not None) == (changed == valid), "an altered object passes"


@cache
def batch() -> Batch:
    """Records of every shape, in more than one zstd block's worth of text."""
    many = [b'{"n":%d,"at":"%x"}' % (row, row * 7919 % 65521) for row in range(60)]
    return Batch.of(
        [b"first", b"", bytes(range(256)), *many],
        key=["orders", None, "é", *(f"key-{row % 5}" for row in range(60))],
        node="n",
        meta=[None, b"{}", None, *(b'{"row":%d}' % row for row in range(60))],
        hops=[row % 3 for row in range(63)],
    )


@cache
def payload() -> bytes:
    """Returns the payload that holds `batch()`."""
    return encode_frames(batch())


class StoredSegment(NamedTuple):
    """A segment of three pages, its object, and the records in it."""

    segment: Segment
    data: bytes
    content: list[Record]


@cache
def segment() -> StoredSegment:
    """Returns a segment like those the sealer writes, small."""
    content = records([(b"%03d," % row) * (row * 13 % 800) for row in range(96)], first=500)
    objects = MemoryObjects()
    descriptor = stored(content, objects)
    assert len(descriptor.pages.sizes) > 1
    return StoredSegment(descriptor, objects.get(descriptor.key), content)


@cache
def segment_text() -> bytes:
    """Returns the descriptor of `segment()` as it is in a manifest."""
    return msgspec.json.encode(segment().segment)


@cache
def key_page() -> bytes:
    """Returns the key page of 40 records."""
    return keypage.encode(batch_of(mixed(40)))


@cache
def manifest() -> Manifest:
    """Returns a generation with segments, inherited records and a closed state."""
    return controlled(grown(grown(None, 5, base=100), 2, 3, base=100), extension=StreamState(closed=True))


@cache
def manifest_object() -> bytes:
    """Returns the object of `manifest()`."""
    return manifests.encode(manifest())


@cache
def manifest_page() -> tuple[ManifestPage, bytes]:
    """Returns a sealed page as a manifest describes it, and its object."""
    segments = grown(None, 1, 2, 3).open_page
    data = manifests.encode_page(segments)
    return manifests.describe_page("pages/the-page", data, segments), data


@cache
def config() -> LogConfig:
    """Returns a configuration with every field in use."""
    source = ForkSource("orders", LOG[::-1], offset=7, sub_offset=2, own_expiry=True)
    lineage = (Ancestor(LOG[::-1], 1, 7),)
    definition = DefinitionRef(1, "r1", 2, "metrics")
    return LogConfig(
        "streams",
        "é/b",
        3,
        "application/json",
        NOW_MS,
        ttl_ms=60_000,
        lineage=lineage,
        source=source,
        definition=definition,
    )


def item() -> Item:
    """Returns the item of an entry with every attribute that one can have."""
    state = LogState(
        next_offset=70,
        append_time_ms=NOW_MS,
        touched_ms=NOW_MS - 5,
        total_bytes=1234,
        ended="deleted",
        forks=2,
        holds_source=True,
        producers=(Producer("p", 1, 2), Producer("é", 0, 0)),
        producers_spilled=True,
        definition=DefinitionRef(3, "n1", 2, "evlog"),
        extension=StreamState("s1", closed=True),
    )
    entry = Entry(
        log_id=LOG,
        slot=7 * 10**9,
        kind="data",
        state=state,
        request_ids=("r1", "r2"),
        committed_ms=NOW_MS + 1,
        prev_slot=6 * 10**9 + 4,
        prev_id="r0",
        prev_committed_ms=NOW_MS - 9,
        count=63,
        payload=payload(),
        times=(TimeRun(60, NOW_MS - 1), TimeRun(3, NOW_MS)),
        config=config(),
    )
    return entry_item(entry)


def row() -> Item:
    """Returns the item of a catalog row."""
    return row_item(Row(LOG, config(), ended=True, deadline_ms=NOW_MS + 60_000, label="evlog"))
