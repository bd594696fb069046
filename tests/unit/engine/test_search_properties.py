"""A search finds what a naive evaluation of each record finds, wherever the records stand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.query.language import canonical, query, scoring
from tests.support.examples import examples
from tests.unit.engine.strategies import BATCHES, QUERIES, SORTS
from tests.unit.engine.world import NAME, Stream, naive

Sort = list[tuple[str, bool]]


def pages(stream: Stream, q: str, sort: Sort, size: int) -> tuple[list[tuple[int, tuple[Any, ...]]], list[Any]]:
    """Returns every hit, page by page: offsets with what they are sorted by; and the totals."""
    texts = [f"{name}:{'desc' if descending else 'asc'}" for name, descending in sort]
    found, totals, after = [], [], None
    engine = stream.engine()
    from headrace.query.engine.search import search

    while True:
        asked: dict[str, Any] = {"q": q, "size": size, "sort": texts}
        if after is not None:
            asked["search_after"] = after
        answer = search(engine, NAME, asked)
        assert answer.coverage.complete and not answer.timed_out
        totals.append((answer.total, answer.exact))
        found += [(hit.candidate.offset, hit.candidate.key) for hit in answer.hits]
        if len(answer.hits) < size:
            return found, totals
        last = answer.hits[-1].candidate
        terms = answer.request.sort
        after = [answer.cursor(v + 1) if t.kind == "offset" else v for t, v in zip(terms, last.key, strict=True)]


@examples(25)
@given(batches=BATCHES, questions=st.lists(st.tuples(QUERIES, SORTS), min_size=1, max_size=6), size=st.integers(1, 7))
def test_every_stage_finds_what_a_naive_search_finds(
    batches: list[list[Any]], questions: list[tuple[str, Sort]], size: int
) -> None:
    stream = Stream()
    for stage in stream.stages(batches):
        config = stream.logs.definition(NAME).search
        assert config is not None
        for q, sort in questions:
            order = sort or [("offset", True)]
            if not any(name == "offset" for name, _ in order):
                order = [*order, ("offset", True)]
            expected = naive(config, 1, stream.documents, q, order)
            found, totals = pages(stream, q, order, size)
            assert found == expected, (stage, q, order)
            for total, exact in totals:
                assert total == len(expected) if exact else total <= len(expected), (stage, q, order)


@examples(12)
@given(batches=BATCHES, q=QUERIES, size=st.integers(1, 50))
def test_scores_are_those_of_the_record(batches: list[list[Any]], q: str, size: int) -> None:
    stream = Stream()
    for stage in stream.stages(batches):
        config = stream.logs.definition(NAME).search
        assert config is not None
        answer = stream.search(q, sort=["_score:desc"], size=size)
        values = [canonical.values(config, 1, document) for document in stream.documents]
        worth = [(scoring.score(answer.request.node, one), at) for at, one in enumerate(values)]
        matching = {offset for offset, _ in naive(config, 1, stream.documents, q, [("offset", True)])}
        expected = sorted(((score, at) for score, at in worth if at in matching), reverse=True)[:size]
        assert [hit.candidate.key for hit in answer.hits] == expected, (stage, q)
        assert [hit.score for hit in answer.hits] == [score for score, _ in expected], (stage, q)


@pytest.mark.parametrize(
    "q",
    [
        "(message:red AND status:>600) OR has:why",
        "(message:red AND NOT status:>600) OR has:why",
        "(red AND (status:>600 OR status:<100)) OR has:why",
        "message:red OR status:>600",
    ],
)
def test_a_part_that_a_run_can_not_decide_scores_as_in_the_record(q: str) -> None:
    documents: list[Any] = [
        {"status": [200, 500], "message": "red", "why": "x"},
        {"status": 700, "message": "red red", "why": "x"},
        {"status": 200, "message": "blue", "why": "x"},
        {"status": [200, 700], "message": "red red red", "why": "x"},
    ]
    stream = Stream()
    stream.append(documents)
    stream.seal()
    stream.index()
    answer = stream.search(q, sort=["_score:desc"])
    config = stream.logs.definition(NAME).search
    assert config is not None
    node = answer.request.node
    values = [canonical.values(config, 1, one) for one in documents]
    matching = [at for at, one in enumerate(values) if query.matches(node, one)]
    expected = sorted(((scoring.score(node, values[at]), at) for at in matching), reverse=True)
    assert [hit.candidate.key for hit in answer.hits] == expected
    assert [hit.score for hit in answer.hits] == [score for score, _ in expected]
