"""The next entries to seal, read from the write-ahead log and checked to be the chain after the manifest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from functions.sealer import policy
from functions.sealer.policy import SealLimits
from headrace.batch import Batch, concat
from headrace.errors import Damaged
from headrace.log import join
from headrace.log.join import NotJoined
from headrace.log.payload import PayloadTrimmed, read_payload
from headrace.log.stores import Stores
from headrace.manifest.manifest import Manifest
from headrace.wal.state import Entry, LogConfig

_FETCHERS = 8  # spilled payloads are at least 32 KB each: their latency, not their size, is what takes time


class Span(NamedTuple):
    """Consecutive entries: their records, and the last of them (payload included).

    Attributes:
        first_offset: of the first record.
        first_committed_ms: commit time of the oldest entry.
    """

    first_offset: int
    records: Batch
    last: Entry
    first_committed_ms: int


def read_span(
    stores: Stores,
    config: LogConfig,
    known: Manifest | None,
    through_slot: int,
    limits: SealLimits,
    log_id: str,
) -> Span:
    """Whole entries after `known`, as many as one segment holds, none above `through_slot`.

    Memory: the records of one segment (at most the limits, or one entry), and about a megabyte of entries.

    Raises:
        NotJoined: the entries do not continue `known`.
        Damaged: an entry contradicts itself.
    """
    batches: list[Batch] = []
    first_offset = expected = known.end_offset if known else config.base_offset
    first: Entry | None = None
    last: Entry | None = None
    for taken in _batches(stores, known, through_slot, limits, log_id):
        first = first or taken[0]
        last = taken[-1]
        for entry, payload in zip(taken, _payloads(stores, taken), strict=True):
            if entry.offset != expected:
                raise Damaged(f"entry is at another offset: log_id={log_id} slot={entry.slot} expected={expected}")
            batches.append(payload)
            expected += len(payload)
    if first is None or last is None:
        raise NotJoined(f"no entries after the manifest: log_id={log_id}")
    return Span(first_offset, concat(batches), last, first.committed_ms)


def _batches(
    stores: Stores, known: Manifest | None, through_slot: int, limits: SealLimits, log_id: str
) -> Iterator[list[Entry]]:
    """Entries of the segment, page by page. Sizes follow from the states, before a payload is fetched."""
    total_bytes = known.state.total_bytes if known else 0
    segment_bytes = segment_records = 0
    for entries in join.forward(stores.wal, log_id, known, through_slot):
        taken: list[Entry] = []
        for entry in entries:
            more_bytes = entry.state.total_bytes - total_bytes
            if entry.count and not policy.fits(segment_bytes, segment_records, more_bytes, entry.count, limits):
                break
            taken.append(entry)
            total_bytes = entry.state.total_bytes
            segment_bytes += more_bytes
            segment_records += entry.count
        if taken:
            yield taken
        if len(taken) < len(entries):
            return


def _payloads(stores: Stores, entries: Sequence[Entry]) -> Iterator[Batch]:
    def fetch(entry: Entry) -> Batch:
        try:
            return read_payload(stores, entry)
        except PayloadTrimmed as exc:
            raise NotJoined(f"payload is gone: {exc}") from exc

    if sum(entry.payload_key is not None for entry in entries) < 2:
        yield from map(fetch, entries)
        return
    with ThreadPoolExecutor(_FETCHERS) as pool:
        yield from pool.map(fetch, entries)
