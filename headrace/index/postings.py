"""Postings: requests for terms of `kw`, `fts` and `lex`, and the decoding of rows that answer them, vectorized."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import Damaged
from headrace.index import docsets, families

_SPARSE = 32  # above so many offsets per doc, sorting is cheaper than marking

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]


class TermRequest(NamedTuple):
    """A request for one term, or a range of terms, of a run.

    Attributes:
        family: `kw` or `fts` (terms: `headrace.index.families`), or `lex` (routing keys as UTF-8).
        low: the term, or the lowest term of a range.
        high: end of the range `[low, high)` of terms; None requests only `low`.
        positions: whether to return the positions of words, too; only for `fts`.
        chunks: requests only records in these chunks of offsets, `[first, end)`; None means all.
    """

    family: Literal["kw", "fts", "lex"]
    low: bytes
    high: bytes | None = None
    positions: bool = False
    chunks: tuple[int, int] | None = None

    @classmethod
    def beginning(cls, family: Literal["kw", "fts", "lex"], prefix: bytes, *, positions: bool = False) -> TermRequest:
        """Returns a request for all terms that begin with `prefix`, which must not be empty."""
        return cls(family, prefix, families.after(prefix), positions)


class Posting(NamedTuple):
    """The records of one term: `docs` are offsets, ascending, in `fts` repeated for each occurrence; `pos` has the
    positions, if requested.

    A term without positions (`has`, or a field without `positions`) has an empty `pos`.
    """

    term: bytes
    docs: Int64s
    pos: Int32s | None


class Postings(Sequence[Posting]):
    """The result of a `TermRequest`: the postings of each term, ascending by term.

    Attributes:
        docs: the offsets of all terms, one term after the other.
        pos: the position of each of `docs`; None if positions were not requested, empty if a term has none.
        starts: the index in `docs` at which each term begins, and finally the length of `docs`.
    """

    def __init__(self, names: pa.Array, starts: Int64s, docs: Int64s, pos: Int32s | None) -> None:
        """Creates the result; `names` holds the term of each start as binary."""
        self._names = names
        self.starts = starts
        self.docs = docs
        self.pos = pos

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def nbytes(self) -> int:
        """The memory that the postings take, including whole row groups of names."""
        places = self.pos.nbytes if self.pos is not None else 0
        names: int = self._names.get_total_buffer_size()
        return names + self.starts.nbytes + self.docs.nbytes + places

    @cached_property
    def terms(self) -> list[bytes]:
        """The terms, one for each posting."""
        found: list[bytes] = self._names.to_pylist()
        return found

    @overload
    def __getitem__(self, index: int) -> Posting: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Posting]: ...
    def __getitem__(self, index: int | slice) -> Posting | Sequence[Posting]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        begin, end = self.starts[number], self.starts[number + 1]
        return Posting(
            self.terms[number], self.docs[begin:end], self.pos[begin:end] if self.pos is not None else None
        )

    def __iter__(self) -> Iterator[Posting]:
        return (self[number] for number in range(len(self)))

    def merged(self) -> Int64s:
        """Returns the distinct offsets of all terms, ascending."""
        docs = self.docs
        if len(self) > 1:
            least, span = docs.min(), docs.max() - docs.min() + 1
            if span <= _SPARSE * len(docs):
                is_there = np.zeros(span, bool)
                is_there[docs - least] = True
                marked: Int64s = np.flatnonzero(is_there) + least
                return marked
            docs = np.sort(docs)
        return docsets.drop_repeats(docs)


def groups_of(firsts: Sequence[bytes], low: bytes, high: bytes | None) -> range:
    """Returns the range of row groups that may hold the terms `[low, high)`, or only `low` if `high` is None.

    Args:
        firsts: the first term of each row group, cut by `families.cut`.
    """
    begin = max(0, bisect_left(firsts, families.cut(low)) - 1)  # the term may begin at the end of the group before
    if high is None:
        return range(begin, bisect_right(firsts, families.cut(low)))
    return range(begin, bisect_left(firsts, high))  # a cut term is never above the full one


def narrow(
    groups: range, firsts: Sequence[bytes], begins: Sequence[int], term: bytes, chunks: tuple[int, int]
) -> range:
    """Returns the part of a range of row groups that may hold a term's rows of chunks `[first, end)`.

    Args:
        firsts, begins: the term (cut) and the chunk of each row group's first row.
    """
    if len(term) >= families.CUT:
        return groups  # other terms may have the same cut form
    first, end = chunks
    start, stop = groups.start, groups.stop
    while start + 1 < stop and firsts[start + 1] == term and begins[start + 1] < first:
        start += 1
    while start < stop and firsts[stop - 1] == term and begins[stop - 1] >= end:
        stop -= 1
    return range(start, stop)


def found(request: TermRequest, tables: Sequence[pa.Table], first: int, end: int, source: str) -> Postings:
    """Decodes the rows of consecutive row groups, and returns the postings that a request asks for.

    Args:
        tables: one per row group, with the columns of `families.FTS` (positions only if requested) or `families.LEX`.
        first, end: the offsets that the run covers.
        source: the object's key, for the error.

    Raises:
        Damaged: offsets are outside the run, or not ascending.
    """
    parts = [part for table in tables if (part := _rows(request, table)) is not None]
    if not parts:
        nothing = np.zeros(0, np.int64)
        pos = np.zeros(0, np.int32) if request.positions else None
        return Postings(pa.array([], pa.binary()), np.zeros(1, np.int64), nothing, pos)
    names = pa.concat_arrays([part.names for part in parts]) if len(parts) > 1 else parts[0].names
    counts = np.concatenate([part.counts for part in parts])
    docs = np.concatenate([part.docs for part in parts])
    pos = np.concatenate([part.pos for part in parts if part.pos is not None]) if request.positions else None
    ends = np.cumsum(counts)
    if request.high is None:
        begins = np.zeros(1, np.int64)
    else:
        is_new = np.ones(len(names), bool)
        is_new[1:] = pc.not_equal(names.slice(1), names.slice(0, len(names) - 1)).to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(is_new)
        begins = ends[rows] - counts[rows]
        names = names.take(pa.array(rows))
    starts = np.append(begins, len(docs)).astype(np.int64)
    result = Postings(names.slice(0, len(begins)), starts, docs, pos)
    _check(result, request, first, end, source)
    return result


class _Rows(NamedTuple):
    names: pa.Array
    counts: Int64s
    docs: Int64s
    pos: Int32s | None


def _rows(request: TermRequest, table: pa.Table) -> _Rows | None:
    """Returns the rows of one row group that match a request; None if there are none."""
    names = _array(table, 0)
    if names.type == pa.string():
        names = names.view(pa.binary())
    view = _Terms(names)
    begin = bisect_left(view, request.low)
    end = bisect_right(view, request.low) if request.high is None else bisect_left(view, request.high)
    if begin < end and request.chunks is not None:
        first, stop = request.chunks
        chunks = _array(table, 1).to_numpy()[begin:end]
        is_wanted = (chunks >= first) & (chunks < stop)
        table = table.slice(begin, end - begin).filter(pa.array(is_wanted))
        names = _array(table, 0)
        begin, end = 0, table.num_rows
    if begin >= end:
        return None
    lists = _array(table, 2)
    offsets = lists.offsets.to_numpy()[begin : end + 1]
    counts = np.diff(offsets).astype(np.int64)
    chunks = _array(table, 1).to_numpy()[begin:end] << families.CHUNK_BITS
    docs = lists.values.to_numpy()[offsets[0] : offsets[-1]].astype(np.int64)
    docs += chunks[0] if len(chunks) == 1 else np.repeat(chunks, counts)
    pos = None
    if request.positions:
        places = _array(table, 3)
        bounds = places.offsets.to_numpy()
        pos = places.values.to_numpy()[bounds[begin] : bounds[end]]
    return _Rows(names.slice(begin, end - begin), counts, docs, pos)


class _Terms(Sequence[bytes]):
    """The terms of a row group as a sequence, for binary search."""

    def __init__(self, names: pa.Array) -> None:
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: Any) -> Any:
        return self._names[index].as_py()


def _check(result: Postings, request: TermRequest, first: int, end: int, source: str) -> None:
    docs = result.docs
    steps = np.diff(docs)
    if len(result) > 1:
        steps[result.starts[1:-1] - 1] = 1  # the step from one term to the next may go down
    least = 0 if request.family == "fts" else 1
    rises = not len(steps) or steps.min() >= least
    if not rises or not first <= docs.min() <= docs.max() < end:
        raise Damaged(f"index part names records that the run has not: object={source} term={request.low[:100]!r}")
    if result.pos is not None and len(result.pos) not in (0, len(docs)):
        raise Damaged(f"index part has other positions: object={source} term={request.low[:100]!r}")


def _array(table: pa.Table, column: int) -> Any:
    found_ = table.column(column)
    return found_.chunk(0) if found_.num_chunks == 1 else found_.combine_chunks()
