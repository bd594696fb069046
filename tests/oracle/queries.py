"""Queries as trees: how each is written, which records it finds, and how well.

There is no parser here. A test makes a tree, the server gets its text, and the tree says what must come back.

    score of a clause on text or of a bare value = (occurrences + 2 per word of a phrase) × boost, of the best value
    joined by AND or OR: the sum of the parts that hold; of anything else: 0
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.oracle.values import Config, Document, canonical, resolve, values, words

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
}
SAFE = re.compile(r"[\w./+]+|-\.?[0-9][\w./+]*")  # what surely is one word of the language
Score = float | None  # None: not found


def written(value: str, *, quoted: bool | None = None, star: str = "") -> str:
    """Returns a value in the text of a query: in quotes if it must be, or if asked for."""
    if quoted or (quoted is None and not (SAFE.fullmatch(value) and value.upper() not in ("AND", "OR", "NOT"))):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        literal = "\\*" if value.endswith("*") and not star else None
        return f'"{escaped[:-1] + literal if literal else escaped}{star}"'
    return value + star


@dataclass(frozen=True)
class Is:
    """`field:value` of a keyword or a typed field."""

    field: str
    value: str

    def text(self) -> str:
        return f"{self.field}:{written(self.value)}"

    def score(self, config: Config, document: Document) -> Score:
        name = resolve(config, self.field)
        wanted = canonical(config["fields"][name], self.value)
        return 0.0 if wanted in values(config, name, document) else None


@dataclass(frozen=True)
class Begins:
    """`field:value*` of a keyword."""

    field: str
    value: str

    def text(self) -> str:
        return f"{self.field}:{written(self.value, star='*')}"

    def score(self, config: Config, document: Document) -> Score:
        name = resolve(config, self.field)
        begin = canonical(config["fields"][name], self.value)
        return 0.0 if any(value.startswith(begin) for value in values(config, name, document)) else None


@dataclass(frozen=True)
class Compares:
    """`field:>=value` of a typed field."""

    field: str
    operator: str
    value: str

    def text(self) -> str:
        return f"{self.field}:{self.operator}{written(self.value)}"

    def score(self, config: Config, document: Document) -> Score:
        name = resolve(config, self.field)
        bound = canonical(config["fields"][name], self.value)
        holds = OPERATORS[self.operator]
        return 0.0 if any(holds(value, bound) for value in values(config, name, document)) else None


@dataclass(frozen=True)
class Has:
    """`has:field`."""

    field: str

    def text(self) -> str:
        return f"has:{self.field}"

    def score(self, config: Config, document: Document) -> Score:
        return 0.0 if values(config, resolve(config, self.field), document) else None


@dataclass(frozen=True)
class Text:
    """`field:words`, `field:"a phrase"` or `field:wor*` of a text field."""

    field: str
    value: str
    phrase: bool = False
    prefix: bool = False

    def text(self) -> str:
        return f"{self.field}:{written(self.value, quoted=self.phrase, star='*' * self.prefix)}"

    def score(self, config: Config, document: Document) -> Score:
        found = values(config, resolve(config, self.field), document)
        return best([in_words(value, words(self.value), 1, self.phrase, self.prefix) for value in found])


@dataclass(frozen=True)
class Bare:
    """`word`, `"a phrase"` or `wor*` over the default fields."""

    value: str
    phrase: bool = False
    prefix: bool = False

    def text(self) -> str:
        return written(self.value, quoted=self.phrase, star="*" * self.prefix)

    def score(self, config: Config, document: Document) -> Score:
        scores: list[Score] = []
        for target in config["defaultFields"]:
            name, boost = target["field"], target.get("boost", 1)
            found = values(config, name, document)
            if config["fields"][name]["kind"] == "text":
                scores += [in_words(value, words(self.value), boost, self.phrase, self.prefix) for value in found]
            else:
                wanted = canonical(config["fields"][name], self.value)
                holds = str.startswith if self.prefix else str.__eq__
                scores += [float(boost) for value in found if holds(value, wanted)]
        return best(scores)


@dataclass(frozen=True)
class Not:
    part: Query

    def text(self) -> str:
        return f"NOT {nested(self.part)}"

    def score(self, config: Config, document: Document) -> Score:
        return 0.0 if self.part.score(config, document) is None else None


@dataclass(frozen=True)
class All:
    parts: tuple[Query, ...]

    def text(self) -> str:
        return " AND ".join(map(nested, self.parts))

    def score(self, config: Config, document: Document) -> Score:
        scores = [part.score(config, document) for part in self.parts]
        return None if None in scores else sum(score for score in scores if score is not None)


@dataclass(frozen=True)
class Either:
    parts: tuple[Query, ...]

    def text(self) -> str:
        return " OR ".join(map(nested, self.parts))

    def score(self, config: Config, document: Document) -> Score:
        scores = [score for part in self.parts if (score := part.score(config, document)) is not None]
        return sum(scores) if scores else None


Query = Is | Begins | Compares | Has | Text | Bare | Not | All | Either


def nested(part: Query) -> str:
    return f"({part.text()})" if isinstance(part, All | Either) else part.text()


def is_scored(query: Query) -> bool:
    """Returns whether some clause of a query is on text."""
    if isinstance(query, All | Either):
        return any(map(is_scored, query.parts))
    return is_scored(query.part) if isinstance(query, Not) else isinstance(query, Text | Bare)


def is_filter(query: Query) -> bool:
    """Returns whether a filtered read accepts a query: it has no prefixes and no words."""
    if isinstance(query, All | Either):
        return all(map(is_filter, query.parts))
    return is_filter(query.part) if isinstance(query, Not) else isinstance(query, Is | Compares | Has)


def best(scores: list[Score]) -> Score:
    return max((score for score in scores if score is not None), default=None)


def in_words(value: list[str], wanted: list[str], boost: float, phrase: bool, prefix: bool) -> Score:
    """Returns the score of one text, as words; None if it doesn't hold them all (or not next to each other)."""

    def holds(word: str, number: int) -> bool:
        is_end = prefix and number == len(wanted) - 1
        return word.startswith(wanted[number]) if is_end else word == wanted[number]

    def stands_at(start: int) -> bool:
        here = value[start : start + len(wanted)]
        return len(here) == len(wanted) and all(holds(word, number) for number, word in enumerate(here))

    counts = [sum(holds(word, number) for word in value) for number in range(len(wanted))]
    found = any(map(stands_at, range(len(value)))) if phrase else all(counts)
    return (sum(counts) + 2 * len(wanted) * phrase) * float(boost) if found else None
