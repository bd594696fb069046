"""Lenses that are proven, lenses that are refused, and what the refusal says."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import InvalidRequest
from headrace.json import lens
from tests.unit.schema.lens.documents import (
    DATE_TIME,
    INTEGER,
    STRING,
    add,
    array,
    closed,
    convert,
    copy,
    document_of,
    each,
    head,
    hoist,
    inside,
    lens_of,
    open_,
    plunge,
    remove,
    rename,
    wrap,
)

TASK = closed({"id": INTEGER, "owner": STRING})
TREE = {"type": "object", "properties": {"kids": array({"$ref": "#/definitions/tree"})}, "required": ["kids"]}
TO_TODO = {"map": {"open": "todo"}, "default": "todo"}
EVENTS = [closed({"kind": {"const": f"k{n}"}, f"own{n}": INTEGER}) for n in range(40)]
WIDER_EVENTS = [closed({**event["properties"], "source": STRING}) for event in EVENTS]

PROVEN: dict[str, tuple[Any, Any, list[dict[str, Any]]]] = {
    # What the peer's own tests and documents show as valid.
    "rename, then wrap": (
        TASK,
        closed({"id": INTEGER, "owners": array(STRING)}),
        [rename("/owner", "/owners"), wrap("/owners")],
    ),
    "add a member of an enum": (
        TASK,
        closed({"id": INTEGER, "owner": STRING, "state": {"type": "string", "enum": ["todo", "done"]}}),
        [add("/state", "todo", schema=STRING)],
    ),
    "add to an open object": (
        open_({"id": INTEGER}),
        open_({"id": INTEGER, "state": STRING}),
        [add("/state", "new")],
    ),
    "rename over another member": (closed({"a": INTEGER, "x": STRING}), closed({"x": INTEGER}), [rename("/a", "/x")]),
    "hoist": (
        closed({"id": INTEGER, "meta": closed({"owner": STRING})}),
        closed({"id": INTEGER, "meta": closed({}), "owner": STRING}),
        [hoist("/meta", "owner", "/owner")],
    ),
    "plunge into a host that may be missing": (
        closed({"id": INTEGER, "meta": {"type": "object", "additionalProperties": False}}, "meta"),
        closed({"meta": closed({"id": INTEGER})}),
        [plunge("/id", "/meta", "id")],
    ),
    "head of what is not empty": (
        closed({"l": array(STRING, minItems=1)}),
        closed({"l": STRING}),
        [head("/l")],
    ),
    "head of listed arrays": (closed({"l": {"enum": [["a"], ["b", 1]]}}), closed({"l": STRING}), [head("/l")]),
    "lowercase": (closed({"n": STRING}), closed({"n": STRING}), [convert("/n", "string", "string", "lowercase")]),
    "listed numbers": (
        closed({"n": {"type": "string", "enum": ["1", "2"]}}),
        closed({"n": INTEGER}),
        [convert("/n", "string", "integer", "string_to_int")],
    ),
    "a table with a default": (
        closed({"n": STRING}),
        closed({"n": STRING}),
        [convert("/n", "string", "string", TO_TODO)],
    ),
    "inside an object": (
        closed({"p": closed({"name": STRING})}),
        closed({"p": closed({"full": STRING, "age": INTEGER})}),
        [inside("/p", rename("/name", "/full"), add("/age", 0))],
    ),
    "each item": (
        closed({"items": array(closed({"id": INTEGER}))}),
        closed({"items": array(closed({"id": STRING}))}),
        [each("/items", convert("/id", "integer", "string", "int_to_string"))],
    ),
    # What follows from the schemas, although the peer refuses it.
    "a default that a later operation changes": (
        TASK,
        closed({"id": INTEGER, "owner": STRING, "n": array(STRING)}),
        [add("/n", 1), convert("/n", "integer", "string", "int_to_string"), wrap("/n")],
    ),
    "a long way round": (
        TASK,
        TASK,
        [
            rename("/owner", "/x"),
            wrap("/x"),
            plunge("/x", "/y", "z"),
            hoist("/y", "z", "/owner"),
            head("/owner"),
            remove("/y"),
        ],
    ),
    "a table over all that the schema lists": (
        closed({"n": {"enum": [1, 2.0, -3]}}),
        closed({"n": {"enum": ["one", "two", "minus three"]}}),
        [convert("/n", "integer", "string", {"map": {"1": "one", "2": "two", "-3": "minus three"}})],
    ),
    "a boolean has two values": (
        closed({"n": {"type": "boolean"}}),
        closed({"n": {"enum": ["yes", "no"]}}),
        [convert("/n", "boolean", "string", {"map": {"true": "yes", "false": "no"}})],
    ),
    "a date-time is always a time": (
        closed({"t": DATE_TIME}),
        closed({"t": INTEGER}),
        [convert("/t", "string", "integer", "rfc3339_to_unix_millis")],
    ),
    "a bounded time is a date-time": (
        closed({"t": {"type": "integer", "minimum": 0, "maximum": 4_000_000_000_000}}),
        closed({"t": DATE_TIME}),
        [convert("/t", "integer", "string", "unix_millis_to_rfc3339")],
    ),
    "patterns and bounds that stay": (
        closed({"a": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 9}, "b": INTEGER}),
        closed({"c": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 10}, "b": {"type": "number"}}),
        [rename("/a", "/c")],
    ),
    "a recursive schema": (
        closed({"a": {"$ref": "#/definitions/tree"}}) | {"definitions": {"tree": TREE}},
        closed({"b": {"$ref": "#/definitions/tree"}}) | {"definitions": {"tree": TREE}},
        [rename("/a", "/b")],
    ),
    "into a recursive schema": (
        TREE | {"definitions": {"tree": TREE}},
        TREE | {"required": ["kids", "n"], "definitions": {"tree": TREE}},
        [add("/n", 1)],
    ),
    "a union of events": ({"oneOf": EVENTS}, {"oneOf": WIDER_EVENTS}, [add("/source", "web")]),
    "a member that a condition asks for": (
        {"type": "object", "required": ["a"], "if": {"required": ["b"]}, "then": {"required": ["c"]}},
        {"type": "object", "required": ["z"], "dependencies": {"b": ["c"]}},
        [rename("/a", "/z")],
    ),
    "an item that is there": (
        closed({"a": {"type": "array", "items": [STRING, INTEGER], "minItems": 2}}),
        closed({"a": {"type": "array", "items": [INTEGER], "minItems": 1}, "b": STRING}),
        [rename("/a/0", "/b")],
    ),
    "the content of an envelope": (closed({"data": TASK, "meta": True}), TASK, [rename("/data", "")]),
    "items that are no objects": (
        closed({"a": array(INTEGER)}),
        closed({"a": array(STRING)}),
        [each("/a", convert("", "integer", "string", "int_to_string"))],
    ),
    "a name that a pattern speaks of": (
        {"type": "object", "patternProperties": {"^x": INTEGER}, "additionalProperties": False, "required": ["xa"]},
        {
            "type": "object",
            "patternProperties": {"^x": {"type": ["integer", "string"]}},
            "additionalProperties": False,
        },
        [add("/xa", "text")],
    ),
    "null is not absence": (closed({}), closed({"a": {"type": "null"}}), [add("/a", None)]),
    "no document at all": (False, TASK, [add("/a", 1)]),
    "anything": (open_({"a": INTEGER}), True, [rename("/a", "/b")]),
}


@pytest.mark.parametrize("name", PROVEN)
def test_a_lens_is_proven(name: str) -> None:
    old, new, ops = PROVEN[name]
    assert lens.prove(lens_of(*ops), old, new) == document_of(*ops)


REFUSED: dict[str, tuple[Any, Any, list[dict[str, Any]], str]] = {
    # What the peer refuses too.
    "no wrap": (
        TASK,
        closed({"id": INTEGER, "owners": array(STRING)}),
        [rename("/owner", "/owners")],
        '/ops/0 (rename): /owners may be {"type":"string"}, but the new schema accepts {"items":',
    ),
    "a default outside the enum": (
        TASK,
        closed({"id": INTEGER, "owner": STRING, "state": {"enum": ["todo"]}}),
        [add("/state", "oops")],
        '/ops/0 (add): /state may be {"const":"oops"}, but the new schema accepts {"const":"todo"}',
    ),
    "no default to be found": (
        TASK,
        closed({"id": INTEGER, "owner": STRING, "n": INTEGER}),
        [add("/n")],
        "/ops/0 (add)",
    ),
    "head of what may be empty": (
        closed({"l": array(STRING)}),
        closed({"l": STRING}),
        [head("/l")],
        "/ops/0 (head): the array may be empty",
    ),
    "any text as a number": (
        closed({"n": STRING}),
        closed({"n": INTEGER}),
        [convert("/n", "string", "integer", "string_to_int")],
        "/ops/0 (convert): string_to_int is not defined for every value",
    ),
    "a table without default": (
        closed({"n": STRING}),
        closed({"n": STRING}),
        [convert("/n", "string", "string", {"map": {"a": "b"}})],
        "/ops/0 (convert): the map has no default",
    ),
    "a member that may be missing": (
        closed({"a": INTEGER}, "a"),
        closed({"b": INTEGER}),
        [rename("/a", "/b")],
        "/ops/0 (rename): /a may be missing",
    ),
    "removal of what may be missing": (closed({"a": INTEGER}, "a"), True, [remove("/a")], "/a may be missing"),
    "removal of what is still needed": (
        TASK,
        closed({"id": INTEGER, "owner": STRING}),
        [remove("/owner")],
        "/ops/0 (remove): /owner is required by the new schema and may be missing",
    ),
    "a parent that may be missing": (
        closed({"a": INTEGER, "h": open_({})}, "h"),
        True,
        [rename("/a", "/h/b")],
        "the parent of /h/b may be missing",
    ),
    "a host that may be missing": (
        closed({"a": INTEGER, "h": open_({})}, "h"),
        True,
        [plunge("/a", "/h", "b", createHost=False)],
        "/h may be missing",
    ),
    "a host that is no object": (
        closed({"a": INTEGER, "h": {"type": ["object", "null"]}}),
        True,
        [plunge("/a", "/h", "b")],
        "/h may be no object",
    ),
    # What the peer lets pass.
    "another member that the new schema requires": (
        closed({"a": INTEGER}),
        closed({"b": INTEGER, "c": INTEGER}),
        [rename("/a", "/b")],
        "no operation changes it: /c is required by the new schema and may be missing",
    ),
    "a member left behind": (
        closed({"a": INTEGER, "z": STRING}),
        closed({"b": INTEGER}),
        [rename("/a", "/b")],
        "no operation changes it: /z is not allowed by the new schema and may be there",
    ),
    "an open object and a member of its own": (
        open_({"a": INTEGER}),
        open_({"b": INTEGER, "c": INTEGER}, "c"),
        [rename("/a", "/b")],
        "may be",
    ),
    "a value used twice": (
        closed({"a": INTEGER}),
        True,
        [rename("/a", "/b"), copy("/a", "/c")],
        "/ops/1 (copy): /a may be missing",
    ),
    "bounds that do not fit": (
        closed({"a": {"type": "integer", "minimum": 0}}),
        closed({"b": {"type": "integer", "minimum": 1}}),
        [rename("/a", "/b")],
        "/ops/0 (rename): /b may be",
    ),
    "an item deep down": (
        closed({"x": closed({"y": array(closed({"z": STRING}))}), "a": INTEGER}),
        closed({"x": closed({"y": array(closed({"z": INTEGER}))}), "b": INTEGER}),
        [rename("/a", "/b")],
        "/x/y/0/z may be",
    ),
    "an unproven time": (
        closed({"t": INTEGER}),
        closed({"t": DATE_TIME}),
        [convert("/t", "integer", "string", "unix_millis_to_rfc3339")],
        "/ops/0 (convert): /t may be",
    ),
    "a conversion of another type": (
        closed({"n": {"type": "number"}}),
        True,
        [convert("/n", "integer", "string", "int_to_string")],
        "/ops/0 (convert): the value may be of another type than integer",
    ),
    "a conversion to another type": (
        closed({"n": STRING}),
        True,
        [convert("/n", "string", "string", {"map": {"a": 1}, "default": "x"})],
        "/ops/0 (convert): the result may be of another type than string",
    ),
    "a listed value without an entry": (
        closed({"n": {"enum": ["a", "b"]}}),
        True,
        [convert("/n", "string", "string", {"map": {"a": "x"}})],
        '/ops/0 (convert): "b": value is not in the map',
    ),
    "uppercase is longer": (
        closed({"n": {"type": "string", "maxLength": 3}}),
        closed({"n": {"type": "string", "maxLength": 3}}),
        [convert("/n", "string", "string", "uppercase")],
        "/ops/0 (convert): /n may be",
    ),
    "an operation within": (
        closed({"p": closed({"a": INTEGER})}),
        True,
        [inside("/p", rename("/b", "/c"))],
        "/ops/0/ops/0 (rename): /b may be missing",
    ),
    "an operation within that is not the first": (
        closed({"p": array(closed({"a": INTEGER}))}),
        True,
        [each("/p", add("/b", 1), remove("/a"), remove("/a"))],
        "/ops/0/ops/2 (remove): /a may be missing",
    ),
    "no object to go into": (closed({"p": array(True)}), True, [inside("/p", add("/a", 1))], "/p may be no object"),
    "no array to go through": (closed({"p": {}}), True, [each("/p", add("/a", 1))], "/p may be no array"),
    "items that stay different": (
        closed({"a": INTEGER, "l": array(INTEGER, uniqueItems=True, minItems=2)}),
        closed({"a": INTEGER, "l": array(INTEGER, uniqueItems=True, minItems=2)}),
        [copy("/a", "/l/0")],
        "/ops/0 (copy): /l may be",
    ),
    "a default against its own schema": (
        TASK,
        True,
        [add("/n", "x", schema=INTEGER)],
        "/ops/0 (add): default or schema",
    ),
    "a schema that is none": (TASK, True, [add("/n", 1, schema={"type": "no"})], "/ops/0 (add): default or schema"),
    "an external reference": (TASK, {"$ref": "http://x.invalid/"}, [add("/n", 1)], "external $ref"),
    "too many alternatives": (
        {"type": "object", "dependencies": {f"a{n}": [f"b{n}"] for n in range(12)}},
        closed({}),
        [add("/n", 1)],
        "too complex",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_lens_is_refused(name: str) -> None:
    old, new, ops, reason = REFUSED[name]
    with pytest.raises(InvalidRequest) as caught:
        lens.prove(lens_of(*ops), old, new)
    assert str(caught.value).startswith("lens not proven: ")
    assert reason in str(caught.value)


def test_defaults_are_taken_from_the_new_schema_and_written_into_the_lens() -> None:
    old = closed({"p": closed({}), "l": array(closed({}))})
    new = closed(
        {
            "a": {"type": "integer", "default": 7},
            "b": {"type": "object"},
            "c": {"type": ["null", "array"]},
            "d": {"allOf": [{"$ref": "#/definitions/text"}]},
            "p": closed({"e": {"type": "string", "default": ""}}),
            "l": array(closed({"f": {"default": None}})),
        }
    ) | {"definitions": {"text": {"type": "string", "default": "t"}}}
    ops = [add("/a"), add("/b"), add("/c"), add("/d"), inside("/p", add("/e")), each("/l", add("/f"))]
    parsed = lens_of(*ops)
    proven = lens.prove(parsed, old, new)
    assert parsed.document == document_of(*ops), "the given lens was changed"
    filled = [add("/a", 7), add("/b", {}), add("/c", []), add("/d", "t")]
    filled += [inside("/p", add("/e", "")), each("/l", add("/f", None))]
    assert proven == document_of(*filled)
    document = lens.promote([lens.parse(proven, "s", 1)], {"p": {}, "l": [{}]})
    assert document == {"p": {"e": ""}, "l": [{"f": None}], "a": 7, "b": {}, "c": [], "d": "t"}


def test_a_default_from_the_new_schema_has_to_fit_it() -> None:
    new = closed({"a": {"type": "integer", "default": "seven"}})
    with pytest.raises(InvalidRequest, match=r"/ops/0 \(add\): /a may be"):
        lens.prove(lens_of(add("/a")), closed({}), new)
