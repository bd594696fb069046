"""Checking documents: draft-07 as an independent validator understands it, and at a bounded cost."""

from __future__ import annotations

import time
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.instants import is_date_time
from headrace.json import jsontext, validate
from tests.support.examples import examples


def error_of(schema: Any, document: Any) -> str | None:
    try:
        validate.compile(schema).check(document)
    except InvalidRequest as exc:
        return str(exc)
    return None


def refused(schema: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        validate.compile(schema)
    return str(caught.value)


# --- what a schema means


NAMES = st.sampled_from("abc")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, 0.5, 2**70, "", "a", "ab"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])


def keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    schemas = st.lists(inner, min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, unique=True),
            "const": VALUES,
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "minimum": st.integers(-2, 2),
            "exclusiveMaximum": st.sampled_from([1, 0.5]),
            "multipleOf": st.sampled_from([1, 2]),
            "maxLength": st.integers(0, 2),
            "pattern": st.sampled_from(["^a", "b$", "(?=ab)a"]),
            "maxItems": st.integers(0, 2),
            "uniqueItems": st.booleans(),
            "contains": inner,
            "items": inner | schemas,
            "required": st.lists(NAMES, unique=True),
            "properties": st.dictionaries(NAMES, inner, max_size=2),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b|c"]), inner, max_size=2),
            "additionalProperties": inner,
            "propertyNames": inner,
            "dependencies": st.dictionaries(NAMES, inner | st.lists(NAMES, unique=True), max_size=2),
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "allOf": schemas,
            "anyOf": schemas,
            "oneOf": schemas,
        },
    )


TUPLES = st.builds(
    lambda items, more: {"items": items, "additionalItems": more}, st.lists(st.booleans(), min_size=1), st.booleans()
)
SUBSCHEMAS = st.recursive(
    st.booleans() | st.fixed_dictionaries({"$ref": st.sampled_from(["#/definitions/x", "#/definitions/y"])}),
    lambda inner: keywords(inner | TUPLES),
    max_leaves=5,
)
SCHEMAS = st.builds(
    lambda schema, x, y: {**schema, "definitions": {"x": x, "y": y}} if isinstance(schema, dict) else schema,
    SUBSCHEMAS,
    keywords(st.booleans()),
    keywords(st.booleans()),
)


@examples(150)
@given(SCHEMAS, st.lists(VALUES, min_size=1, max_size=5))
def test_it_agrees_with_an_independent_validator(schema: Any, documents: list[Any]) -> None:
    validator = validate.compile(schema)
    reference = jsonschema.Draft7Validator(schema)
    for document in documents:
        try:
            validator.check(document)
        except InvalidRequest:
            assert not reference.is_valid(document)
        else:
            assert reference.is_valid(document)


KEYWORDS = st.sampled_from(
    ["type", "$ref", "$id", "items", "pattern", "allOf", "properties", "definitions", "format", "dependencies"]
)


@given(st.recursive(VALUES, lambda inner: st.dictionaries(KEYWORDS, inner)))
def test_no_schema_raises_anything_but_invalid_request(schema: Any) -> None:
    try:
        validate.compile(schema).check({"a": [1]})
    except InvalidRequest as exc:
        assert str(exc)


def test_a_schema_is_not_changed_by_compiling_it() -> None:
    schema = {"properties": {"a": {"format": "email", "contentEncoding": "base64"}}}
    before = jsontext.dumps(schema)
    validate.compile(schema)
    assert jsontext.dumps(schema) == before


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ({"type": "integer"}, 2**70, 1.5),
        ({"maximum": 2**70}, 2**70, 2**70 + 1),
        ({"const": 2**53}, 2**53, 2**53 + 1),
        ({"enum": [2**53 + 1]}, 2**53 + 1, 2**53),
        ({"type": "integer"}, 1.0, "1"),
        ({"const": 1}, 1.0, True),
        ({"multipleOf": 3}, 3 * 2**70, 2**70),
        (True, None, ...),
        (False, ..., None),
    ],
)
def test_numbers_count_by_value(schema: Any, valid: Any, invalid: Any) -> None:
    assert valid is ... or error_of(schema, valid) is None
    assert invalid is ... or error_of(schema, invalid) is not None


# --- formats


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-25T12:00:00Z",
        "2026-02-25T12:00:00.1Z",
        "2026-02-25T12:00:00.123456789+05:30",
        "2024-02-29T23:59:59-23:59",
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
    ],
)
def test_a_date_time(text: str) -> None:
    assert is_date_time(text)
    assert error_of({"format": "date-time"}, text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-02-25",
        "2026-02-25T12:00Z",
        "2026-02-25T12:00:00",
        "2026-02-25 12:00:00Z",
        "2026-02-25t12:00:00z",
        "2026-02-25T12:00:00.Z",
        "2026-02-25T12:00:00.1234567890Z",
        "2026-02-25T12:00:00+0530",
        "2026-02-25T12:00:00+24:00",
        "2026-02-25T24:00:00Z",
        "2026-02-25T12:60:00Z",
        "2016-12-31T23:59:60Z",
        "2025-02-29T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "２026-02-25T12:00:00Z",
        "2026-02-25T12:00:00Z\n",
    ],
)
def test_not_a_date_time(text: str) -> None:
    assert not is_date_time(text)
    assert error_of({"format": "date-time"}, text) is not None


def test_date_time_is_about_strings_only() -> None:
    assert error_of({"format": "date-time"}, 5) is None


@pytest.mark.parametrize("form", ["email", "uri", "date", "time", "ipv4", "uuid", "regex", "hostname", "made-up"])
def test_other_formats_are_not_checked(form: str) -> None:
    assert error_of({"properties": {"a": {"format": form}}}, {"a": "( not that"}) is None


def test_content_is_not_checked() -> None:
    assert error_of({"contentEncoding": "base64", "contentMediaType": "application/json"}, "%") is None


def test_what_only_looks_like_a_format_keeps_its_meaning() -> None:
    schema = {
        "properties": {"format": {"type": "string"}, "a": {"const": {"format": "email"}}},
        "required": ["format"],
    }
    assert error_of(schema, {"format": "x", "a": {"format": "email"}}) is None
    assert error_of(schema, {"format": 1}) is not None
    assert error_of(schema, {"format": "x", "a": {}}) is not None


# --- references


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/definitions/a", "definitions": {"a": {"type": "string"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
        {"$ref": "#/definitions/a%20b~1c~0", "definitions": {"a b/c~": {"type": "string"}}},
        {"$ref": "#name", "definitions": {"a": {"$id": "#name", "type": "string"}}},
        {"$ref": "#/definitions/a/allOf/0", "definitions": {"a": {"allOf": [{"type": "string"}]}}},
        {"$id": "http://example.com/it", "$ref": "#/definitions/a", "definitions": {"a": {"type": "string"}}},
        {"$ref": "#/definitions/a", "type": "integer", "definitions": {"a": {"type": "string"}}},
    ],
)
def test_a_local_reference_works(schema: Any) -> None:
    assert error_of(schema, "text") is None
    assert error_of(schema, 5) is not None


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"$ref": "http://127.0.0.1:9/x"}, "external $ref is not supported: at=/$ref"),
        ({"items": {"$ref": "file:///etc/passwd"}}, "external $ref is not supported: at=/items/$ref"),
        ({"definitions": {"unused": {"$ref": "other.json"}}}, "external"),
        ({"properties": {"a": {"$ref": "http://json-schema.org/draft-07/schema#"}}}, "external"),
        ({"$ref": "#/definitions/none"}, "leads to no subschema"),
        ({"$ref": "#none"}, "leads to no subschema"),
        ({"$ref": "#/const", "const": {}}, "leads to no subschema"),
        ({"$ref": "#/~2"}, "invalid json pointer"),
        ({"$ref": 5}, "must be a string"),
        ({"items": {"$id": "http://a/b", "items": {"$ref": "#"}}}, "under a nested $id"),
        ({"items": [{"$id": "#a"}, {"$id": "#a"}]}, "two subschemas"),
    ],
)
def test_a_reference_that_leads_elsewhere_is_refused(schema: Any, message: str) -> None:
    assert message in refused(schema)


def test_what_only_looks_like_a_reference_is_none() -> None:
    schema = {
        "properties": {"$ref": {"type": "string"}},
        "enum": [{"$ref": "http://a/"}, {"$ref": "x"}],
        "x-y": {"$ref": "z"},
    }
    assert error_of(schema, {"$ref": "http://a/"}) is None
    assert error_of(schema, {"$ref": 1}) is not None


# --- schemas that are none


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (None, "must be an object or a boolean"),
        ([], "must be an object or a boolean"),
        ("x", "must be an object or a boolean"),
        ({"type": "foo"}, "schema is not valid: /type"),
        ({"properties": []}, "/properties"),
        ({"properties": {"a": {"minLength": -1}}}, "/properties/a/minLength"),
        ({"required": "a"}, "/required"),
        ({"pattern": "("}, "/pattern"),
        ({"patternProperties": {"(": True}}, "/patternProperties"),
        ({"format": 5}, "/format"),
        ({"contentEncoding": 5}, "/contentEncoding"),
        ({"definitions": {"unused": {"type": "foo"}}}, "/definitions/unused/type"),
    ],
)
def test_what_is_no_schema_is_refused_and_located(schema: Any, message: str) -> None:
    assert message in refused(schema)


# --- messages


def test_all_errors_are_named_with_their_places() -> None:
    schema = {
        "required": ["id"],
        "properties": {"a": {"type": "string"}, "b": {"items": {"minimum": 5}}},
        "additionalProperties": False,
    }
    message = error_of(schema, {"a": 1, "b": [7, 3], "x/y": 0})
    assert message is not None
    assert sorted(message.split("; ")) == [
        "/a: value is not of type \"string\"",
        "/b/1: value is less than the minimum of 5",
        "document: \"id\" is a required property",
        "document: Additional properties are not allowed ('x/y' was unexpected)",
    ]  # fmt: skip


def test_a_message_is_short_and_does_not_quote_the_document() -> None:
    message = error_of({"items": {"type": "string"}}, [12345] * 1000)
    assert message is not None and message.endswith("; and 990 more")
    assert message.count("; ") == validate.MAX_ERRORS
    assert "12345" not in message
    long = error_of({"additionalProperties": False}, {"k" * 5000: 1})
    assert long is not None and len(long) <= validate.MAX_ERROR_CHARS


def test_a_large_document_is_refused_without_a_description() -> None:
    began = time.process_time()
    assert error_of({"items": {"type": "string"}}, list(range(500_000))) == "document does not match the schema"
    assert error_of({"type": "integer"}, "x" * 10_000_000) == "document does not match the schema"
    assert time.process_time() - began < 2


# --- cost


def nested(depth: int, leaf: Any) -> Any:
    for _ in range(depth):
        leaf = {"a": leaf}
    return leaf


def test_references_that_multiply_are_refused() -> None:
    steps = {f"d{n}": {"anyOf": [{"$ref": f"#/definitions/d{n + 1}"}] * 2} for n in range(40)}
    assert "too costly" in refused({"$ref": "#/definitions/d0", "definitions": {**steps, "d40": {"const": 1}}})


def test_members_that_multiply_are_refused() -> None:
    steps = {f"d{n}": {"allOf": [{"properties": {"a": {"$ref": f"#/definitions/d{n + 1}"}}}] * 2} for n in range(40)}
    assert "too costly" in refused({"$ref": "#/definitions/d0", "definitions": {**steps, "d40": True}})


def test_many_members_do_not_multiply() -> None:
    address = {"properties": {f"p{n}": {"type": "string"} for n in range(50)}}
    person = {"properties": {f"q{n}": {"$ref": "#/definitions/address"} for n in range(50)}}
    group = {"properties": {f"r{n}": {"$ref": "#/definitions/person"} for n in range(50)}}
    schema = {**group, "definitions": {"address": address, "person": person}}
    assert error_of(schema, {"r1": {"q2": {"p3": "x"}}}) is None
    assert error_of(schema, {"r1": {"q2": {"p3": 1}}}) == '/r1/q2/p3: value is not of type "string"'


def test_a_recursive_schema_with_alternatives_is_quick_on_a_deep_document() -> None:
    ways = [{"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}, key: {}}} for key in "xyz"]
    validator = validate.compile({"anyOf": [*ways, {"const": 1}]})
    began = time.process_time()
    validator.check(nested(190, 1))
    with pytest.raises(InvalidRequest, match="does not match"):
        validator.check(nested(190, 2))
    assert time.process_time() - began < 1


def test_schemas_that_refer_to_each_other_are_quick_or_refused() -> None:
    def all_to_all(count: int) -> Any:
        def one() -> Any:
            ways = [
                {"type": "object", "required": ["a"], "properties": {"a": {"$ref": f"#/definitions/d{n}"}}}
                for n in range(count)
            ]
            return {"anyOf": [*ways, {"const": 1}]}

        return {"$ref": "#/definitions/d0", "definitions": {f"d{n}": one() for n in range(count)}}

    began = time.process_time()
    assert error_of(all_to_all(6), nested(190, 2)) == "document does not match the schema"
    assert "too costly" in refused(all_to_all(12))
    assert time.process_time() - began < 1


def test_a_recursive_schema_without_alternatives_says_what_is_wrong() -> None:
    tree = {
        "type": "object",
        "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    }
    document = {"value": 1, "children": [{"value": 2}, {"children": [{"value": "x"}]}]}
    assert error_of(tree, document) == '/children/1/children/0/value: value is not of type "integer"'
    anything = {
        "anyOf": [
            {"type": "integer"},
            {"type": "array", "items": {"$ref": "#"}},
            {"type": "object", "additionalProperties": {"$ref": "#"}},
        ]
    }
    assert error_of(anything, {"a": [1, {"b": 2}]}) is None
    assert "anyOf" in str(error_of(anything, {"a": ["x"]}))


def test_long_chains_of_references_are_refused_and_short_ones_do_not_overflow_the_stack() -> None:
    def chain(length: int) -> Any:
        steps = {f"d{n}": {"anyOf": [{"$ref": f"#/definitions/d{n + 1}"}]} for n in range(length)}
        last = {f"d{length}": {"type": "object", "properties": {"a": {"$ref": "#/definitions/d0"}}}}
        return {"$ref": "#/definitions/d0", "definitions": {**steps, **last}}

    assert "nested too deeply" in refused(chain(4_000))
    assert "too many subschemas" in refused(chain(50_000))
    validator = validate.compile(chain(90))
    validator.check(nested(jsontext.MAX_DEPTH - 1, {}))
    with pytest.raises(InvalidRequest, match="does not match"):
        validator.check(nested(jsontext.MAX_DEPTH, 5))


def test_a_pattern_with_nested_repetition_is_linear() -> None:
    began = time.process_time()
    assert error_of({"pattern": "^(a+)+$"}, "a" * 100_000 + "b") is not None
    assert time.process_time() - began < 1


def test_a_pattern_with_look_around_works_and_is_bounded() -> None:
    assert error_of({"pattern": r"^(?!\s*$).+"}, "x" * 100_000) is None
    assert error_of({"pattern": r"^(?!\s*$).+"}, "   ") is not None
    began = time.process_time()
    assert error_of({"pattern": r"(?!.*b).c"}, "a" * 30_000) is not None
    assert time.process_time() - began < 5


def test_a_huge_pattern_is_refused() -> None:
    assert "/pattern" in refused({"pattern": "((a{1,500}){1,500}){1,500}"})
