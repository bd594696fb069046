"""A search says the same before and after a lens that renames what it searches, wherever the records stand.

What is right says the oracle of the contract's tests, which knows nothing of runs, segments and lenses.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.query.engine.search import SearchAnswer, search
from tests.oracle import catalogue, records
from tests.oracle import search as oracle
from tests.oracle.queries import All, Begins, Has, Not, Query, Text
from tests.oracle.values import Document
from tests.support.examples import examples
from tests.unit.engine.streams import Stream

PLACES = ["tail", "sealed", "indexed", "compacted"]

_LUCK = st.randoms(use_true_random=False)
# On what the lens renames: a keyword in two cases with as many values as records, and a text.
_RENAMED = st.one_of(
    st.builds(
        lambda case, number, cut: Begins("ref", f"{case}{number:05d}"[:cut]),
        st.sampled_from("Rr"),
        st.integers(0, 99),
        st.integers(1, 6),
    ),
    st.builds(lambda word: Text("title", word), st.sampled_from(records.WORDS)),
    st.just(Has("title")),
)
QUERIES: st.SearchStrategy[Query] = st.one_of(
    st.builds(catalogue.random_query, _LUCK),
    _RENAMED,
    st.builds(lambda one, other: All((one, other)), _RENAMED, st.builds(catalogue.random_clause, _LUCK)),
    st.builds(lambda one, other: All((Not(one), other)), _RENAMED, _RENAMED),
)
QUESTIONS = st.lists(
    st.tuples(QUERIES, st.just(()) | st.builds(catalogue.random_sort, _LUCK)), min_size=1, max_size=5
)


class Renaming:
    """A stream with a lens to come, and every record as the schema in force has it."""

    def __init__(self) -> None:
        self.version = 1
        self.documents: list[Document] = []
        self.stream = Stream(schema=records.schema(1), search=records.search_of(1), routingKey=records.ROUTING_KEY)

    def append(self, count: int) -> None:
        """One batch, of the schema in force."""
        batch = records.records(len(self.documents), count)
        if self.version == 2:
            batch = [records.renamed(one) for one in batch]
        self.stream.append(*batch)
        self.documents += batch

    def bring(self, place: str) -> None:
        """Everything appended, to a place."""
        if place != "tail":
            self.stream.seal()
        if place in ("indexed", "compacted"):
            self.stream.index(span=1)
        if place == "compacted":
            self.stream.compact()

    def rename(self) -> None:
        """Installs the lens."""
        lens = records.lens(self.stream.name)
        self.stream.define(schema=records.schema(2), search=records.search_of(2), lens=lens)
        self.version = 2
        self.documents = [records.renamed(one) for one in self.documents]

    def check(self, stage: str, questions: list[tuple[Query, tuple[str, ...]]], size: int = 500) -> None:
        """Asks, and compares each page."""
        config = records.search_of(self.version)
        for query, sort in questions:
            expected = oracle.search(config, self.documents, query, sort)
            after: list[Any] | None = None
            for first in range(0, len(expected) + 1, size):
                asked: dict[str, Any] = {"q": query.text(), "size": size, "sort": list(sort)}
                answer = search(
                    self.stream.engine, self.stream.name, asked | ({"search_after": after} if after else {})
                )
                wanted = expected[first : first + size]
                said = (stage, asked, first)
                assert [(hit.candidate.offset, hit.score) for hit in answer.hits] == [
                    (hit.position, hit.score) for hit in wanted
                ], said
                assert [hit.document.value for hit in answer.hits] == [
                    self.documents[hit.position] for hit in wanted
                ], said
                assert answer.coverage.complete, said
                assert answer.total == len(expected) if answer.exact else answer.total <= len(expected), said
                after = _after(answer)


def _after(answer: SearchAnswer) -> list[Any] | None:
    """Returns what the next page begins after."""
    if not answer.hits:
        return None
    last = answer.hits[-1].candidate
    pairs = zip(answer.request.sort, last.key, strict=True)
    return [answer.cursor(value + 1) if term.kind == "offset" else value for term, value in pairs]


@pytest.mark.parametrize("place", PLACES)
@examples(6)
@given(questions=QUESTIONS, batches=st.lists(st.integers(1, 15), min_size=2, max_size=3), size=st.integers(1, 20))
def test_a_rename_changes_no_answer(
    place: str, questions: list[tuple[Query, tuple[str, ...]]], batches: list[int], size: int
) -> None:
    log = Renaming()
    for count in batches:
        log.append(count)
        if place != "tail":
            log.stream.seal()
    log.bring(place)
    log.check(f"{place}, before", questions, size)
    log.rename()
    log.check(f"{place}, renamed", questions, size)
    log.append(batches[0])
    log.check(f"{place}, and a tail of the new names", questions, size)
    for after in PLACES[1:]:
        log.bring(after)
        log.check(f"{place}, then {after}", questions, size)


@pytest.mark.parametrize("begin", ["R", "r", "R0"])
def test_a_prefix_of_thousands_of_terms_is_the_same_after_a_rename(begin: str) -> None:
    log = Renaming()
    questions: list[tuple[Query, tuple[str, ...]]] = [
        (Begins("ref", begin), ()),
        (Begins("ref", begin), ("ref:asc",)),
        (All((Begins("ref", begin), Has("paid"))), ("offset:asc",)),
    ]
    for _ in range(2):
        log.append(700)
        log.stream.seal()
    log.bring("compacted")
    log.check("before", questions)
    assert len(oracle.search(records.search_of(1), log.documents, Begins("ref", begin))) > (
        1024 if begin != "r" else 100
    )
    log.rename()
    log.append(10)
    for place in PLACES:
        log.bring(place)
        log.check(place, questions)
