"""Packed postings in transit through Spark: which records hold each term.

Rows are sorted by term and first offset. A row stays within one chunk of 65,536 offsets. `docs` lists the records in
it, two bytes each, ascending. In `fts` a record is repeated for each occurrence of the word, and `positions` holds the
places, four bytes each. Both are little-endian. As bytes they pass through Spark many times cheaper than as lists of
numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.index import families
from headrace.index.families import CHUNK_BITS, CHUNK_MASK

_DOC = np.dtype("<u2")
_POSITION = np.dtype("<i4")

Numbers = npt.NDArray[np.int64]


class Postings(NamedTuple):
    """Rows that say which records hold each term, as four columns of equal length."""

    terms: pa.Array  # binary
    firsts: pa.Array  # int64: offset of the first doc
    docs: pa.Array  # binary
    positions: pa.Array  # binary; empty without positions


NOTHING = Postings(pa.array([], pa.binary()), pa.array([], pa.int64()), *[pa.array([], pa.binary())] * 2)


def group(
    terms: pa.Array, codes: npt.NDArray[np.int32], offsets: Numbers, positions: Numbers | None = None, *, words: bool
) -> Postings:
    """Builds postings from occurrences of terms.

    Args:
        terms: binary, sorted, each once.
        codes: per occurrence, the index of the term in `terms`.
        offsets: per occurrence, the record's offset; ascending.
        positions: per occurrence, the place in the record's text, if places are kept.
        words: whether to keep every occurrence; otherwise each record is listed once per term.
    """
    if not len(codes):
        return NOTHING
    # Numbers of 16 bits are sorted by radix, several times faster.
    order = np.argsort(codes.astype(np.uint16) if len(terms) <= 1 << 16 else codes, kind="stable")
    codes, offsets = codes[order], offsets[order]
    is_new = _changes(codes)
    if not words:
        kept = is_new | _changes(offsets)
        codes, offsets, is_new = codes[kept], offsets[kept], is_new[kept]
    starts = np.flatnonzero(is_new | _changes(offsets >> CHUNK_BITS))
    return Postings(
        terms.take(pa.array(codes[starts])),
        pa.array(offsets[starts]),
        _packed((offsets & CHUNK_MASK).astype(_DOC), starts),
        _packed(positions[order].astype(_POSITION), starts) if positions is not None else _nothing(len(starts)),
    )


def one_term(term: bytes, offsets: Numbers, *, words: bool = False) -> Postings:
    """Builds the postings of one term that occurs once in each of the records at these ascending offsets."""
    return group(pa.array([term], pa.binary()), np.zeros(len(offsets), np.int32), offsets, words=words)


def join(several: Sequence[Postings]) -> Postings:
    """Concatenates several postings, each of which must have terms above those of the one before."""
    filled = [one for one in several if len(one.terms)]
    return Postings(*map(pa.concat_arrays, zip(*filled, strict=True))) if filled else NOTHING


def of_batch(batch: pa.RecordBatch) -> Postings:
    """Converts an Arrow batch of `kw`, `fts` or `lex` to packed postings."""
    terms, chunks, lists = batch.column(0), batch.column(1).to_numpy(), batch.column(2)
    starts = lists.offsets.to_numpy()
    docs = lists.values.to_numpy()
    firsts = (chunks << CHUNK_BITS) + docs[starts[:-1]]
    base, end = int(starts[0]), int(starts[-1])
    packed = _packed(docs[base:end].astype(_DOC), starts[:-1] - base)
    positions = _nothing(len(terms))
    if batch.num_columns > 3:
        places = batch.column(3)
        at = places.offsets.to_numpy()
        values = places.values.to_numpy()[int(at[0]) : int(at[-1])].astype(_POSITION)
        positions = _binary(values, (at - at[0]) * _POSITION.itemsize)
    return Postings(terms.cast(pa.binary()), pa.array(firsts), packed, positions)


def merged(slices: Iterable[Postings], family: families.Postings) -> Iterator[pa.RecordBatch]:
    """Merges packed postings and yields rows of the family, one per term and chunk.

    Args:
        slices: postings, sorted by term and first offset across all slices; no record occurs twice for a term.
    """
    held = NOTHING  # the last term and chunk, which the next slice may continue
    for one in slices:
        rows = join([held, one])
        if not len(rows.terms):
            continue
        starts = _starts(rows)
        last = int(starts[-1])
        if len(starts) > 1:
            yield _batch(_cut(rows, 0, last), starts[:-1], family)
        held = _cut(rows, last, len(rows.terms))
    if len(held.terms):
        yield _batch(held, np.zeros(1, np.int64), family)


def new_terms(terms: pa.Array, before: bytes | None) -> npt.NDArray[np.bool_]:
    """Returns for each of these sorted terms whether it differs from the previous one; the first is compared with
    `before`.
    """
    if not len(terms):
        return np.zeros(0, np.bool_)
    changes = pc.not_equal(terms[1:], terms[:-1]).to_numpy(zero_copy_only=False)
    return np.concatenate(([terms[0].as_py() != before], changes))


def first_from(terms: pa.Array, low: bytes) -> int:
    """Returns the index of the first of these sorted terms that is not below `low`; their number if all are below."""
    start, end = 0, len(terms)
    while start < end:
        middle = (start + end) // 2
        if terms[middle].as_py() < low:
            start = middle + 1
        else:
            end = middle
    return start


def _starts(rows: Postings) -> Numbers:
    chunks = rows.firsts.to_numpy() >> CHUNK_BITS
    return np.flatnonzero(new_terms(rows.terms, None) | _changes(chunks))


def _cut(rows: Postings, start: int, end: int) -> Postings:
    return Postings(*(column.slice(start, end - start) for column in rows))


def _batch(rows: Postings, starts: Numbers, family: families.Postings) -> pa.RecordBatch:
    """Builds a batch of the family from packed rows. Neighbours of one term and chunk become one list, so only the
    bounds of lists change.
    """
    schema = families.POSTINGS[family]
    taken = pa.array(starts)
    terms = rows.terms.take(taken).cast(schema.field(0).type)
    chunks = pa.array(rows.firsts.to_numpy()[starts] >> CHUNK_BITS)
    columns = [terms, chunks, _lists(rows.docs, starts, _DOC, schema.field(2).type)]
    if family == "fts":
        columns.append(_lists(rows.positions, starts, _POSITION, schema.field(3).type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _lists(packed: pa.Array, starts: Numbers, item: np.dtype[Any], type_: pa.DataType) -> pa.Array:
    bounds, data = _opened(packed)
    offsets = np.append(bounds[starts], bounds[-1]) // item.itemsize
    values = pa.array(data.view(item).astype(np.int32))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values).cast(type_)


def _opened(packed: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Returns the boundaries of the items of a binary array, starting with zero, and all their bytes."""
    _, offsets, data = packed.buffers()
    bounds = np.frombuffer(offsets, np.int32)[packed.offset : packed.offset + len(packed) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return bounds - bounds[0], content[bounds[0] : bounds[-1]]


def _packed(items: npt.NDArray[np.generic], starts: Numbers) -> pa.Array:
    return _binary(items, np.append(starts, len(items)) * items.dtype.itemsize)


def _binary(items: npt.NDArray[np.generic], bounds: Numbers) -> pa.Array:
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(items))]
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)


def _nothing(count: int) -> pa.Array:
    return _binary(np.zeros(0, np.uint8), np.zeros(count + 1, np.int64))


def _changes(values: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
    """Returns for each value whether it differs from the previous one; true for the first."""
    return np.concatenate(([True], values[1:] != values[:-1]))[: len(values)]
