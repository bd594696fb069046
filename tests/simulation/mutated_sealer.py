"""The steps that mutants put in place of the sealer's and the merger's, as `mutated_steps` has those of the others."""

from __future__ import annotations

import itertools
from dataclasses import replace as with_fields
from typing import Any

from msgspec.structs import replace

from emr_jobs import segments
from functions.sealer import handler, memo, seal
from functions.sealer import purge as purging
from functions.sealer.trim import Trimmed
from headrace.manifest import manifest as manifests
from headrace.manifest import merging
from headrace.objects import keys
from headrace.tables.unborn import buried
from headrace.wal.state import Entry, first_slot
from tests.simulation import background


def everywhere(name: str, value: Any) -> tuple[tuple[Any, str, Any], ...]:
    """Returns the patches that replace a verb of the sealer in each module that imports it."""
    return ((handler, name, value), (background, name, value))


def _trim(parts: Any, log_id: str, end_slot: Any, time_of: Any) -> Trimmed:
    wal = parts.stores.wal
    newest = wal.newest(log_id)
    if newest is None:
        return Trimmed()
    end = end_slot(parts.stores.watermarks.get(log_id), newest)
    oldest_kept_ms = parts.now_ms() - parts.limits.trim_age_ms
    doomed = []
    for entry in wal.read(log_id, end=end).entries:
        if time_of(entry) > oldest_kept_ms:
            break
        doomed.append(entry.slot)
    if doomed:
        wal.remove(log_id, doomed)
    return Trimmed(len(doomed))


def trim_unpublished(parts: Any, log_id: str) -> Trimmed:
    """Old is enough."""
    return _trim(parts, log_id, lambda watermark, newest: newest.slot, lambda entry: entry.committed_ms)


def trim_newest(parts: Any, log_id: str) -> Trimmed:
    """Trims the newest entry, too."""
    return _trim(parts, log_id, lambda watermark, newest: watermark.end_slot, lambda entry: entry.committed_ms)


def trim_by_offset(parts: Any, log_id: str) -> Trimmed:
    """Whatever is at or below the published end offset."""
    return _trim(
        parts,
        log_id,
        lambda watermark, newest: min(
            first_slot(watermark.end_offset + 1) if watermark.generation else 0, newest.slot
        ),
        lambda entry: entry.committed_ms,
    )


def trim_by_own_age(parts: Any, log_id: str) -> Trimmed:
    """Whatever was decided long ago, though it may have arrived just now."""
    return _trim(
        parts,
        log_id,
        lambda watermark, newest: min(watermark.end_slot, newest.slot),
        lambda entry: entry.committed_ms,
    )


def trim_by_hint(parts: Any, log_id: str) -> Trimmed:
    """Ages by a time that clients may name."""
    return _trim(
        parts,
        log_id,
        lambda watermark, newest: min(watermark.end_slot, newest.slot),
        lambda entry: entry.times[-1].time_ms if entry.times else entry.committed_ms,
    )


class Stashing:
    """The manifest module, which remembers the last successor it made."""

    last: Any = None

    def __getattr__(self, name: str) -> Any:
        """As the module."""
        return getattr(manifests, name)

    def successor(self, *args: Any, **kwargs: Any) -> Any:
        """As the module."""
        Stashing.last = manifests.successor(*args, **kwargs)
        return Stashing.last


_ask_to_trim = seal._Run._ask_to_trim


def watermark_first(self: Any, span: Any) -> None:
    """The watermark is raised before the manifest is published."""
    successor = Stashing.last
    _ask_to_trim(self, span)
    self._raise_watermark(successor)


_publish_next = seal._Run._publish_next


def publish_and_clean_up(self: Any, manifest: Any) -> Any:
    """Takes a refused create for another's success, and removes what was uploaded."""
    store = self._parts.manifests

    def publish(new: Any, _: Any) -> bool:
        key = keys.manifest(new.log_id, new.generation)
        if self._stores.objects.create(key, manifests.encode(new)):
            return True
        made = [one.key for one in new.open_page if manifest is None or one.number >= manifest.segment_count]
        self._stores.objects.delete(made)
        return False

    store.publish = publish
    try:
        return _publish_next(self, manifest)
    finally:
        vars(store).pop("publish", None)  # perhaps another actor of this process did


def publish_merged_anyway(parts: Any, task: Any, made: Any) -> bool:
    """Publishes what followed when it was planned, whatever was published since."""
    known = parts.stores.watermarks.get(task.log_id).generation
    newest = parts.manifests.newest(task.log_id, None, known)
    successor = None
    for generation in range(newest.generation, 0, -1):
        planned = parts.manifests.load(task.log_id, generation)
        found = planned and merging.merged(planned, task.segments, made, parts.now_ms())
        if not found:
            break
        successor = replace(found, generation=newest.generation + 1)
    if successor is None:
        return False
    return bool(
        parts.stores.objects.create(keys.manifest(task.log_id, successor.generation), manifests.encode(successor))
    )


_read_records = segments.read_records


def read_records_but_one(objects: Any, segment: Any) -> Any:
    """Returns the records, with one replaced by a copy of its neighbour of equal size."""
    records = _read_records(objects, segment)
    data = records.slices()
    for at, (one, following) in enumerate(itertools.pairwise(data)):
        if len(one) == len(following):
            data[at] = following
            break
    return with_fields(records, data=b"".join(data))


def removable_at_once(manifest: Any, now_ms: int, age_ms: int) -> list[str]:
    """Returns all that was replaced, as if nobody needed it."""
    return [one.key for one in manifest.replaced]


class NeverMissing(Exception):
    """In the place of the error that says that a segment is gone."""


def purge_without_watermark(parts: Any, log_id: str) -> purging.Purged:
    """Entries that were never sealed go while the watermark is below them."""
    watermarks = parts.stores.watermarks

    class Unraised:
        def get(self, log: str) -> Any:
            return replace(watermarks.get(log), end_slot=2**80)

        def drop_note(self, log: str, name: str) -> bool:
            return watermarks.drop_note(log, name)

    unraised: Any = Unraised()
    return purging.purge(with_fields(parts, stores=with_fields(parts.stores, watermarks=unraised)), log_id)


def payloads_without_age(parts: Any, newest: Entry) -> list[str]:
    """Whatever no entry names, goes."""
    found = list(parts.stores.objects.list(f"{keys.log_prefix(newest.log_id)}wal/"))
    named = {entry.payload_key for entry in parts.stores.wal.read(newest.log_id).entries}
    return [key for key in found if key not in named]


def forget_unborn(parts: Any, log_id: str) -> int:
    """Removes an announcement alone."""
    row = buried(log_id, parts.now_ms())
    parts.stores.catalog.put(row)
    parts.stores.catalog.remove(row)
    return 0


def outdated_at_once(parts: Any, log_id: str) -> list[str]:
    """Whatever the watermark is beyond, as if no reader were slow."""
    until = parts.stores.watermarks.get(log_id).generation
    return [keys.manifest(log_id, number) for number in parts.manifests.standing(log_id) if 1 < number < until]


def unmarked_first(parts: Any, config: Any, newest: Entry) -> bool:
    """The mark goes before what it stands for."""
    parts.stores.wal.purged(newest.log_id, newest.slot)
    return bool(_remove(parts, config, newest))


_remove = purging._remove


def go_on_anyhow(parts: Any, message: Any, *, not_before_ms: int = 0, has_failed: bool = False) -> bool:
    """Asks for the rest of the work, though others may have asked for it."""
    now_ms = parts.now_ms()
    when_ms = now_ms + memo._FIRST_RETRY_MS if has_failed else not_before_ms
    parts.queue.send([replace(message, turn=message.turn + 1, not_before_ms=when_ms)], now_ms)
    return True
