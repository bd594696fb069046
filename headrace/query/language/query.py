"""Queries as values, and whether a record matches one.

`matches` defines the meaning of a query, wherever the record is stored; indexes must give the same result faster.

Each clause takes a time that is linear in the record and in the clause, never their product. Between the clauses of a
long query the time can be checked, so that no record holds up a request for long.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from headrace.query.language.canonical import Value, raw_name

Comparison = Literal[">", ">=", "<", "<="]


class Has(msgspec.Struct, frozen=True):
    """The condition that a field has a value."""

    field: str


class Equals(msgspec.Struct, frozen=True):
    """The condition that one of a field's values equals this canonical value."""

    field: str
    value: Value


class Compare(msgspec.Struct, frozen=True):
    """The condition that one of a field's values is above or below this one; only for typed fields."""

    field: str
    operator: Comparison
    value: Value


class Prefix(msgspec.Struct, frozen=True):
    """The condition that one of a keyword field's values begins with this text."""

    field: str
    value: str


class Words(msgspec.Struct, frozen=True):
    """The condition that one of a text field's values holds all these words; for a phrase, next to each other and in
    order.

    With `prefix`, the last one may be only the beginning of a word.
    """

    field: str
    words: tuple[str, ...]
    phrase: bool
    prefix: bool


class Contains(msgspec.Struct, frozen=True):
    """The condition that one of a keyword or text field's values, in lower case, holds this text anywhere."""

    field: str
    text: str


Option = Equals | Prefix | Words


class Anywhere(msgspec.Struct, frozen=True):
    """A bare value: the condition that one of several conditions, each on another default field, holds. Each has a
    boost for the score.
    """

    options: tuple[Option, ...]
    boosts: tuple[float, ...]


class Not(msgspec.Struct, frozen=True):
    """The condition that the part does not hold; it is true for a field without values."""

    part: Node


class And(msgspec.Struct, frozen=True):
    """The condition that every part holds."""

    parts: tuple[Node, ...]


class Or(msgspec.Struct, frozen=True):
    """The condition that at least one part holds."""

    parts: tuple[Node, ...]


Clause = Has | Equals | Compare | Prefix | Words | Contains | Anywhere
Node = Clause | Not | And | Or


def fields_of(node: Node) -> frozenset[str]:
    """Returns the fields whose values `matches` needs for a query."""
    if isinstance(node, And | Or):
        return frozenset().union(*map(fields_of, node.parts))
    if isinstance(node, Not):
        return fields_of(node.part)
    if isinstance(node, Anywhere):
        return frozenset(option.field for option in node.options)
    return frozenset({raw_name(node.field) if isinstance(node, Contains) else node.field})


_FEW = 8  # clauses that may be asked of a record without a look at the time


def is_long(node: Node) -> bool:
    """Returns whether a query has so many clauses that `matches` should get a check of the time."""
    return _clauses(node) > _FEW


def _clauses(node: Node) -> int:
    if isinstance(node, And | Or):
        return sum(map(_clauses, node.parts))
    if isinstance(node, Not):
        return _clauses(node.part)
    return len(node.options) if isinstance(node, Anywhere) else 1


def has_phrase(node: Node) -> bool:
    """Returns whether the query has a phrase, so that positions of words are needed."""
    if isinstance(node, And | Or):
        return any(map(has_phrase, node.parts))
    if isinstance(node, Not):
        return has_phrase(node.part)
    if isinstance(node, Anywhere):
        return any(map(has_phrase, node.options))
    return isinstance(node, Words) and node.phrase


Values = Mapping[str, Sequence[Value]]


class OutOfTime(Exception):
    """The time was over before it was known whether a record matches, or which records do."""


Check = Callable[[], None]


def matches(node: Node, values: Values, check: Check | None = None) -> bool:
    """Returns whether a record with these values matches the query.

    Args:
        node: the query.
        values: the record's canonical values by field, at least of `fields_of(node)`; a field without values may be
            missing.
        check: is called before each clause, and raises an error if the time is over; None for a query that is not long.
    """
    if check is None:
        return _RULES[type(node)](node, values)
    if isinstance(node, And):
        return all(matches(part, values, check) for part in node.parts)
    if isinstance(node, Or):
        return any(matches(part, values, check) for part in node.parts)
    if isinstance(node, Not):
        return not matches(node.part, values, check)
    if isinstance(node, Anywhere):
        return any(matches(option, values, check) for option in node.options)
    check()
    return _RULES[type(node)](node, values)


# Loops and a table, not generators and tests of type: this runs for each record of a scan.


def _and(node: And, values: Values) -> bool:
    for part in node.parts:  # noqa: SIM110
        if not _RULES[type(part)](part, values):
            return False
    return True


def _or(node: Or, values: Values) -> bool:
    for part in node.parts:  # noqa: SIM110
        if _RULES[type(part)](part, values):
            return True
    return False


def _not(node: Not, values: Values) -> bool:
    return not _RULES[type(node.part)](node.part, values)


def _has(clause: Has, values: Values) -> bool:
    return bool(values.get(clause.field))


def _equals(clause: Equals, values: Values) -> bool:
    return clause.value in values.get(clause.field, ())


def _compare(clause: Compare, values: Values) -> bool:
    holds, bound = _HOLDS[clause.operator], clause.value
    for value in values.get(clause.field, ()):  # noqa: SIM110
        if holds(value, bound):
            return True
    return False


def _holds_prefix(clause: Prefix, values: Values) -> bool:
    return any(str(value).startswith(clause.value) for value in values.get(clause.field, ()))


def _contains(clause: Contains, values: Values) -> bool:
    return any(clause.text in str(value) for value in values.get(raw_name(clause.field), ()))


def _anywhere(clause: Anywhere, values: Values) -> bool:
    return any(matches(option, values) for option in clause.options)


def _holds_words(clause: Words, values: Values) -> bool:
    holds = _has_phrase if clause.phrase else _has_words
    return any(holds(clause, value) for value in values.get(clause.field, ()) if isinstance(value, tuple))


def _has_words(clause: Words, value: tuple[str, ...]) -> bool:
    *whole, end = clause.words
    if clause.prefix:
        return not set(whole).difference(value) and f" {end}" in _spaced(value)
    if len(whole) < _FEW_WORDS:
        return all(word in value for word in clause.words)
    return not set(clause.words).difference(value)


def _has_phrase(clause: Words, value: tuple[str, ...]) -> bool:
    phrase = _spaced(clause.words)
    return (phrase[:-1] if clause.prefix else phrase) in _spaced(value)


def _spaced(words: tuple[str, ...]) -> str:
    """Returns words as a text in which one search, which takes linear time, finds a phrase: no word has a space."""
    return f" {' '.join(words)} "


_FEW_WORDS = 4  # are looked for one by one


_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_RULES: dict[type, Callable[[Any, Values], bool]] = {
    And: _and,
    Or: _or,
    Not: _not,
    Has: _has,
    Equals: _equals,
    Compare: _compare,
    Prefix: _holds_prefix,
    Anywhere: _anywhere,
    Words: _holds_words,
    Contains: _contains,
}
