"""Short ways to say entries, rows and requests."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from headrace.batch import Batch, Record, encode_frames
from headrace.streams.values import AppendRequest
from headrace.tables.catalog import Row
from headrace.wal.state import Companion, Entry, LogConfig, LogState, Producer, TimeRun

BYTES = "application/octet-stream"
JSON = "application/json"
NOW_MS = 1_700_000_000_000

_numbers = itertools.count()


def log_id() -> str:
    """Returns an id that no other test uses."""
    return f"{next(_numbers):032x}"


def config(name: str = "s", *, surface: str = "streams", **fields: Any) -> LogConfig:
    """Returns a configuration."""
    values: dict[str, Any] = {"incarnation": 0, "content_type": BYTES, "created_ms": NOW_MS, **fields}
    return LogConfig(surface=surface, name=name, **values)


def row(
    name: str, log: str, *, surface: str = "streams", companions: tuple[Companion, ...] = (), **fields: Any
) -> Row:
    """Returns a catalog row."""
    return Row(log, config(name, surface=surface, companions=companions), **fields)


def first_entry(log: str, *data: bytes, **fields: Any) -> Entry:
    """Returns a log's first entry."""
    return _entry(log, 0, "create", data, {"config": config(), **fields})


def next_entry(before: Entry, *data: bytes, **fields: Any) -> Entry:
    """Returns the entry after `before`: data, or a close when there are none."""
    chain = {
        "prev_slot": before.slot,
        "prev_id": before.id,
        "prev_committed_ms": before.committed_ms,
        "prev_bytes": before.state.total_bytes,
    }
    return _entry(before.log_id, before.next_slot(), "data" if data else "close", data, {**chain, **fields})


def _entry(log: str, slot: int, kind: Any, data: tuple[bytes, ...], fields: dict[str, Any]) -> Entry:
    records = Batch.of(data)
    values: dict[str, Any] = {
        "log_id": log,
        "slot": slot,
        "kind": kind,
        "state": LogState(next_offset=slot // 10**9 + len(records)),
        "request_ids": (f"built-{next(_numbers)}",),  # never one that a world under test gives
        "committed_ms": NOW_MS,
        "count": len(records),
        "payload": encode_frames(records) if records else None,
        "times": (TimeRun(len(records), NOW_MS),) if records else (),
        **fields,
    }
    return Entry(**values)


def appending(*data: bytes, content_type: str | None = BYTES, **fields: Any) -> AppendRequest:
    """Returns an append of these records."""
    return AppendRequest(content_type=content_type, records=Batch.of(data), **fields)


def batch_of(records: Sequence[Record]) -> Batch:
    """Returns the batch of these records; their offsets are lost."""
    return Batch.of(
        [one.data for one in records],
        key=[one.key for one in records],
        node=[one.node for one in records],
        meta=[one.meta for one in records],
        time_ms=[one.time_ms for one in records],
        hops=[one.hops for one in records],
    )


def closing(*data: bytes, **fields: Any) -> AppendRequest:
    """Returns a close, with these last records."""
    return appending(*data, close=True, **fields)


def producing(producer: str, seq: int, *data: bytes, epoch: int = 0, **fields: Any) -> AppendRequest:
    """Returns a producer's write."""
    return appending(*data, producer=Producer(producer, epoch, seq), **fields)
