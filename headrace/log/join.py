"""Joins the published part of a log with its tail; only this module decides whether entries continue a manifest.

A look at a log reads the tail first. If the tail does not continue the manifest, the sealer has published and trimmed
meanwhile: the watermark and newer manifests are read, and the tail again. If they never join, the log is damaged; no
answer ever has a gap. Reads, times, searches, the sealer and the indexer all use this module; `headrace.log.tail`
decides which entries of the write-ahead log count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace import offset as offsets
from headrace.errors import Damaged, SegmentMissing
from headrace.log import tail
from headrace.log.context import Stores
from headrace.log.requests import Head
from headrace.manifest.manifest import Manifest
from headrace.manifest.store import ManifestStore
from headrace.segment import reader as segments
from headrace.wal import Wal
from headrace.wal.state import Entry

LOOKS = 4  # the sealer can publish and trim between two of our looks, but not for ever
_PAGE = 100  # entries a query takes on its way back from the end


class NotJoined(Exception):
    """The entries do not continue the manifest: the manifest is old (others have published and trimmed), or the log is
    damaged.
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
    """Returns the newest generation of a log's manifest. The search starts at `known`, or at the generation that the
    watermark names.
    """
    return manifests.newest(log_id, known, stores.watermarks.get(log_id).generation)


def continues(known: Manifest | None, entry: Entry) -> bool:
    """Returns whether an entry follows what a manifest publishes without a gap."""
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
        page = wal.read(log_id, start=offsets.first_slot(first), end=slot_end, descending=True)
        found += page.entries
        is_over = bool(found) and found[0].state.total_bytes - found[-1].state.total_bytes >= most_bytes
        if page.complete or not page.entries or is_over:
            break
        slot_end = page.entries[-1].slot
    chain = tail.confirmed(found[::-1], newest_is_last=True)
    if not chain or chain[-1].next_offset < end or (chain[0].offset > first and not is_over):
        raise NotJoined(f"chain does not reach: log_id={log_id} first={first} end={end}")
    newest_bytes = chain[-1].state.total_bytes
    return [
        entry
        for entry in chain
        if entry.count and entry.next_offset > first and entry.offset < end
        if newest_bytes - entry.state.total_bytes < most_bytes
    ]


class TimeFinder:
    """Converts times to positions in logs. Append times never fall, so one search per log is enough."""

    def __init__(
        self, stores: Stores, manifests: ManifestStore, refresh_manifest: Callable[[str], Manifest | None]
    ) -> None:
        self._stores = stores
        self._manifests = manifests
        self._refresh_manifest = refresh_manifest

    def position(self, head: Head, since_ms: int) -> int:
        """Returns the position of the stream's first record appended at or after `since_ms`; its end if there is
        none.
        """
        floor = 0
        for ancestor in head.config.lineage:
            if ancestor.through <= floor:
                continue  # nothing is read from it: it need not even stand
            found = self._in_log(ancestor.log_id, since_ms)
            if found is not None and found < ancestor.through:
                return max(found, floor)
            floor = ancestor.through
        found = self._in_log(head.log_id, since_ms)
        return head.state.next_offset if found is None else found

    def _in_log(self, log_id: str, since_ms: int) -> int | None:
        """Returns the position of the first such record among one log's own records; None if there is none."""
        manifest: Manifest | None = None
        for _ in looks(log_id, f"since={since_ms}"):
            before, manifest = manifest, self._refresh_manifest(log_id)
            segment = self._manifests.segment_for_time(manifest, since_ms) if manifest is not None else None
            if segment is not None:
                try:
                    return segments.find_time(self._stores.objects, segment, since_ms)
                except SegmentMissing:  # merged since we looked, or damage
                    assert manifest is not None, "it named the segment"
                    if before is not None and before.generation == manifest.generation:
                        raise
                    continue
            found: int | None = None
            oldest: Entry | None = None
            for entry in backward(self._stores.wal, log_id):
                oldest = entry
                if manifest is not None and entry.slot < manifest.end_slot:
                    return found  # joined: everything older is published, and older than the time
                if entry.count and entry.times[-1].time_ms < since_ms:
                    return found
                offset = entry.offset
                for run in entry.times:
                    if run.time_ms >= since_ms:
                        found = offset
                        break
                    offset += run.count
            if oldest is not None and continues(manifest, oldest):
                return found
            # Trimmed since the manifest in hand: look again.
        raise AssertionError("the last look raises")
