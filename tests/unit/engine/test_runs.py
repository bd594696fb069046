"""The first rows in an order are those that a sort gives, and those behind a place those that the rule of places gives."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.index.parts import Column
from headrace.query.engine import runs
from headrace.query.language import search_request
from headrace.query.language.search_request import SortTerm

_WORDS = sorted(["A", "a", "b", "é", "日本", "\U0001f600"])
_KINDS: dict[str, Any] = {
    "int": st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1]),
    "float": st.sampled_from([-1.5, 0.0, 2.5]),
    "bool": st.booleans(),
    "word": st.sampled_from(_WORDS),
}


def column(kind: str, values: list[Any]) -> Column:
    """As a run would give it."""
    valid = np.array([value is not None for value in values], np.bool_)
    if kind == "word":
        codes = np.array([0 if value is None else _WORDS.index(value) for value in values], np.uint8)
        return Column(codes, valid, _WORDS)
    types = {"int": np.int64, "float": np.float64, "bool": np.bool_}
    return Column(np.array([0 if value is None else value for value in values], types[kind]), valid, None)


@st.composite
def tables(draw: Any) -> tuple[list[tuple[Any, ...]], list[SortTerm], list[runs.Ranked]]:
    count = draw(st.integers(1, 30))
    rows = np.arange(count)
    terms, ranked, values = [], [], []
    for kind in draw(st.lists(st.sampled_from(sorted(_KINDS)), max_size=3)):
        found = draw(st.lists(st.none() | _KINDS[kind], min_size=count, max_size=count))
        terms.append(SortTerm("field", draw(st.booleans()), kind))
        ranked.append(runs.of_column(column(kind, found), rows))
        values.append(found)
    terms.append(SortTerm("offset", draw(st.booleans())))
    ranked.append(runs.of_numbers(rows))
    values.append(list(range(count)))
    return list(zip(*values, strict=True)), terms, ranked


@given(tables(), st.integers(1, 40))
def test_the_first_rows_are_those_of_a_sort(table: Any, size: int) -> None:
    keys, terms, ranked = table
    places = runs.first_places(ranked, terms, size).tolist()
    shown = [tuple(one.value(place) for one in ranked) for place in places]
    assert search_request.in_order(shown, terms, tuple) == search_request.in_order(keys, terms, tuple)[:size]


@given(tables(), st.data())
def test_what_is_behind_is_what_the_rule_says(table: Any, data: Any) -> None:
    keys, terms, ranked = table
    after = tuple(
        data.draw(st.none() | _KINDS[term.field] | (st.just(2**70) if term.field == "int" else st.nothing()))
        if term.kind == "field"
        else data.draw(st.integers(-1, 31))
        for term in terms
    )
    expected = [search_request.is_after(key, after, terms) for key in keys]
    assert runs.behind(ranked, terms, after).tolist() == expected


def test_a_field_that_no_record_has_is_absent_everywhere() -> None:
    one = runs.absent(np.arange(3))
    assert [one.value(place) for place in range(3)] == [None] * 3
    assert runs.behind([one], [SortTerm("field", False, "word")], ("a",)).all()
    assert not runs.behind([one], [SortTerm("field", True, "word")], ("a",)).any()
