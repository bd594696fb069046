"""Phrases in the order of offsets: runs are asked piece by piece, the first records of the order first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import emr_jobs.postings
from headrace.index import evaluate, families
from headrace.query.engine import units
from headrace.query.engine.search import _Search, search
from headrace.query.engine.sources import RunRange, SegmentRange
from tests.support.examples import examples
from tests.unit.engine.strategies import BATCHES
from tests.unit.engine.test_search_properties import pages
from tests.unit.engine.world import NAME, Stream, naive
from tests.unit.index import samples

_BITS = 2
_WORDS = st.sampled_from(["red", "blue", "green", "re"])
PHRASES = st.one_of(
    st.builds(lambda one, two, star: f'message:"{one} {two}{star}"', _WORDS, _WORDS, st.sampled_from(["", "*"])),
    st.builds(lambda one, two: f'"{one} {two}"', _WORDS, _WORDS),
    st.builds(lambda one, two: f'NOT message:"{one} {two}"', _WORDS, _WORDS),
    st.builds(lambda one, two: f'message:"{one} {two}" has:status', _WORDS, _WORDS),
    st.builds(lambda one, two: f'message:"{one} {two}" OR message:{one}', _WORDS, _WORDS),
)


@contextmanager
def small_chunks() -> Iterator[None]:
    """Chunks of four records, and steps that begin with one."""
    with pytest.MonkeyPatch.context() as patched:
        for module in (families, evaluate, units, emr_jobs.postings):
            patched.setattr(module, "CHUNK_BITS", _BITS)
        for module in (families, emr_jobs.postings):
            patched.setattr(module, "CHUNK_MASK", (1 << _BITS) - 1)
        patched.setattr(units, "_FIRST_STEP", 1 << _BITS)
        patched.setattr(units, "_GROWTH", 2)
        yield


@examples(25)
@given(
    batches=BATCHES,
    questions=st.lists(st.tuples(PHRASES, st.booleans()), min_size=1, max_size=4),
    size=st.integers(1, 7),
)
def test_every_page_is_what_a_naive_search_finds(
    batches: list[list[Any]], questions: list[tuple[str, bool]], size: int
) -> None:
    with small_chunks():
        stream = Stream()
        for stage in stream.stages(batches):
            config = stream.logs.definition(NAME).search
            for q, descending in questions:
                order = [("offset", descending)]
                expected = naive(config, 1, stream.documents, q, order)
                found, totals = pages(stream, q, order, size)
                assert found == expected, (stage, q, order)
                for total, exact in totals:
                    assert total == len(expected) if exact else total <= len(expected), (stage, q, order)


@pytest.fixture
def stream() -> Iterator[Stream]:
    """Yields a stream with one run of 64 records; every second one has the phrase."""
    with small_chunks():
        stream = Stream()
        texts = ["red blue", "blue red"]
        stream.append([{"at": "2026-01-01T00:00:00Z", "message": texts[n % 2]} for n in range(64)])
        stream.seal()
        stream.index()
        yield stream


def _asked(stream: Stream, q: str, **asked: Any) -> tuple[Any, list[int]]:
    """Returns the answer, and how many records of the run were in each piece that was asked."""
    answer = stream.search(q, explain=True, **asked)
    assert answer.explained is not None
    assert answer.explained["runs"] == {"considered": 1, "opened": 1}
    return answer, [piece["records"] for piece in answer.explained["plan"]]


@pytest.mark.parametrize(("direction", "expected"), [("desc", [62, 60]), ("asc", [0, 2])])
def test_a_page_that_is_full_stops_the_search(stream: Stream, direction: str, expected: list[int]) -> None:
    answer, pieces = _asked(stream, 'message:"red blue"', size=2, sort=[f"offset:{direction}"])
    assert [hit.candidate.offset for hit in answer.hits] == expected
    assert pieces == [4]
    assert (answer.total, answer.exact) == (2, False)


def test_a_phrase_that_nobody_wrote_takes_few_steps(stream: Stream) -> None:
    answer, pieces = _asked(stream, 'message:"red red"', sort=["offset:desc"])
    assert (answer.hits, answer.total, answer.exact) == ([], 0, True)
    assert pieces == [4, 8, 16, 32, 4]


def test_a_later_page_begins_where_the_one_before_ended(stream: Stream) -> None:
    first = stream.search('message:"red blue"', size=20, sort=["offset:desc"])
    after = [first.cursor(first.hits[-1].candidate.offset + 1)]
    answer, pieces = _asked(stream, 'message:"red blue"', size=2, sort=["offset:desc"], search_after=after)
    assert [hit.candidate.offset for hit in answer.hits] == [22, 20]
    assert pieces == [4]


def test_an_order_by_score_needs_the_whole_run(stream: Stream) -> None:
    answer, pieces = _asked(stream, 'message:"red blue"', size=2, sort=["_score:desc"])
    assert pieces == [64]
    assert (answer.total, answer.exact) == (32, True)


def test_another_page_of_the_same_pieces_fetches_nothing_of_the_index(stream: Stream) -> None:
    engine = stream.engine()
    asked = {"q": 'message:"red blue"', "size": 2, "sort": ["offset:desc"], "explain": True}
    search(engine, NAME, asked)
    again = search(engine, NAME, asked)
    assert again.explained is not None
    assert sum(each["gets"] for each in again.explained["gets"]) == 0


@examples(200)
@given(
    bounds=st.lists(st.integers(0, 1 << 21), min_size=2, max_size=8, unique=True).map(sorted),
    scans=st.sets(st.integers(0, 6)),
    descending=st.booleans(),
)
def test_pieces_are_the_runs_in_order_and_end_between_chunks(
    bounds: list[int], scans: set[int], descending: bool
) -> None:
    parts: list[units.Unit] = []
    for number, (first, end) in enumerate(pairwise(bounds)):
        if number in scans:
            parts.append(SegmentRange("l", None, first, end))  # type: ignore[arg-type]
        else:
            parts.append(RunRange("l", samples.run(str(number), first, end), first, end))
    ordered = parts[::-1] if descending else parts
    steps = units.paced(ordered, descending=descending, after=None)
    flat = [one for step in steps for one in step]
    ascending = flat[::-1] if descending else flat
    assert [one.first for one in ascending[1:]] == [one.end for one in ascending[:-1]]
    assert (ascending[0].first, ascending[-1].end) == (bounds[0], bounds[-1])
    assert all(one.first % (1 << families.CHUNK_BITS) == 0 or one.first in bounds for one in ascending)
    assert all(len(step) == 1 or all(isinstance(one, RunRange) for one in step) for step in steps)
    # 2^21 records are 1 + 8 + 64 chunks at most; a scan in between makes one more step of what it parts.
    assert len(steps) <= 3 + 2 * sum(isinstance(one, SegmentRange) for one in parts)


def test_segments_are_counted_once_though_pieces_part_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with small_chunks():
        stream = Stream()
        for _ in range(3):  # segments end within chunks
            stream.append([{"at": "2026-01-01T00:00:00Z", "message": "blue red"}] * 7)
            stream.seal()
        stream.index(span=3)
        engine = stream.engine()
        monkeypatch.setattr(
            _Search, "_late", lambda self: bool(self._found)
        )  # there is time for the first step alone
        answer = search(engine, NAME, {"q": 'message:"red red"', "sort": ["offset:desc"]})
        members = answer.coverage.members(str)
        assert answer.timed_out
        pieces = [(one.first, one.end, one.segments) for one in answer.coverage.omissions]
        assert pieces == [(0, 8, 2), (8, 16, 1)], "the second segment is in both"
        assert members["possible_missing_sealed_rows"] == 16
        assert members["possible_missing_uploaded_segments"] == 3
