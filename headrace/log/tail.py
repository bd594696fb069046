"""Reads the write-ahead log of one log, so that dead items are ignored and no gap is crossed.

An entry read here is *confirmed* if it is the newest, or if its successor, read as well, names it. A dead item, which a
late writer put into a slot trimmed long ago, is neither. The entry after `e` is always at `e.next_slot()`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from types import MappingProxyType
from typing import NamedTuple

from headrace import offset as offsets
from headrace.batch import EMPTY, MAX_PAYLOAD_BYTES, Batch, decode_frames
from headrace.errors import Damaged
from headrace.log.context import Stores
from headrace.objects import ObjectMissing, Range
from headrace.wal import Wal
from headrace.wal.state import Entry

RECENT = 10  # entries a cold reader takes from the end: most followers find their place in them
_FEWEST = 4  # entries a catch-up read asks for: the last of them is only there to confirm the one before


class Tail(NamedTuple):
    """A confirmed chain of entries, ascending, and the newest entry if it was read; then it is the last of the
    chain.
    """

    entries: list[Entry]
    newest: Entry | None

    def covers(self, position: int) -> bool:
        """Returns whether the record at `position` is in the chain."""
        return bool(self.entries) and self.entries[0].offset <= position < self.entries[-1].next_offset


def chained(first: Entry, second: Entry) -> bool:
    """Returns whether `second` is the successor of `first`."""
    return second.prev_slot == first.slot and second.prev_id == first.id


def confirmed(entries: Sequence[Entry], newest_is_last: bool) -> list[Entry]:
    """Returns the longest chain of these entries that ends with the newest entry, or with one that its successor
    confirms.
    """
    end = len(entries)
    if not newest_is_last:
        end -= 1  # its successor is not in hand
    run: list[Entry] = []
    for index in range(end - 1, -1, -1):
        if index + 1 < len(entries) and not chained(entries[index], entries[index + 1]):
            if run:
                break
            continue
        run.append(entries[index])
    return run[::-1]


def recent(wal: Wal, log_id: str) -> Tail:
    """Reads the newest entries of a log, as far as they form a chain; costs one query."""
    page = wal.read(log_id, limit=RECENT, descending=True)
    entries = confirmed(page.entries[::-1], newest_is_last=True)
    return Tail(entries, entries[-1] if entries else None)


def after(wal: Wal, log_id: str, known_slot: int) -> Tail:
    """Reads the chain after an entry that this process knows to be valid; costs one query. Empty if that entry was
    trimmed since.
    """
    page = wal.read(log_id, start=known_slot)
    entries = confirmed(page.entries, newest_is_last=page.complete)
    if not entries or entries[0].slot != known_slot:
        return Tail([], None)
    return Tail(entries, entries[-1] if page.complete else None)


def enough_for(records: int, size: int, sample: Tail | None) -> int | None:
    """Estimates how many entries to request to get `records` records or `size` bytes of data, from a sample of entries.

    Returns None if there is no sample.
    """
    held = sum(entry.count for entry in sample.entries) if sample is not None else 0
    if sample is None or not held:
        return None
    many = -(-records * len(sample.entries) // held)
    held_bytes = sample.entries[-1].state.total_bytes - sample.entries[0].state.total_bytes
    if held_bytes > 0:  # of all of them but the first
        many = min(many, -(-size * (len(sample.entries) - 1) // held_bytes))
    return max(_FEWEST, many + 2)


def around(wal: Wal, log_id: str, position: int, limit: int | None = None) -> Tail:
    """Reads the chain that holds `position`. Costs one query, or two if the position is inside a batch or before
    trimmed entries.

    It costs more only if control entries (forks, definitions) at that offset fill a page.
    """
    page = wal.read(log_id, start=offsets.first_slot(position), limit=limit)
    entries = list(page.entries)
    while page.entries and not page.complete and entries[-1].offset <= position and not _has(entries, position):
        page = wal.read(log_id, start=entries[-1].slot + 1, limit=limit)
        entries += page.entries
    if not entries or entries[0].offset > position:
        before = wal.newest(log_id, below=offsets.first_slot(position))
        if before is not None:
            entries = [before, *entries]
    run = confirmed(entries, newest_is_last=page.complete)
    if not run and len(entries) == 1:
        successor = wal.read(log_id, start=entries[0].slot + 1, limit=1).entries
        run = confirmed([*entries, *successor], newest_is_last=not successor)[:1]
    return Tail(_from(run, position), run[-1] if run and page.complete else None)


def _has(entries: Sequence[Entry], position: int) -> bool:
    """Returns whether the record at `position` is in a confirmed entry of these."""
    return Tail(confirmed(entries, newest_is_last=False), None).covers(position)


def _from(run: list[Entry], position: int) -> list[Entry]:
    """Returns the part of a chain from the entry that holds `position` on."""
    for index, entry in enumerate(run):
        if entry.next_offset > position:
            return run[index:]
    return run[-1:]


class PayloadTrimmed(Exception):
    """The entry's payload object is gone, because the entry was trimmed after it was read."""


def fetch_payloads(stores: Stores, entries: Iterable[Entry]) -> dict[str, bytes]:
    """Reads the payload objects of these entries, by key, with one round of parallel GETs.

    Returns an empty result if there are fewer than two, or if one of them is gone; reading them one by one then finds
    out which.
    """
    spilled = [entry.payload_key for entry in entries if entry.payload_key is not None]
    if len(spilled) < 2:
        return {}
    try:
        found = stores.objects.get_ranges([Range(key, 0, MAX_PAYLOAD_BYTES) for key in spilled])
    except ObjectMissing:
        return {}
    return dict(zip(spilled, found, strict=True))


def read_payload(stores: Stores, entry: Entry, fetched: Mapping[str, bytes] = MappingProxyType({})) -> Batch:
    """Reads the records of an entry, with their append times.

    Args:
        fetched: objects that were read already, by key.

    Raises:
        PayloadTrimmed: the object that holds them is gone.
        Damaged: the records don't decode, or their number differs from that in the entry or its append times.
    """
    if not entry.count:
        return EMPTY
    source = entry.payload_key or f"log_id={entry.log_id} slot={entry.slot}"
    if entry.payload is not None:
        frames = entry.payload
    elif entry.payload_key is not None and entry.payload_key in fetched:
        frames = fetched[entry.payload_key]
    elif entry.payload_key is not None:
        try:
            frames = stores.objects.get(entry.payload_key)
        except ObjectMissing as exc:
            raise PayloadTrimmed(source) from exc
    else:
        raise Damaged(f"entry has records and no payload: {source}")
    batch = decode_frames(frames, source)
    timed = sum(run.count for run in entry.times)
    if not len(batch) == timed == entry.count:
        raise Damaged(f"entry holds other than it says: {source} expected={entry.count} found={len(batch)} {timed=}")
    if len(entry.times) == 1:
        return batch.at(entry.times[0].time_ms)
    return batch.at(list(chain.from_iterable(repeat(run.time_ms, run.count) for run in entry.times)))
