"""Finds the first rows of a run in a given order, with numbers only and without sorting all rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.index.columns import Column
from headrace.index.docsets import Mask, Rows
from headrace.index.evaluate import Evaluated
from headrace.index.postings import Postings
from headrace.query.engine.context import Document, Promoter
from headrace.query.language import query, scoring, search_request
from headrace.query.language.canonical import SearchConfig
from headrace.query.language.query import Values
from headrace.query.language.scoring import Wanted
from headrace.query.language.search_request import Key, SearchRequest, SortTerm

Numbers = NDArray[Any]


class Ranked(NamedTuple):
    """The sort values of some rows for one sort term, as numbers.

    Attributes:
        numbers: numbers whose order is that of the values; arbitrary where there is no value.
        valid: a mask of the rows that have a value; None means all rows.
        dictionary: for keywords, the sorted values into which `numbers` are indexes.
    """

    numbers: Numbers
    valid: Mask | None
    dictionary: list[str] | None

    def at(self, places: Any) -> Ranked:
        """Returns the sort values of some of the rows."""
        valid = None if self.valid is None else self.valid[places]
        return Ranked(self.numbers[places], valid, self.dictionary)

    def value(self, place: int) -> Any:
        """Returns the value of one row as hits show it; None if it has none."""
        if self.valid is not None and not self.valid[place]:
            return None
        found = self.numbers[place].item()
        return found if self.dictionary is None else self.dictionary[found]


def of_column(column: Column, rows: Rows) -> Ranked:
    """Returns sort values from a field's column."""
    numbers = column.values[rows]
    valid = None if column.valid is None else column.valid[rows]
    if column.dictionary is not None:
        numbers = numbers.astype(np.int64)
    return Ranked(numbers, valid, column.dictionary)


def absent(rows: Rows) -> Ranked:
    """Returns sort values for a field that no record of the run has."""
    return Ranked(np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_), None)


def of_numbers(numbers: Numbers) -> Ranked:
    """Returns sort values from numbers that every row has: offsets or scores."""
    return Ranked(numbers, None, None)


def behind(ranked: Sequence[Ranked], sort: Sequence[SortTerm], after: Key) -> Mask:
    """Returns a mask of the rows that come after the position `after` in the order."""
    size = len(ranked[0].numbers)
    found, level = np.zeros(size, np.bool_), np.ones(size, np.bool_)
    for one, term, bound in zip(ranked, sort, after, strict=True):
        above, equal = _against(one, bound)
        if one.valid is not None:  # an absent value is above every other
            above, equal = above | ~one.valid, equal & one.valid
        if bound is None:
            equal = np.zeros(size, np.bool_) if one.valid is None else ~one.valid
            above = np.zeros(size, np.bool_)
        passed = ~above & ~equal if term.descending else above
        found |= level & passed
        level &= equal
    return found


def _against(one: Ranked, bound: Any) -> tuple[Mask, Mask]:
    """Returns two masks: where the value is above `bound`, and where it equals it."""
    size = len(one.numbers)
    if bound is None:
        return np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    if one.dictionary is not None:
        place = bisect_left(one.dictionary, bound)
        is_there = place < len(one.dictionary) and one.dictionary[place] == bound
        if is_there:
            return one.numbers > place, one.numbers == place
        return one.numbers >= place, np.zeros(size, np.bool_)
    if isinstance(bound, int) and not -(2**63) <= bound < 2**63:
        return np.full(size, bound < 0), np.zeros(size, np.bool_)
    if isinstance(bound, str):  # the field has no value here at all
        return np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    return one.numbers > bound, one.numbers == bound


def first_places(ranked: Sequence[Ranked], sort: Sequence[SortTerm], size: int) -> NDArray[np.int64]:
    """Returns the indexes of the first `size` rows in the order, unsorted."""
    keys: list[Numbers] = []
    for one, term in zip(ranked, sort, strict=True):
        if one.valid is not None:
            keys.append(one.valid.astype(np.int8) if term.descending else (~one.valid).astype(np.int8))
        rising = one.numbers if not term.descending else _falling(one.numbers)
        keys.append(rising if one.valid is None else np.where(one.valid, rising, 0))
    return _first_places(np.arange(len(ranked[0].numbers)), keys, size)


def _falling(numbers: Numbers) -> Numbers:
    """Returns numbers in the reverse order. Integers are complemented, since the least integer has no negative."""
    if numbers.dtype == np.bool_:
        return ~numbers
    return -numbers if np.issubdtype(numbers.dtype, np.floating) else ~numbers.astype(np.int64)


def _first_places(places: NDArray[np.int64], keys: list[Numbers], size: int) -> NDArray[np.int64]:
    if len(places) <= size or not keys:
        return places[:size]
    key = keys[0]
    limit = np.partition(key, size - 1)[size - 1]
    better = np.flatnonzero(key < limit)
    ties = np.flatnonzero(key == limit)
    rest = _first_places(places[ties], [one[ties] for one in keys[1:]], size - len(better))
    return np.concatenate([places[better], rest])


Weights = Sequence[tuple[float, float]]


class Candidate(NamedTuple):
    """A record that matches: its offset, its sort key, and the record itself if it was read."""

    offset: int
    key: Key
    document: Document | None


class Question(NamedTuple):
    """A search request, with everything that each part of the search needs.

    Attributes:
        late: returns whether the request's time is over.
        words: the words that BM25 counts; empty unless hits are sorted by BM25.
    """

    request: SearchRequest
    config: SearchConfig
    promoter: Promoter
    late: Callable[[], bool]
    words: tuple[Wanted, ...]

    @property
    def by_score(self) -> bool:
        """Whether the order uses the score of Prisma Streams."""
        return any(term.kind == "score" for term in self.request.sort)

    @property
    def fields(self) -> frozenset[str]:
        """The fields whose values are needed of a record that is read."""
        primary = self.config.primary_timestamp_field
        return query.fields_of(self.request.node) | search_request.fields_of(self.request.sort) | {primary}


def question(request: SearchRequest, config: SearchConfig, promoter: Promoter, late: Callable[[], bool]) -> Question:
    """Prepares a search of a stream with this configuration."""
    is_bm25 = any(term.kind == "bm25" for term in request.sort)
    return Question(request, config, promoter, late, scoring.wanted(request.node) if is_bm25 else ())


class Match(NamedTuple):
    """A record that was read and matches; its sort key is computed later."""

    document: Document
    values: Values
    frequencies: scoring.Frequencies | None


def candidate_of(asked: Question, found: Match, weights: Weights) -> Candidate:
    key: list[object] = []
    for term in asked.request.sort:
        if term.kind == "offset":
            key.append(found.document.offset)
        elif term.kind == "score":
            key.append(scoring.score(asked.request.node, found.values))
        elif term.kind == "bm25":
            assert found.frequencies is not None, "counted"
            key.append(scoring.bm25(found.frequencies, weights))
        else:
            key.append(search_request.value_of(term, found.values))
    return Candidate(found.document.offset, tuple(key), found.document)


def page_of(asked: Question, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Returns the first candidates of the requested page, in order."""
    request = asked.request
    if request.after is not None:
        after = request.after
        candidates = (one for one in candidates if search_request.is_after(one.key, after, request.sort))
    return search_request.in_order(candidates, request.sort, lambda one: one.key)[: request.size]


def best_of(asked: Question, answer: Evaluated, rows: Rows, weights: Weights) -> list[Candidate]:
    """Returns the first of those rows that the run decides without reading records."""
    request = asked.request
    if not len(rows):
        return []
    if request.sort[0].kind == "offset":  # rows are in that order: no key needs to be made of the others
        rows = _page_rows(rows, answer.first, request)
    ranked = _rank(asked, answer, rows, weights)
    if request.after is not None:
        places = np.flatnonzero(behind(ranked, request.sort, request.after))
        rows, ranked = rows[places], [one.at(places) for one in ranked]
    places = first_places(ranked, request.sort, request.size) if len(rows) else np.empty(0, np.int64)
    return [
        Candidate(int(rows[place]) + answer.first, tuple(one.value(place) for one in ranked), None)
        for place in places.tolist()
    ]


def _page_rows(rows: Rows, first: int, request: SearchRequest) -> Rows:
    bound = None if request.after is None else request.after[0] - first
    if request.sort[0].descending:
        stop = len(rows) if bound is None else int(np.searchsorted(rows, bound))
        return rows[max(0, stop - request.size) : stop]
    start = 0 if bound is None else int(np.searchsorted(rows, bound, "right"))
    return rows[start : start + request.size]


def _rank(asked: Question, answer: Evaluated, rows: Rows, weights: Weights) -> list[Ranked]:
    ranked: list[Ranked] = []
    for term in asked.request.sort:
        if term.kind == "offset":
            ranked.append(of_numbers(rows + answer.first))
        elif term.kind == "score":
            ranked.append(of_numbers(answer.step.scores(rows)))
        elif term.kind == "bm25":
            ranked.append(of_numbers(_bm25(asked, answer, rows, weights)))
        elif term.field in answer.columns:
            ranked.append(of_column(answer.columns[term.field], rows))
        else:
            ranked.append(absent(rows))
    return ranked


def lengths_of(answer: Evaluated, field: str, rows: Rows) -> Rows:
    """Returns the number of words in a text field, by row."""
    column = answer.columns.get(field)
    if column is None:
        return np.zeros(len(rows), np.int64)
    lengths = column.values[rows].astype(np.int64)
    return lengths if column.valid is None else np.where(column.valid[rows], lengths, 0)


def _bm25(asked: Question, answer: Evaluated, rows: Rows, weights: Weights) -> Numbers:
    total = np.zeros(len(rows))
    for one, found, (rarity, mean) in zip(asked.words, answer.words, weights, strict=True):
        counts = _occurrences(found, rows + answer.first)
        lengths = lengths_of(answer, one.field, rows)
        total += scoring.weighed(counts, lengths, rarity, mean)
    return total


def _occurrences(found: Postings, offsets: Rows) -> Numbers:
    docs = np.sort(found.docs)
    return np.searchsorted(docs, offsets, "right") - np.searchsorted(docs, offsets, "left")
