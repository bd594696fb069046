"""JSON pointers: RFC 6901's own examples, and that nothing given is ever changed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.json import jsontext
from headrace.json.jsontext import MISSING

# RFC 6901, section 5.
EXAMPLE = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
}

KEYS = st.text(alphabet="ab01~/-", max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [("", EXAMPLE), ("/foo", ["bar", "baz"]), ("/foo/0", "bar"), ("/", 0), ("/a~1b", 1), ("/c%d", 2), ("/e^f", 3)],
)
def test_the_examples_of_the_rfc(text: str, value: Any) -> None:
    assert jsontext.get(EXAMPLE, jsontext.parse_pointer(text)) == value


@pytest.mark.parametrize("key", EXAMPLE)
def test_every_key_has_a_pointer(key: str) -> None:
    assert jsontext.get(EXAMPLE, jsontext.parse_pointer(jsontext.render_pointer((key,)))) == EXAMPLE[key]


@pytest.mark.parametrize("text", ["a", "a/b", "#/a", "/~", "/~2", "/a~"])
def test_what_is_no_pointer_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="invalid json pointer"):
        jsontext.parse_pointer(text)


def test_an_escaped_tilde_is_not_unescaped_twice() -> None:
    assert jsontext.parse_pointer("/~01") == ("~1",)


@pytest.mark.parametrize("key", ["01", "-", "-1", "1.0", "1e0", "", "²", "9999999999", "2"])
def test_a_key_that_is_no_index_of_the_array_finds_nothing(key: str) -> None:
    assert jsontext.get(["x", "y"], (key,)) is MISSING
    with pytest.raises(InvalidRequest):
        jsontext.put(["x", "y"], (key,), 1)
    with pytest.raises(InvalidRequest):
        jsontext.drop(["x", "y"], (key,))


def test_null_is_there_and_a_missing_member_is_not() -> None:
    assert jsontext.get({"a": None}, ("a",)) is None
    assert jsontext.get({"a": None}, ("b",)) is MISSING
    assert jsontext.get({"a": "text"}, ("a", "0")) is MISSING


def test_a_new_member_goes_to_the_end_and_an_old_one_keeps_its_place() -> None:
    assert list(jsontext.put({"a": 1, "b": 2}, ("a",), 3).items()) == [("a", 3), ("b", 2)]
    assert list(jsontext.put({"a": 1, "b": 2}, ("c",), 3).items()) == [("a", 1), ("b", 2), ("c", 3)]


def test_parents_are_made_only_where_asked_for() -> None:
    assert jsontext.put({}, ("a", "b"), 1, create=True) == {"a": {"b": 1}}
    with pytest.raises(InvalidRequest, match="parent is missing"):
        jsontext.put({}, ("a", "b"), 1)
    with pytest.raises(InvalidRequest, match="neither object nor array"):
        jsontext.put({"a": 1}, ("a", "b"), 1, create=True)


def test_the_whole_document_can_be_replaced_and_not_removed() -> None:
    assert jsontext.put({"a": 1}, (), 2) == 2
    with pytest.raises(InvalidRequest):
        jsontext.drop({"a": 1}, ())


@given(st.lists(KEYS).map(tuple))
def test_a_path_comes_back_as_it_was(path: tuple[str, ...]) -> None:
    assert jsontext.parse_pointer(jsontext.render_pointer(path)) == path


@given(JSON, st.lists(KEYS, max_size=3).map(tuple), st.booleans())
def test_put_and_drop_do_what_get_sees_and_change_nothing_given(document: Any, path: Any, create: bool) -> None:
    before = copy.deepcopy(document)
    try:
        put = jsontext.put(document, path, "new", create=create)
    except InvalidRequest:
        assert path
    else:
        assert jsontext.get(put, path) == "new"
    found = jsontext.get(document, path)
    try:
        dropped = jsontext.drop(document, path)
    except InvalidRequest:
        assert found is MISSING or not path
    else:
        parent = jsontext.get(document, path[:-1])
        assert found is not MISSING
        assert len(jsontext.get(dropped, path[:-1])) == len(parent) - 1
    assert document == before
