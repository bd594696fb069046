"""Queries as values, and whether a record matches one.

`matches` defines the meaning of a query, wherever the record is stored; indexes must give the same result faster.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from headrace.query.language.canonical import Value

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


class Anywhere(msgspec.Struct, frozen=True):
    """A bare value: the condition that one of several conditions, each on another default field, holds. Each has a
    boost for the score.
    """

    options: tuple[Equals | Prefix | Words, ...]
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


Clause = Has | Equals | Compare | Prefix | Words | Anywhere
Node = Clause | Not | And | Or


def fields_of(node: Node) -> frozenset[str]:
    """Returns the fields whose values `matches` needs for a query."""
    if isinstance(node, And | Or):
        return frozenset().union(*map(fields_of, node.parts))
    if isinstance(node, Not):
        return fields_of(node.part)
    if isinstance(node, Anywhere):
        return frozenset(option.field for option in node.options)
    return frozenset({node.field})


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


def matches(node: Node, values: Values) -> bool:
    """Returns whether a record with these values matches the query.

    Args:
        node: the query.
        values: the record's canonical values by field, at least of `fields_of(node)`; a field without values may be
            missing.
    """
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


def _anywhere(clause: Anywhere, values: Values) -> bool:
    return any(matches(option, values) for option in clause.options)


def _holds_words(clause: Words, values: Values) -> bool:
    holds = _has_phrase if clause.phrase else _has_words
    return any(holds(clause, value) for value in values.get(clause.field, ()) if isinstance(value, tuple))


def _has_words(clause: Words, value: tuple[str, ...]) -> bool:
    *whole, end = clause.words
    if not all(word in value for word in whole):
        return False
    return any(word.startswith(end) for word in value) if clause.prefix else end in value


def _has_phrase(clause: Words, value: tuple[str, ...]) -> bool:
    *whole, end = clause.words
    for at, word in enumerate(value):
        is_end = word.startswith(end) if clause.prefix else word == end
        if is_end and at >= len(whole) and list(value[at - len(whole) : at]) == whole:
            return True
    return False


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
}
