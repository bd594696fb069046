"""Rows of the family `agg` in transit: converts rollup groups between values, bytes that pass through Spark, and
Arrow.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa

from headrace.index import families
from headrace.query.language import rollup, rollup_request
from headrace.query.language.rollup import CompiledRollup, Part, Row

_BATCH = 4096
_HEAD = struct.Struct(">QQ")
_BIAS = 1 << 63

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Row)


def sort_key(row: Row, compiled: dict[str, CompiledRollup]) -> bytes:
    """Returns a byte string that sorts as rollup groups do in an index run. Two rows have equal keys only if they are
    of the same group and interval.
    """
    name, interval_ms, start_ms, key = rollup.sort_key(row, compiled)
    return name.encode() + b"\0" + _HEAD.pack(interval_ms, start_ms + _BIAS) + key.encode("utf-8", "surrogatepass")


def pack(row: Row) -> bytes:
    """Encodes a rollup row as bytes."""
    return _encoder.encode(row)


def unpack(data: bytes) -> Row:
    """Decodes a rollup row from the bytes that `pack` returned."""
    return _decoder.decode(data)


def batches(rows: Iterable[Row], compiled: dict[str, CompiledRollup]) -> Iterator[pa.RecordBatch]:
    """Adds up neighbouring rows of equal groups, and yields the sums as Arrow batches of `agg`, the family of rollup
    groups.
    """
    summed = rollup.sum_groups(rows)
    while some := list(islice(summed, _BATCH)):
        yield pa.RecordBatch.from_pylist([_shown(row, compiled[row.rollup]) for row in some], schema=families.AGG)


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """Yields the rollup rows of an Arrow batch of `agg`, the family of rollup groups."""
    starts = batch.column("start").cast(pa.int64()).to_pylist()
    for one, start in zip(batch.drop_columns(["start", "fragment"]).to_pylist(), starts, strict=True):
        parts = tuple(map(_part, one["measures"]))
        yield Row(one["rollup"], one["interval_ms"], start, tuple(one["dimensions"]), one["count"], parts)


def _shown(row: Row, compiled: CompiledRollup) -> dict[str, Any]:
    return {
        "rollup": row.rollup,
        "interval_ms": row.interval_ms,
        "start": row.start_ms,
        "dimensions": row.dimensions,
        "count": row.records,
        "measures": [_measure(part) for part in row.parts],
        "fragment": rollup_request.fragment(compiled, row),
    }


def _measure(part: Part) -> dict[str, Any]:
    buckets: Sequence[tuple[str, float]] | None = None if part.histogram is None else sorted(part.histogram.items())
    return {
        "count": part.count,
        "sum": part.sum,
        "min": part.min,
        "max": part.max,
        "histogram": None if buckets is None else [{"bucket": name, "count": count} for name, count in buckets],
    }


def _part(measure: dict[str, Any]) -> Part:
    buckets = measure["histogram"]
    histogram = None if buckets is None else {one["bucket"]: one["count"] for one in buckets}
    return Part(measure["count"], measure["sum"], measure["min"], measure["max"], histogram)
