"""Sets of documents: never described narrower than they are, and never said to be within what they are not."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.json import validate
from headrace.json.lens.closed import close
from headrace.json.lens.image import places
from headrace.json.lens.shapes import MAX_CASES, ArrayCase, ObjectCase, Other, Shapes, of_value
from tests.support.examples import examples
from tests.unit.schema.lens.documents import INTEGER, STRING, array, closed, open_
from tests.unit.schema.lens.generators import Documents, Schemas
from tests.unit.schema.lens.mutations import mutated


def plain() -> Shapes:
    """Sets without definitions. One of these has a budget of its own, as one proof has."""
    return Shapes({})


def accepts(schema: Any, document: Any) -> bool:
    try:
        validate.compile(schema).check(document)
    except InvalidRequest:
        return False
    return True


@examples(150)
@given(st.integers(0, 2**64))
def test_what_is_said_to_be_within_a_schema_is(seed: int) -> None:
    random = Random(seed)
    narrow = Schemas(random, refers=False).root()
    wide = mutated(random, narrow)
    try:
        is_within = plain().covers(close(wide).fragment, close(narrow).fragment)
    except InvalidRequest:
        return
    if is_within:
        for document in Documents(random, narrow).some(8):
            assert accepts(wide, document), (narrow, wide, document)


@examples(100)
@given(st.integers(0, 2**64))
def test_every_document_is_in_one_of_the_cases(seed: int) -> None:
    random = Random(seed)
    schema = Schemas(random).root()
    form = close(schema)
    try:
        cases = Shapes(form.definitions).cases(form.fragment)
    except InvalidRequest:
        return
    fragments = [case.fragment for case in cases]
    wholes = [one if isinstance(one, bool) else {**one, "definitions": form.definitions} for one in fragments]
    for document in Documents(random, schema).some(8):
        assert any(accepts(whole, document) for whole in wholes), (schema, document)


VALUES = st.recursive(
    st.none() | st.integers(0, 2), lambda i: st.lists(i, max_size=2) | st.dictionaries(st.sampled_from("ab"), i)
)


@given(VALUES, VALUES)
def test_the_case_of_a_value_has_that_value_alone(value: Any, other: Any) -> None:
    fragment = of_value(value).fragment
    assert accepts(fragment, value)
    assert accepts(fragment, other) == (other == value)


def test_a_closed_object_is_one_case_with_its_names_listed() -> None:
    (case,) = plain().cases(closed({"a": INTEGER, "b": STRING}, "b"))
    assert case == ObjectCase(
        frozenset("a"), {"a": INTEGER, "b": STRING}, additional=False, high=2
    ) or case == ObjectCase(frozenset("a"), {"a": INTEGER, "b": STRING}, additional=False)


@pytest.mark.parametrize(
    ("schema", "kinds"),
    [
        (True, {ObjectCase, ArrayCase, Other}),
        (False, set()),
        ({"type": ["object", "null"]}, {ObjectCase, Other}),
        ({"enum": [1, [], {}]}, {ObjectCase, ArrayCase, Other}),
        ({"anyOf": [open_({}), array(STRING)]}, {ObjectCase, ArrayCase}),
        ({"allOf": [open_({"a": INTEGER}), {"minProperties": 2}]}, {ObjectCase}),
        ({"type": "string", "not": {"const": "a"}}, {Other}),
    ],
)
def test_what_a_value_can_be(schema: Any, kinds: set[type]) -> None:
    assert {type(case) for case in plain().cases(schema)} == kinds


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        ({"enum": ["a", 1, None]}, ["a", 1, None]),
        ({"const": 2.0}, [2]),
        ({"type": ["boolean", "null"]}, [None, False, True]),
        ({"type": "integer", "minimum": 1, "maximum": 1}, [1]),
        (False, []),
        ({"type": "string"}, None),
        ({"enum": [2**53 + 1, 1]}, None),
        ({"const": 1e300}, None),
    ],
)
def test_the_values_of_a_set_are_known_if_it_lists_them(schema: Any, values: list[Any] | None) -> None:
    found = plain().values(schema)
    assert (found is None) == (values is None)
    if found is not None and values is not None:
        assert sorted(map(repr, found)) == sorted(map(repr, values))


def test_there_is_an_end_to_cases() -> None:
    with pytest.raises(InvalidRequest, match="too many cases"):
        plain().cases({"enum": [[number] for number in range(MAX_CASES + 1)]})
    assert len(plain().cases({"enum": list(range(MAX_CASES + 1))})) == 1


def test_a_place_is_there_or_not_or_cannot_be() -> None:
    one, other = closed({"b": INTEGER, "c": INTEGER}), closed({"b": STRING, "c": STRING}, "b")
    schema = closed({"a": {"anyOf": [one, other, {"type": "null"}]}})
    found = [(place.value, place.rebuild is not None) for place in places(plain(), schema, ("a", "b"))]
    assert sorted(map(repr, found)) == sorted(
        map(repr, [(INTEGER, True), (STRING, True), (None, True), (None, False)])
    )


def test_what_is_moved_stays_with_where_it_came_from() -> None:
    schema = {"anyOf": [closed({"k": {"const": "x"}, "v": INTEGER}), closed({"k": {"const": "y"}, "v": STRING})]}
    for place in places(plain(), schema, ("v",)):
        assert place.value is not None
        assert place.rebuild is not None
        kind = "x" if place.value == INTEGER else "y"
        assert plain().covers(closed({"k": {"const": kind}}), place.rebuild(None))
