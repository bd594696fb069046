"""What a record says about the fields of a configuration."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.json import jsontext, search_config
from headrace.query.language import canonical


def config(**fields: dict[str, Any]) -> search_config.SearchConfig:
    at = {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}]}
    return search_config.parse({"primaryTimestampField": "at", "fields": {"at": at, **fields}}, 0)


def keyword(*pointers: str | None, **more: Any) -> dict[str, Any]:
    """Bound to the pointers in versions 1, 2, …; None binds nothing."""
    bindings = [
        {"version": version, "jsonPointer": text} for version, text in enumerate(pointers, 1) if text is not None
    ]
    return {"kind": "keyword", "bindings": bindings, **more}


ONE = config(f=keyword("/f"))


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"f": "a"}, ["a"]),
        ({"f": ["a", "b", "a"]}, ["a", "b", "a"]),
        ({"f": [["a", ["b"]], [], [[["c"]]], "d"]}, ["a", "b", "c", "d"]),
        ({"f": [None, "a", 1, {"f": "b"}, [None, "c"]]}, ["a", "c"]),
        ({"f": ""}, [""]),
    ],
)
def test_values_come_in_order_with_arrays_flattened(document: Any, expected: list[str]) -> None:
    assert canonical.values(ONE, 1, document) == {"f": expected}


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"f": None},
        {"f": []},
        {"f": [None, [[]]]},
        {"f": 1},
        {"f": {"f": "a"}},
        {"F": "a"},
        [],
        "f",
        5,
        None,
        ["f"],
    ],
)
def test_a_field_without_values_is_left_out(document: Any) -> None:
    assert canonical.values(ONE, 1, document) == {}


def test_pointers_reach_into_the_record() -> None:
    deep = config(
        root=keyword(""),
        nested=keyword("/a/b"),
        item=keyword("/list/1"),
        escaped=keyword("/x~1y/~0z"),
        empty=keyword("/"),
    )
    record = {"a": {"b": "1"}, "list": ["2", "3"], "x/y": {"~z": "4"}, "": "5"}
    assert canonical.values(deep, 1, record) == {"nested": ["1"], "item": ["3"], "escaped": ["4"], "empty": ["5"]}
    assert canonical.values(deep, 1, "whole") == {"root": ["whole"]}
    assert canonical.values(deep, 1, ["whole", "record"]) == {"root": ["whole", "record"]}


@pytest.mark.parametrize(
    ("version", "expected"),
    [(1, {"f": ["a"]}), (2, {"f": ["b"]}), (3, {"f": ["b"], "g": ["c"]}), (9, {"f": ["b"], "g": ["c"]})],
)
def test_the_binding_is_that_of_the_schema_in_force(version: int, expected: dict[str, list[str]]) -> None:
    fields = config(f=keyword("/a", "/b"), g=keyword(None, None, "/c"))
    assert canonical.values(fields, version, {"a": "a", "b": "b", "c": "c"}) == expected


def test_the_order_of_bindings_does_not_matter() -> None:
    field = keyword("/a", "/b")
    field["bindings"].reverse()
    assert canonical.values(config(f=field), 2, {"a": "a", "b": "b"}) == {"f": ["b"]}
    assert canonical.values(config(f=field), 1, {"a": "a", "b": "b"}) == {"f": ["a"]}


def test_only_the_fields_that_were_asked_for() -> None:
    fields = config(f=keyword("/f"), g=keyword("/g"))
    record = {"f": "1", "g": "2", "at": 5}
    assert canonical.values(fields, 1, record) == {"at": [5], "f": ["1"], "g": ["2"]}
    assert canonical.values(fields, 1, record, frozenset({"g"})) == {"g": ["2"]}
    assert canonical.values(fields, 1, record, frozenset()) == {}


def test_configurations_that_look_alike_are_not_mixed_up() -> None:
    for pointer in ("/a", "/b"):
        assert canonical.values(config(f=keyword(pointer)), 1, {"a": "/a", "b": "/b"}) == {"f": [pointer]}


def test_values_as_they_come_from_bytes() -> None:
    fields = config(
        i={"kind": "integer", "bindings": [{"version": 1, "jsonPointer": "/i"}]},
        t={"kind": "text", "analyzer": "unicode_word_v1", "bindings": [{"version": 1, "jsonPointer": "/t"}]},
    )
    record = jsontext.loads(
        b'{"i": [9007199254740993, 1.0, 18446744073709551616, "7"], "t": ["A b", "", "c"], "at": 1e3}'
    )
    assert canonical.values(fields, 1, record) == {
        "at": [1000],
        "i": [9007199254740993, 1, 18446744073709551616, 7],
        "t": [("a", "b"), (), ("c",)],
    }


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["f", "g"]), inner, max_size=2),
    max_leaves=8,
)
_EVERY_KIND = config(
    **{
        kind: {"kind": kind, "bindings": [{"version": 1, "jsonPointer": "/f"}]}
        for kind in ("keyword", "integer", "float", "date", "bool")
    }
)


@given(_JSON)
def test_any_record_can_be_asked(document: Any) -> None:
    for found in canonical.values(_EVERY_KIND, 1, document).values():
        assert found
        assert None not in found
