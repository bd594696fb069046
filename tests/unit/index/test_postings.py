"""Postings, written and read: what was asked for and nothing else, whatever the terms are."""

from __future__ import annotations

from collections import defaultdict
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.index import families, fetching, writing
from headrace.index.fetching import CachedRanges
from headrace.index.postings import TermRequest
from headrace.objects.memory import MemoryObjects
from tests.support.examples import examples
from tests.unit.index import samples

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
words = st.one_of(texts, st.sampled_from(["", "a", "aa", "ab", "é", "z" * 200, "z" * 200 + "a", "z" * 127]))
fields = st.sampled_from(["a", "a.b", "level"])
offsets = st.one_of(st.integers(100, 400), st.integers(65_500, 65_600), st.integers(999_990, 999_999))
kw = st.lists(st.tuples(st.builds(families.value_term, fields, words), offsets, st.none()), unique=True, max_size=60)
fts = st.lists(
    st.tuples(st.builds(families.word_term, fields, words), offsets, st.integers(0, 50)), unique=True, max_size=60
)
lex = st.lists(st.tuples(words.map(families.text_bytes), offsets, st.none()), unique=True, max_size=60)
GROUPS = st.sampled_from([1, 40, 100_000])
PARTS = st.sampled_from([1, 2_000, 1_000_000])

Found = dict[bytes, list[tuple[int, Any]]]


def _expected(occurrences: list[tuple[bytes, int, int | None]], request: TermRequest) -> Found:
    found: Found = defaultdict(list)
    for term, offset, place in sorted(occurrences, key=lambda one: (one[0], one[1], one[2] or 0)):
        high = request.high if request.high is not None else request.low + b"\0"
        first, end = request.chunks or (0, 1 << 30)
        if request.low <= term < high and first <= offset >> families.CHUNK_BITS < end:
            found[term].append((offset, place if request.positions else None))
    return dict(found)


def _found(postings: Any) -> Found:
    assert [one.term for one in postings] == postings.terms == sorted(set(postings.terms))
    return {
        one.term: [
            (int(doc), int(place) if place is not None else None)
            for doc, place in zip(one.docs, one.pos if one.pos is not None else [None] * len(one.docs), strict=True)
        ]
        for one in postings
    }


@examples(80)
@given(kw=kw, fts=fts, lex=lex, more=words, field=fields, group=GROUPS, part=PARTS)
def test_each_term_and_each_range_of_terms_is_found(
    kw: list[Any], fts: list[Any], lex: list[Any], more: str, field: str, group: int, part: int
) -> None:
    objects = MemoryObjects()
    small = patch.dict(writing._GROUP_BYTES, dict.fromkeys(writing._GROUP_BYTES, group))
    with small, patch.object(writing, "PART_BYTES", part):
        run = samples.postings_run(objects, {"kw": kw, "fts": fts, "lex": lex})
    reader = samples.opened(objects, run)
    occurrences = {"kw": kw, "fts": fts, "lex": lex}
    requests = [TermRequest("kw", families.value_term(field, more)), TermRequest("kw", families.has_term(field))]
    requests += [TermRequest.beginning("kw", families.prefix_term(field, more[:1]))]
    requests += [TermRequest.beginning("fts", families.prefix_term(field, more[:1]), positions=True)]
    requests += [TermRequest("kw", one[0]) for one in kw[:5]]
    requests += [TermRequest("fts", one[0], None, positions) for one in fts[:3] for positions in (False, True)]
    requests += [TermRequest("lex", one[0]) for one in lex[:3]]
    requests += [
        request._replace(chunks=chunks)
        for request in requests
        if request.family == "fts"
        for chunks in ((0, 1), (1, 2), (1, 16))
    ]
    answers = fetching.run(reader.postings(requests), CachedRanges(objects).fetches())
    for request, answer in zip(requests, answers, strict=True):
        expected = _expected(occurrences[request.family], request)
        assert _found(answer) == expected
        assert answer.merged().tolist() == sorted({doc for found in expected.values() for doc, _ in found})
    assert fetching.run(reader.postings([]), objects) == []


@examples(60)
@given(lex=lex, after=st.none() | words, limit=st.integers(1, 30), group=GROUPS)
def test_pages_of_keys_are_those_behind_the_last_one(
    lex: list[Any], after: str | None, limit: int, group: int
) -> None:
    objects = MemoryObjects()
    with patch.dict(writing._GROUP_BYTES, lex=group):
        run = samples.postings_run(objects, {"lex": lex})
    reader = samples.opened(objects, run)
    keys = sorted({families.text_of(b"\0" + key) for key, _, _ in lex}, key=str.encode)
    expected = [key for key in keys if after is None or key > after][:limit]
    assert fetching.run(reader.keys_after(after, limit), objects) == expected
    for key in expected[:2]:
        rows = sorted(offset for found, offset, _ in lex if found == key.encode())
        assert fetching.run(reader.rows_of_key(key), objects).tolist() == rows


def test_one_term_of_many_records_is_one_round_and_few_bytes() -> None:
    objects = MemoryObjects()
    found = [(families.value_term("level", "info"), offset, None) for offset in range(100, 300_000)]
    found += [(families.value_term("id", f"{number:08x}"), number + 100, None) for number in range(50_000)]
    run = samples.postings_run(objects, {"kw": found})
    reader = samples.opened(objects, run)
    fetches = CachedRanges(objects).fetches()
    (info, one) = fetching.run(
        reader.postings(
            [
                TermRequest("kw", families.value_term("level", "info")),
                TermRequest("kw", families.value_term("id", "00001000")),
            ]
        ),
        fetches,
    )
    assert np.array_equal(info.merged(), np.arange(100, 300_000))
    assert one.merged().tolist() == [0x1000 + 100]
    assert fetches.stats.rounds == 1
    assert fetches.stats.bytes < 600_000
    (many,) = fetching.run(reader.postings([TermRequest.beginning("kw", families.prefix_term("id", ""))]), fetches)
    assert len(many) == 50_000
    assert many[49_999].docs.tolist() == [50_099]


def test_words_in_a_part_of_a_run_cost_less_than_in_all_of_it() -> None:
    objects = MemoryObjects()
    word = families.word_term("message", "request")
    offsets = np.flatnonzero(np.random.default_rng(1).random(600_000) < 0.3)[100:]
    with patch.dict(writing._GROUP_BYTES, fts=20_000):
        run = samples.postings_run(objects, {"fts": [(word, offset, 3) for offset in offsets.tolist()]})
    reader = samples.opened(objects, run)
    fetched = []
    for chunks in (None, (8, 10), (0, 1), (12, 14)):
        fetches = CachedRanges(objects).fetches()
        (one,) = fetching.run(reader.postings([TermRequest("fts", word, None, True, chunks)]), fetches)
        first, end = chunks or (0, 10)
        assert np.array_equal(one.docs, offsets[slice(*np.searchsorted(offsets, [first << 16, end << 16]))])
        fetched.append(fetches.stats.bytes)
    everything, newest, oldest, nothing = fetched
    assert max(newest, oldest) < everything * 0.4
    assert nothing < newest, "the last row group"


@pytest.mark.parametrize(
    ("family", "rows", "reason"),
    [
        ("kw", [(b"b", 0, [1]), (b"a", 0, [2])], "rows are out of order"),
        ("kw", [(b"a", 1, [1]), (b"a", 0, [2])], "rows are out of order"),
        ("kw", [(b"a", 0, [2]), (b"a", 0, [2])], "rows are out of order"),
        ("kw", [(b"a", 0, [2, 2])], "docs are out of order"),
        ("kw", [(b"a", 0, [2, 65_536])], "docs are out of order"),
        ("kw", [(b"a", 0, [])], "no docs"),
        ("lex", [(b"a", 0, [3, 2])], "docs are out of order"),
        ("fts", [(b"a", 0, [2, 2, 1])], "docs are out of order"),
    ],
)
def test_rows_out_of_order_are_not_written(family: Any, rows: list[Any], reason: str) -> None:
    schema = families.POSTINGS[family]
    batches = []
    for term, chunk, docs in rows:
        row: dict[str, Any] = {"chunk": chunk, "docs": docs, "pos": []}
        row[schema.names[0]] = term.decode() if family == "lex" else term
        batches.append(pa.RecordBatch.from_pylist([row], schema=schema))
    with pytest.raises(ValueError, match=reason):
        list(writing.write(family, schema, batches, iter(["k"])))


def test_positions_stand_beside_docs() -> None:
    row = {"term": b"a", "chunk": 0, "docs": [1, 2], "pos": [1]}
    batch = pa.RecordBatch.from_pylist([row], schema=families.FTS)
    with pytest.raises(ValueError, match="positions"):
        list(writing.write("fts", families.FTS, [batch], iter(["k"])))


def test_row_groups_do_not_depend_on_batches() -> None:
    found = [(families.value_term("id", f"{number * 7919 % 100_003:06d}"), number, None) for number in range(20_000)]
    table = pa.Table.from_batches(list(samples.rows(found, "kw")))
    with patch.dict(writing._GROUP_BYTES, kw=10_000):
        made = [
            list(writing.write("kw", families.KW, table.to_batches(max_chunksize=size), iter(["k"])))
            for size in (13, 50_000)
        ]
    assert made[0] == made[1]
    assert len(made[0][0].part.first) > 1
