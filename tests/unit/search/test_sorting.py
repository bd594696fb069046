"""The order of hits, and the places in it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.json import search_config
from headrace.query.language import grammar, search_request
from headrace.query.language.search_request import SortTerm
from tests.unit.search.samples import SEARCH, field

_STATUS = field("integer", "/status", "exact", "column", "sortable")
CONFIG = search_config.parse({**SEARCH, "fields": {**SEARCH["fields"], "status": _STATUS}}, 1)
UP, DOWN = SortTerm("field", False, "x"), SortTerm("field", True, "x")
OFFSET = SortTerm("offset", True)


def parsed(*items: Any, q: str = "has:at") -> tuple[SortTerm, ...]:
    return search_request.parse_sort(items, grammar.parse_query(q, CONFIG), CONFIG)


def test_without_a_wish_the_newest_come_first() -> None:
    assert parsed() == (OFFSET,)


@pytest.mark.parametrize("q", ["message:red", "red", "NOT message:red", "has:at AND (status:1 OR red)"])
def test_without_a_wish_a_question_for_words_is_in_order_of_scores(q: str) -> None:
    assert parsed(q=q) == (SortTerm("score", True), SortTerm("field", True, "at"), OFFSET)


def test_an_order_ends_with_the_offset() -> None:
    assert parsed("at:asc") == (SortTerm("field", False, "at"), OFFSET)
    assert parsed("at", "offset:asc") == (SortTerm("field", True, "at"), SortTerm("offset", False))
    assert parsed("_bm25") == (SortTerm("bm25", True), OFFSET)


@pytest.mark.parametrize("item", ["", " ", "at:", "at:up", "nothing", "code", "message:asc", 5, None, ["at"]])
def test_what_is_no_order(item: Any) -> None:
    with pytest.raises(InvalidRequest):
        parsed(item)


def test_an_absent_value_stands_above_every_other() -> None:
    keys = [(1,), (None,), (0,)]
    assert search_request.in_order(keys, [UP], tuple) == [(0,), (1,), (None,)]
    assert search_request.in_order(keys, [DOWN], tuple) == [(None,), (1,), (0,)]


def test_keywords_compare_by_code_points() -> None:
    keys = [("b",), ("é",), ("B",), ("a",), ("\U0001f600",), ("\uffff",)]
    assert search_request.in_order(keys, [UP], tuple) == [
        ("B",),
        ("a",),
        ("b",),
        ("é",),
        ("\uffff",),
        ("\U0001f600",),
    ]


def test_of_several_values_one_counts() -> None:
    assert search_request.value_of(UP, {"x": [3, 1, 2]}) == 1
    assert search_request.value_of(DOWN, {"x": [3, 1, 2]}) == 3
    assert search_request.value_of(UP, {"x": []}) is None
    assert search_request.value_of(UP, {}) is None


_VALUES = st.one_of(st.none(), st.integers(-3, 3))
_TERMS = st.tuples(st.sampled_from([UP, DOWN]), st.sampled_from([UP, DOWN]), st.just(OFFSET))


@given(st.lists(st.tuples(_VALUES, _VALUES, st.integers(0, 50)), unique_by=lambda key: key[2]), _TERMS)
def test_what_stands_behind_a_hit_is_after_it(keys: list[Any], terms: Any) -> None:
    ordered = search_request.in_order(keys, terms, lambda key: key)
    for at, key in enumerate(ordered):
        assert [one for one in ordered if search_request.is_after(one, key, terms)] == ordered[at + 1 :]


def test_a_place_is_checked() -> None:
    terms = parsed("status:asc", "_score:desc")

    def after(*raw: Any) -> Any:
        return search_request.parse_after(list(raw), terms, CONFIG, int)

    assert after(5, 1.5, "7") == (5, 1.5, 7)
    assert after(None, 0, "7") == (None, 0.0, 7)
    assert search_request.parse_after(None, terms, CONFIG, int) is None
    for raw in ([], [5], [5, 1, "7", 1], ["x", 1, "7"], [5, None, "7"], [5, True, "7"], [5, 1, 7]):
        with pytest.raises(InvalidRequest):
            after(*raw)
    with pytest.raises(InvalidRequest):
        search_request.parse_after({}, terms, CONFIG, int)
