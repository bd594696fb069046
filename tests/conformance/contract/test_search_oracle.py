"""`_search` finds what is there, wherever it is: in the tail, in segments, in index runs, after a lens. See `stages.py`."""

from __future__ import annotations

import random

import pytest

from tests.conformance.contract.asking import search_differs
from tests.conformance.contract.client import expect
from tests.conformance.contract.stages import SEGMENT, Stage
from tests.oracle import catalogue, search
from tests.oracle.queries import All, Begins, Compares, Has, Is, Query, Text

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2))]
QUERIES_PER_SEED = 8


def check(stage: Stage, questions: list[tuple[Query, tuple[str, ...]]]) -> None:
    """Asks them all, and fails with all that differ."""
    found = [problem for query, sort in questions if (problem := search_differs(stage, query, sort))]
    assert not found, "\n".join([f"{len(found)} of {len(questions)} differ:", *found[:5]])


@pytest.mark.parametrize("kind", catalogue.QUERIES)
def test_a_query_finds_the_same_in_every_stage(stage: Stage, kind: str) -> None:
    check(stage, [(query, ()) for query in catalogue.QUERIES[kind]])


@pytest.mark.parametrize("sort", catalogue.SORTS, ids=" ".join)
def test_an_order_is_the_same_in_every_stage(stage: Stage, sort: tuple[str, ...]) -> None:
    check(stage, [(Compares("cost", ">=", "9"), sort), (Text("note", "card"), sort)])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_query_finds_the_same_in_every_stage(stage: Stage, seed: int) -> None:
    luck = random.Random(seed)
    questions = [(catalogue.random_query(luck), ("offset:desc",)) for _ in range(QUERIES_PER_SEED)]
    questions += [(catalogue.random_clause(luck), ()) for _ in range(QUERIES_PER_SEED)]
    questions += [(catalogue.random_query(luck), catalogue.random_sort(luck)) for _ in range(QUERIES_PER_SEED)]
    check(stage, questions)


@pytest.mark.parametrize("begin", ["R", "r", "R0"])
def test_a_prefix_may_match_thousands_of_terms(stage: Stage, begin: str) -> None:
    expected = search.search(stage.config, stage.documents, Begins("ref", begin))
    assert len(expected) > (1024 if begin == "R" and len(stage.documents) >= SEGMENT else 50)
    assert search_differs(stage, Begins("ref", begin), pages=20) is None
    few = All((Begins("ref", begin), Is("service", "worker_1"), Has("paid")))
    assert search_differs(stage, few, ("ref:asc",)) is None


@pytest.mark.parametrize("sort", [(), ("cost:asc",), ("service:desc", "status:asc"), ("code:asc",), ("offset:asc",)])
def test_pages_join_without_a_gap(stage: Stage, sort: tuple[str, ...]) -> None:
    query = All((Text("title", "card"), Compares("cost", ">", "1")))
    assert search_differs(stage, query, sort, size=7, pages=12) is None
    assert search_differs(stage, Is("ref", "R00007"), sort, size=1, pages=2) is None


def test_a_whole_page_says_the_total_exactly_where_nothing_is_left_out(stage: Stage) -> None:
    query = All((Is("service", "worker_1"), Is("status", "404")))
    expected = search.search(stage.config, stage.documents, query)
    assert 0 < len(expected) < 500
    found = expect(stage.stream.search(q=query.text(), size=500), 200).json()
    assert found["total"] == {"value": len(expected), "relation": "eq"}


def test_coverage_says_where_it_looked(stage: Stage) -> None:
    found = expect(stage.stream.search(q="has:title", sort=["cost:asc"], size=1), 200).json()
    coverage, plan = found["coverage"], stage.plan
    assert coverage["complete"] is True
    assert coverage["mode"] == "complete"
    assert coverage["indexed_segments"] == plan.indexed
    assert coverage["scanned_segments"] == plan.segments - plan.indexed
    assert coverage["scanned_tail_docs"] == len(stage.documents) - plan.segments * stage.segment_records
    assert coverage["stream_head_offset"] == coverage["visible_through_offset"] == stage.stream.end
    assert bool(coverage["index_families_used"]) is bool(plan.indexed)
    assert [coverage[name] for name in coverage if name.startswith("possible_missing_")] == [0, 0, 0, 0]
    assert coverage["oldest_omitted_append_at"] is None
