"""The rules for a manifest generation, and for its difference from the one before. They are checked before every
publication.

A generation that breaks a rule is never published: sealing stops, the log stays readable from its tail, and the error
names the rule. Readers check the rules of a single generation when they load it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from headrace.errors import Damaged
from headrace.manifest.manifest import VERSION, Begin, Manifest, ManifestPage, Replaced
from headrace.manifest.merging import names
from headrace.segment.descriptor import Segment
from headrace.wal.state import LogState, offset_of_slot


def check(previous: Manifest | None, new: Manifest) -> None:
    """Checks that `new` may follow `previous`, or may be the first generation if `previous` is None.

    Raises:
        Damaged: a rule is broken; the message says which one, what was expected and what was found.
    """
    check_whole(new)
    if previous is None:
        _require(new, "generation", 1, new.generation)
        _require(new, "sealed_bytes", sum(s.payload_bytes for s in new.open_page), new.sealed_bytes)
        _require(new, "begin", msgspec.UNSET, new.begin)
        fresh = new.open_page
    elif new.begin != previous.begin:
        _check_drop(previous, new)
        fresh = ()
    elif any(one.generation == new.generation for one in new.replaced):
        if new.pages == previous.pages:
            _check_merge(previous, new)
        else:
            _check_rewrite(previous, new)
        fresh = ()
    else:
        _check_progress(previous, new)
        _check_nothing_lost(previous, new)
        fresh = tuple(s for s in new.open_page if s.number >= previous.segment_count)
        added = sum(s.payload_bytes for s in fresh)
        _require(new, "sealed_bytes", previous.sealed_bytes + added, new.sealed_bytes)
        _require(new, "merged_away", previous.merged_away, new.merged_away)
        _require(new, "sealed_ms", 0, new.sealed_ms)
        _check_replaced(previous, new)
    for segment in fresh:
        _check_segment(new, segment)


def check_whole(manifest: Manifest) -> None:
    """Checks the rules that concern a single generation.

    Raises:
        Damaged: a rule is broken, as in `check`.
    """
    _require(manifest, "version", VERSION, manifest.version)
    _require_that(manifest, "generation counts from 1", manifest.generation >= 1, manifest.generation)
    _check_contiguous(manifest)
    state = manifest.state
    _require(manifest, "state.next_offset", manifest.end_offset, state.next_offset)
    _require(manifest, "offset of end_slot", manifest.end_offset, offset_of_slot(manifest.end_slot))
    last_entry_is_below = manifest.last_slot < manifest.end_slot
    _require_that(manifest, "last_slot is below end_slot", last_entry_is_below, manifest.last_slot)
    newest_ms = max((part.max_time_ms for part in _parts(manifest)), default=0)
    state_knows_newest = state.append_time_ms >= newest_ms
    _require_that(manifest, f"append time is at least {newest_ms}", state_knows_newest, state.append_time_ms)
    in_force = {segment.key for segment in manifest.open_page}
    both = [one.key for one in manifest.replaced if one.key in in_force or one.generation > manifest.generation]
    _require_that(manifest, "what was replaced is not in force", not both, both)


def _check_contiguous(manifest: Manifest) -> None:
    """Raises Damaged unless pages and open segments have consecutive numbers, and cover the offsets from where the log
    begins to its end without gap or overlap. What was dropped lies below the floor, and only the first page may still list
    some of it.
    """
    number, offset, time_ms = manifest.begin_number, manifest.begin_offset, 0
    is_below = manifest.begin_offset <= max(manifest.state.floor, manifest.config.base_offset)
    _require_that(manifest, "what is dropped is below the floor", is_below, manifest.begin)
    if manifest.pages and isinstance(manifest.begin, Begin):
        page = manifest.pages[0]
        begins_inside = (
            page.first_number <= number < page.end_number and page.first_offset <= offset < page.end_offset
        )
        _require_that(manifest, "the log begins in its first page", begins_inside, manifest.begin)
        number, offset = page.first_number, page.first_offset
    for part in _parts(manifest):
        first, segments = (part.first_number, part.count) if isinstance(part, ManifestPage) else (part.number, 1)
        holds_records = segments >= 1 and part.end_offset - part.first_offset >= segments
        _require(manifest, "next segment number", number, first)
        _require(manifest, "next segment offset", offset, part.first_offset)
        _require_that(manifest, "a segment holds records", holds_records, (segments, part.end_offset))
        _require_that(manifest, f"time is at least {time_ms}", part.max_time_ms >= time_ms, part.max_time_ms)
        number += segments
        offset, time_ms = part.end_offset, part.max_time_ms
    levels = [page.level for page in manifest.pages]
    _require(manifest, "levels of pages", sorted(levels, reverse=True), levels)
    _require(manifest, "segment_count", number, manifest.segment_count)
    _require(manifest, "end_offset", offset, manifest.end_offset)


def _check_progress(previous: Manifest, new: Manifest) -> None:
    _require(new, "log_id", previous.log_id, new.log_id)
    _require(new, "config", previous.config, new.config)
    _require(new, "generation", previous.generation + 1, new.generation)
    before, after = previous.state, new.state
    rises = {
        f"last_slot is at least {previous.end_slot}": (new.last_slot, previous.end_slot),
        "end_offset never falls": (new.end_offset, previous.end_offset),
        "append time never falls": (after.append_time_ms, before.append_time_ms),
        "total_bytes never falls": (after.total_bytes, before.total_bytes),
        "definitions are never set back": (_definition(after), _definition(before)),
        "is_final is never unset": (after.is_final, before.is_final),
        "holds_source is never set again": (before.holds_source, after.holds_source),
        "floor never falls": (after.floor, before.floor),
    }
    for rule, (later, earlier) in rises.items():
        _require_that(new, rule, later >= earlier, later)
    if before.ended:
        _require(new, "state.ended", before.ended, after.ended)
    kept = after.recoveries[: len(before.recoveries)]
    _require(new, "state.recoveries", before.recoveries, kept)


def _check_nothing_lost(previous: Manifest, new: Manifest) -> None:
    """Raises Damaged unless every published segment is unchanged: below its page, in the open page, or in one page sealed
    since.
    """
    kept = next((at for at, (one, other) in enumerate(zip(previous.pages, new.pages)) if one != other), None)  # noqa: B905
    kept = min(len(previous.pages), len(new.pages)) if kept is None else kept
    sealed = new.pages[kept : kept + 1]
    level = sealed[0].level if sealed else 0
    gathered = previous.pages[kept : kept + 1 + len(previous.pages) - len(new.pages)] if level else ()
    _require(new, "sealed pages", previous.pages[kept + len(gathered) :], new.pages[kept + len(sealed) :])
    below: Sequence[ManifestPage | Segment] = gathered
    moved = 0
    if sealed and not level:
        moved = sealed[0].count
        _require_that(new, "only published segments are sealed", moved <= len(previous.open_page), moved)
        below = previous.open_page[:moved]
    stayed = previous.open_page[moved:]
    _require(new, "open segments", stayed, new.open_page[: len(stayed)])
    for page in sealed:
        _require_that(new, "a page gathers several", len(below) >= 1 + bool(level), len(below))
        _require(
            new, "levels below the sealed page", {level - 1} if level else set(), {one.level for one in gathered}
        )
        counted = sum(one.count for one in gathered) if level else moved
        expected = (counted, below[0].first_offset, below[-1].end_offset, below[0].min_time_ms, below[-1].max_time_ms)
        found = (page.count, page.first_offset, page.end_offset, page.min_time_ms, page.max_time_ms)
        _require(new, "records of the sealed page", expected, found)


def _check_merge(previous: Manifest, new: Manifest) -> None:
    """Raises Damaged unless one segment replaces neighbours of the open page, or one of which it blanks records, and
    nothing else has changed.
    """
    _require(new, "generation", previous.generation + 1, new.generation)
    fewer = new.merged_away - previous.merged_away
    old, now = previous.open_page, new.open_page
    at = next((at for at, (one, other) in enumerate(zip(old, now, strict=False)) if one != other), len(now))
    _require_that(new, "a merged segment is in the open page", at < len(now) <= len(old) - fewer, (at, len(now)))
    parts, whole = old[at : at + fewer + 1], now[at]
    blanked = sum(one.blanked for one in parts)
    is_scrubbed = whole.blanked > blanked
    _require_that(new, "several segments are merged", len(parts) == fewer + 1 >= 2 - is_scrubbed, (len(parts), fewer))
    kept = replace(
        previous,
        generation=new.generation,
        created_ms=new.created_ms,
        sealed_ms=previous.end_published_ms,
        segment_count=previous.segment_count - fewer,
        open_page=(*old[:at], whole, *(replace(one, number=one.number - fewer) for one in old[at + fewer + 1 :])),
        merged_away=new.merged_away,
        replaced=(*previous.replaced, *(Replaced(one.key, new.generation, new.created_ms) for one in parts)),
    )
    _require(new, "all but what is merged", kept, new)
    _check_segment(new, whole)
    expected = (
        *(parts[0].number, parts[0].first_offset, sum(one.count for one in parts)),
        *(parts[0].min_time_ms, parts[-1].max_time_ms),
    )
    found = (*(whole.number, whole.first_offset, whole.count), *(whole.min_time_ms, whole.max_time_ms))
    _require(new, "records of the merged segment", expected, found)
    held, holds = (sum(one.payload_bytes for one in parts), blanked), (whole.payload_bytes, whole.blanked)
    if is_scrubbed:
        fits = whole.payload_bytes <= held[0] and whole.blanked <= whole.count
        _require_that(new, f"a scrubbed segment holds at most {held[0]} bytes", fits, holds)
    else:
        _require(new, "bytes of the merged segment", held, holds)
    _require_that(new, "a merged segment is another object", not names(previous, whole.key), whole.key)


def _check_rewrite(previous: Manifest, new: Manifest) -> None:
    """Raises Damaged unless one sealed page is replaced by one of the same records, and nothing else has changed."""
    _require(new, "generation", previous.generation + 1, new.generation)
    _require(new, "number of sealed pages", len(previous.pages), len(new.pages))
    changed = [at for at, pair in enumerate(zip(previous.pages, new.pages, strict=True)) if pair[0] != pair[1]]
    _require_that(new, "one sealed page is rewritten", len(changed) == 1, changed)
    before, after = previous.pages[changed[0]], new.pages[changed[0]]
    same = replace(
        after,
        key=before.key,
        sha256=before.sha256,
        segment_bytes=before.segment_bytes,
        page_bytes=before.page_bytes,
    )
    _require(new, "records of the rewritten page", before, same)
    fresh = new.replaced[len(previous.replaced) :]
    gone = {one.key for one in fresh if (one.generation, one.at_ms) == (new.generation, new.created_ms)}
    _require_that(new, "a page and a segment are replaced", len(gone) == len(fresh) >= 2, fresh)
    _require_that(new, "the old page is replaced", before.key in gone and after.key not in gone, gone)
    kept = replace(
        previous,
        generation=new.generation,
        created_ms=new.created_ms,
        sealed_ms=previous.end_published_ms,
        pages=new.pages,
        replaced=(*previous.replaced, *fresh),
    )
    _require(new, "all but what is rewritten", kept, new)


def _check_drop(previous: Manifest, new: Manifest) -> None:
    """Raises Damaged unless segments at the front are dropped, with the pages that list no others, and nothing else has
    changed.
    """
    _require(new, "generation", previous.generation + 1, new.generation)
    begin = new.begin
    rises = isinstance(begin, Begin) and begin.number > previous.begin_number and begin.offset > previous.begin_offset
    _require_that(new, "the log begins later", rises, begin)
    assert isinstance(begin, Begin), "required above"
    known = previous.begin.sealed if isinstance(previous.begin, Begin) else 0
    is_known = known < begin.sealed <= previous.sealed_count
    _require_that(new, "dropped segments were sealed", is_known, begin.sealed)
    _require(new, "when it was dropped", (new.generation, new.created_ms), (begin.generation, begin.at_ms))
    kept = replace(
        previous,
        generation=new.generation,
        created_ms=new.created_ms,
        sealed_ms=previous.end_published_ms,
        begin=begin,
        pages=tuple(page for page in previous.pages if page.end_number > begin.number),
        open_page=tuple(segment for segment in previous.open_page if segment.number >= begin.number),
        replaced=new.replaced,
    )
    _require(new, "all but what is dropped", kept, new)
    before = len(previous.replaced)
    _require(new, "replaced segments", previous.replaced, new.replaced[:before])
    fresh = {(one.generation, one.at_ms) for one in new.replaced[before:]}
    _require_that(new, "pages are replaced now", fresh <= {(new.generation, new.created_ms)}, fresh)


def _check_replaced(previous: Manifest, new: Manifest) -> None:
    """Raises Damaged unless replaced segments are named for at least two generations, and sealing replaces none."""
    kept = tuple(one for one in previous.replaced if one in new.replaced)
    _require(new, "replaced segments", kept, new.replaced)
    missing = [one for one in previous.replaced if one not in kept and previous.generation - one.generation < 2]
    _require_that(new, "replaced segments stay for two generations", not missing, missing)


def _check_segment(manifest: Manifest, segment: Segment) -> None:
    """Raises Damaged unless a segment's descriptor is consistent; readers allocate memory by it."""
    pages = segment.pages
    lists = {len(pages.sizes), len(pages.counts), len(pages.payload)}
    _require_that(manifest, "page lists are equally long", len(lists) == 1, lists)
    _require_that(manifest, "pages hold records", min(pages.counts, default=0) >= 1, pages.counts)
    _require(manifest, "records in pages", segment.count, sum(pages.counts))
    _require(manifest, "bytes in pages", segment.payload_bytes, sum(pages.payload))
    fits = pages.start > 0 and pages.start + sum(pages.sizes) <= segment.size
    _require_that(manifest, f"pages lie in {segment.size} bytes", fits, (pages.start, sum(pages.sizes)))
    times_rise = segment.min_time_ms <= segment.max_time_ms
    _require_that(manifest, "times rise", times_rise, (segment.min_time_ms, segment.max_time_ms))


def _parts(manifest: Manifest) -> Iterable[ManifestPage | Segment]:
    return (*manifest.pages, *manifest.open_page)


def _require(manifest: Manifest, rule: str, expected: object, found: object) -> None:
    if expected != found:
        raise Damaged(f"{_name(manifest)} breaks a rule: rule={rule!r} expected={expected} found={found}")


def _require_that(manifest: Manifest, rule: str, holds: bool, found: object) -> None:
    if not holds:
        raise Damaged(f"{_name(manifest)} breaks a rule: rule={rule!r} found={found}")


def _definition(state: LogState) -> int:
    return state.definition.number if state.definition is not None else 0


def _name(manifest: Manifest) -> str:
    return f"manifest {manifest.log_id}/{manifest.generation}"
