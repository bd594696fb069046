"""The verbs trim and orphans: they remove what a living log no longer needs.

Trim removes entries that are published and old, oldest first: only entries below the watermark, and only if they *and
their successors* were committed at least the trim age ago; so never the newest. Commit times are those at which entries
were decided. An entry whose put was held up (a frozen writer, a slow network) is younger than it says, but its successor
was decided when it was there: so each entry stays for at least the trim age, and a picture from before it is old by then.

A dead item goes with the entries around it. Its payload may be that of an entry of the chain, so it is left to the orphan
sweep, which looks at every entry. A crash between pages, or between entries and their payloads, leaves entries that
the next trim removes, or payloads that the orphan sweep removes.

The orphan sweep removes objects that nothing names and nothing can name later. This is known without the age of an
object:

  - A segment whose number is below the manifest's next one: a sealer that still has it loses the race for its
    generation. Numbers count all segments that were ever sealed, so that they do not fall when segments are merged.
  - A merged segment, once a generation was created a day after it was planned: it is published within half a day, or
    never.
  - A segment that was replaced by a merged one: two generations and a while later, no reader needs it any more. Until
    then the manifest names it. Sealers remove it before they publish a generation that no longer does.
  - A segment that was dropped because it is below the floor, once no reader needs it any more.
  - A sealed manifest page of a generation that was published: its key tells which one would have named it first.
  - A generation of the manifest that was replaced a day ago, once the watermark names a newer one; never the first, which
    tells that there are others.
  - A payload first tried at a slot that was passed at the last sweep but one, a day before the last: its writer had a
    picture from before that slot was passed, and its entry was committed, or stopped by the ack fence, minutes later. So
    an entry that names it, at whatever slot, was there at the last sweep: entries below the slot of that sweep are read,
    after the payloads were listed. Of a log that is sealed and trimmed these are one or none, however busy it is.
  - An object of the surface's own (removed records, a snapshot) that no entry and none of the last two manifests names,
    if the newest entry names one of at least its number: an entry that would name it follows a state before that.

Orphans at the very end of an idle log remain until the log continues, or is purged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise, takewhile
from typing import NamedTuple

import msgspec

from functions.sealer import memo
from functions.sealer.context import Context
from functions.sealer.drop import MAX_OBJECTS, drop, dropped_objects
from functions.sealer.memo import Memo
from headrace.clock import Budget
from headrace.log import join
from headrace.manifest import dropping, merging, store
from headrace.manifest.manifest import Begin, Manifest, ManifestPage
from headrace.manifest.store import KEPT_MS
from headrace.objects import keys
from headrace.wal.state import Entry

MAX_PAGES = 100  # about 100 MB of entries in one run


class Trimmed(NamedTuple):
    """The number of entries that a call of `trim` removed. `lag_ms` is how much longer than the trim age the oldest of
    them had stayed; 0 if there are none. `is_done` is false if it stopped at the limit of one run.
    """

    items: int = 0
    lag_ms: int = 0
    is_done: bool = True


def trim(parts: Context, log_id: str) -> Trimmed:
    """Removes the log's entries that are published and that, with their successors, are older than the trim age, and their
    payload objects.
    """
    wal = parts.stores.wal
    newest = wal.newest(log_id)
    if newest is None:
        return Trimmed()
    last_slot = min(parts.stores.watermarks.get(log_id).end_slot, newest.slot)
    oldest_kept_ms = parts.now_ms() - parts.limits.trim_age_ms
    removed, budget = Trimmed(), Budget(parts.stores.clock, memo.RUN_MS)
    for _ in range(MAX_PAGES):
        if budget.spent:
            break
        page = wal.read(log_id, end=last_slot + 1)
        old = list(takewhile(lambda entry: entry.committed_ms <= oldest_kept_ms, page.entries))
        named = {entry.slot for entry, after in pairwise(page.entries) if join.chained(entry, after)}
        # What is in the last slot is no dead item either: it is the newest, or nothing was trimmed there yet.
        kept_slot = max((entry.slot for entry in old if entry.slot in {*named, last_slot}), default=0)
        removable = [entry for entry in old if entry.slot < kept_slot]
        if not removable:
            return removed
        wal.remove(log_id, [entry.slot for entry in removable])
        payloads = [entry.payload_key for entry in removable if entry.payload_key and entry.slot in named]
        if payloads:
            parts.stores.objects.delete(payloads)
        lag_ms = max(removed.lag_ms, oldest_kept_ms - removable[0].committed_ms)
        removed = Trimmed(removed.items + len(removable), lag_ms)
        if page.complete or len(old) < len(page.entries):
            return removed
    return removed._replace(is_done=False)


_DAY_MS = 20 * 3600 * 1000  # less than a day, so that daily sweeps are a day apart
_PAYLOADS = 10_000  # that one sweep looks at
_BLOCK = 1000  # segment numbers share their first nine digits: one listing
_BLOCKS = 2  # the newest blocks; older ones were looked at by earlier runs


def sweep_orphans(parts: Context, log_id: str) -> int:
    """Removes objects of a living log (payloads, segments, manifest pages) that nothing names and nothing can name
    later, and returns their number; 0 for a log that has ended. Also removes outdated generations of its manifest.
    """
    newest = parts.stores.wal.newest(log_id)
    if newest is None or newest.state.ended:
        return 0  # purge removes everything
    orphans, began = _orphaned_payloads(parts, newest), parts.look()
    manifest = join.newest_manifest(parts.stores, parts.manifests, log_id)
    orphans += _orphaned_objects(parts, newest, manifest)
    if manifest is not None:
        manifest = drop(parts, manifest, began) or manifest
        if dropping.is_removable(manifest, parts.now_ms(), parts.stores.settings.merge_retire_ms):
            orphans += islice(dropped_objects(parts, manifest), MAX_OBJECTS)
        orphans += _segments(parts, manifest)
        orphans += _pages(parts, manifest)
    outdated = _outdated(parts, log_id)
    if orphans or outdated:
        parts.stores.objects.delete([*orphans, *outdated])
    return len(orphans)


def _orphaned_payloads(parts: Context, newest: Entry) -> list[str]:
    """Returns payloads that nothing names, among those first tried before the last sweep but one, and notes how far it
    came.
    """
    log_id, noted = newest.log_id, memo.read(parts, newest.log_id)[0]
    prefix = keys.payloads(log_id)

    def is_old(key: str) -> bool:
        return int(key.removeprefix(prefix).partition("-")[0]) < noted.older_slot

    is_next = parts.now_ms() - noted.noted_ms >= _DAY_MS
    if not (is_next or noted.swept):
        return []
    listed = parts.stores.objects.list(prefix, after=noted.swept) if noted.older_slot else iter(())
    found = list(islice(takewhile(is_old, listed), _PAYLOADS))
    named = _named_payloads(parts, log_id, noted.newer_slot) if found else frozenset()
    if named is None:
        return []  # the log is not sealed, or not trimmed: this sweep would be the least of its troubles
    swept = found[-1] if len(found) == _PAYLOADS else ""

    def edit(kept: Memo) -> Memo:
        kept = msgspec.structs.replace(kept, swept=swept)
        if swept or not is_next:
            return kept
        return msgspec.structs.replace(
            kept, older_slot=kept.newer_slot, newer_slot=newest.slot + 1, noted_ms=parts.now_ms()
        )

    memo.change(parts, log_id, edit)
    return [key for key in found if key not in named]


def _named_payloads(parts: Context, log_id: str, end_slot: int) -> frozenset[str] | None:
    """Returns the payloads that entries below `end_slot` name; None if there are more entries than a sweep may read."""
    return _named_by_entries(parts, log_id, end_slot, lambda entry: [entry.payload_key] if entry.payload_key else [])


def _named_by_entries(
    parts: Context, log_id: str, end_slot: int, names: Callable[[Entry], Iterable[str]]
) -> frozenset[str] | None:
    """Returns the objects that entries below `end_slot` name; None if there are more entries than a sweep may read."""
    named: set[str] = set()
    start = 0
    for _ in range(MAX_PAGES):
        page = parts.stores.wal.read(log_id, start=start, end=end_slot)
        for entry in page.entries:
            named.update(names(entry))
        if page.complete:
            return frozenset(named)
        start = page.entries[-1].slot + 1
    return None


def _orphaned_objects(parts: Context, newest: Entry, manifest: Manifest | None) -> list[str]:
    """Returns objects of the surface's own that nothing names and nothing can name later. If there are very many, it looks
    at some, and notes where the next sweep goes on. Costs no call for a log whose state names none.
    """
    log_id, found = newest.log_id, list[str]()
    kept = set(newest.state.named_objects(log_id))
    noted = memo.read(parts, log_id)[0].swept_object if kept else ""
    for prefix, number in map(keys.numbered, sorted(kept)):
        listed = parts.stores.objects.list(prefix, after=noted if noted.startswith(prefix) else "")
        found += takewhile(lambda key: keys.numbered(key)[1] <= number, islice(listed, _PAYLOADS))  # noqa: B023
    orphans: list[str] = []
    if not kept.issuperset(found):
        named = _named_by_entries(parts, log_id, newest.slot, lambda entry: entry.state.named_objects(log_id))
        if named is None:
            return []
        if manifest is not None:
            before = parts.manifests.load(log_id, manifest.generation - 1) if manifest.generation > 1 else None
            for one in (manifest, before or manifest):
                kept.update(one.state.named_objects(log_id))
        kept |= named
        kept.update(_kept_pages(parts, newest, kept, [key for key in found if keys.is_removed_page(key)]))
        orphans = [key for key in found if key not in kept]
    swept = found[-1] if len(found) >= _PAYLOADS else ""
    if swept != noted:
        memo.change(parts, log_id, lambda memo_: msgspec.structs.replace(memo_, swept_object=swept))
    return orphans


def _kept_pages(parts: Context, newest: Entry, kept: Iterable[str], pages: Sequence[str]) -> Iterator[str]:
    """Yields those of the pages that one of the `kept` objects may name: what the oldest of them names, and all that are
    younger than it. So one object is read, however many are kept.
    """
    extension = newest.state.extension
    if not pages or extension is None:
        return
    prefix = keys.numbered(pages[0])[0]
    oldest = min((key for key in kept if key.startswith(prefix)), key=keys.numbered)
    named = set(extension.named_pages(oldest, parts.stores.objects.get(oldest)))
    yield from (key for key in pages if key in named or keys.numbered(key) > keys.numbered(oldest))


def _segments(parts: Context, manifest: Manifest) -> Iterator[str]:
    removable = merging.removable(manifest, parts.now_ms(), parts.stores.settings.merge_retire_ms)
    replaced = [key for key in removable if key.startswith(keys.segments(manifest.log_id))]
    gone = {*replaced, *map(keys.segment_keys, replaced)}
    newest = max(0, (manifest.sealed_count - 1) // _BLOCK)
    blocks = {*range(max(0, newest - _BLOCKS + 1), newest + 1), *(_number(key) // _BLOCK for key in replaced)}
    for block in sorted(blocks):
        prefix = keys.segment(manifest.log_id, block * _BLOCK, "").partition("-")[0][:-3]
        found = list(parts.stores.objects.list(prefix))
        yield from (key for key in found if key in gone)
        begin = manifest.begin.sealed if isinstance(manifest.begin, Begin) else 0
        passed = [key for key in found if key not in gone and _number(key) >= begin and _is_passed(manifest, key)]
        if not passed:
            continue
        named = _named_from(parts, manifest, block * _BLOCK)
        named |= {one.key for one in manifest.replaced}
        named |= {keys.segment_keys(key) for key in named}
        yield from (key for key in passed if key not in named)


def _is_passed(manifest: Manifest, key: str) -> bool:
    """Returns whether it is too late for a later manifest generation to be the first to name the segment with this key."""
    planned_ms = keys.planned_ms(key)
    if planned_ms is not None:
        return manifest.created_ms - planned_ms >= merging.ABANDONED_MS
    return _number(key) < manifest.sealed_count


def _named_from(parts: Context, manifest: Manifest, number: int) -> set[str]:
    """Returns the keys of the segments that the manifest names whose number, counting all that were ever sealed, is at
    least `number`; may include some before it.
    """
    named = set()
    for segment in parts.manifests.segments_before(manifest, manifest.end_offset):
        named.add(segment.key)
        if keys.sealed_number(segment.key) < number:
            break
    return named


def _pages(parts: Context, manifest: Manifest) -> Iterator[str]:
    """Yields the pages, first named by one of the newest generations, that none names."""
    block = max(0, manifest.generation // _BLOCK - _BLOCKS + 1)
    removable = set(merging.removable(manifest, parts.now_ms(), parts.stores.settings.merge_retire_ms))
    pages = keys.manifest_pages(manifest.log_id)
    if any(key.startswith(pages) for key in removable):
        yield from (key for key in parts.stores.objects.list(pages) if key in removable)
    named = {*_pages_since(parts, manifest.pages, block * _BLOCK), *(one.key for one in manifest.replaced)}
    for start in range(block * _BLOCK, manifest.generation + 1, _BLOCK):
        for key in parts.stores.objects.list(keys.manifest_page(manifest.log_id, start, "").partition("-")[0][:-3]):
            if key not in named and keys.page_generation(key) <= manifest.generation:
                yield key


def _pages_since(parts: Context, pages: Sequence[ManifestPage], generation: int) -> Iterator[str]:
    """Yields the keys of the pages that were made since a generation; pages are older than the page that names them."""
    for page in pages:
        if keys.page_generation(page.key) >= generation:
            yield page.key
            below = parts.manifests.parts(page) if page.level else ()
            yield from _pages_since(parts, [one for one in below if isinstance(one, ManifestPage)], generation)


def _outdated(parts: Context, log_id: str) -> list[str]:
    """Returns the keys of the generations that no reader can need any more."""
    standing = parts.manifests.standing(log_id)

    def made_ms(generation: int) -> int:
        found = parts.manifests.load(log_id, generation)
        return found.created_ms if found is not None else 0  # another sweep has just removed it

    watermark = parts.stores.watermarks.get(log_id).generation
    gone = store.outdated(standing, made_ms, parts.now_ms() - KEPT_MS, watermark)
    return [keys.manifest(log_id, generation) for generation in gone]


def _number(key: str) -> int:
    return int(key.rpartition("/")[2].partition("-")[0])
