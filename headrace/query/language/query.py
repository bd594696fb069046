"""Checked queries (fields exist, values are of their kinds, fields allow the operations), and whether a record matches
a query.

    clause                 in q                                     in a filter
    keyword `f:a`          exact                                    exact or column
    keyword `f:ab*`        prefix                                   no prefix: the star is a character
    typed `f:1`            exact or column                          the same
    typed `f:>1`           column                                   the same
    text `f:word`          all words in one value; a last star      refused
    text `f:"a phrase"`    positions, if there are two words        refused
    `has:f`                text, exists, exact or column            exists, exact or column
    `word`, `"a phrase"`   over the default fields                  refused

`matches` defines the meaning of a query, wherever the record is stored; indexes must give the same result faster.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NoReturn

import msgspec

from headrace.errors import InvalidRequest
from headrace.query.language import canonical, grammar
from headrace.query.language.canonical import Field, SearchConfig, Value
from headrace.query.language.grammar import (
    AllSyntax,
    AnySyntax,
    BareSyntax,
    FieldSyntax,
    HasSyntax,
    NotSyntax,
    Syntax,
    Written,
)

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


def parse_filter(text: str, config: SearchConfig) -> Node:
    """Parses the query of a filtered read.

    Raises:
        InvalidRequest: the text is no query, or the configuration does not allow it in a filter.
    """
    return _Compiler(config, "filter", is_filter=True).compile(grammar.parse(text, "filter"))


def parse_query(text: str, config: SearchConfig, what: str = "q") -> Node:
    """Parses the query of a search, an aggregate or a rollup's `include`; `what` names it in errors.

    Raises:
        InvalidRequest: the text is no query, or the configuration does not allow it.
    """
    return _Compiler(config, what, is_filter=False).compile(grammar.parse(text, what))


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


class _Compiler:
    def __init__(self, config: SearchConfig, what: str, *, is_filter: bool) -> None:
        self._config = config
        self._what = what
        self._is_filter = is_filter

    def compile(self, syntax: Syntax) -> Node:
        if isinstance(syntax, AllSyntax):
            return And(tuple(map(self.compile, syntax.parts)))
        if isinstance(syntax, AnySyntax):
            return Or(tuple(map(self.compile, syntax.parts)))
        if isinstance(syntax, NotSyntax):
            return Not(self.compile(syntax.part))
        if isinstance(syntax, HasSyntax):
            return self._has(syntax)
        if isinstance(syntax, FieldSyntax):
            return self._field(syntax)
        return self._bare(syntax)

    def _has(self, syntax: HasSyntax) -> Node:
        name, field = self._find(syntax.name, syntax.at)
        if not (field.exists or field.exact or field.column or (field.kind == "text" and not self._is_filter)):
            self._refuse(f"field {name} does not offer has:", syntax.at)
        return Has(name)

    def _field(self, syntax: FieldSyntax) -> Node:
        if syntax.name == "contains" and self._config.resolve("contains") is None:
            self._refuse("contains: is not supported", syntax.at)
        name, field = self._find(syntax.name, syntax.at)
        if syntax.operator != "=":
            return self._compare(name, field, syntax.operator, syntax.value)
        if field.kind == "text":
            if self._is_filter:
                self._refuse(f"field {name} is text, which a filter can't look into", syntax.at)
            return self._words(name, field, syntax.value)
        if field.kind == "keyword" and syntax.value.starred and not self._is_filter:
            return self._prefix(name, field, syntax.value)
        by_column = field.column and (field.kind != "keyword" or self._is_filter)
        if not (field.exact or by_column):
            self._refuse(f"field {name} does not offer equality", syntax.at)
        return Equals(name, self._value(name, field, syntax.value))

    def _compare(self, name: str, field: Field, operator: Comparison, written: Written) -> Node:
        if field.kind in ("keyword", "text") or not field.column:
            self._refuse(f"field {name} does not offer comparison", written.at)
        return Compare(name, operator, self._value(name, field, written))

    def _prefix(self, name: str, field: Field, written: Written) -> Prefix:
        if not field.prefix:
            self._refuse(f"field {name} does not offer prefixes", written.at)
        return _prefix(name, field, written)

    def _words(self, name: str, field: Field, written: Written) -> Words:
        clause = _words(name, written)
        if not clause.words:
            self._refuse("a text without a word", written.at)
        if clause.phrase and not field.positions:
            self._refuse(f"field {name} does not offer phrases", written.at)
        return clause

    def _value(self, name: str, field: Field, written: Written) -> Value:
        value = canonical.reader(field)(written.text)
        if value is None:
            self._refuse(f"a value for field {name} that is not {_NOUNS[field.kind]}", written.at)
        return value

    def _bare(self, syntax: BareSyntax) -> Node:
        """Compiles a bare value: a condition on each default field that allows it."""
        written = syntax.value
        if self._is_filter:
            self._refuse("a value without a field", written.at)
        found = [
            (clause, float(target.boost or 1))
            for target in self._config.targets()
            if (clause := _bare_in(target.field, self._config.fields[target.field], written)) is not None
        ]
        if not found:
            self._refuse("a word that no default field can be asked for", written.at)
        clauses, boosts = zip(*found, strict=True)
        return Anywhere(clauses, boosts)

    def _find(self, name: str, at: int) -> tuple[str, Field]:
        resolved = self._config.resolve(name)
        if resolved is None:
            self._refuse(f"unknown field {name[:64]}", at)
        return resolved, self._config.fields[resolved]

    def _refuse(self, problem: str, at: int) -> NoReturn:
        raise InvalidRequest(f"{self._what}: {problem}: position={at}")


def _bare_in(name: str, field: Field, written: Written) -> Equals | Prefix | Words | None:
    """Returns the condition of a bare value on one field; None if the field does not allow it."""
    if field.kind == "text":
        clause = _words(name, written)
        is_offered = bool(clause.words) and (field.positions or not clause.phrase)
        return clause if is_offered else None
    if written.starred:
        return _prefix(name, field, written) if field.prefix else None
    value = canonical.reader(field)(written.text)
    return Equals(name, value) if field.exact and value is not None else None


def _prefix(name: str, field: Field, written: Written) -> Prefix:
    begin = canonical.reader(field)(written.text[:-1])
    assert isinstance(begin, str), "a keyword"
    return Prefix(name, begin)


def _words(name: str, written: Written) -> Words:
    words = canonical.words(written.text[:-1] if written.starred else written.text)
    return Words(name, words, phrase=written.quoted and len(words) > 1, prefix=written.starred)


_NOUNS = {
    "integer": "a whole number",
    "float": "a number",
    "date": "an ISO date or milliseconds",
    "bool": "true or false",
}


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
