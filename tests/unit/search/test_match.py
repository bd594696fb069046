"""What a query means: by example, and against an evaluation that was written on its own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from headrace.query.language import canonical, grammar, query
from tests.support.examples import examples
from tests.unit.search.samples import CONFIG


def found(text: str, record: Any) -> bool:
    node = grammar.parse_query(text, CONFIG)
    return query.matches(node, canonical.values(CONFIG, 1, record, query.fields_of(node)))


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ("status:500", {"status": [200, "500"]}),
        ("status:>400 status:<300", {"status": [200, 500]}),  # any value of each clause
        ("cost:0", {"cost": -0.0}),
        ("paid:false", {"paid": False}),
        ("status:0", {"status": 0}),
        ('code:""', {"code": ""}),
        ("has:code", {"code": ""}),
        ("has:paid", {"paid": False}),
        ("has:message", {"message": "?!"}),
        ("-has:code", {"code": None}),
        ("-has:code", {"code": [None, [None]]}),
        ("-has:status", {"status": "many"}),
        ("-status:>0", {}),
        ("-status:>0", 5),
        ("-has:message", {"message": 5}),
        ("service:ab*", {"service": ["x", "ABC"]}),
        ("message:red-blue", {"message": "blue or red"}),
        ("message:bl*", {"message": "red blue"}),
        ("message:red-bl*", {"message": "blue or red"}),
        ('message:"red blue"', {"message": ["no", "a red, BLUE one"]}),
        ('message:"red bl*"', {"message": "red blue"}),
        ("red", {"service": "Red"}),
        ("red", {"message": "red"}),
        ('"red blue"', {"service": "Red Blue"}),
        ("-red", {"why": "red"}),  # not a default field
    ],
)
def test_a_record_that_matches(text: str, record: Any) -> None:
    assert found(text, record)


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ("code:a", {"code": "A"}),
        ("code:1", {"code": 1}),
        ("status:9007199254740992", {"status": 9007199254740993}),
        ("status:>=0", {}),
        ("has:code", {"code": {}}),
        ("service:ab*", {"service": "xab"}),
        ("message:red-blue", {"message": ["red", "blue"]}),  # words of one value
        ('message:"red blue"', {"message": ["red", "blue"]}),
        ('message:"red blue"', {"message": "blue red or blue"}),
        ('message:"red bl*"', {"message": "red or blue"}),
        ('message:"red blue"', {"message": "red"}),
        ("message:re", {"message": "red"}),
        ('message:"red bl"', {"message": "red blue"}),
        ("red", {"service": "red blue"}),
    ],
)
def test_a_record_that_does_not_match(text: str, record: Any) -> None:
    assert not found(text, record)


# A record's truth is what it says, whatever JSON says it: typed values by field, and for the message lists of words.
Truth = dict[str, list[Any]]
Tree = tuple[Any, ...]

_TERMS = st.sampled_from(["a", "b", "ab", "abc", "b c", "a:b", "-a", "(", 'q"', "back\\", "é", "x*", ""])
_WORDS = st.lists(st.sampled_from(["a", "ab", "b"]), min_size=1, max_size=4)
_TRUE_VALUES: dict[str, SearchStrategy[Any]] = {
    "service": _TERMS,
    "code": _TERMS,
    "status": st.integers(-3, 3) | st.sampled_from([2**53, 2**53 + 1, -(2**70)]),
    "cost": st.sampled_from([-1.5, -1.0, 0.0, 0.1, 1.0, 1e21]),
    "paid": st.booleans(),
    "at": st.integers(1_767_225_600_000, 1_767_225_600_005) | st.just(-1),
    "message": _WORDS,
}
_JUNK: dict[str, SearchStrategy[Any]] = {
    "service": st.sampled_from([None, 1, True, {}, {"a": "a"}]),
    "code": st.sampled_from([None, 1.5, False, {}]),
    "status": st.sampled_from([None, True, 1.5, "1.0", "one", {}]),
    "cost": st.sampled_from([None, True, "", "one", {}]),
    "paid": st.sampled_from([None, 0, 1, "yes", {}]),
    "at": st.sampled_from([None, True, "soon", "2026-02-30", {}]),
    "message": st.sampled_from([None, 1, {}]),
}
_SPACES = st.sampled_from(["", " ", "\n"])


def _writings(field: str, value: Any) -> list[Any]:
    """JSON values that all say this one."""
    if field == "service":
        return [value, value.upper()]
    if field == "status":
        exact = [float(value)] if int(float(value)) == value else []
        return [value, str(value), f" {value}\n", *exact]
    if field == "cost":
        exact = [int(value)] if value.is_integer() else []
        return [value, repr(value), f" {value!r} ", *exact]
    if field == "paid":
        return [value, str(value), str(value).lower()]
    if field == "at":
        moment = datetime.fromtimestamp(value // 1000, UTC).replace(microsecond=value % 1000 * 1000)
        return [value, str(value), moment.isoformat(), moment.isoformat(timespec="milliseconds")[:-6] + "Z"]
    if field == "message":
        return [" ".join(value), "--" + ", ".join(value).upper(), "_".join(value) + "!"]
    return [value]


@st.composite
def _records(draw: st.DrawFn) -> tuple[dict[str, Any], Truth]:
    record: dict[str, Any] = {}
    truth: Truth = {}
    for field, values in _TRUE_VALUES.items():
        shape = draw(st.sampled_from(["absent", "junk", "one", "many"]))
        if shape == "absent":
            continue
        if shape == "junk":
            record[field] = draw(_JUNK[field] | st.lists(_JUNK[field], max_size=2))
            continue
        truth[field] = [draw(values) for _ in range(1 if shape == "one" else draw(st.integers(1, 3)))]
        written = [draw(st.sampled_from(_writings(field, value))) for value in truth[field]]
        if shape == "one":
            record[field] = written[0]
            continue
        items: list[Any] = []
        for item in written:
            items.append(draw(st.sampled_from([item, [item], [[], [item]]])))
            items.extend(draw(st.lists(_JUNK[field], max_size=1)))
        record[field] = items
    return record, truth


def _leaf(fields: list[str]) -> SearchStrategy[Tree]:
    equal = st.sampled_from(fields).flatmap(lambda f: st.tuples(st.just("equal"), st.just(f), _TRUE_VALUES[f]))
    typed = ["status", "cost", "paid", "at"]
    compare = st.sampled_from(typed).flatmap(
        lambda f: st.tuples(st.just("compare"), st.just(f), st.sampled_from(["<", "<=", ">", ">="]), _TRUE_VALUES[f])
    )
    return st.one_of(equal, compare, st.tuples(st.just("has"), st.sampled_from([*fields, "message"])))


def _tree(leaf: SearchStrategy[Tree]) -> SearchStrategy[Tree]:
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(st.just("not"), inner),
            st.tuples(st.just("and"), inner, inner),
            st.tuples(st.just("or"), inner, inner),
        ),
        max_leaves=6,
    )


_FILTERS = _tree(_leaf(["service", "code", "status", "cost", "paid", "at"]))
_TEXT_LEAF = st.tuples(st.sampled_from(["words", "phrase"]), _WORDS, st.booleans())
_QUERIES = _tree(_TEXT_LEAF | st.tuples(st.just("prefix"), _TERMS.filter(bool)) | _leaf(["code", "status"]))


@st.composite
def _written(draw: st.DrawFn, trees: SearchStrategy[Tree]) -> tuple[Tree, str]:
    """Returns a tree, and a text that says it."""

    def quote(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    def is_number(text: str) -> bool:
        return text[1:2].isdigit() or (text[1:2] == "." and text[2:3].isdigit())

    def value(field: str, literal: Any) -> str:
        text = draw(st.sampled_from([w for w in _writings(field, literal) if isinstance(w, str)] or [literal]))
        if text.endswith("*"):
            return quote(text)[:-2] + '\\*"'
        is_word = text and not set(text) & set(' \n():<>="\\') and (text[0] != "-" or is_number(text))
        return text if is_word and draw(st.booleans()) else quote(text)

    def write(tree: Tree) -> str:
        kind, *rest = tree
        space = draw(_SPACES)
        if kind == "equal":
            return f"{rest[0]}{space}:{draw(st.sampled_from(['', '=']))}{value(*rest)}"
        if kind == "compare":
            return f"{rest[0]}:{rest[1]}{space}{value(rest[0], rest[2])}"
        if kind == "has":
            return f"has:{space}{rest[0]}"
        if kind == "words":
            return f"message:{'-'.join(rest[0])}{'*' * rest[1]}"
        if kind == "phrase":
            return f"message:{quote(draw(st.sampled_from([' ', ', '])).join(rest[0]) + '*' * rest[1])}"
        if kind == "prefix":
            return f'service:{quote(rest[0])[:-1]}*"'
        if kind == "not":
            return draw(st.sampled_from(["NOT ", "not\n", "-", "- "])) + f"({write(rest[0])})"
        joins = [" OR ", "or "] if kind == "or" else [" AND ", "and\n", " ", ""]
        return f"({write(rest[0])}){draw(st.sampled_from(joins))}({write(rest[1])})"

    tree = draw(trees)
    return tree, write(tree)


_SIDES = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: not b < a,
    ">": lambda a, b: b < a,
    ">=": lambda a, b: not a < b,
}


def _naive(tree: Tree, truth: Truth) -> bool:
    kind, *rest = tree
    if kind == "and":
        return _naive(rest[0], truth) and _naive(rest[1], truth)
    if kind == "or":
        return _naive(rest[0], truth) or _naive(rest[1], truth)
    if kind == "not":
        return not _naive(rest[0], truth)
    if kind == "has":
        return rest[0] in truth
    if kind == "equal":
        return rest[1] in truth.get(rest[0], [])
    if kind == "compare":
        return any(_SIDES[rest[1]](value, rest[2]) for value in truth.get(rest[0], []))
    if kind == "prefix":
        return any(value[: len(rest[0])] == rest[0] for value in truth.get("service", []))
    wanted, prefix = rest
    for value in truth.get("message", []):
        line = f" {' '.join(value)} "
        if kind == "phrase" and len(wanted) > 1:
            if f" {' '.join(wanted)}{'' if prefix else ' '}" in line:
                return True
        elif all(f" {w} " in line for w in wanted[:-1]) and f" {wanted[-1]}{'' if prefix else ' '}" in line:
            return True
    return False


@examples(300)
@given(_records(), _written(_FILTERS))
def test_filters_agree_with_a_naive_evaluation(sample: tuple[Any, Truth], written: tuple[Tree, str]) -> None:
    (record, truth), (tree, text) = sample, written
    node = grammar.parse_filter(text, CONFIG)
    expected = _naive(tree, truth)
    assert query.matches(node, canonical.values(CONFIG, 1, record)) == expected
    assert query.matches(node, canonical.values(CONFIG, 1, record, query.fields_of(node))) == expected


@examples(300)
@given(_records(), _written(_QUERIES))
def test_queries_agree_with_a_naive_evaluation(sample: tuple[Any, Truth], written: tuple[Tree, str]) -> None:
    (record, truth), (tree, text) = sample, written
    assert found(text, record) == _naive(tree, truth)


@examples(300)
@given(st.lists(_WORDS, min_size=1, max_size=2), _written(_TEXT_LEAF))
def test_words_and_phrases_agree_with_a_naive_evaluation(said: list[list[str]], written: tuple[Tree, str]) -> None:
    tree, text = written
    assert found(text, {"message": [" ".join(value) for value in said]}) == _naive(tree, {"message": said})
