"""A closed schema means what the schema means, and has its references in one place."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import Draft7Validator

from headrace import instants
from headrace.errors import InvalidRequest
from headrace.json import validate
from headrace.json.lens.closed import DATE_TIME, Closed, close
from tests.support.examples import examples
from tests.unit.schema.lens.generators import SCALARS, Documents, Schemas


def accepts(schema: Any, document: Any) -> bool:
    try:
        validate.compile(schema).check(document)
    except InvalidRequest:
        return False
    return True


def whole(closed: Closed) -> Any:
    if isinstance(closed.fragment, bool):
        return closed.fragment
    return {**closed.fragment, "definitions": closed.definitions}


@examples(60)
@given(st.integers(0, 2**32))
def test_a_closed_schema_accepts_the_same_documents(seed: int) -> None:
    random = Random(seed)
    schema, other = Schemas(random).root(), Schemas(random).root()
    closed = whole(close(schema))
    for document in [*Documents(random, schema).some(8), *Documents(random, other).some(8), *SCALARS]:
        assert accepts(closed, document) == accepts(schema, document)


def test_references_of_every_kind_lead_to_definitions() -> None:
    schema = {
        "type": "object",
        "properties": {
            "whole": {"$ref": "#"},
            "named": {"$ref": "#/definitions/text", "type": "integer"},
            "escaped": {"$ref": "#/definitions/a~1b%20c"},
            "odd": {"$ref": "#/properties/list/items"},
            "list": {"items": {"type": "string"}},
            "$ref": {"type": "boolean"},
            "const": {"const": {"$ref": "#/nowhere"}},
        },
        "definitions": {"text": {"type": "string"}, "a/b c": {"type": "null"}, "unused": {}},
    }
    closed = close(schema)
    assert "text" in closed.definitions
    assert "unused" not in closed.definitions
    cases = [
        ({"whole": {"whole": {}}}, True),
        ({"whole": {"whole": 1}}, False),
        ({"named": "text"}, True),
        ({"named": 1}, False),
        ({"escaped": None}, True),
        ({"escaped": 1}, False),
        ({"odd": "x"}, True),
        ({"odd": 1}, False),
        ({"$ref": True}, True),
        ({"$ref": 1}, False),
        ({"const": {"$ref": "#/nowhere"}}, True),
    ]
    for document, expected in cases:
        assert accepts(schema, document) is expected, document
        assert accepts(whole(closed), document) is expected, document


def test_what_is_not_checked_is_not_there() -> None:
    schema = {
        "type": "string",
        "format": "uuid",
        "contentEncoding": "base64",
        "title": "t",
        "default": 1,
        "$id": "x:y",
    }
    assert close(schema) == Closed({"type": "string"}, {})


def test_an_external_reference_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="external"):
        close({"$ref": "http://example.com/schema"})


EVENTS = [{"type": "object", "required": ["kind"], "properties": {"kind": {"const": kind}}} for kind in "abc"]


@pytest.mark.parametrize(
    ("branches", "exclusive"),
    [
        (EVENTS, True),
        ([*EVENTS, {"$ref": "#/definitions/d"}], True),
        ([*EVENTS, EVENTS[0]], False),
        ([*EVENTS, {"type": "object"}], False),
        ([*EVENTS, {**EVENTS[0], "properties": {"kind": {"enum": ["x"]}}}], False),
        ([*EVENTS, {**EVENTS[0], "required": []}], False),
        ([{"required": ["kind"], "properties": {"kind": {"const": kind}}} for kind in "ab"], False),
        ([*EVENTS, False], False),
    ],
)
def test_branches_told_apart_by_a_text_are_alternatives(branches: list[Any], exclusive: bool) -> None:
    definitions = {"d": {**EVENTS[0], "properties": {"kind": {"const": "d"}}}}
    schema = {"oneOf": branches, "definitions": definitions}
    closed = close(schema)
    assert isinstance(closed.fragment, dict)
    assert ("anyOf" in closed.fragment) is exclusive
    for document in [{"kind": kind} for kind in "abcdx"] + [{}, 1]:
        assert accepts(whole(closed), document) == accepts(schema, document)


@given(
    st.from_regex(
        r"[0-9]{4}-[01][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\.[0-9]{0,11})?"
        r"([zZ]|[+-][0-3][0-9]:[0-6][0-9])?",
        fullmatch=True,
    )
)
def test_the_proofs_date_time_is_the_validators(text: str) -> None:
    assert Draft7Validator(DATE_TIME, validate_formats=True).is_valid(text) == instants.is_date_time(text)


@pytest.mark.parametrize(
    "text", ["2016-12-31T23:59:60Z", "0000-01-01T00:00:00Z", "2024-02-29T00:00:00.123456789+23:59"]
)
def test_the_proofs_date_time_is_the_validators_at_the_edges(text: str) -> None:
    assert Draft7Validator(DATE_TIME, validate_formats=True).is_valid(text) == instants.is_date_time(text)
