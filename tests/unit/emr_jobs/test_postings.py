"""Packed postings: grouped, merged across slices, and read back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emr_jobs import postings
from emr_jobs.postings import Postings
from headrace.index.families import Postings as Family

_OFFSETS = st.sampled_from([0, 1, 2, 65_534, 65_535, 65_536, 131_071, 131_072, 2**40])
_occurrences = st.lists(st.tuples(st.sampled_from([b"a", b"a\0", b"b", b"\xff"]), _OFFSETS), min_size=1, max_size=30)


def grouped(some: list[tuple[bytes, int]], *, words: bool) -> Postings:
    """Postings of occurrences in the order of their offsets; the place of each is its number."""
    unique = sorted({term for term, _ in some})
    codes = np.array([unique.index(term) for term, _ in some], np.int32)
    offsets = np.array([offset for _, offset in some], np.int64)
    places = np.arange(len(some)) if words else None
    return postings.group(pa.array(unique, pa.binary()), codes, offsets, places, words=words)


@pytest.mark.parametrize("family", ["kw", "fts", "lex"])
@given(given_=_occurrences, cuts=st.lists(st.integers(1, 4), max_size=20))
def test_neighbours_become_one_row_wherever_slices_end(
    family: Family, given_: list[tuple[bytes, int]], cuts: list[int]
) -> None:
    if family == "lex":
        given_ = [(term.replace(b"\xff", b"z"), offset) for term, offset in given_]
    some = sorted(given_, key=lambda one: one[1])
    words = family == "fts"
    naive: dict[tuple[bytes, int], list[tuple[int, int]]] = {}
    for place, (term, offset) in enumerate(some):
        docs = naive.setdefault((term, offset >> 16), [])
        if words or (offset & 65535) not in [doc for doc, _ in docs]:
            docs.append((offset & 65535, place))
    # As two segments would bring them: the same chunk may come in two rows of a term.
    half = next((row for row in range(len(some) // 2, len(some)) if some[row][1] != some[row - 1][1]), len(some))
    pieces = [grouped(some[:half], words=words), grouped(some[half:], words=words)] if half else []
    rows = sorted(
        (
            row
            for piece in pieces or [grouped(some, words=words)]
            for row in zip(*(c.to_pylist() for c in piece), strict=True)
        ),
        key=lambda row: row[:2],
    )
    slices, at = [], 0
    for count in [*cuts, len(rows)]:
        part = rows[at : at + count]
        at += count
        if part:
            terms, firsts, docs_, places = zip(*part, strict=True)
            binary = [pa.array(column, pa.binary()) for column in (terms, docs_, places)]
            slices.append(Postings(binary[0], pa.array(firsts, pa.int64()), binary[1], binary[2]))
    found = [row for batch in postings.merged(slices, family) for row in batch.to_pylist()]
    name = "key" if family == "lex" else "term"
    assert [_key(row[name]) for row in found] == [term for term, _ in sorted(naive)]
    assert [row["chunk"] for row in found] == [chunk for _, chunk in sorted(naive)]
    assert [row["docs"] for row in found] == [[doc for doc, _ in naive[key]] for key in sorted(naive)]
    if words:
        shift = half if pieces else len(some)
        assert [row["pos"] for row in found] == [
            [place if place < shift else place - shift for _, place in naive[key]] for key in sorted(naive)
        ]


def _key(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else value


@given(given_=_occurrences)
def test_rows_that_are_read_back_are_what_was_written(given_: list[tuple[bytes, int]]) -> None:
    some = sorted(given_, key=lambda one: one[1])
    written = grouped(some, words=True)
    (table,) = [pa.Table.from_batches(postings.merged([written], "fts"))]
    for batch in table.to_batches(max_chunksize=3):
        read = postings.of_batch(batch)
        again = pa.Table.from_batches(postings.merged([read], "fts"))
        assert again.to_pylist() == batch.to_pylist()


def test_nothing_is_nothing() -> None:
    assert list(postings.merged([], "kw")) == []
    assert list(postings.merged([postings.NOTHING], "kw")) == []
    assert len(postings.join([]).terms) == 0
    assert len(postings.one_term(b"a", np.array([], np.int64)).terms) == 0
