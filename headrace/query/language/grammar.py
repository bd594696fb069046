"""The query language: text to a checked query (fields exist, values are of their kinds, fields allow the operations).

    query    = every ("OR" every)*
    every    = one (["AND"] one)*
    one      = ("NOT" | "-") one | "(" query ")" | "has:" name | name ":" [operator] value | value
    value    = word | '"' characters '"'         in quotes, a backslash takes the next character as it is
             | "-" word                          right after a colon or operator: a number, without white space in it
    word     = not beginning with - or ", up to white space or one of ( ) : < > =
    operator = "=" | ">" | ">=" | "<" | "<="

A query has at most `MAX_CLAUSES` clauses, and in all of them `MAX_WORDS` words that are looked for in a text field.

`AND`, `OR` and `NOT` may be written in any case; before a colon they are names, and after one they are words. A value
that ends in a star, unless the star is the whole value or follows a backslash, is `starred`; the
table says what that means.

    clause                 in q                                     in a filter
    keyword `f:a`          exact                                    exact or column
    keyword `f:ab*`        prefix                                   no prefix: the star is a character
    typed `f:1`            exact or column                          the same
    typed `f:>1`           column                                   the same
    text `f:word`          all words in one value; a last star      refused
    text `f:"a phrase"`    positions, if there are two words        refused
    `has:f`                text, exists, exact or column            exists, exact or column
    `contains:piece`       over the fields with `contains`          refused
    `word`, `"a phrase"`   over the default fields                  refused
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

import msgspec

from headrace.errors import InvalidRequest
from headrace.query.language import canonical
from headrace.query.language.canonical import WHITE_SPACE, Field, SearchConfig, Value
from headrace.query.language.query import (
    And,
    Anywhere,
    Compare,
    Comparison,
    Contains,
    Equals,
    Has,
    Node,
    Not,
    Or,
    Prefix,
    Words,
)

MAX_CHARS = 16_384  # more than a URL holds; a body could hold more
MAX_CLAUSES = 1_000
MAX_WORDS = 256  # looked for in text fields: a phrase longer than any message; each is a term of an index
MAX_DEPTH = 64  # parentheses and negations around a clause


def parse_filter(text: str, config: SearchConfig) -> Node:
    """Parses the query of a filtered read.

    Raises:
        InvalidRequest: the text is no query, or the configuration does not allow it in a filter.
    """
    return _Parser(text, config, "filter", is_filter=True).parse()


def parse_query(text: str, config: SearchConfig, what: str = "q") -> Node:
    """Parses the query of a search, an aggregate or a rollup's `include`; `what` names it in errors.

    Raises:
        InvalidRequest: the text is no query, or the configuration does not allow it.
    """
    return _Parser(text, config, what, is_filter=False).parse()


class _Token(msgspec.Struct, frozen=True):
    """A word, a text in quotes, the end of the query, or the punctuation that is its kind.

    Attributes:
        text: without quotes and their backslashes; a star is in it.
        at: position of its first character in the query.
        starred: it ends in a star that may stand for more.
    """

    kind: str
    text: str
    at: int
    starred: bool = False


_TOKEN = re.compile(
    rf'[{WHITE_SPACE}]+|(?P<punctuation>[():=-]|[<>]=?)|"(?P<quoted>(?:[^"\\]|\\.)*)"'
    rf'|(?P<word>[^{WHITE_SPACE}():<>="-][^{WHITE_SPACE}():<>=]*)',
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_NUMBER = re.compile(r"\.?[0-9]")  # how one begins, after its sign
_STARRED = re.compile(r"(?:[^\\]|\\.)+\*", re.DOTALL)
_JOINS = frozenset({"AND", "OR", "NOT"})
_COMPARISONS: dict[str, Comparison] = {">": ">", ">=": ">=", "<": "<", "<=": "<="}
_NOTHING = Or(())


def _tokens(text: str, what: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise InvalidRequest(f"{what}: a quote that is not closed: position={at}")
        word, quoted, punctuation = match["word"], match["quoted"], match["punctuation"]
        if punctuation is not None:
            tokens.append(_Token(punctuation, punctuation, at))
        elif word is not None:
            tokens.append(_Token("word", word, at, starred=len(word) > 1 and word.endswith("*")))
        elif quoted is not None:
            starred = _STARRED.fullmatch(quoted) is not None
            tokens.append(_Token("quoted", _ESCAPE.sub(r"\1", quoted), at, starred))
        at = match.end()
    tokens.append(_Token("end", "", at))
    return tokens


class _Parser:
    """A parse of one text. An error in a clause, such as an unknown field, is raised only if the whole text has the form of
    a query.
    """

    def __init__(self, text: str, config: SearchConfig, what: str, *, is_filter: bool) -> None:
        if len(text) > MAX_CHARS:
            raise InvalidRequest(f"{what}: too long: limit={MAX_CHARS} received={len(text)}")
        self._tokens = _tokens(text, what)
        if len(self._tokens) == 1:
            raise InvalidRequest(f"{what}: empty")
        self._config = config
        self._what = what
        self._is_filter = is_filter
        self._next = 0
        self._depth = 0
        self._clauses = 0
        self._words_asked = 0
        self._problem: InvalidRequest | None = None

    def parse(self) -> Node:
        node = self._any()
        if self._token.kind != "end":
            self._refuse("an unexpected character" if self._token.kind != ")" else "a ) too many")
        if self._problem is not None:
            raise self._problem
        return node

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    @property
    def _join(self) -> str:
        """The word AND, OR or NOT in upper case if the next token is one that joins clauses; else empty."""
        token = self._token
        if token.kind != "word" or self._tokens[self._next + 1].kind == ":":
            return ""
        word = token.text.upper()
        return word if word in _JOINS else ""

    def _take(self) -> _Token:
        token = self._token
        self._next += 1
        return token

    def _any(self) -> Node:
        parts = [self._all()]
        while self._join == "OR":
            self._take()
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _all(self) -> Node:
        parts = [self._one()]
        while self._token.kind not in ("end", ")") and self._join != "OR":
            if self._join == "AND":
                self._take()
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _one(self) -> Node:
        if self._token.kind == "-" or self._join == "NOT":
            self._enter()
            self._take()
            part = self._one()
            self._depth -= 1
            return Not(part)
        if self._token.kind == "(":
            return self._group()
        return self._clause()

    def _group(self) -> Node:
        self._enter()
        opened = self._take()
        inner = self._any()
        if self._token.kind != ")":
            raise InvalidRequest(f"{self._what}: a ( that is not closed: position={opened.at}")
        self._take()
        self._depth -= 1
        return inner

    def _clause(self) -> Node:
        if self._token.kind not in ("word", "quoted") or self._join:
            self._refuse("no clause where one is needed")
        self._clauses += 1
        if self._clauses > MAX_CLAUSES:
            raise InvalidRequest(f"{self._what}: too many clauses: limit={MAX_CLAUSES}")
        token = self._take()
        if token.kind == "quoted" or self._token.kind != ":":
            return self._checked(lambda: self._bare(token))
        self._take()
        if token.text == "has":
            if self._token.kind != "word":
                self._refuse("no field name after has:")
            name = self._take().text
            return self._checked(lambda: self._has(name, token.at))
        operator = self._token.kind
        if operator == "=" or operator in _COMPARISONS:
            self._take()
        if self._token.kind not in ("word", "quoted", "-"):
            self._refuse("no value where one is needed")
        value = self._take()
        if value.kind == "-":
            value = self._negative(value)
        return self._checked(lambda: self._field(token, _COMPARISONS.get(operator), value))

    def _negative(self, sign: _Token) -> _Token:
        """Takes the number right after a minus sign, and returns both as one word."""
        number = self._token
        if number.kind != "word" or number.at != sign.at + 1 or not _NUMBER.match(number.text):
            self._refuse("a value that begins with - and must be quoted", sign.at)
        self._take()
        return _Token("word", "-" + number.text, sign.at)

    def _checked(self, clause: Callable[[], Node]) -> Node:
        try:
            node = clause()
        except InvalidRequest as exc:
            self._problem = self._problem or exc
            return _NOTHING
        options = node.options if isinstance(node, Anywhere) else (node,)
        self._words_asked += sum(len(option.words) for option in options if isinstance(option, Words))
        if self._words_asked > MAX_WORDS:
            raise InvalidRequest(
                f"{self._what}: too many words for text fields, counted once for each field: limit={MAX_WORDS}"
            )
        return node

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidRequest(f"{self._what}: nested too deep: limit={MAX_DEPTH}")

    def _refuse(self, problem: str, at: int | None = None) -> NoReturn:
        raise InvalidRequest(f"{self._what}: {problem}: position={self._token.at if at is None else at}")

    def _has(self, written: str, at: int) -> Node:
        name, field = self._find(written, at)
        if not (field.exists or field.exact or field.column or (field.kind == "text" and not self._is_filter)):
            self._refuse(f"field {name} does not offer has:", at)
        return Has(name)

    def _field(self, named: _Token, operator: Comparison | None, value: _Token) -> Node:
        if named.text == "contains" and self._config.resolve("contains") is None:
            return self._contains(named, operator, value)
        name, field = self._find(named.text, named.at)
        if operator is not None:
            return self._compare(name, field, operator, value)
        if field.kind == "text":
            if self._is_filter:
                self._refuse(f"field {name} is text, which a filter can't look into", named.at)
            return self._words(name, field, value)
        if field.kind == "keyword" and value.starred and not self._is_filter:
            return self._prefix(name, field, value)
        by_column = field.column and (field.kind != "keyword" or self._is_filter)
        if not (field.exact or by_column):
            self._refuse(f"field {name} does not offer equality", named.at)
        return Equals(name, self._value(name, field, value))

    def _contains(self, named: _Token, operator: Comparison | None, value: _Token) -> Node:
        """Returns the condition that one of the fields that offer it holds a text anywhere. Rollups don't look for any."""
        fields = self._config.contains_fields
        if not fields or self._what != "q":
            self._refuse("contains: is not supported", named.at)
        text = value.text.lower()
        if operator is not None or not text:
            self._refuse("contains: needs a text", value.at)
        found = tuple(Contains(name, text) for name in fields)
        return found[0] if len(found) == 1 else Or(found)

    def _compare(self, name: str, field: Field, operator: Comparison, written: _Token) -> Node:
        if field.kind in ("keyword", "text") or not field.column:
            self._refuse(f"field {name} does not offer comparison", written.at)
        return Compare(name, operator, self._value(name, field, written))

    def _prefix(self, name: str, field: Field, written: _Token) -> Prefix:
        if not field.prefix:
            self._refuse(f"field {name} does not offer prefixes", written.at)
        return _prefix(name, field, written)

    def _words(self, name: str, field: Field, written: _Token) -> Words:
        clause = _words(name, written)
        if not clause.words:
            self._refuse("a text without a word", written.at)
        if clause.phrase and not field.positions:
            self._refuse(f"field {name} does not offer phrases", written.at)
        return clause

    def _value(self, name: str, field: Field, written: _Token) -> Value:
        value = canonical.reader(field)(written.text)
        if value is None:
            self._refuse(f"a value for field {name} that is not {_NOUNS[field.kind]}", written.at)
        return value

    def _bare(self, written: _Token) -> Node:
        """Returns the condition of a value without a field: one on each default field that allows it. Refuses the query if
        none does.
        """
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


def _bare_in(name: str, field: Field, written: _Token) -> Equals | Prefix | Words | None:
    """Returns the condition of a bare value on one field; None if the field does not allow it, or the value is not of its
    kind.
    """
    if field.kind == "text":
        clause = _words(name, written)
        is_offered = bool(clause.words) and (field.positions or not clause.phrase)
        return clause if is_offered else None
    if written.starred:
        return _prefix(name, field, written) if field.prefix else None
    value = canonical.reader(field)(written.text)
    return Equals(name, value) if field.exact and value is not None else None


def _prefix(name: str, field: Field, written: _Token) -> Prefix:
    begin = canonical.reader(field)(written.text[:-1])
    assert isinstance(begin, str), "a keyword"
    return Prefix(name, begin)


def _words(name: str, written: _Token) -> Words:
    words = canonical.words(written.text[:-1] if written.starred else written.text)
    return Words(name, words, phrase=written.kind == "quoted" and len(words) > 1, prefix=written.starred)


_NOUNS = {
    "integer": "a whole number",
    "float": "a number",
    "date": "an ISO date or milliseconds",
    "bool": "true or false",
}
