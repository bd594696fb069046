"""A manifest generation, as a value.

The newest segments stand inline in `open_page`; each time it holds `PAGE_SEGMENTS` of them they leave as one immutable
page object, so that a generation's size does not grow with the log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

import msgspec

from headrace.errors import Damaged
from headrace.objects import packed
from headrace.segment.descriptor import Segment
from headrace.wal.state import Entry, LogConfig, LogState, decode_extension

VERSION = 1
PAGE_SEGMENTS = 256


class ManifestPage(msgspec.Struct, frozen=True):
    """A sealed page of descriptors.

    Attributes:
        key: its object.
        sha256: of the object, hex.
        first_number, count: the segments in it.
        first_offset, end_offset: the records in them.
        max_time_ms: append time of the last record.
    """

    key: str
    sha256: str
    first_number: int
    count: int
    first_offset: int
    end_offset: int
    max_time_ms: int


class Replaced(msgspec.Struct, frozen=True):
    """A segment that a merged one replaced: its objects stay a while, for readers that know an older generation.

    Attributes:
        key: of the segment's object; its key page is beside it.
        generation: the first one without the segment.
        at_ms: when that was made.
    """

    key: str
    generation: int
    at_ms: int


class Manifest(msgspec.Struct, frozen=True):
    """One generation: everything published of a log, and the log's full state as of its end slot.

    Attributes:
        generation: from 1 on, without gaps.
        end_slot: slot after the last entry folded in: entries below it are published.
        last_slot, last_id, last_committed_ms: the last entry folded in; joins the manifest to the tail.
        end_offset: offset after the last published record.
        sealed_bytes: bytes of record data published (this log's own).
        state: the log's state as of `end_slot`, so that trimmed control entries are not forgotten.
        created_ms: when the generation was made.
        sealed_ms: when the end was published, if generations that merged came after it; else 0 (`end_published_ms`).
        merged_away: how many segments more were ever sealed than there are now. `sealed_count` never falls.
        replaced: segments that are not part of the log any more, and whose objects may still be read.
    """

    version: int
    log_id: str
    generation: int
    config: LogConfig
    end_slot: int
    last_slot: int
    last_id: str
    last_committed_ms: int
    end_offset: int
    sealed_bytes: int
    state: LogState
    created_ms: int
    segment_count: int = 0
    pages: tuple[ManifestPage, ...] = ()
    open_page: tuple[Segment, ...] = ()
    sealed_ms: int = 0
    merged_away: int = 0
    replaced: tuple[Replaced, ...] = ()

    @property
    def end_published_ms(self) -> int:
        """When the newest generation was made that published something."""
        return self.sealed_ms or self.created_ms

    @property
    def sealed_count(self) -> int:
        """How many segments were ever sealed: the number in the key of the next one."""
        return self.segment_count + self.merged_away


def first(*, log_id: str, config: LogConfig, segments: Sequence[Segment], last_entry: Entry, now_ms: int) -> Manifest:
    """Generation 1: `successor` of nothing."""
    return successor(
        None,
        log_id=log_id,
        config=config,
        segments=segments,
        last_entry=last_entry,
        sealed_page=None,
        now_ms=now_ms,
    )


def successor(
    manifest: Manifest | None,
    *,
    log_id: str,
    config: LogConfig,
    segments: Sequence[Segment],
    last_entry: Entry,
    sealed_page: ManifestPage | None,
    now_ms: int,
    forgotten: Collection[str] = (),
) -> Manifest:
    """Returns the generation after `manifest`, with `segments` added and everything up to `last_entry` folded in.

    Args:
        manifest: the newest generation; None before the first one.
        segments: what was sealed since, ascending; none if only control entries were folded in.
        last_entry: the last entry folded in; its state becomes the manifest's.
        sealed_page: the page that took over `full_page(manifest)`, if that was not None.
        now_ms: the server's clock.
        forgotten: keys of replaced segments whose objects are removed, so that they need not be named on.

    It computes and does not judge: `headrace.manifest.invariants.check` does, before the result is published.
    """
    open_page = manifest.open_page if manifest else ()
    replaced = manifest.replaced if manifest else ()
    pages = manifest.pages if manifest else ()
    if sealed_page is not None:
        open_page = open_page[sealed_page.count :]
        pages = (*pages, sealed_page)
    return Manifest(
        version=VERSION,
        log_id=log_id,
        generation=manifest.generation + 1 if manifest else 1,
        config=config,
        end_slot=last_entry.next_slot(deleting=True),
        last_slot=last_entry.slot,
        last_id=last_entry.id,
        last_committed_ms=last_entry.committed_ms,
        end_offset=last_entry.next_offset,
        sealed_bytes=(manifest.sealed_bytes if manifest else 0) + sum(s.payload_bytes for s in segments),
        state=last_entry.state,
        created_ms=now_ms,
        segment_count=(manifest.segment_count if manifest else 0) + len(segments),
        pages=pages,
        open_page=(*open_page, *segments),
        merged_away=manifest.merged_away if manifest else 0,
        replaced=tuple(one for one in replaced if one.key not in forgotten),
    )


def full_page(manifest: Manifest) -> tuple[Segment, ...] | None:
    """Returns the segments that must leave the open page with the next generation; None while there is room.

    Put `encode_page` of them under a new key first, then give `describe_page` of that object to `successor`.
    """
    return manifest.open_page[:PAGE_SEGMENTS] if len(manifest.open_page) >= PAGE_SEGMENTS else None


def encode(manifest: Manifest) -> bytes:
    """Returns the object of a generation. Equal manifests give equal bytes."""
    return packed.encode(manifest)


def decode(data: bytes, source: str) -> Manifest:
    """Returns the generation in an object.

    Args:
        data: what `encode` made.
        source: the object's key, for the error.

    Raises:
        Damaged: truncated, altered, or of an unknown version.
    """
    manifest = packed.decode(data, Manifest, source, decode_extension)
    if manifest.version != VERSION:
        raise Damaged(f"manifest is of an unknown version: object={source} version={manifest.version}")
    return manifest


def encode_page(segments: tuple[Segment, ...]) -> bytes:
    """Returns the object of a sealed page."""
    return packed.encode(_Page(version=VERSION, segments=segments))


def describe_page(key: str, data: bytes, segments: tuple[Segment, ...]) -> ManifestPage:
    """Returns what a manifest says of the page object `data`, made by `encode_page(segments)`, put under `key`."""
    return ManifestPage(
        key=key,
        sha256=hashlib.sha256(data).hexdigest(),
        first_number=segments[0].number,
        count=len(segments),
        first_offset=segments[0].first_offset,
        end_offset=segments[-1].end_offset,
        max_time_ms=segments[-1].max_time_ms,
    )


def decode_page(data: bytes, page: ManifestPage) -> tuple[Segment, ...]:
    """Returns the segments in the object of `page`.

    Raises:
        Damaged: it is not the object that was published.
    """
    found = hashlib.sha256(data).hexdigest()
    if found != page.sha256:
        raise Damaged(f"page is not the one published: object={page.key} expected={page.sha256} found={found}")
    value = packed.decode(data, _Page, page.key)
    segments = value.segments
    if value.version != VERSION or not segments or describe_page(page.key, data, segments) != page:
        raise Damaged(f"page is not what the manifest says: object={page.key} version={value.version}")
    return segments


class _Page(msgspec.Struct, frozen=True):
    version: int
    segments: tuple[Segment, ...]
