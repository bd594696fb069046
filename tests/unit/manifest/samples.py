"""Logs that grow by segments and control entries, for the tests of manifests."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.manifest.manifest import Manifest, describe_page, encode_page, full_page, successor
from headrace.objects import keys
from headrace.objects.memory import MemoryObjects
from headrace.segment.descriptor import PageIndex, Segment
from headrace.streams.values import StreamState
from headrace.wal.state import Ancestor, Entry, LogConfig, LogState

LOG = "a" * 32
START_MS = 1_700_000_000_000
CLOSED = StreamState(closed=True)


def config(base: int = 0) -> LogConfig:
    lineage = (Ancestor("b" * 32, 1, base),) if base else ()
    return LogConfig("streams", "orders", 1, "application/json", START_MS, lineage=lineage)


def segment(number: int, first: int, count: int, time_ms: int | None = None) -> Segment:
    at = START_MS + first if time_ms is None else time_ms
    return Segment(
        number=number,
        key=keys.segment(LOG, number, "n"),
        first_offset=first,
        count=count,
        min_time_ms=at,
        max_time_ms=at + count - 1,
        payload_bytes=10 * count,
        size=1000,
        sha256="0" * 64,
        keys_sha256="1" * 64,
        pages=PageIndex(4, (100, 50), (count - 1, 1), (10 * count - 10, 10)) if count > 1 else _one_page(count),
    )


def _one_page(count: int) -> PageIndex:
    return PageIndex(4, (100,), (count,), (10 * count,))


def data_entry(before: Manifest | None, segments: list[Segment], base: int = 0) -> Entry:
    """Returns the entry that holds the last record of `segments`."""
    last = segments[-1]
    state = LogState(
        next_offset=last.end_offset, append_time_ms=last.max_time_ms, total_bytes=10 * (last.end_offset - base)
    )
    return Entry(
        log_id=LOG,
        slot=(last.end_offset - 1) * 10**9,
        kind="data",
        count=1,
        state=state,
        request_ids=(f"r{last.end_offset}",),
        committed_ms=last.max_time_ms,
    )


def control_entry(before: Manifest, **state: Any) -> Entry:
    """Returns a control entry behind what `before` covers."""
    return Entry(
        log_id=LOG,
        slot=before.end_slot,
        kind="close",
        state=msgspec.structs.replace(before.state, **state),
        request_ids=("control",),
        committed_ms=before.last_committed_ms + 1,
    )


def grown(before: Manifest | None, *counts: int, objects: MemoryObjects | None = None, base: int = 0) -> Manifest:
    """Returns the next generation, with one segment for each of `counts`; sealed pages go to `objects`."""
    page = full_page(before) if before else None
    sealed_page = None
    if page is not None:
        assert objects is not None and before is not None
        key, data = keys.manifest_page(LOG, before.generation + 1, "n"), encode_page(page)
        objects.put(key, data)
        sealed_page = describe_page(key, data, page)
    number, offset = (before.segment_count, before.end_offset) if before else (0, base)
    added = []
    for count in counts:
        sealed = keys.segment(LOG, number + (before.merged_away if before else 0), "n")
        added.append(msgspec.structs.replace(segment(number, offset, count), key=sealed))
        number, offset = number + 1, offset + count
    return successor(
        before,
        log_id=LOG,
        config=config(base),
        segments=added,
        last_entry=data_entry(before, added, base),
        sealed_page=sealed_page,
        now_ms=START_MS,
    )


def controlled(before: Manifest, **state: Any) -> Manifest:
    """Returns the next generation, which folds in a control entry and no segment."""
    entry = control_entry(before, **state)
    return successor(
        before, log_id=LOG, config=before.config, segments=(), last_entry=entry, sealed_page=None, now_ms=START_MS
    )
