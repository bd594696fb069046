"""A manifest generation as a value, and the pure functions that compute the next one.

The newest segments are listed in `open_page`. When it is full, they move to an immutable page object of level 0. When a
generation names `FAN_OUT` pages of one level, they move to a page of the next level. So a generation takes at most 64 KiB
whatever the length of the log, and any segment of ten million is at most four pages away.

It also has the two small objects beside a log's manifests, in plain JSON: `log.json` describes the log, `deleted.json`
says that it is gone.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Literal

import msgspec

from headrace.errors import Damaged
from headrace.objects import packed
from headrace.segment.descriptor import Segment
from headrace.wal.extension import decode_extension
from headrace.wal.state import Entry, LogConfig, LogState
from headrace.wal.stored import with_later

VERSION = 1
PAGE_SEGMENTS = 256
PAGE_BYTES = 32 * 1024  # of a page's object: descriptors of large segments take 2 KB each, of small ones 130 bytes
FAN_OUT = 64  # pages of one level; a reference takes about 100 bytes
MAX_REPLACED = 256  # replaced segments above which no more are merged


class ManifestPage(msgspec.Struct, frozen=True):
    """A reference to a sealed page, an object with segment descriptors or with references to other pages.

    Attributes:
        key: key of the page object.
        sha256: hash of the object, in hex.
        level: 0 for a page of segments, else one more than that of the pages that it names.
        first_number, count: the range of segments below it.
        first_offset, end_offset: the range of records in those segments.
        min_time_ms, max_time_ms: append times of the first and the last record.
        segment_bytes: size of the objects of those segments.
        page_bytes: size of the page's object, and of all pages below it.
    """

    key: str
    sha256: str
    level: int
    first_number: int
    count: int
    first_offset: int
    end_offset: int
    min_time_ms: int
    max_time_ms: int
    segment_bytes: int
    page_bytes: int

    @property
    def end_number(self) -> int:
        """The number after that of its last segment."""
        return self.first_number + self.count


Parts = tuple[Segment, ...] | tuple[ManifestPage, ...]
"""What a page lists: segments, or pages of the level below."""


class Replaced(msgspec.Struct, frozen=True):
    """A segment that a merged or scrubbed one has replaced, or a sealed page that named it. Its objects are kept for a
    while, for readers with an older generation.

    Attributes:
        key: key of the segment's object, beside which its key page is; or of the sealed page.
        generation: the first generation without the segment.
        at_ms: when that generation was created, in epoch milliseconds.
    """

    key: str
    generation: int
    at_ms: int


class Begin(msgspec.Struct, frozen=True, array_like=True):
    """Where the published part begins since its first segments were dropped, which held only records below the floor.
    Their objects are kept for a while, for readers with an older generation. A sealed page may still list some of them.

    Attributes:
        number, offset: number and first offset of the first segment that is left; those after the last if none is.
        sealed: the number in that segment's key: all segments with a lower one were dropped.
        generation: the first generation that begins here.
        at_ms: when that generation was created, in epoch milliseconds.
    """

    number: int
    offset: int
    sealed: int
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
        segment_count: number of segments, those that were dropped included; it is the number of the next one.
        sealed_ms: when the end was published, if other generations came after that; else 0 (see `end_published_ms`).
        merged_away: number of segments by which merging has reduced the list, so that `sealed_count` never falls.
        replaced: segments that are no longer part of the log, but whose objects may still be read.
        begin: where the segments begin; unset, and not stored, if none was ever dropped.
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
    begin: Begin | msgspec.UnsetType = msgspec.UNSET

    @property
    def begin_offset(self) -> int:
        """The offset of the first published record that was not dropped; the end if there is none."""
        return self.begin.offset if isinstance(self.begin, Begin) else self.config.base_offset

    @property
    def begin_number(self) -> int:
        """The number of segments that were dropped: all those at the front."""
        return self.begin.number if isinstance(self.begin, Begin) else 0

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
        sealed_page: describes the page object that holds `full_page(manifest)`, if that was not None.
        now_ms: the server's clock.
        forgotten: keys of replaced segments whose objects are removed, so that they are no longer named.

    The result is not checked here; `headrace.manifest.invariants.check` checks it before it is published.
    """
    open_page = manifest.open_page if manifest else ()
    replaced = manifest.replaced if manifest else ()
    pages = manifest.pages if manifest else ()
    if sealed_page is not None and sealed_page.level == 0:
        open_page = open_page[sealed_page.count :]
        pages = (*pages, sealed_page)
    elif sealed_page is not None:
        at = bisect.bisect_left(pages, sealed_page.first_number, key=lambda page: page.first_number)
        end = bisect.bisect_left(pages, sealed_page.end_number, key=lambda page: page.first_number)
        pages = (*pages[:at], sealed_page, *pages[end:])
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
        begin=manifest.begin if manifest else msgspec.UNSET,
        pages=pages,
        open_page=(*open_page, *segments),
        merged_away=manifest.merged_away if manifest else 0,
        replaced=tuple(one for one in replaced if one.key not in forgotten),
    )


def full_page(manifest: Manifest) -> Parts | None:
    """Returns what must move to a page with the next generation: the segments of the open page if it is full, else the
    pages of the lowest level that is full; None while there is room.

    Store `encode_page` of it under a new key first, then pass `describe_page` of that object to `successor`.
    """
    segments = manifest.open_page[:PAGE_SEGMENTS]
    if len(segments) >= PAGE_SEGMENTS or (segments and len(encode_page(segments)) >= PAGE_BYTES):
        return segments
    for _, group in groupby(reversed(manifest.pages), key=lambda page: page.level):
        pages = tuple(group)[::-1]
        if len(pages) >= FAN_OUT:
            return pages[:FAN_OUT]
    return None


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
    raw = packed.unframe(data, source)
    try:
        manifest = packed.parse(raw, Manifest, source, decode_extension)
        if manifest.state.later is None:
            return manifest
    except Damaged as exc:
        if not isinstance(exc.__cause__, msgspec.ValidationError):
            raise
    document = packed.parse(raw, dict, source)  # perhaps only the state has members that are not known
    document["state"] = with_later(document.get("state"))
    return packed.parse(msgspec.json.encode(document), Manifest, source, decode_extension)


def encode_page(parts: Parts) -> bytes:
    """Encodes segment descriptors, or references to pages of one level, as the bytes of a sealed manifest page."""
    return packed.encode(_Page(VERSION, *_split(parts)))


def describe_page(key: str, data: bytes, parts: Parts) -> ManifestPage:
    """Returns the reference to a page object: the bytes `data` of `encode_page(parts)`, stored under `key`."""
    segments, pages = _split(parts)
    first, last = parts[0], parts[-1]
    return ManifestPage(
        key=key,
        sha256=hashlib.sha256(data).hexdigest(),
        level=pages[0].level + 1 if pages else 0,
        first_number=pages[0].first_number if pages else segments[0].number,
        count=sum(page.count for page in pages) + len(segments),
        first_offset=first.first_offset,
        end_offset=last.end_offset,
        min_time_ms=first.min_time_ms,
        max_time_ms=last.max_time_ms,
        segment_bytes=sum(page.segment_bytes for page in pages) + sum(one.size for one in segments),
        page_bytes=len(data) + sum(page.page_bytes for page in pages),
    )


def decode_page(data: bytes, page: ManifestPage) -> Parts:
    """Decodes what a sealed manifest page lists from the bytes of its object.

    Raises:
        Damaged: the object is not the one that was published.
    """
    found = hashlib.sha256(data).hexdigest()
    if found != page.sha256:
        raise Damaged(f"page is not the one published: object={page.key} expected={page.sha256} found={found}")
    value = packed.decode(data, _Page, page.key)
    parts: Parts = value.pages or value.segments
    is_one_kind = bool(value.pages) != bool(value.segments)
    if not is_one_kind or describe_page(page.key, data, parts) != page:
        raise Damaged(f"page is not what the manifest says: object={page.key}")
    return parts


def weigh(manifest: Manifest) -> int:
    """Returns about how many bytes a generation takes in memory."""
    return 4096 + 200 * len(manifest.replaced) + weigh_parts(manifest.pages) + weigh_parts(manifest.open_page)


def weigh_parts(parts: Parts) -> int:
    """Returns about how many bytes what a page lists takes in memory: a number takes 36, a key or hash about 130."""
    segments, pages = _split(parts)
    indexes = (index for one in segments for index in (one.pages, one.meta) if index is not None)
    return 700 * len(pages) + 900 * len(segments) + sum(3 * 36 * len(index.sizes) for index in indexes)


def _split(parts: Parts) -> tuple[tuple[Segment, ...], tuple[ManifestPage, ...]]:
    segments = tuple(one for one in parts if isinstance(one, Segment))
    return segments, tuple(one for one in parts if isinstance(one, ManifestPage))


class _Page(msgspec.Struct, frozen=True, omit_defaults=True):
    version: int
    segments: tuple[Segment, ...] = ()
    pages: tuple[ManifestPage, ...] = ()


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
