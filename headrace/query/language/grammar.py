"""The grammar of the query language: parses text to syntax, without knowing any fields.

    query    = every ("OR" every)*
    every    = one (["AND"] one)*
    one      = ("NOT" | "-") one | "(" query ")" | "has:" name | name ":" [operator] value | value
    value    = word | '"' characters '"'         in quotes, a backslash takes the next character as it is
    word     = not beginning with - or ", up to white space or one of ( ) : < > =
    operator = "=" | ">" | ">=" | "<" | "<="

`AND`, `OR` and `NOT` may be written in any case; before a colon they are names, and after one they are words. A value
that ends in a star, unless the star is the whole value or follows a backslash, is `starred`;
`headrace.query.language.query` decides what that means.
"""

from __future__ import annotations

import re
from typing import Literal, NoReturn

import msgspec

from headrace.errors import InvalidRequest
from headrace.query.language.canonical import WHITE_SPACE

MAX_CHARS = 16_384  # more than a URL holds; a body could hold more
MAX_CLAUSES = 1_000
MAX_DEPTH = 64  # parentheses and negations around a clause

Operator = Literal["=", ">", ">=", "<", "<="]


class Written(msgspec.Struct, frozen=True):
    """A value as it is written in a query.

    Attributes:
        text: the value without quotes and their backslashes, but with a final star.
        quoted: whether it was in quotes.
        starred: whether it ends in a star that may mean any continuation.
        at: position of its first character in the query.
    """

    text: str
    quoted: bool
    starred: bool
    at: int


class HasSyntax(msgspec.Struct, frozen=True):
    """The clause `has:name`."""

    name: str
    at: int


class FieldSyntax(msgspec.Struct, frozen=True):
    """The clause `name:value`, with an optional operator."""

    name: str
    operator: Operator
    value: Written
    at: int


class BareSyntax(msgspec.Struct, frozen=True):
    """A value without a field name."""

    value: Written


class NotSyntax(msgspec.Struct, frozen=True):
    """The negation of a part."""

    part: Syntax


class AllSyntax(msgspec.Struct, frozen=True):
    """Two or more parts that must all match."""

    parts: tuple[Syntax, ...]


class AnySyntax(msgspec.Struct, frozen=True):
    """Two or more parts of which one must match."""

    parts: tuple[Syntax, ...]


Syntax = HasSyntax | FieldSyntax | BareSyntax | NotSyntax | AllSyntax | AnySyntax


def parse(text: str, what: str) -> Syntax:
    """Parses a query, and returns its syntax.

    Args:
        text: the query.
        what: names the query in errors: `filter`, `q`.

    Raises:
        InvalidRequest: the text is no query, or is too long, too deep, or has too many clauses. The message names the
            character, counted from 0.
    """
    if len(text) > MAX_CHARS:
        raise InvalidRequest(f"{what}: too long: limit={MAX_CHARS} received={len(text)}")
    tokens = _tokens(text, what)
    if len(tokens) == 1:
        raise InvalidRequest(f"{what}: empty")
    return _Parser(tokens, what).parse()


class _Token(msgspec.Struct, frozen=True):
    kind: str  # "word", "quoted", "end", or the punctuation itself
    text: str
    at: int
    starred: bool = False


_TOKEN = re.compile(
    rf'[{WHITE_SPACE}]+|(?P<punctuation>[():=-]|[<>]=?)|"(?P<quoted>(?:[^"\\]|\\.)*)"'
    rf'|(?P<word>[^{WHITE_SPACE}():<>="-][^{WHITE_SPACE}():<>=]*)',
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_STARRED = re.compile(r"(?:[^\\]|\\.)+\*", re.DOTALL)
_JOINS = frozenset({"AND", "OR", "NOT"})
_OPERATORS: dict[str, Operator] = {"=": "=", ">": ">", ">=": ">=", "<": "<", "<=": "<="}


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
    def __init__(self, tokens: list[_Token], what: str) -> None:
        self._tokens = tokens
        self._what = what
        self._next = 0
        self._depth = 0
        self._clauses = 0

    def parse(self) -> Syntax:
        syntax = self._any()
        if self._token.kind != "end":
            self._refuse("an unexpected character" if self._token.kind != ")" else "a ) too many")
        return syntax

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

    def _any(self) -> Syntax:
        parts = [self._all()]
        while self._join == "OR":
            self._take()
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else AnySyntax(tuple(parts))

    def _all(self) -> Syntax:
        parts = [self._one()]
        while self._token.kind not in ("end", ")") and self._join != "OR":
            if self._join == "AND":
                self._take()
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else AllSyntax(tuple(parts))

    def _one(self) -> Syntax:
        if self._token.kind == "-" or self._join == "NOT":
            self._enter()
            self._take()
            part = self._one()
            self._depth -= 1
            return NotSyntax(part)
        if self._token.kind == "(":
            return self._group()
        return self._clause()

    def _group(self) -> Syntax:
        self._enter()
        opened = self._take()
        inner = self._any()
        if self._token.kind != ")":
            raise InvalidRequest(f"{self._what}: a ( that is not closed: position={opened.at}")
        self._take()
        self._depth -= 1
        return inner

    def _clause(self) -> Syntax:
        if self._token.kind not in ("word", "quoted") or self._join:
            self._refuse("no clause where one is needed")
        self._clauses += 1
        if self._clauses > MAX_CLAUSES:
            raise InvalidRequest(f"{self._what}: too many clauses: limit={MAX_CLAUSES}")
        token = self._take()
        if token.kind == "quoted" or self._token.kind != ":":
            return BareSyntax(_written(token))
        self._take()
        if token.text == "has":
            if self._token.kind != "word":
                self._refuse("no field name after has:")
            return HasSyntax(self._take().text, token.at)
        operator = _OPERATORS.get(self._token.kind)
        if operator:
            self._take()
        if self._token.kind == "-":
            self._refuse("a value that begins with - and must be quoted")
        if self._token.kind not in ("word", "quoted"):
            self._refuse("no value where one is needed")
        return FieldSyntax(token.text, operator or "=", _written(self._take()), token.at)

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidRequest(f"{self._what}: nested too deep: limit={MAX_DEPTH}")

    def _refuse(self, problem: str) -> NoReturn:
        raise InvalidRequest(f"{self._what}: {problem}: position={self._token.at}")


def _written(token: _Token) -> Written:
    return Written(token.text, token.kind == "quoted", token.starred, token.at)
