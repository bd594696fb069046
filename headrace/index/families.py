"""The families of a run: the Parquet schema of each, and the terms of `kw` and `fts`.

docs/formats.md § Index runs says what each column means. chunk = offset >> 16 and docs = offset & 65535, of the log's
offsets. Rows of `kw`, `fts` and `lex` are sorted by term (key), chunk and first doc; a term may have several rows of
one chunk, if a compacted run holds several parts of it. The docs of a row are ascending; in `fts` a doc is repeated for
each occurrence, and `pos` holds the places.

Terms are bytes, one namespace for all fields of a run, sorted as bytes:

    field 00 text     a canonical value of a field as text, or a word of a text field
    01 field          the field has a value
    02 field          the field has values that the families can't hold exactly

A field's name holds no byte below 2D, so that no term means two things and a prefix stays within its field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pyarrow as pa

from headrace.query.language import canonical
from headrace.query.language.canonical import Kind

CHUNK_BITS = 16
CHUNK_MASK = (1 << CHUNK_BITS) - 1

OFFSET = "_offset"  # column of `col` with a record's offset: no field's name begins with an underscore
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
    """Returns the name of the column of `col` that holds a field; for a text field, that of its number of words."""
    return field + WORDS if kind == "text" else field


def col(fields: Mapping[str, Kind]) -> pa.Schema:
    """Returns the schema of `col` with a column for the offset and one for each of these fields, in their order."""
    columns = [pa.field(column_name(name, kind), _COLUMN_TYPES[kind]) for name, kind in fields.items()]
    return pa.schema([pa.field(OFFSET, pa.int64(), nullable=False), *columns])


CUT = 128  # bytes of a sort key that a descriptor keeps: longer than any field's name

_HAS = b"\x01"
_LOSSY = b"\x02"
_END = b"\x00"


def value_term(field: str, value: str | int | float | bool) -> bytes:
    """Returns the term that lists the records in which a field has this canonical value."""
    return word_term(field, canonical.text(value))


def word_term(field: str, word: str) -> bytes:
    """Returns the term that lists the records in which a text field has this word, or another field the value with this
    text.
    """
    return field.encode() + _END + text_bytes(word)


def prefix_term(field: str, text: str) -> bytes:
    """Returns the lower bound of a field's terms that begin with `text`; their upper bound is `after(…)` of it."""
    return word_term(field, text)


def has_term(field: str) -> bytes:
    """Returns the term that lists the records in which a field has a value. The family `fts` holds it for a text field,
    the family `kw` for any other field.
    """
    return _HAS + field.encode()


def lossy_term(field: str) -> bytes:
    """Returns the term of `kw` that lists the records whose values of a field the run can't hold exactly, so that each
    query on the field must look at them.
    """
    return _LOSSY + field.encode()


def text_of(term: bytes) -> str:
    """Returns the value or word in a term of `value_term` or `word_term`."""
    return term.partition(_END)[2].decode("utf-8", "surrogatepass")


def after(prefix: bytes) -> bytes:
    """Returns the least byte string above all that begin with `prefix`.

    Raises:
        ValueError: `prefix` is empty or consists of FF bytes only, so nothing is above.
    """
    kept = prefix.rstrip(b"\xff")
    if not kept:
        raise ValueError(f"no bytes are above: prefix={prefix!r}")
    return kept[:-1] + bytes([kept[-1] + 1])


def text_bytes(text: str) -> bytes:
    """Encodes text as UTF-8, lone surrogates included; the order of the bytes is that of the code points."""
    return text.encode("utf-8", "surrogatepass")


def cut(term: bytes) -> bytes:
    """Cuts a sort key to the length that a descriptor keeps, `CUT` bytes."""
    return term[:CUT]
