"""A manifest generation as a value, and the pure functions that compute the next one.

The newest segments are listed in `open_page`. Each time it has `PAGE_SEGMENTS` of them, they move to an immutable page
object, so that a generation's size does not grow with the log.

It also has the two small objects beside a log's manifests, in plain JSON: `log.json` describes the log, `deleted.json`
says that it is gone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import Literal

import msgspec

from headrace.errors import Damaged
from headrace.objects import packed
from headrace.segment.descriptor import Segment
from headrace.wal.state import Entry, LogConfig, LogState, decode_extension

VERSION = 1
PAGE_SEGMENTS = 256


class ManifestPage(msgspec.Struct, frozen=True):
    """A reference to a sealed page, an object with segment descriptors.

    Attributes:
        key: key of the page object.
        sha256: hash of the object, in hex.
        first_number, count: the range of segments in it.
        first_offset, end_offset: the range of records in those segments.
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
    """A segment that a merged one has replaced. Its objects are kept for a while, for readers with an older generation.

    Attributes:
        key: key of the segment's object, beside which its key page is.
        generation: the first generation without the segment.
        at_ms: when that generation was created, in epoch milliseconds.
    """

    key: str
    generation: int
    at_ms: int


class Manifest(msgspec.Struct, frozen=True):
    """One generation: the list of everything published of a log, and the log's full state as of the end slot.

    Attributes:
        generation: number from 1 on, without gaps.
        end_slot: the slot after the last published entry.
        last_slot, last_id, last_committed_ms: the last published entry, where the manifest joins the tail.
        end_offset: offset after the last published record.
        sealed_bytes: bytes of record data published (this log's own).
        state: the log's state as of `end_slot`, so that trimmed control entries are not forgotten.
        created_ms: when the generation was created, in epoch milliseconds.
        sealed_ms: when the end was published, if merging generations came after that; else 0 (see `end_published_ms`).
        merged_away: number of segments by which merging has reduced the list, so that `sealed_count` never falls.
        replaced: segments that are no longer part of the log, but whose objects may still be read.
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
        """When the newest generation that published new entries was created, in epoch milliseconds."""
        return self.sealed_ms or self.created_ms

    @property
    def sealed_count(self) -> int:
        """The number of segments that were ever sealed; it is the number in the next segment's key."""
        return self.segment_count + self.merged_away


def first(*, log_id: str, config: LogConfig, segments: Sequence[Segment], last_entry: Entry, now_ms: int) -> Manifest:
    """Returns generation 1 of a log's manifest, with these segments; for the arguments see `successor`."""
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
    """Returns the generation after `manifest`, with `segments` added, which publishes everything up to `last_entry`.

    Args:
        manifest: the newest generation; None before the first one.
        segments: the new segments, ascending; empty if there were only control entries.
        last_entry: the last entry to publish; its state becomes the manifest's.
        sealed_page: the page object that holds `full_page(manifest)`, if that was not None.
        now_ms: the server's clock.
        forgotten: keys of replaced segments whose objects are removed, so that they are no longer named.

    The result is not checked here; `headrace.manifest.invariants.check` checks it before it is published.
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

    Store `encode_page` of them under a new key first, then pass `describe_page` of that object to `successor`.
    """
    return manifest.open_page[:PAGE_SEGMENTS] if len(manifest.open_page) >= PAGE_SEGMENTS else None


def encode(manifest: Manifest) -> bytes:
    """Encodes a generation of a manifest as the bytes of its object. Equal manifests give equal bytes."""
    return packed.encode(manifest)


def decode(data: bytes, source: str) -> Manifest:
    """Decodes a generation of a manifest from the bytes of its object.

    Args:
        data: the bytes that `encode` returned.
        source: the object's key, for the error.

    Raises:
        Damaged: the object is truncated, altered, or of an unknown version.
    """
    manifest = packed.decode(data, Manifest, source, decode_extension)
    if manifest.version != VERSION:
        raise Damaged(f"manifest is of an unknown version: object={source} version={manifest.version}")
    return manifest


def encode_page(segments: tuple[Segment, ...]) -> bytes:
    """Encodes segment descriptors as the bytes of a sealed manifest page."""
    return packed.encode(_Page(version=VERSION, segments=segments))


def describe_page(key: str, data: bytes, segments: tuple[Segment, ...]) -> ManifestPage:
    """Returns the manifest's reference to a page object: the bytes `data` of `encode_page(segments)`, stored under
    `key`.
    """
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
    """Decodes the segment descriptors from the bytes of a sealed manifest page.

    Raises:
        Damaged: the object is not the one that was published.
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


class Description(msgspec.Struct, frozen=True):
    """The content of `log.json`: what recovery needs to rebuild the catalog row of a published log."""

    log_id: str
    config: LogConfig
    version: int = 1


class Tombstone(msgspec.Struct, frozen=True):
    """The content of `deleted.json`: the log has ended and its data is gone. It keeps how the log ended, its end offset,
    and its configuration with the incarnation.
    """

    log_id: str
    config: LogConfig
    ended: Literal["", "deleted", "expired"]
    next_offset: int
    version: int = 1
