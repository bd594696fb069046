"""Random documents and queries of `world.CONFIG`: mixed case, nulls, arrays, values of the wrong kind."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

_KEYWORDS = st.sampled_from(
    ["a", "A", "ab", "aB", "Ab", "abc", "é", "z", "", "x y", "日本", "a\u0000b", "\U0001f600"]
)
_BEGINNINGS = _KEYWORDS.filter(bool)  # a star alone is a character
_INTEGERS = st.sampled_from([0, 1, -1, 2, 7, 200, 404, 500, 2**40, 2**62, 2**63, -(2**70)])
_FLOATS = st.sampled_from([0.0, -0.0, 1.5, -2.25, 1e300, 0.1, 3])
_DATES = st.sampled_from(
    ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01.500Z", "2025-12-31", 1_767_225_600_000, 0, -1, 10**17, "nonsense"]
)
_BOOLS = st.sampled_from([True, False, "true", "maybe"])
_WORDS = st.sampled_from(["red", "Red", "blue", "green", "reddish", "re", "é", "x1", "7"])
_TEXTS = st.lists(_WORDS, max_size=6).map(" ".join)


def _some(values: SearchStrategy[Any]) -> SearchStrategy[Any]:
    """Returns a strategy that draws from `values` mostly, else null, several of them, or something of another kind."""
    return st.one_of(
        values,
        values,
        values,
        st.none(),
        st.lists(values | st.none(), max_size=3),
        st.sampled_from([{}, 5, "7", True]),
    )


_MEMBERS: dict[str, SearchStrategy[Any]] = {
    "at": _some(_DATES),
    "service": _some(_KEYWORDS),
    "code": _some(_KEYWORDS),
    "path": _some(_KEYWORDS),
    "seen": _some(_KEYWORDS),
    "status": _some(_INTEGERS),
    "count": _some(_INTEGERS),
    "cost": _some(_FLOATS),
    "paid": _some(_BOOLS),
    "message": _some(_TEXTS),
    "why": _some(_TEXTS),
}
DOCUMENTS = st.fixed_dictionaries({}, optional=_MEMBERS)
BATCHES = st.lists(st.lists(DOCUMENTS, min_size=1, max_size=12), min_size=2, max_size=4)


_BARE = re.compile(r"-?[0-9][\w.+-]*")  # a number, with its sign


def _quoted(text: str, star: str = "") -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + star + '"'


def _typed(field: str, values: SearchStrategy[Any], *, compares: bool) -> SearchStrategy[str]:
    operators = st.sampled_from([":", ":>", ":>=", ":<", ":<="] if compares else [":"])

    def write(operator: str, value: Any, bare: bool) -> str:
        return f"{field}{operator}{value if bare and _BARE.fullmatch(str(value)) else _quoted(str(value))}"

    return st.builds(write, operators, values, st.booleans())


_HAS = st.sampled_from(["at", "service", "code", "seen", "status", "count", "cost", "paid", "message", "why"])
_CLAUSES = st.one_of(
    st.builds(lambda value: f"service:{_quoted(value)}", _KEYWORDS),
    st.builds(lambda value: f"code:{_quoted(value)}", _KEYWORDS),
    st.builds(
        lambda name, value: f"{name}:{_quoted(value, '*')}", st.sampled_from(["service", "code", "path"]), _BEGINNINGS
    ),
    st.builds(lambda name: f"has:{name}", _HAS),
    _typed("status", _INTEGERS, compares=True),
    _typed("count", _INTEGERS, compares=False),
    _typed("cost", _FLOATS, compares=True),
    _typed("at", st.sampled_from(["2026-01-01T00:00:00Z", "2025-12-31", "0", "100000000000000000"]), compares=True),
    _typed("paid", st.sampled_from(["true", "false"]), compares=False),
    st.builds(lambda word: f"message:{word}", _WORDS),
    st.builds(lambda word: f"message:{word}*", _WORDS),
    st.builds(lambda one, two: f"message:{one}-{two}", _WORDS, _WORDS),
    st.builds(lambda one, two, star: f'message:"{one} {two}{star}"', _WORDS, _WORDS, st.sampled_from(["", "*"])),
    st.builds(lambda one, two: f"why:{one}-{two}*", _WORDS, _WORDS),
    _WORDS,
    st.builds(lambda one, two: f'"{one} {two}"', _WORDS, _WORDS),
)


def _joined(parts: SearchStrategy[str]) -> SearchStrategy[str]:
    return st.one_of(
        st.builds(lambda a, b: f"({a} AND {b})", parts, parts),
        st.builds(lambda a, b: f"({a} OR {b})", parts, parts),
        st.builds(lambda a: f"NOT {a}", parts),
    )


QUERIES = st.recursive(_CLAUSES, _joined, max_leaves=5)
SORTS = st.lists(
    st.tuples(st.sampled_from(["at", "code", "status", "cost", "paid", "offset"]), st.booleans()),
    max_size=3,
    unique_by=lambda one: one[0],
)
