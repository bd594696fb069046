"""The join of what is published and what is not: the only place that knows when entries in hand continue a manifest.

A look at a log reads the tail first. If the tail in hand does not join the manifest in hand, the sealer published and
trimmed between two looks: read the watermark and newer manifests, and look again. A reader that never joins them has met
damage; it never answers across a gap. Reads, times, searches, the sealer and the indexer all ask here;
`headrace.log.tail` says which entries of the write-ahead log may be believed.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace import offset as offsets
from headrace.errors import Damaged
from headrace.log import tail
from headrace.log.context import Stores
from headrace.manifest.manifest import Manifest
from headrace.manifest.store import ManifestStore
from headrace.wal import Wal
from headrace.wal.state import Entry

LOOKS = 4  # the sealer can publish and trim between two of our looks, but not for ever
_PAGE = 100  # entries a query takes on its way back from the end


class NotJoined(Exception):
    """The entries in hand do not continue the manifest in hand: it is old (others published and trimmed), or damage."""


def looks(log_id: str, what: str) -> Iterator[int]:
    """Yields the number of each look that may be taken to make a join.

    Raises:
        Damaged: none of them joined.
    """
    yield from range(LOOKS)
    raise Damaged(f"gap in a log: log_id={log_id} {what}")


def newest_manifest(
    stores: Stores, manifests: ManifestStore, log_id: str, known: Manifest | None = None
) -> Manifest | None:
    """Returns the newest generation, looked for from the one that is known or that the watermark names."""
    return manifests.newest(log_id, known, stores.watermarks.get(log_id).generation)


def continues(known: Manifest | None, entry: Entry) -> bool:
    """Returns whether nothing is missing between what a manifest publishes and an entry that it does not."""
    if known is None:
        return entry.prev_slot < 0
    return entry.prev_slot < 0 or (entry.prev_slot, entry.prev_id) == (known.last_slot, known.last_id)


def forward(wal: Wal, log_id: str, known: Manifest | None, through_slot: int) -> Iterator[list[Entry]]:
    """Yields the entries after a manifest up to a slot, by pages of the store, as far as they are the chain.

    Raises:
        NotJoined: they don't continue `known`.
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
    """Yields entries from the newest back, as each names its predecessor; a dead item is never one."""
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
    """Returns the confirmed chain of entries with records of `[first, end)`; of more data than that, the newest.

    Raises:
        NotJoined: the chain does not reach from `first` (or as far as `most_bytes` go) to `end`.
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
