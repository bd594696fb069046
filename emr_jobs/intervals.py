"""Rows of the family `mblk`: the typed intervals of a metrics stream, sorted by metric and window.

    metric string, window_start and window_end timestamp(ms, UTC), offset int64, interval_ms int64,
    unit, metric_kind, temporality, stream, instance, series_key string, attributes map<string, string>,
    count, sum, min, max, avg, p50, p95, p99 double, buckets map<string, double>

Sorted by metric, window_start and offset. A value is null if the record has none, or if the column's type can't hold
it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa

_BATCH = 4096
_LEAST, _GREATEST = -(2**63), 2**63 - 1
_BIAS = 1 << 63
_START = struct.Struct(">Q")
_TIME = pa.timestamp("ms", "UTC")

_TEXTS = {
    "unit": "unit",
    "metric_kind": "metricKind",
    "temporality": "temporality",
    "stream": "stream",
    "instance": "instance",
    "series_key": "seriesKey",
}
_MAPS = ("attributes", "buckets")
_NUMBERS = ("count", "sum", "min", "max", "avg", "p50", "p95", "p99")

SCHEMA = pa.schema(
    [
        pa.field("metric", pa.string(), nullable=False),
        pa.field("window_start", _TIME),
        pa.field("window_end", _TIME),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("interval_ms", pa.int64()),
        *(pa.field(name, pa.string()) for name in _TEXTS),
        pa.field("attributes", pa.map_(pa.string(), pa.string())),
        *(pa.field(name, pa.float64()) for name in _NUMBERS),
        pa.field("buckets", pa.map_(pa.string(), pa.float64())),
    ]
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder()


def row(document: Any, offset: int) -> dict[str, Any] | None:
    """Converts a record to a row of `mblk`, the family of metric intervals. Returns None if the record is no interval,
    because it was appended before the stream got the metrics profile.
    """
    if not isinstance(document, dict) or not isinstance(document.get("metric"), str):
        return None
    return {
        "metric": document["metric"],
        "window_start": _whole(document.get("windowStart")),
        "window_end": _whole(document.get("windowEnd")),
        "offset": offset,
        "interval_ms": _whole(document.get("intervalMs")),
        **{name: _text(document.get(member)) for name, member in _TEXTS.items()},
        "attributes": _items(document.get("attributes"), _text),
        **{name: _number(document.get(name)) for name in _NUMBERS},
        "buckets": _items(document.get("buckets"), _number),
    }


def sort_key(interval: Mapping[str, Any]) -> bytes:
    """Returns a byte string that sorts as metric intervals do: by metric, then by window start."""
    start = interval["window_start"]
    metric: bytes = (
        interval["metric"].encode().replace(b"\0", b"\0\xff")
    )  # so that the end of a text sorts before any further character
    return metric + b"\0\0" + (b"" if start is None else _START.pack(start + _BIAS))


def pack(interval: Mapping[str, Any]) -> bytes:
    """Encodes a row as bytes, so that it can pass through Spark."""
    return _encoder.encode(interval)


def batches(packed: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """Decodes packed rows and yields them as Arrow batches of `SCHEMA`, of up to 4,096 rows."""
    rows = map(_unpacked, packed)
    while some := list(islice(rows, _BATCH)):
        yield pa.RecordBatch.from_pylist(some, schema=SCHEMA)


def _unpacked(data: bytes) -> dict[str, Any]:
    row: dict[str, Any] = _decoder.decode(data)
    for name in _MAPS:
        if row[name] is not None:
            row[name] = list(map(tuple, row[name]))  # as Arrow wants the items of a map
    return row


def rows_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yields the rows of an Arrow batch of metric intervals as dictionaries, with times in epoch milliseconds."""
    for name in ("window_start", "window_end"):
        at = batch.schema.get_field_index(name)
        batch = batch.set_column(at, name, batch.column(at).cast(pa.int64()))
    yield from batch.to_pylist()


def _whole(value: Any) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and _LEAST <= value <= _GREATEST else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _items(value: Any, read: Any) -> list[tuple[str, Any]] | None:
    if not isinstance(value, dict):
        return None
    return [(key, found) for key, one in value.items() if (found := read(one)) is not None]
