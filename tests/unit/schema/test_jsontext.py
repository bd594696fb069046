"""JSON both ways: nothing that JSON can say is lost, nothing that is not JSON gets in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.json import jsontext

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=20
)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types and key order."""
    return json.dumps(one) == json.dumps(other)


@given(VALUES)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert same(jsontext.loads(jsontext.dumps(value)), value)


@given(VALUES)
def test_it_reads_what_the_standard_library_writes_and_the_reverse(value: Any) -> None:
    assert same(jsontext.loads(json.dumps(value).encode()), value)
    assert same(json.loads(jsontext.dumps(value)), value)


@given(st.integers(min_value=-(10**300), max_value=10**300))
def test_integers_of_any_size_survive(number: int) -> None:
    assert jsontext.dumps(jsontext.loads(b"[%d]" % number)) == b"[%d]" % number


NUMBERS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?",
    fullmatch=True,
    alphabet=st.characters(codec="ascii"),
)


@given(NUMBERS)
def test_numbers_mean_what_they_mean_to_the_standard_library(text: str) -> None:
    assert same(jsontext.loads(text.encode()), json.loads(text))


def test_text_is_compact_keeps_key_order_and_non_ascii() -> None:
    value = {"z": 1, "a": ["ö", "\u2028", 1.5, 100.0, None], "m": {}}
    assert jsontext.dumps(value) == '{"z":1,"a":["ö","\u2028",1.5,100.0,null],"m":{}}'.encode()


def test_of_equal_keys_the_last_counts() -> None:
    assert jsontext.loads(b'{"a":1,"a":2}') == {"a": 2}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"{",
        b"[1,]",
        b"01",
        b"1.",
        b".5",
        b"+1",
        b"1 2",
        b"NaN",
        b"-Infinity",
        b"'a'",
        b"tru",
        b"\xef\xbb\xbf1",
        b'"\xff"',
        b'{"\xff":1}',
        b'"\xed\xa0\x80"',
        b'"\\ud800"',
        b'"\\ud800abcdefgh"',
        b'"\\udc00abcdefgh"',
        b'"\t"',
        b"1e400",
        b"[1]\x00",
        b"/**/1",
        b"9" * 5000,
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_what_is_not_json_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        jsontext.loads(data)


@given(st.binary(max_size=40))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    try:
        value = jsontext.loads(data)
    except InvalidRequest:
        return
    assert same(json.loads(data), value)


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_depth_is_bounded(opening: bytes, closing: bytes) -> None:
    def nested(depth: int) -> bytes:
        return opening * depth + closing * depth if opening == b"[" else opening * depth + b"1" + closing * depth

    assert jsontext.loads(nested(jsontext.MAX_DEPTH))
    for depth in (jsontext.MAX_DEPTH + 1, 900, 5000):
        with pytest.raises(InvalidRequest, match="deeply"):
            jsontext.loads(nested(depth))


def depth_of(value: Any) -> int:
    if not isinstance(value, list | dict):
        return 0
    return 1 + max(map(depth_of, value.values() if isinstance(value, dict) else value), default=0)


AWKWARD = st.recursive(
    st.text('[]{}"\\,:x', max_size=6) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[]{}"\\', max_size=4), inner, max_size=3),
)


@given(AWKWARD, st.integers(0, 5), st.booleans())
def test_depth_is_checked_without_building_values(value: Any, limit: int, is_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, indent=1).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "MAX_DEPTH", limit)
        if depth_of(value) <= limit:
            jsontext.check_depth(text)
        else:
            with pytest.raises(InvalidRequest, match="deeply"):
                jsontext.check_depth(text)


def test_many_brackets_that_are_not_deep_pass() -> None:
    assert jsontext.loads(b"[" + b"{}," * 1000 + b"[]]") == [{}] * 1000 + [[]]
    assert jsontext.loads(b'"' + b"[{" * 1000 + b'"') == "[{" * 1000
