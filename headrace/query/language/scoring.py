"""Scores how well a record matches a text query, as Prisma Streams does: by the words found, not by how rare they are.

A text clause scores the number of occurrences of its words in the value, plus two for each word of a phrase. Of several
values of a field the best one counts, and for a bare value the best field, times its boost (a keyword scores one).
Scores of clauses are added; other clauses, and clauses behind NOT, score nothing.

`bm25` is the alternative: Okapi BM25 with k1 = 1.2 and b = 0.75 over all records that one request sees, per word and
field.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.query.language import query
from headrace.query.language.query import And, Anywhere, Node, Not, Or, Values, Words

PHRASE_BONUS = 2  # per word

_K1 = 1.2  # Robertson and Zaragoza, The Probabilistic Relevance Framework, § 3.4
_B = 0.75


def unchecked() -> None:
    """Checks nothing: for a query that is not long."""


def score(node: Node, values: Values, check: query.Check = unchecked) -> float:
    """Returns the score of a record; 0 if it does not match. Looks at each clause once; `check` is called before, as by
    `query.matches`.
    """
    return _score(node, values, check) or 0.0


def _score(node: Node, values: Values, check: query.Check) -> float | None:
    """Returns the score of a record; None if it does not match."""
    if isinstance(node, And):
        total = 0.0
        for part in node.parts:
            found = _score(part, values, check)
            if found is None:
                return None
            total += found
        return total
    if isinstance(node, Or):
        return _over(sum, (_score(part, values, check) for part in node.parts))
    if isinstance(node, Not):
        return 0.0 if _score(node.part, values, check) is None else None
    if isinstance(node, Anywhere):
        weighed_ = zip(node.options, node.boosts, strict=True)
        return _over(max, (_worth(option, boost, values, check) for option, boost in weighed_))
    check()
    if isinstance(node, Words):
        return _words(node, values)
    return 0.0 if query.matches(node, values) else None


def _over(operation: Callable[[Iterable[float]], float], scores: Iterable[float | None]) -> float | None:
    """Returns the sum or maximum of the scores that are not None; None if there are none."""
    found = [one for one in scores if one is not None]
    return operation(found) if found else None


def _worth(option: query.Option, boost: float, values: Values, check: query.Check) -> float | None:
    found = _score(option, values, check)
    return None if found is None else boost * (found if isinstance(option, Words) else 1.0)


def _words(clause: Words, values: Values) -> float | None:
    """Returns the score of a words clause: that of the best of the values that match; None if no value does."""
    bonus = PHRASE_BONUS * len(clause.words) if clause.phrase else 0
    return _over(
        max,
        (
            float(sum(occurrences(clause, value)) + bonus)
            for value in values.get(clause.field, ())
            if isinstance(value, tuple) and query.matches(clause, {clause.field: [value]})
        ),
    )


def occurrences(clause: Words, value: tuple[str, ...]) -> list[int]:
    """Returns how often each word of a clause occurs in a value."""
    *whole, end = clause.words
    last = sum(word.startswith(end) for word in value) if clause.prefix else value.count(end)
    return [*_counts(whole, value), last]


def _counts(words: Sequence[str], value: Sequence[str]) -> list[int]:
    """Returns how often each word occurs, with one pass over the value if there are many words."""
    if len(words) < _FEW_WORDS:
        return [value.count(word) for word in words]
    counted = Counter(value)
    return [counted[word] for word in words]


_FEW_WORDS = 4


class Wanted(NamedTuple):
    """A word that BM25 counts in a field, and the boost of its score; with `prefix`, every word that begins with it."""

    field: str
    word: str
    prefix: bool
    boost: float


def wanted(node: Node) -> tuple[Wanted, ...]:
    """Returns the distinct words that a query asks for, except those behind NOT."""
    return tuple(dict.fromkeys(_wanted(node, 1.0)))


def _wanted(node: Node, boost: float) -> Iterator[Wanted]:
    if isinstance(node, And | Or):
        for part in node.parts:
            yield from _wanted(part, boost)
    elif isinstance(node, Anywhere):
        for option, weight in zip(node.options, node.boosts, strict=True):
            yield from _wanted(option, weight)
    elif isinstance(node, Words):
        last = len(node.words) - 1
        for at, word in enumerate(node.words):
            yield Wanted(node.field, word, node.prefix and at == last, boost)
    elif isinstance(node, Not):
        return


class Frequencies(NamedTuple):
    """The counts of one record that BM25 needs.

    Attributes:
        counts: occurrences of each wanted word.
        lengths: number of words in the field of each wanted word.
    """

    counts: tuple[int, ...]
    lengths: tuple[int, ...]


def frequencies(words: Sequence[Wanted], values: Values, check: query.Check = unchecked) -> Frequencies:
    """Returns how often each word occurs in a record, in all values of its field together, and how many words the field
    has. `check` is called before each word, as by `query.matches`.
    """
    texts: dict[str, list[str]] = {}
    counted: dict[str, Counter[str]] = {}
    for one in words:
        if one.field not in texts:
            texts[one.field] = [
                word for value in values.get(one.field, ()) if isinstance(value, tuple) for word in value
            ]
            counted[one.field] = Counter(texts[one.field])
    counts = []
    for one in words:
        check()
        found = counted[one.field]
        starting = (count for word, count in found.items() if word.startswith(one.word)) if one.prefix else None
        counts.append(found[one.word] if starting is None else sum(starting))
    return Frequencies(tuple(counts), tuple(len(texts[one.field]) for one in words))


class Corpus(NamedTuple):
    """The counts of all records that BM25 needs. Counts of several sources can be added.

    Attributes:
        records: by field, number of records with a text in it.
        lengths: by field, number of words in all of them.
        holding: per wanted word, number of records that contain it.
    """

    records: Mapping[str, int]
    lengths: Mapping[str, int]
    holding: tuple[int, ...]

    def plus(self, other: Corpus) -> Corpus:
        """Returns the sum of two corpora."""
        return Corpus(
            {
                name: self.records.get(name, 0) + other.records.get(name, 0)
                for name in {*self.records, *other.records}
            },
            {
                name: self.lengths.get(name, 0) + other.lengths.get(name, 0)
                for name in {*self.lengths, *other.lengths}
            },
            tuple(a + b for a, b in zip(self.holding, other.holding, strict=True)),
        )

    def weights(self, words: Sequence[Wanted]) -> list[tuple[float, float]]:
        """Returns for each wanted word its inverse document frequency times its boost, and the mean length of its
        field.
        """
        found = []
        for one, holding in zip(words, self.holding, strict=True):
            records = self.records.get(one.field, 0)
            rarity = math.log(1 + (records - holding + 0.5) / (holding + 0.5))
            mean = self.lengths.get(one.field, 0) / records if records else 1.0
            found.append((rarity * one.boost, mean or 1.0))
        return found


def bm25(found: Frequencies, weights: Sequence[tuple[float, float]]) -> float:
    """Returns the BM25 score of a record, with weights as `Corpus.weights` returns them."""
    parts = zip(found.counts, found.lengths, weights, strict=True)
    return float(sum(weighed(count, length, rarity, mean) for count, length, (rarity, mean) in parts))


def weighed(count: Any, length: Any, rarity: float, mean: float) -> Any:
    """Computes what one word adds to the score of a record, or, with arrays, of many records."""
    return rarity * count * (_K1 + 1) / (count + _K1 * (1 - _B + _B * length / mean))
