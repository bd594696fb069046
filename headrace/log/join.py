"""Reads the tail of a log, and joins it with the published part. Only this module decides which entries of the
write-ahead log count, and whether they continue a manifest.

Dead items are ignored and no gap is crossed. An entry read here is *confirmed* if it is the newest, or if its
successor, read as well, names it. A dead item, which a late writer put into a slot trimmed long ago, is neither. The
entry after `e` is always at `e.next_slot()`.

A look at a log reads the tail first. If the tail does not continue the manifest, the sealer has published and trimmed
meanwhile: the watermark and newer manifests are read, and the tail again. If they never join, the log is damaged; no
answer ever has a gap. Reads, times, searches, the sealer and the indexer all use this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, repeat
from types import MappingProxyType
from typing import NamedTuple

from headrace.batch import EMPTY, MAX_PAYLOAD_BYTES, Batch, decode_frames
from headrace.errors import Damaged
from headrace.log.stores import Stores
from headrace.manifest.manifest import Manifest
from headrace.manifest.store import ManifestStore
from headrace.objects import ObjectMissing, Range
from headrace.wal import Wal
from headrace.wal.state import Entry, first_slot

RECENT = 10  # entries a cold reader takes from the end: most followers find their place in them
_FEWEST = 4  # entries a catch-up read asks for: the last of them is only there to confirm the one before
LOOKS = 4  # the sealer can publish and trim between two of our looks, but not for ever
_PAGE = 100  # entries a query takes on its way back from the end
_VERIFY_ENTRIES = 64  # entries per query of the ack fence; it rarely needs more than the next one


class Tail(NamedTuple):
    """A chain of entries, ascending, of which each is the predecessor that the next one names; and the newest entry of the
    log if it was read, which is then the last of the chain.
    """

    entries: list[Entry]
    newest: Entry | None

    def covers(self, position: int) -> bool:
        """Returns whether the record at `position` is in the chain."""
        return bool(self.entries) and self.entries[0].offset <= position < self.entries[-1].next_offset


def chained(first: Entry, second: Entry) -> bool:
    """Returns whether `second` names `first` as its predecessor."""
    return second.prev_slot == first.slot and second.prev_id == first.id


def confirmed(entries: Sequence[Entry], newest_is_last: bool) -> list[Entry]:
    """Returns the last chain among entries that are ascending. It ends with the newest entry (the last one, if
    `newest_is_last`), or with one that its successor names; it begins after a gap. Empty if no entry is confirmed.
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


def read_newest(wal: Wal, log_id: str) -> Tail:
    """Reads the newest entries of a log, as far as they form a chain; costs one query."""
    page = wal.read(log_id, limit=RECENT, descending=True)
    entries = confirmed(page.entries[::-1], newest_is_last=True)
    return Tail(entries, entries[-1] if entries else None)


def read_after(wal: Wal, log_id: str, known_slot: int) -> Tail:
    """Reads the chain from an entry on that this process knows to be valid, that entry included; costs one query. Empty if
    the entry was trimmed since.
    """
    page = wal.read(log_id, start=known_slot)
    entries = confirmed(page.entries, newest_is_last=page.complete)
    if not entries or entries[0].slot != known_slot:
        return Tail([], None)
    return Tail(entries, entries[-1] if page.complete else None)


def read_beyond(wal: Wal, known: Entry) -> Tail:
    """Reads the chain after an entry, without it; costs one query, which bills next to nothing if nothing came after the
    entry. Then that one is the newest, and `entries` is empty. There is no newest if it was trimmed since.

    The entry must have been known to be valid a short time before the answer, as in `read_since`.
    """
    page = wal.read(known.log_id, start=known.slot + 1)
    entries = confirmed([known, *page.entries], newest_is_last=page.complete)
    if not entries or entries[0] is not known:
        return Tail([], None)
    return Tail(entries[1:], entries[-1] if page.complete else None)


def read_since(wal: Wal, known: Entry) -> Tail:
    """Reads the chain after an entry, which comes first in it; costs one query. Empty if more than a few came after it.

    The entry must have been known to be valid a short time before the answer: later, dead items may follow it.
    """
    page = wal.read(known.log_id, start=known.slot + 1, limit=_VERIFY_ENTRIES)
    entries = confirmed([known, *page.entries], newest_is_last=page.complete)
    if not page.complete or entries[0] is not known:
        return Tail([], None)
    return Tail(entries, entries[-1])


def estimate_entries(records: int, size: int, sample: Tail | None) -> int:
    """Estimates how many entries to request to get `records` records or `size` bytes of data: from a sample of entries, or
    without one as if each had a single record.
    """
    held = sum(entry.count for entry in sample.entries) if sample is not None else 0
    if sample is None or not held:
        return max(_FEWEST, records + 2)
    many = -(-records * len(sample.entries) // held)
    held_bytes = sample.entries[-1].state.total_bytes - sample.entries[0].state.total_bytes
    if held_bytes > 0:  # of all of them but the first
        many = min(many, -(-size * (len(sample.entries) - 1) // held_bytes))
    return max(_FEWEST, many + 2)


def read_around(wal: Wal, log_id: str, position: int, limit: int | None = None) -> Tail:
    """Reads the chain that holds `position`; if no entry holds it, the tail does not cover it. Costs one query, or two if
    the position is inside a batch or before trimmed entries.

    It costs more only if control entries (forks, definitions) at that offset fill a page.
    """
    page = wal.read(log_id, start=first_slot(position), limit=limit)
    entries = list(page.entries)
    while page.entries and not page.complete and entries[-1].offset <= position and not _has(entries, position):
        page = wal.read(log_id, start=entries[-1].slot + 1, limit=limit)
        entries += page.entries
    if not entries or entries[0].offset > position:
        before = wal.newest(log_id, below=first_slot(position))
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
    """Returns the part of a chain from the entry that holds `position` on; only its last entry if all are before that."""
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


# The published part and the tail.


class NotJoined(Exception):
    """The entries that were read leave a gap after the manifest, do not reach far enough, or have lost a payload. Either
    the manifest is old (others have published and trimmed since), and joining succeeds with a newer one; or the log is
    damaged, and it never does.
    """


def looks(log_id: str, what: str) -> Iterator[int]:
    """Yields the number of each attempt to join manifest and tail; the caller stops when one succeeds.

    Raises:
        Damaged: no attempt succeeded.
    """
    yield from range(LOOKS)
    raise Damaged(f"gap in a log: log_id={log_id} {what}")


def newest_manifest(
    stores: Stores, manifests: ManifestStore, log_id: str, known: Manifest | None = None
) -> Manifest | None:
    """Returns the newest generation of a log's manifest, None if there is none. The search starts at `known`, or at the
    generation that the watermark names.
    """
    return manifests.newest(log_id, known, stores.watermarks.get(log_id).generation)


def continues(known: Manifest | None, entry: Entry) -> bool:
    """Returns whether an entry follows what a manifest publishes without a gap; always True for a log's first entry."""
    if known is None:
        return entry.prev_slot < 0
    return entry.prev_slot < 0 or (entry.prev_slot, entry.prev_id) == (known.last_slot, known.last_id)


def forward(wal: Wal, log_id: str, known: Manifest | None, through_slot: int) -> Iterator[list[Entry]]:
    """Yields the entries after a manifest up to a slot, one page of the store at a time, as long as they form the
    chain.

    Raises:
        NotJoined: the entries don't continue `known`.
    """
    start = known.end_slot if known is not None else 0
    before = (known.last_slot, known.last_id) if known is not None else (-1, "")
    while start <= through_slot:
        page = wal.read(log_id, start=start, end=through_slot + 1)
        chained: list[Entry] = []
        for entry in page.entries:
            if (entry.prev_slot, entry.prev_id) != before:
                break
            chained.append(entry)
            before = (entry.slot, entry.id)
        if chained:
            yield chained
        if len(chained) < len(page.entries):
            slot = page.entries[len(chained)].slot
            raise NotJoined(f"gap before entry: log_id={log_id} slot={slot} expected={before}")
        if page.complete or not page.entries:
            return
        start = page.entries[-1].slot + 1


def verify(stores: Stores, manifests: ManifestStore, entry: Entry) -> bool:
    """Returns whether `entry`, which is stored in its slot, is part of its log's chain: the ack fence. If it is certain
    that it is dead, it is removed.

    A slot at or above the published end was never used before, since only published entries are trimmed. There the entry is
    in the chain if the chain leads from the published end to it: so its predecessor must be in it, too.
    """
    for _ in range(LOOKS):  # it may be sealed and trimmed while we look
        watermark = stores.watermarks.get(entry.log_id)
        if entry.slot < watermark.end_slot:
            return _is_followed(stores.wal, entry, watermark.end_slot)
        known = manifests.load(entry.log_id, watermark.generation) if watermark.generation else None
        with suppress(NotJoined):
            chain = [page[-1] for page in forward(stores.wal, entry.log_id, known, entry.slot)]
            return bool(chain) and (chain[-1].slot, chain[-1].id) == (entry.slot, entry.id)
    return False


def _is_followed(wal: Wal, entry: Entry, end_slot: int) -> bool:
    """Returns whether successors lead from an entry, each naming the one before, to the published end or to the newest,
    which is never trimmed. One step is not enough, since two dead items may name each other. Otherwise the entry is a dead
    item in a trimmed slot, and is removed.
    """
    last = entry
    while last.slot < end_slot:
        page = wal.read(entry.log_id, start=last.slot + 1, limit=_VERIFY_ENTRIES)
        for after in page.entries:
            if not chained(last, after):
                wal.remove_dead(entry)
                return False
            last = after
        if page.complete:
            return True
    return True


def backward(wal: Wal, log_id: str) -> Iterator[Entry]:
    """Yields entries from the newest backwards, each the predecessor that the one before names; so dead items are
    skipped.
    """
    below: int | None = None
    successor: Entry | None = None
    while True:
        page = wal.read(log_id, end=below, limit=_PAGE, descending=True)
        for entry in page.entries:
            if successor is None or (successor.prev_slot, successor.prev_id) == (entry.slot, entry.id):
                yield entry
                successor = entry
        if page.complete:
            return
        below = page.entries[-1].slot


def between(wal: Wal, log_id: str, first: int, end: int, most_bytes: int) -> list[Entry]:
    """Returns the confirmed entries with records of `[first, end)`; if their data exceeds `most_bytes`, only the newest
    of them.

    Raises:
        NotJoined: the chain does not cover the range, as far as `most_bytes` allow.
    """
    found: list[Entry] = []  # the newest first
    slot_end: int | None = None
    is_over = False
    while True:
        page = wal.read(log_id, start=first_slot(first), end=slot_end, descending=True)
        found += page.entries
        is_over = bool(found) and found[0].state.total_bytes - found[-1].state.total_bytes >= most_bytes
        if page.complete or not page.entries or is_over:
            break
        slot_end = page.entries[-1].slot
    joined = confirmed(found[::-1], newest_is_last=True)
    if not joined or joined[-1].next_offset < end or (joined[0].offset > first and not is_over):
        raise NotJoined(f"chain does not reach: log_id={log_id} first={first} end={end}")
    newest_bytes = joined[-1].state.total_bytes
    return [
        entry
        for entry in joined
        if entry.count and entry.next_offset > first and entry.offset < end
        if newest_bytes - entry.state.total_bytes < most_bytes
    ]
