"""The syntax of expressions (the contract's § 7): from text to steps.

Every operation is in parentheses: `((amount > 100) and (not (user == 'it\\'s')))`. The parser writes operands before their
operator (postfix), so nothing recurses, however deep an expression is.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple, NoReturn

import orjson

from headrace.features.pipeline import scalar
from headrace.features.pipeline.text import is_clean, show

MAX_DEPTH = 512  # the contract's § 7
MAX_TOKENS = 8192
MAX_CHARS = 64 * 1024

_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)?)
    |(?P<symbol>>=|<=|==|!=|[-+*/<>(),])
    |(?P<end>\Z))""",
    re.ASCII | re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_WORDS = {"true": True, "false": False, "null": None}
_FUNCTIONS = {"isnull": 1, "cast": 2, "quadkey": 3}
_OPERATORS = frozenset({*scalar.COMPARISONS, "+", "-", "*", "/", "and", "or"})


class ExpressionError(Exception):
    """An expression that can't be parsed, or does not fit the fields' types. The message says where and why."""


class Step(NamedTuple):
    """One step of an expression in postfix order.

    Attributes:
        kind: "field", "literal" or "call".
        value: the field's name, the literal, or the operator or function (`cast:int` for a cast).
    """

    kind: str
    value: Any


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


def parse(text: str) -> tuple[Step, ...]:
    """Parses an expression.

    Raises:
        ExpressionError: it is none, or is too long or too deep.
    """
    tokens = _tokenize(text)
    steps: list[Step] = []
    frames: list[list[Any]] = []  # what is open: ["(" or a function, operator or None, operands so far]
    at = 0
    while True:
        at = _parse_operand(tokens, at, frames, steps)
        while frames:  # an operand is complete: what encloses it may be, too
            frame, token = frames[-1], tokens[at]
            at += 1
            if frame[0] == "(":
                if frame[1] is None and token.text in _OPERATORS:
                    frame[1] = token.text
                    break
                if token.text != ")":
                    _fail(
                        "put each operation into parentheses of its own" if frame[1] else "expected an operator",
                        token,
                    )
                if frame[1] is not None:
                    steps.append(Step("call", frame[1]))
            else:
                frame[2] += 1
                arity = _FUNCTIONS[frame[0]]
                if token.text == "," and frame[2] < arity:
                    if frame[0] != "cast":
                        break
                    target, token = tokens[at], tokens[min(at + 1, len(tokens) - 1)]
                    if target.text not in scalar.CASTS:
                        _fail("a cast needs one of the types str, int, float, bool", target)
                    frame[1], frame[2] = f"cast:{scalar.CASTS[target.text][0]}", arity
                    at += 2
                if token.text != ")" or frame[2] != arity:
                    _fail(f"{frame[0]} takes {arity} argument{'s' if arity > 1 else ''}", token)
                steps.append(Step("call", frame[1] or frame[0]))
            frames.pop()
        else:
            if tokens[at].kind != "end":
                _fail("expected the end: put each operation into parentheses", tokens[at])
            return tuple(steps)


def canonical(text: str) -> str:
    """Returns a text that two expressions share if and only if they are the same but for spaces, quotes and redundant
    parentheses.

    Raises:
        ExpressionError: see `parse`.
    """
    return orjson.dumps([(step.kind, step.value) for step in parse(text)]).decode()


def _tokenize(text: str) -> list[_Token]:
    if len(text) > MAX_CHARS:
        raise ExpressionError(f"expression of {len(text)} characters is too long: limit={MAX_CHARS}")
    tokens: list[_Token] = []
    at = 0
    while not tokens or tokens[-1].kind != "end":
        match = _TOKEN.match(text, at)
        if match is None:
            unknown = text[at:].lstrip(" \t\r\n")
            raise ExpressionError(f"unexpected {show(unknown[:20])} at character {len(text) - len(unknown) + 1}")
        kind = match.lastgroup or "end"
        tokens.append(_Token(kind, match[kind], match.start(kind), match.end()))
        at = match.end()
        if len(tokens) > MAX_TOKENS:
            raise ExpressionError(
                f"expression has more than {MAX_TOKENS} words and signs: use a derived event for a part"
            )
    return tokens


def _parse_operand(tokens: list[_Token], at: int, frames: list[list[Any]], steps: list[Step]) -> int:
    """Reads up to the end of the next operand that is one token, opening what precedes it; returns the index of the
    next token.
    """
    while True:
        token = tokens[at]
        at += 1
        if token.text == "(" or (token.text in _FUNCTIONS and tokens[at].text == "("):
            frames.append([token.text, None, 0])
            if len(frames) > MAX_DEPTH:
                raise ExpressionError(f"expression is deeper than {MAX_DEPTH} levels: use a derived event for a part")
            if token.text != "(":
                at += 1
            elif tokens[at].text == "not":
                frames[-1][1] = "not"
                at += 1
            continue
        if token.kind == "number":
            steps.append(Step("literal", _number(token.text, token)))
        elif token.text == "-" and tokens[at].kind == "number" and tokens[at].start == token.end:
            steps.append(Step("literal", _number("-" + tokens[at].text, token)))
            at += 1
        elif token.kind == "string":
            steps.append(Step("literal", _string(token)))
        elif token.text in _WORDS:
            steps.append(Step("literal", _WORDS[token.text]))
        elif token.kind == "name" and token.text not in _OPERATORS and token.text != "not":
            steps.append(Step("field", token.text))
        else:
            _fail("expected a field, a literal or a parenthesis", token)
        return at


def _number(text: str, token: _Token) -> int | float:
    if text.lstrip("-").isdigit():
        value = int(text) if len(text) <= 64 else scalar.MAX_I64 + 1
        if not scalar.MIN_I64 <= value <= scalar.MAX_I64:
            _fail("an integer must be of 64 bits", token)
        return value
    number = float(text)
    if not math.isfinite(number):
        _fail("the number is too large", token)
    return number


def _string(token: _Token) -> str:
    for escape in _ESCAPE.findall(token.text[1:-1]):
        if escape not in "'\"\\":
            _fail("a backslash must be followed by a quote or a backslash", token)
    text = _ESCAPE.sub(r"\1", token.text[1:-1])
    if not is_clean(text):
        _fail("a string can't have control characters", token)
    return text


def _fail(reason: str, token: _Token) -> NoReturn:
    seen = "the end" if token.kind == "end" else f"{show(token.text)} at character {token.start + 1}"
    raise ExpressionError(f"{reason}: found {seen}")
