"""How much work a query is for one record: linear in the record and in each clause, and interrupted when time is over."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headrace.definition import EMPTY, Definition
from headrace.errors import InvalidRequest, RequestTimeout
from headrace.json import search_config
from headrace.json.registry import Boundary, Registry
from headrace.log.requests import JSON, Selection
from headrace.log.view import Collector, View
from headrace.query.engine import aggregate
from headrace.query.engine.context import Promoter
from headrace.query.language import grammar, query, rollup, rollup_request, scoring
from headrace.query.language.query import And, Anywhere, Equals, Node, Not, Or, OutOfTime, Words
from tests.unit.search.samples import CONFIG, SEARCH


class Word(str):
    """A word that counts how often it is compared, cut or hashed by Python."""

    work = 0

    def __eq__(self, other: object) -> bool:
        Word.work += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        Word.work += 1
        return str.__hash__(self)

    def startswith(self, *args: Any) -> bool:
        Word.work += 1
        return str.startswith(self, *args)


@contextmanager
def working() -> Iterator[list[int]]:
    """Yields a list that has the work as its only item when the block has ended."""
    work: list[int] = []
    Word.work = 0
    yield work
    work.append(Word.work)


@pytest.mark.parametrize("phrase", [True, False])
@pytest.mark.parametrize("prefix", [True, False])
def test_many_words_in_a_long_text_are_linear_work(phrase: bool, prefix: bool) -> None:
    text = tuple(map(Word, ["a"] * 20_000))
    clause = Words("message", tuple(map(Word, ["a"] * 499 + ["b"])), phrase=phrase, prefix=prefix)
    values: query.Values = {"message": [text]}
    with working() as work:
        assert not query.matches(clause, values)
        assert scoring.score(clause, values) == 0
        scoring.occurrences(clause, text)
        scoring.frequencies(scoring.wanted(clause), values)
    assert work[0] < 12 * (len(text) + len(clause.words))  # their product is 10,000,000


class OverTime(Exception):
    """Time is over."""


@pytest.mark.parametrize("place", ["q", "include", "count"])
def test_an_aggregate_looks_at_the_time_between_the_clauses_of_each_of_its_queries(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    long = " OR ".join(f"code:{number}" for number in range(100))
    counted = {"kind": "count", "include": long} if place == "count" else {"kind": "count"}
    rolled: dict[str, Any] = {"intervals": ["1m"], "measures": {"n": counted}}
    if place == "include":
        rolled["include"] = long
    raw = {**SEARCH, "rollups": {"r": rolled}}
    promoter = Promoter(Definition(Registry(1, {"1": {}}, boundaries=(Boundary(0, 1),), search=raw), EMPTY.own))
    config = search_config.parse(raw, 1)
    asked: dict[str, Any] = {
        "rollup": "r",
        "interval": "1m",
        "from": "2026-01-01T00:00:00Z",
        "to": "2026-01-02T00:00:00Z",
    }
    if place == "q":
        asked["q"] = long
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += 1
        if checks > 5:
            raise OverTime

    monkeypatch.setattr(rollup, "check_deadline", check)
    monkeypatch.setattr(aggregate, "check_deadline", check)
    rollup.rollups.cache_clear()
    request = rollup_request.parse(asked, config)
    scan = aggregate.Scan(request, promoter, "at")
    with pytest.raises(OverTime):
        scan.add([promoter.document(0, b'{"at":"2026-01-01T00:00:00Z"}')], [request.window])
    assert checks == 6, "one before the record, the others between clauses"


def naive(clause: Words, text: tuple[str, ...]) -> bool:
    *whole, end = clause.words
    ends = [at for at, word in enumerate(text) if (word.startswith(end) if clause.prefix else word == end)]
    if clause.phrase:
        return any(at >= len(whole) and list(text[at - len(whole) : at]) == whole for at in ends)
    return bool(ends) and all(word in text for word in whole)


def test_words_and_phrases_are_found_where_a_naive_look_finds_them() -> None:
    chance = random.Random(5)
    both = [0, 0]
    for _ in range(5000):
        text = tuple(chance.choices(["a", "b", "ab", "ba", "aa"], k=chance.randrange(9)))
        words = tuple(chance.choices(["a", "b", "ab", "aa"], k=chance.randrange(1, 8)))
        clause = Words("message", words, phrase=chance.random() < 0.5, prefix=chance.random() < 0.5)
        found = query.matches(clause, {"message": [text]})
        assert found == naive(clause, text), (clause, text)
        both[found] += 1
    assert min(both) > 500


LONG: list[Node] = [
    Or(tuple(Equals("code", str(number)) for number in range(100))),
    And(tuple(Not(Equals("code", str(number))) for number in range(100))),
    Not(Anywhere(tuple(Words("message", (f"w{number}",), False, False) for number in range(100)), (1.0,) * 100)),
]


@pytest.mark.parametrize("node", LONG)
def test_the_time_is_checked_between_the_clauses_of_a_long_query(node: Node) -> None:
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls > 5:
            raise OutOfTime

    assert query.is_long(node)
    assert not query.is_long(Equals("code", "1"))
    for ask in (query.matches, scoring.score):
        calls = 0
        with pytest.raises(OutOfTime):
            ask(node, {"message": [("x",)]}, check)
        assert calls == 6
    unchecked = query.matches(node, {"message": [("x",)]})
    assert query.matches(node, {"message": [("x",)]}, lambda: None) == unchecked


@pytest.mark.parametrize(
    ("begin", "between", "end"),
    [('message:"', " ", '"'), ("message:", "-", ""), ("why:", " why:", ""), ("", " ", ""), ('"', ", ", '"')],
)
def test_a_query_has_a_bounded_number_of_words(begin: str, between: str, end: str) -> None:
    words = [f"w{number}" for number in range(grammar.MAX_WORDS + 1)]
    assert grammar.parse_query(begin + between.join(words[1:]) + end, CONFIG)
    with pytest.raises(InvalidRequest, match=f"too many words for text fields.*: limit={grammar.MAX_WORDS}"):
        grammar.parse_query(begin + between.join(words) + end, CONFIG)


def collector(late: list[bool]) -> Collector:
    definition = Definition(Registry(current_version=1, schemas={"1": {}}, search=SEARCH), EMPTY.own)
    filter_ = " ".join(f"NOT code:c{number}" for number in range(20))
    view = View(definition, Selection(filter=filter_), JSON)
    return Collector(view, 100, 10**6, lambda: late[0])


def test_a_page_ends_before_the_record_in_which_its_time_is_over() -> None:
    late = [False]
    page = collector(late)
    assert page.look(0, b'{"code":"a"}')
    late[0] = True
    assert not page.look(1, b'{"code":"b"}')
    assert page.full
    assert page.data == [b'{"code":"a"}']
    assert page.scanned == len(b'{"code":"a"}'), "the other one was not decided"
    assert page.add(1, [b'{"code":"b"}']) == 0


def test_a_record_that_takes_all_the_time_is_a_timeout() -> None:
    with pytest.raises(RequestTimeout):
        collector([True]).look(0, b'{"code":"a"}')
