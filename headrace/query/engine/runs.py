"""Searches an index run: finds the matching records and the first of them in an order, with numbers only and without
sorting all rows. Records that the run can't decide are read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.index import docsets, families
from headrace.index import evaluate as evaluation
from headrace.index.docsets import Mask, Rows
from headrace.index.evaluate import Evaluated
from headrace.index.fetching import Routine
from headrace.index.parts import Column
from headrace.index.postings import Postings, TermRequest
from headrace.index.reading import RunReader
from headrace.query.engine.context import Engine, fetch_records
from headrace.query.engine.sources import RunRange, Snapshot
from headrace.query.engine.units import Candidate, Found, Match, Question, Weights, candidate_of, page_of
from headrace.query.language import scoring, search_request
from headrace.query.language.query import And, Anywhere, Node, Not, Or, OutOfTime, Words
from headrace.query.language.scoring import Corpus, Wanted
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


def best_of(asked: Question, answer: Evaluated, rows: Rows, weights: Weights) -> list[Candidate]:
    """Returns the candidates of the requested page among these rows of a run, whose sort values the run has; no record is
    read.
    """
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
    """Returns the number of words in a text field, by row; 0 where the run does not have it."""
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


LOOK_RECORDS = 1000  # undecided records of a run that are fetched at a time


def ask(engine: Engine, asked: Question, snapshot: Snapshot, found: RunRange) -> Routine[Found]:
    """Searches a run through its index, and returns what was found. Records that the index can't decide are read, newest
    first, while there is time.
    """
    reader = yield from engine.runs.open(found.run)
    request, config = asked.request, asked.config
    sorted_by = sorted(search_request.fields_of(request.sort))
    texts = sorted(_texts(request.node)) if asked.by_score or asked.words else []
    try:
        answer = yield from evaluation.evaluate(
            reader,
            request.node,
            config,
            columns=[*sorted_by, *(texts if asked.words else ())],
            lossy=[*sorted_by, *texts],
            words=[_postings_of(one) for one in asked.words],
            within=(found.first, found.end),
            check=asked.check,
        )
    except OutOfTime:
        newest = found.run.greatest_timestamp
        return Found(0, lambda _: [], None, newest, 0, frozenset(), None, whole=False)
    begin, end = found.first - answer.first, found.end - answer.first
    sure, unsure = (
        snapshot.hidden.visible(_within(rows, begin, end) + answer.first) - answer.first
        for rows in (answer.sure, answer.unsure)
    )
    must_look = np.zeros(len(sure), np.bool_)
    for marked in answer.lossy.values():
        must_look |= marked.has(sure)
    if asked.by_score:
        must_look |= answer.step.doubtful(sure)
    look = docsets.unite(sure[must_look], unsure)
    known = sure[~must_look]
    matches: list[Match] = []
    looked = 0
    ordered = look if _is_ascending(request) else look[::-1]
    is_late = False
    while looked < len(ordered) and not is_late:
        chunk = np.sort(ordered[looked : looked + LOOK_RECORDS]) + answer.first
        records = yield from fetch_records(engine, snapshot, chunk.tolist())
        for offset, stored in records.items():
            document = asked.promoter.document(offset, *stored)
            values = asked.promoter.values(document, asked.fields)
            try:
                counted = scoring.frequencies(asked.words, values, asked.check) if asked.words else None
                match = asked.match(document, values)
            except OutOfTime:
                is_late = True
                break
            looked += 1
            if match is not None:
                matches.append(match._replace(frequencies=counted))
            is_late = asked.late()
            if is_late:
                break

    def first(weights: Weights) -> list[Candidate]:
        best = best_of(asked, answer, known, weights)
        return page_of(asked, [*best, *(candidate_of(asked, one, weights) for one in matches)])

    return Found(
        matched=len(known) + len(matches),
        first=first,
        corpus=_corpus(asked, reader, answer) if asked.words else None,
        newest_timestamp=found.run.greatest_timestamp,
        scanned=looked,
        families=answer.families,
        step=answer.step,
        whole=looked == len(ordered),
    )


def _is_ascending(request: SearchRequest) -> bool:
    return request.sort[0].kind == "offset" and not request.sort[0].descending


def _within(rows: Rows, begin: int, end: int) -> Rows:
    return rows[np.searchsorted(rows, begin) : np.searchsorted(rows, end)]


def _texts(node: Node) -> set[str]:
    """Returns the text fields on which scores depend."""
    if isinstance(node, And | Or):
        return set().union(*map(_texts, node.parts))
    if isinstance(node, Anywhere):
        return set().union(*map(_texts, node.options))
    if isinstance(node, Not):
        return set()
    return {node.field} if isinstance(node, Words) else set()


def _postings_of(one: Wanted) -> TermRequest:
    low = families.word_term(one.field, one.word)
    return TermRequest("fts", low, families.after(low) if one.prefix else None)


def _corpus(asked: Question, reader: RunReader, answer: Evaluated) -> Corpus:
    """Returns the counts of the whole run that BM25 needs. A record with several texts in a field counts as having no
    words, because `col` does not have their number.
    """
    stats = reader.descriptor.fields
    names = {one.field for one in asked.words}
    lengths = {
        name: int(lengths_of(answer, name, np.arange(len(answer.columns[name].values))).sum())
        for name in names
        if name in answer.columns
    }
    records = {name: stats[name].present - stats[name].lossy for name in names if name in stats}
    return Corpus(records, lengths, tuple(len(found.merged()) for found in answer.words))
