"""The Parquet schemas of the families. docs/formats.md § Index runs says what each column means.

chunk = offset >> 16 and docs = offset & 65535, of the log's offsets. Rows of `kw`, `fts` and `lex` are sorted by term
(key), chunk and first doc; a term may have several rows of one chunk, if a compacted run holds several parts of it. Docs
rise in a row; those of `fts` repeat for each occurrence, `pos` beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pyarrow as pa

from headrace.query.language.config import Kind

CHUNK_BITS = 16
CHUNK_MASK = (1 << CHUNK_BITS) - 1

OFFSET = "_offset"  # of a record, in `col`: no field's name begins so
WORDS = "#words"  # after a text field's name: how many words it has, in `col`

_DOCS = pa.list_(pa.field("element", pa.int32(), nullable=False))

KW = pa.schema(
    [
        pa.field("term", pa.binary(), nullable=False),
        pa.field("chunk", pa.int64(), nullable=False),
        pa.field("docs", _DOCS, nullable=False),
    ]
)
FTS = pa.schema([*KW, pa.field("pos", _DOCS, nullable=False)])
LEX = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("chunk", pa.int64(), nullable=False),
        pa.field("docs", _DOCS, nullable=False),
    ]
)
# Counts of measures are doubles and buckets are text: records may bring their own (headrace.query.language.rollup).
_BUCKET = pa.struct(
    [pa.field("bucket", pa.string(), nullable=False), pa.field("count", pa.float64(), nullable=False)]
)
_MEASURE = pa.struct(
    [
        pa.field("count", pa.float64(), nullable=False),
        pa.field("sum", pa.float64()),
        pa.field("min", pa.float64()),
        pa.field("max", pa.float64()),
        pa.field("histogram", pa.list_(pa.field("element", _BUCKET, nullable=False))),
    ]
)
AGG = pa.schema(
    [
        pa.field("rollup", pa.string(), nullable=False),
        pa.field("interval_ms", pa.int64(), nullable=False),
        pa.field("start", pa.timestamp("ms", "UTC"), nullable=False),
        pa.field("dimensions", pa.list_(pa.field("element", pa.string())), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("measures", pa.list_(pa.field("element", _MEASURE, nullable=False)), nullable=False),
        pa.field("fragment", pa.string(), nullable=False),
    ]
)

Postings = Literal["kw", "fts", "lex"]
POSTINGS: dict[Postings, pa.Schema] = {"kw": KW, "fts": FTS, "lex": LEX}

_COLUMN_TYPES: dict[Kind, pa.DataType] = {
    "keyword": pa.dictionary(pa.int32(), pa.string()),
    "integer": pa.int64(),
    "float": pa.float64(),
    "date": pa.timestamp("ms", "UTC"),
    "bool": pa.bool_(),
    "text": pa.int32(),
}


def column_name(field: str, kind: Kind) -> str:
    """The column of `col` that a field stands in."""
    return field + WORDS if kind == "text" else field


def col(fields: Mapping[str, Kind]) -> pa.Schema:
    """The schema of `col` with these fields, in their order, behind the offset."""
    columns = [pa.field(column_name(name, kind), _COLUMN_TYPES[kind]) for name, kind in fields.items()]
    return pa.schema([pa.field(OFFSET, pa.int64(), nullable=False), *columns])
