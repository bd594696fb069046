"""The verb purge removes the logs of a name after they have ended, if no fork needs them and the trim age has passed
since the last entry of any. The verb overdue finds logs that should have been purged.

Of each log these remain: the newest entry (it says that the log has ended), the watermark, `log.json` and the
tombstone; and the catalog row. Companions are removed before their main log: its configuration names them, so a message
to purge it finds them until they are gone. A message to purge a companion does nothing. The steps, each of which can be
repeated, and their purpose:

    release      the fork's source may now be purged, too
    of each log, the companions first:
    tombstone    recovery from the bucket must not bring the log back
    watermark    raised to the newest entry's slot: see below
    entries      all but the newest, oldest first
    objects, producers, rows in the surfaces' own tables, notes
    mark         of the newest entry, by which `overdue` finds a log whose purge was asked for by an event that was lost

A late writer with a picture from before the end finds a free slot where an entry was removed. Its picture is older than
the state age (the trim age is longer), so the writer verifies its entry, and must find its slot below the published
end. Entries that were never sealed are above the published end, so the watermark is raised *before* they are removed.
The number of the generation that it then names does not exist; nothing reads it, because sealing and reading look at
the newest entry first.

A sealer or a merging indexer that began before the end has stopped by now, if the trim age is longer than a function
may run (it is by default). Otherwise it leaves objects behind that nothing reads.
"""

from __future__ import annotations

from itertools import islice, takewhile
from typing import NamedTuple

import msgspec

from functions.queue import Message
from functions.sealer import memo
from functions.sealer.context import Context
from headrace.clock import Budget
from headrace.errors import Damaged, StoreError
from headrace.log.stores import SurfaceTable
from headrace.manifest.manifest import Tombstone
from headrace.objects import ObjectMissing, keys, packed
from headrace.tables.catalog import Row
from headrace.tables.watermarks import SEALER_NOTE, SURFACE_NOTE
from headrace.wal.state import Entry, LogConfig, incarnation_of

MAX_PAGES = 100  # of entries, and of objects, that one run removes from a log
PAGE_OBJECTS = 1000  # S3 lists and deletes so many with one request
WALK_S = 45.0  # of one run of `overdue`; the function's timeout is longer
_BATCH = 100  # messages


class _Named(msgspec.Struct, frozen=True):
    """The members that `log.json` and `deleted.json` share."""

    config: LogConfig
    version: int = 1


class SourceHeld(StoreError):
    """The fork could not release its source yet."""


class Purged(NamedTuple):
    """The result of `purge`: whether the log is removed now. If it must be and is not, `next_ms` is when to go on, in
    epoch milliseconds.
    """

    is_done: bool
    next_ms: int | None = None

    def __bool__(self) -> bool:
        """Returns whether the log is removed."""
        return self.is_done


def purge(parts: Context, log_id: str) -> Purged:
    """Removes an ended log and its companions, except for what says that they have ended. Changes nothing if it lives, if
    forks need it, or if it is a companion.

    Raises:
        Damaged: nothing tells which log this was, or a companion has not ended.
        SourceHeld, StoreTimeout, StoreThrottled, HeadraceError: repeat later.
    """
    newest = parts.stores.wal.newest(log_id)
    if newest is None or not newest.state.ended:
        return Purged(False)
    row = Row(log_id, _config(parts, log_id))
    if row.config.role:
        return Purged(False)
    _mark_ended(parts, row.config, newest)
    if not newest.state.is_purgeable:
        return Purged(False)
    ended = [(one, parts.stores.wal.newest(one.log_id)) for one in row.companions]
    companions = [(one, last) for one, last in ended if last is not None]
    for one, last in companions:
        if not last.state.is_purgeable:
            raise Damaged(f"companion outlived its main log: log_id={one.log_id} main={log_id}")
    now_ms = parts.now_ms()
    ripe_ms = (
        max(last.committed_ms for last in [newest, *(last for _, last in companions)]) + parts.limits.trim_age_ms
    )
    if now_ms < ripe_ms:
        return Purged(False, ripe_ms)
    if newest.state.holds_source:
        newest = _release(parts, log_id, row.config)
    for one, last in [*companions, (row, newest)]:
        if not _remove(parts, one.config, last):
            return Purged(False, now_ms)
    return Purged(True)


def _remove(parts: Context, config: LogConfig, newest: Entry) -> bool:
    """Purges one log. Returns False if it has more entries, objects or rows than one run should remove."""
    stores, log_id, state = parts.stores, newest.log_id, newest.state
    last = msgspec.structs.replace(config, incarnation=incarnation_of(config, state))
    tombstone = Tombstone(log_id, last, state.ended, state.next_offset)
    # One that exists knows more than entries that a restored table brought back.
    stores.objects.create(keys.tombstone(log_id), msgspec.json.encode(tombstone))
    watermark = stores.watermarks.get(log_id)
    if watermark.end_slot < newest.slot:
        stores.watermarks.publish(log_id, watermark.generation + 1, newest.slot, state.next_offset, state.total_bytes)
        if stores.watermarks.get(log_id).end_slot < newest.slot:
            raise StoreError(f"watermark moved during a purge: log_id={log_id}")
    if not _remove_entries(parts, newest) or not _remove_objects(parts, log_id):
        return False
    tables: list[SurfaceTable] = [stores.producers, stores.follows, stores.sessions, *stores.tables.values()]
    if not all(table.purge(log_id) for table in tables):
        return False
    for note in (SURFACE_NOTE, SEALER_NOTE):
        stores.watermarks.drop_note(log_id, note)
    stores.wal.purged(log_id, newest.slot)
    return True


def overdue(parts: Context) -> int:
    """Sends messages to purge the logs that could have been purged a trim age ago, and still are not: an event or a message
    was lost. Returns their number. Stops when its time is over; the next run begins with the same logs.
    """
    clock, now_ms = parts.stores.clock, parts.now_ms()
    until = clock.monotonic() + WALK_S
    marked = parts.stores.wal.unpurged(now_ms - 2 * parts.limits.trim_age_ms)
    in_time = takewhile(lambda _: clock.monotonic() < until, marked)
    sent = 0
    while log_ids := list(islice(in_time, _BATCH)):
        wanted = [Message("purge", log_id) for log_id in dict.fromkeys(log_ids)]
        parts.queue.send(wanted, now_ms)
        sent += len(wanted)
    return sent


def _mark_ended(parts: Context, config: LogConfig, newest: Entry) -> None:
    """Marks the catalog row as ended, in case the process that ended the log died before it could.

    Otherwise a source that is kept for its forks would be listed until they end.
    """
    row = parts.stores.catalog.get(config.surface, config.name)
    if row is not None and row.log_id == newest.log_id and not row.ended:
        parts.stores.mark_ended(row, newest.state)


def _config(parts: Context, log_id: str) -> LogConfig:
    """Returns the log's configuration: from the first entry, or `log.json`, or the tombstone of an earlier try. Raises
    Damaged if none of them has it, NewerFormat if a newer release wrote it.
    """
    first = parts.stores.wal.read(log_id, limit=1).entries
    if first and first[0].config is not None:
        return first[0].config
    objects = parts.stores.objects
    for key in (keys.description(log_id), keys.tombstone(log_id)):
        try:
            return packed.parse(objects.get(key), _Named, key).config
        except ObjectMissing:
            continue
    raise Damaged(f"nothing says what log this was: log_id={log_id}")


def _release(parts: Context, log_id: str, config: LogConfig) -> Entry:
    parts.release_source(log_id, config)
    newest = parts.stores.wal.newest(log_id)
    if newest is None or not newest.state.is_purgeable or newest.state.holds_source:
        raise SourceHeld(f"fork still holds its source: log_id={log_id}")
    return newest


def _remove_entries(parts: Context, newest: Entry) -> bool:
    """Removes all entries but the newest, up to a limit. Returns False if some are left for the next run."""
    budget = Budget(parts.stores.clock, memo.RUN_MS)
    for _ in range(MAX_PAGES):
        if budget.spent:
            break
        page = parts.stores.wal.read(newest.log_id, end=newest.slot)
        if page.entries:
            parts.stores.wal.remove(newest.log_id, [entry.slot for entry in page.entries])
        if page.complete:
            return True
    return False


def _remove_objects(parts: Context, log_id: str) -> bool:
    """Removes all objects but two, page by page, up to a limit. Returns False if some are left for the next run."""
    kept = {keys.description(log_id), keys.tombstone(log_id)}
    found = (key for key in parts.stores.objects.list(keys.log_prefix(log_id)) if key not in kept)
    budget = Budget(parts.stores.clock, memo.RUN_MS)
    for _ in range(MAX_PAGES):
        if budget.spent:
            break
        page = list(islice(found, PAGE_OBJECTS))
        if page:
            parts.stores.objects.delete(page)
        if len(page) < PAGE_OBJECTS:
            return True
    return False
