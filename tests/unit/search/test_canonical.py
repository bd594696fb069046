"""Which JSON values count for each kind of field, and as what."""

from __future__ import annotations

import sys
import unicodedata
from typing import Any

import pytest

from headrace.query.language import canonical
from headrace.query.language.canonical import Binding, Field, Value

_BINDING = (Binding(version=1, json_pointer="/x"),)
_FIELDS = {
    "keyword": Field(kind="keyword", bindings=_BINDING),
    "identity": Field(kind="keyword", bindings=_BINDING, normalizer="identity_v1"),
    "lower": Field(kind="keyword", bindings=_BINDING, normalizer="lowercase_v1"),
    "text": Field(kind="text", bindings=_BINDING, analyzer="unicode_word_v1"),
    "integer": Field(kind="integer", bindings=_BINDING),
    "float": Field(kind="float", bindings=_BINDING),
    "date": Field(kind="date", bindings=_BINDING),
    "bool": Field(kind="bool", bindings=_BINDING),
}


def read(field: str, value: Any) -> Value | None:
    return canonical.reader(_FIELDS[field])(value)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("keyword", "Ab c", "Ab c"),
        ("keyword", "", ""),
        ("identity", "Ab", "Ab"),
        ("lower", "ÉTÉ Straße", "été straße"),
        ("lower", "ΟΔΟΣ", "οδος"),  # a final sigma
        ("text", "Card-declined: 3x!", ("card", "declined", "3x")),
        ("text", "snake_case don't", ("snake", "case", "don", "t")),
        ("text", "日本語 ⅷ ②", ("日本語", "ⅷ", "②")),
        ("text", "?!", ()),
        ("text", "", ()),
        ("integer", 5, 5),
        ("integer", 5.0, 5),
        ("integer", 1e21, 10**21),
        ("integer", -(2**70), -(2**70)),
        ("integer", "503", 503),
        ("integer", " -7\ufeff", -7),
        ("integer", "-0", 0),
        ("integer", "9007199254740993", 9007199254740993),
        ("float", 1, 1.0),
        ("float", -2.5, -2.5),
        ("float", "12.50", 12.5),
        ("float", " .5 ", 0.5),
        ("float", "+1.e3", 1000.0),
        ("float", 2**60 + 1, float(2**60)),
        ("date", 1767398400000, 1767398400000),
        ("date", 12.9, 12),
        ("date", -12.9, -12),
        ("date", "2026-01-03T00:00:00Z", 1767398400000),
        ("date", " 2026-01-03 ", 1767398400000),
        ("date", "1767398400000", 1767398400000),
        ("date", "-1", -1),
        ("date", "2026", 1767225600000),  # a year, as for Date.parse, and not two seconds after 1970
        ("bool", True, True),
        ("bool", False, False),
        ("bool", "true", True),
        ("bool", " FALSE ", False),
    ],
)
def test_what_counts(field: str, value: Any, expected: Value) -> None:
    found = read(field, value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((field, value) for field in _FIELDS for value in (None, {}, {"a": 1})),
        *((field, value) for field in ("keyword", "lower", "text") for value in (1, 1.5, True)),
        *((field, value) for field in ("integer", "float", "date") for value in (True, False, "", " ", "many")),
        *((field, value) for field in ("integer", "float", "date") for value in (float("inf"), float("nan"))),
        ("integer", 1.5),
        ("integer", "1.0"),
        ("integer", "007"),
        ("integer", "+1"),
        ("integer", "1_000"),
        ("integer", "１"),
        ("integer", "0x10"),
        ("integer", "9" * 1001),
        ("float", 10**400),
        ("float", "1e999"),
        ("float", "nan"),
        ("float", "Infinity"),
        ("float", "1_0"),
        ("float", "."),
        ("float", "e5"),
        ("float", "1" * 1001),
        ("date", "yesterday"),
        ("date", "2026-02-30"),
        ("bool", 1),
        ("bool", "yes"),
        ("bool", ""),
    ],
)
def test_what_does_not_count(field: str, value: Any) -> None:
    assert read(field, value) is None


def test_a_word_is_made_of_letters_and_numbers_of_unicode() -> None:
    """One by one, and not what happens to be in a small sample."""
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        in_word = unicodedata.category(char)[0] in "LN"
        assert bool(canonical.words("|" + char + "|")) == in_word or len(char.lower()) > 1, hex(code)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", "a"),
        (True, "true"),
        (False, "false"),
        (2**70, "1180591620717411303424"),
        (-5, "-5"),
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-12.5, "-12.5"),
        (0.1, "0.1"),
        (100.0, "100"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.5e-7, "1.5e-7"),
        (123456789012345680000.0, "123456789012345680000"),
        (1e21, "1e+21"),
        (1.25e22, "1.25e+22"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
    ],
)
def test_numbers_are_printed_as_javascript_prints_them(value: str | int | float | bool, expected: str) -> None:
    assert canonical.text(value) == expected
