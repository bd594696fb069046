"""Whether a record matches a query. This is what a query means, wherever the record is."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.query.language.canonical import Value
from headrace.query.language.query import And, Anywhere, Compare, Equals, Has, Node, Not, Or, Prefix, Words

Values = Mapping[str, Sequence[Value]]


def matches(node: Node, values: Values) -> bool:
    """Returns whether a record with these values is one that the query asks for.

    Args:
        node: the query.
        values: canonical values by field, at least of `query.fields_of(node)`; a field without values may be left out.
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


def _prefix(clause: Prefix, values: Values) -> bool:
    return any(str(value).startswith(clause.value) for value in values.get(clause.field, ()))


def _anywhere(clause: Anywhere, values: Values) -> bool:
    return any(matches(option, values) for option in clause.options)


def _words(clause: Words, values: Values) -> bool:
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
    Prefix: _prefix,
    Anywhere: _anywhere,
    Words: _words,
}
