"""Expressions: their values against a naive evaluator, what is refused, and that depth is no danger."""

from __future__ import annotations

import sys
from random import Random
from typing import Any

import pytest

from headrace.features.pipeline import expr
from headrace.features.pipeline.expr import compile_expression
from headrace.features.pipeline.syntax import MAX_DEPTH, ExpressionError, canonical, parse
from tests.unit.features.pipeline import naive

TYPES = {"n": "i64", "x": "f64", "s": "str", "ok": "bool", "j": "json", "at": "datetime"}
ROW = {"n": 7, "x": 2.5, "s": "b", "ok": True, "j": {"k": 1}, "at": "2026-01-01T00:00:00Z"}
NULLS: dict[str, Any] = dict.fromkeys(TYPES)


def value(text: str, row: dict[str, Any] = ROW, *, strict: bool = True) -> Any:
    return compile_expression(text, TYPES, ("Txn",), strict=strict).evaluate(row)


@pytest.mark.parametrize("height", [1, 64], ids=["by a loop", "by closures"])
def test_every_expression_has_the_value_that_the_naive_evaluator_gives(
    height: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expr, "CLOSURE_HEIGHT", height)
    seen = set()
    for seed in range(500):
        random = Random(seed)
        kind = random.choice(["bool", "bool", "i64", "f64", "str"])
        tree = naive.random_tree(random, kind, random.randrange(1, 6))
        text = naive.write(tree, random)
        compiled = compile_expression(text, naive.TYPES, ("Ev",))
        assert compiled.type == kind, text
        for _ in range(4):
            row = naive.random_row(random)
            expected, actual = naive.evaluate(tree, row), compiled.evaluate(row)
            assert (actual, type(actual)) == (expected, type(expected)), f"{text} for {row}"
            seen.add((kind, expected is None))
    assert len(seen) == 8, "each type, with nulls and without"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(n / 2)", 3),
        ("(n / -2)", -3),
        ("(n /-2)", -3),
        ("(n -2)", 5),
        ("(n - -2)", 9),
        ("(9223372036854775807 + n)", 2**63 - 1),
        ("(-9223372036854775808 / -1)", 2**63 - 1),
        ("(n / 0)", None),
        ("(x / 0)", None),
        ("(1e308 * 10)", None),
        ("(n > 6.5)", True),
        ("(s == 'b')", True),
        ('(s == "b")', True),
        ("('it\\'s' == \"it's\")", True),
        ("((n > 1) and ok)", True),
        ("(Txn.n == 7)", True),
        ("((((n))))", 7),
        ("(n > null)", None),
        ("(n + null)", None),
        ("(null == null)", True),
        ("(null != n)", True),
        ("(j == null)", False),
        ("isnull(j)", False),
        ("(at < '2027-01-01T00:00:00Z')", True),
        ("cast(x, int)", 2),
        ("cast(-2.9, int)", -2),
        ("cast(1e30, int)", None),
        ("cast('1.5', int)", None),
        ("cast('x', float)", None),
        ("cast('true', bool)", True),
        ("cast('yes', bool)", None),
        ("cast(0, bool)", False),
        ("cast(ok, int)", 1),
        ("cast(ok, str)", "true"),
        ("cast(j, str)", None),
        ("quadkey(47.61, -122.33, 9)", "021230030"),
        ("quadkey(0.0, 0.0, 0)", ""),
        ("quadkey(91, 0, 3)", None),
        ("quadkey(0, 181, 3)", None),
        ("quadkey(90, 180, 3)", "111"),
        ("quadkey(-90, -180, 3)", "222"),
        ("quadkey(x, x, (n * 5))", None),
    ],
)
def test_an_expression_has_its_value(text: str, expected: Any) -> None:
    actual = value(text)
    assert (actual, type(actual)) == (expected, type(expected))


@pytest.mark.parametrize(
    "text", ["(n > 1)", "(n + 1)", "(not ok)", "((n > 1) and ok)", "quadkey(x, x, n)", "cast(s, int)"]
)
def test_null_makes_null(text: str) -> None:
    assert value(text, NULLS) is None


def test_false_and_true_decide_despite_null() -> None:
    assert value("((n > 1) and false)", NULLS) is False
    assert value("(false and (n > 1))", NULLS) is False
    assert value("(true or ok)", NULLS) is True
    assert value("(ok or true)", NULLS) is True
    assert value("(ok or false)", NULLS) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found the end"),
        ("n > 3", "parentheses"),
        ("(n > 3", "found the end"),
        ("(n > 3))", "')' at character 8"),
        ("((n > 1) and (n > 2) and (n > 3))", "parentheses of its own"),
        ("not ok", "'not' at character 1"),
        ("(nope > 1)", "unknown field 'nope'"),
        ("(Other.n > 1)", "unknown field 'Other.n'"),
        ("(n + s)", "'+' takes numbers, not str"),
        ("(ok and n)", "'and' takes true or false, not i64"),
        ("(not n)", "not i64"),
        ("(j > 1)", "can't compare json with i64"),
        ("(j + 1)", "not json"),
        ("(ok > 1)", "can't compare bool with i64"),
        ("cast(n)", "takes 2 arguments"),
        ("cast(n, date)", "'date'"),
        ("cast(n,", "found the end"),
        ("cast(n, int, 3)", "takes 2 arguments"),
        ("isnull(n, n)", "takes 1 argument:"),
        ("quadkey(x, x)", "takes 3 arguments"),
        ("quadkey(x, x, 31)", "from 0 to 30, not 31"),
        ("quadkey(x, x, x)", "a float"),
        ("quadkey(s, x, 3)", "not str"),
        ("9223372036854775808", "64 bits"),
        ("1" + "0" * 5000, "64 bits"),
        ("1e999", "too large"),
        ("'a\nb'", "control characters"),
        ("'a\ud800b'", "control characters"),
        ("'a\\nb'", "backslash"),
        ("'open", "unexpected"),
        ("(n # 1)", "'# 1)' at character 4"),
        ("x" * 70_000, "70000 characters"),
    ],
)
def test_what_is_no_expression_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ExpressionError) as refusal:
        compile_expression(text, TYPES, ("Txn",))
    assert said in str(refusal.value)
    assert len(str(refusal.value)) < 300


def test_an_expression_must_be_a_string() -> None:
    with pytest.raises(ExpressionError, match="must be a string, not 5"):
        compile_expression(5, TYPES)


@pytest.mark.parametrize("text", ["(s > 1)", "(n == 'a')", "(ok == 1)", "(j == 'a')"])
def test_kinds_that_do_not_compare_are_refused_in_filters_and_null_in_where(text: str) -> None:
    with pytest.raises(ExpressionError, match="can't compare"):
        compile_expression(text, TYPES)
    assert value(text, strict=False) is None


def test_a_deep_expression_is_evaluated_without_recursion() -> None:
    text = "n"
    for _ in range(MAX_DEPTH - 1):
        text = f"({text} + 1)"
    text = f"({text} > 3)"
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(_frames() + 40)  # far below the depth
    try:
        assert value(text) is True
        assert value(text, NULLS) is None
        assert canonical(text)
    finally:
        sys.setrecursionlimit(before)
    with pytest.raises(ExpressionError, match="deeper than 512"):
        value(f"({text} and ok)")


def test_closures_stay_below_a_hundred_frames() -> None:
    text = "ok"
    for _ in range(expr.CLOSURE_HEIGHT - 1):
        text = f"(not {text})"
    before = sys.getrecursionlimit()
    compiled = compile_expression(text, TYPES)
    sys.setrecursionlimit(_frames() + 100)
    try:
        assert compiled.evaluate(ROW) is False
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "n" + ")" * 10_000,
        "(n + " * 5_000 + "n" + ")" * 5_000,
        "(n" + " + n" * 5_000 + ")",
        "(not " * 5_000 + "ok" + ")" * 5_000,
        "isnull(" * 5_000,
    ],
)
def test_chains_of_ten_thousand_words_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"deeper than 512|more than 8192 words"):
        compile_expression(text, TYPES)


def test_a_wide_expression_is_no_problem() -> None:
    texts = ["(n > 1)"] * 1024
    while len(texts) > 1:
        texts = [f"({a} and {b})" for a, b in zip(texts[::2], texts[1::2], strict=True)]
    assert value(texts[0]) is True


def test_spaces_quotes_and_redundant_parentheses_make_no_difference() -> None:
    assert canonical("( n>1 )") == canonical("((n  >  1))")
    assert canonical("(s == 'a')") == canonical('(s == "a")')
    assert canonical("(n == 1)") != canonical("(n == 1.0)")
    assert canonical("(n == 1)") != canonical("(n == true)")
    assert canonical("((n + 1) + n)") != canonical("(n + (1 + n))")


def test_names_of_functions_and_of_fields_do_not_mix() -> None:
    types = {"cast": "i64", "isnull": "bool", "and": "i64"}
    assert compile_expression("((cast > 1) and isnull)", types).evaluate({"cast": 2, "isnull": True}) is True
    assert compile_expression("Ev.and", types, ("Ev",)).evaluate({"and": 5}) == 5


def test_arbitrary_text_is_parsed_or_refused() -> None:
    pieces = [
        "(",
        ")",
        "and",
        "or",
        "not",
        "n",
        "1",
        "-",
        "'s'",
        ",",
        "cast",
        "isnull",
        "quadkey",
        "int",
        "==",
        "null",
        " ",
        "\\",
        "'",
        ".",
    ]
    parsed = 0
    for seed in range(3000):
        random = Random(seed)
        text = "".join(random.choice(pieces) + random.choice(["", " "]) for _ in range(random.randrange(1, 9)))
        try:
            parse(text)
            parsed += 1
        except ExpressionError:
            pass
    assert parsed > 50


def _frames() -> int:
    depth = 0
    frame = sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
    return depth
