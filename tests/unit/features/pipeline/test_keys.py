"""Keys: stored texts are injective, and requests find them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headrace.features.errors import KeyRefused
from headrace.features.pipeline import keys

STR, I64, F64, BOOL = "str", "i64", "f64", "bool"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((), "%"),
        (("",), "%"),
        (("", ""), "|"),
        (("alice",), "alice"),
        (("a", "b"), "a|b"),
        (("a|b",), "a%7Cb"),
        (("100%",), "100%25"),
        (("%7C",), "%257C"),
        (("#1",), "%231"),
        (("a#1",), "a#1"),
        ((3,), "3"),
        ((-(2**63), True, False), "-9223372036854775808|true|false"),
        ((1.5, 3.0, -0.0), "1.5|3|0"),
        (("ü" * 450,), "ü" * 450),
    ],
)
def test_a_key_is_stored_as_readable_text(values: tuple[Any, ...], text: str) -> None:
    assert keys.encode(values) == text


def test_a_long_key_is_stored_as_a_hash_that_no_text_equals() -> None:
    stored = keys.encode(("ü" * 451,))
    assert len(stored) == 65 and stored[0] == "#"
    assert keys.encode((stored,)) == "%23" + stored[1:]
    assert keys.encode(("ü" * 452,)) != stored
    assert max(len(keys.encode((unit * n,)).encode()) for unit in ("x", "|", "👍") for n in range(0, 1200, 25)) <= 900


@pytest.mark.parametrize(
    ("key", "types", "values"),
    [
        ("", [], ()),
        ([], [], ()),
        ("", [STR], ("",)),
        ("a|b", [STR, STR], ("a", "b")),
        ("a%7Cb", [STR], ("a|b",)),
        ("a%7cb%25", [STR], ("a%7cb%25",)),
        (["a|b"], [STR], ("a|b",)),
        (["a%7Cb"], [STR], ("a%7Cb",)),
        ("3", [I64], (3,)),
        ("-3", [I64], (-3,)),
        ([3], [I64], (3,)),
        (["3"], [I64], (3,)),
        ([3.0], [I64], (3,)),
        (3, [I64], (3,)),
        ("true", [BOOL], (True,)),
        ([False], [BOOL], (False,)),
        (True, [BOOL], (True,)),
        ("1.5|1e3", [F64, F64], (1.5, 1000.0)),
        ([2], [F64], (2.0,)),
        ([7, True, "x"], [STR, STR, STR], ("7", "true", "x")),
    ],
)
def test_a_requests_key_is_parsed(key: Any, types: list[str], values: tuple[Any, ...]) -> None:
    parsed = keys.parse(key, types)
    assert parsed == values
    assert [type(value) for value in parsed] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("key", "types", "said"),
    [
        ("a", [], "1 parts, and the table's key 0"),
        ("a|b", [STR], "2 parts"),
        ("a", [STR, STR], "1 parts"),
        ([], [STR], "0 parts"),
        (["a", "b"], [STR], "2 parts"),
        ("x", [I64], "'x' is no key of type i64"),
        ("1.5", [I64], "'1.5'"),
        ("9223372036854775808", [I64], "i64"),
        ([1.5], [I64], "1.5"),
        ([True], [I64], "true"),
        ("yes", [BOOL], "'yes'"),
        ([1], [BOOL], "1"),
        ("nan", [F64], "'nan'"),
        ([None], [STR], "null"),
        (None, [STR], "null"),
        ({"user": "a"}, [STR], "an object"),
        ([["a"]], [STR], "an array"),
        ("a\nb", [STR], "control characters"),
        (["\ud800"], [STR], "control characters"),
        ("x" * 65_537, [STR], "too long"),
    ],
)
def test_a_key_that_does_not_fit_is_refused(key: Any, types: list[str], said: str) -> None:
    with pytest.raises(KeyRefused) as refusal:
        keys.parse(key, types)
    assert refusal.value.code == "key_parse_failure"
    assert said in str(refusal.value)


ALPHABET = ["a", "|", "%", "%7C", "%25", "#", "7C", "", "ü", "\\", " ", "x" * 300]


def test_stored_keys_are_injective_and_every_list_finds_its_row() -> None:
    stored: dict[tuple[tuple[str, ...], str], tuple[Any, ...]] = {}
    for seed in range(2500):
        random = Random(seed)
        types = tuple(random.choice([STR, STR, I64, F64, BOOL]) for _ in range(random.randrange(4)))
        values = tuple(random_value(random, kind) for kind in types)
        text = keys.encode(values)
        assert text and "\n" not in text
        assert stored.setdefault((types, text), values) == values
        assert keys.parse(list(values), types) == values
        request = "|".join(keys.encode([value]).replace("%25", "%") if value != "" else "" for value in values)
        if not any(
            isinstance(value, str) and ("%" in value or len(value) > 800 or value[:1] == "#") for value in values
        ):
            assert keys.encode(keys.parse(request, types)) == text
    assert len(stored) > 1000


def random_value(random: Random, kind: str) -> Any:
    if kind == STR:
        return "".join(random.choice(ALPHABET) for _ in range(random.randrange(5)))
    if kind == BOOL:
        return random.random() < 0.5
    if kind == I64:
        return random.choice([random.randrange(-9, 9), random.randrange(-(2**63), 2**63)])
    return random.choice([float(random.randrange(-9, 9)), random.uniform(-1e9, 1e9), 1e300, -0.0])
