"""Parts of a stream as a search looks at them: scanned, record by record, or asked through an index run.

Both give the same kind of result: how many records match, and of those the first ones in the search's order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from headrace.index import docsets, families
from headrace.index import evaluate as evaluation
from headrace.index.clauses import Step
from headrace.index.docsets import Rows
from headrace.index.evaluate import Evaluated
from headrace.index.fetching import Routine
from headrace.index.postings import Postings, TermRequest
from headrace.index.reading import RunReader
from headrace.query.engine import ranking
from headrace.query.engine.documents import Document, Promoter
from headrace.query.engine.engine import Engine
from headrace.query.engine.ranking import Ranked
from headrace.query.engine.records import fetch
from headrace.query.engine.sources import RunRange, Snapshot
from headrace.query.language import match, query, scoring, sorting
from headrace.query.language.config import SearchConfig
from headrace.query.language.match import Values
from headrace.query.language.query import And, Anywhere, Node, Not, Or, Words
from headrace.query.language.request import SearchRequest
from headrace.query.language.scoring import Corpus, Wanted
from headrace.query.language.sorting import Key

LOOK_RECORDS = 1000  # of records that a run can't decide: looked at between two glances at the clock

Weights = Sequence[tuple[float, float]]


class Candidate(NamedTuple):
    """A record that matches: its place in the order, and the record if it was looked at."""

    offset: int
    key: Key
    document: Document | None


class Found(NamedTuple):
    """What a part of the stream has.

    Attributes:
        matched: records that match; at least, if not `whole`.
        first: of those the first ones, given the weights of BM25 (empty if it is not asked for).
        corpus: what BM25 needs to know; None if it is not asked for.
        newest_timestamp: greatest primary timestamp of the part, as far as it is known.
        scanned: records that were looked at one by one.
        families: that were read.
        step: how a run was asked.
        whole: everything was looked at.
    """

    matched: int
    first: Callable[[Weights], list[Candidate]]
    corpus: Corpus | None
    newest_timestamp: int | None
    scanned: int
    families: frozenset[str]
    step: Step | None
    whole: bool


class Question(NamedTuple):
    """A search, with what every part of it needs.

    Attributes:
        late: says whether its time is over.
        words: that BM25 counts; empty unless it is sorted by.
    """

    request: SearchRequest
    config: SearchConfig
    promoter: Promoter
    late: Callable[[], bool]
    words: tuple[Wanted, ...]

    @property
    def by_score(self) -> bool:
        """The order needs the contract's score."""
        return any(term.kind == "score" for term in self.request.sort)

    @property
    def fields(self) -> frozenset[str]:
        """What a look at a record must read."""
        primary = self.config.primary_timestamp_field
        return query.fields_of(self.request.node) | sorting.fields_of(self.request.sort) | {primary}


def question(request: SearchRequest, config: SearchConfig, promoter: Promoter, late: Callable[[], bool]) -> Question:
    """A search of a stream with this configuration."""
    is_bm25 = any(term.kind == "bm25" for term in request.sort)
    return Question(request, config, promoter, late, scoring.wanted(request.node) if is_bm25 else ())


class _Match(NamedTuple):
    """A record that matches, before its key is known."""

    document: Document
    values: Values
    frequencies: scoring.Frequencies | None


def scan(asked: Question, documents: Iterable[Document]) -> Found:
    """Looks at every document."""
    fields, node = asked.fields, asked.request.node
    primary = asked.config.primary_timestamp_field
    matches: list[_Match] = []
    newest: int | None = None
    scanned = 0
    tally = _Tally(asked.words)
    for document in documents:
        scanned += 1
        values = asked.promoter.values(document, fields)
        for instant in values.get(primary, ()):
            assert isinstance(instant, int), "a date"
            newest = instant if newest is None else max(newest, instant)
        frequencies = tally.add(values) if asked.words else None
        if match.matches(node, values):
            matches.append(_Match(document, values, frequencies))

    def first(weights: Weights) -> list[Candidate]:
        return _first(asked, (_candidate(asked, one, weights) for one in matches))

    corpus = tally.corpus() if asked.words else None
    return Found(len(matches), first, corpus, newest, scanned, frozenset(), None, whole=True)


class _Tally:
    """Adds up what BM25 needs to know of documents."""

    def __init__(self, words: Sequence[Wanted]) -> None:
        self._words = words
        self._records: dict[str, int] = {}
        self._lengths: dict[str, int] = {}
        self._holding = [0] * len(words)

    def add(self, values: Values) -> scoring.Frequencies:
        found = scoring.frequencies(self._words, values)
        seen: set[str] = set()
        for at, one in enumerate(self._words):
            self._holding[at] += found.counts[at] > 0
            if one.field not in seen and values.get(one.field):
                seen.add(one.field)
                self._records[one.field] = self._records.get(one.field, 0) + 1
                self._lengths[one.field] = self._lengths.get(one.field, 0) + found.lengths[at]
        return found

    def corpus(self) -> Corpus:
        return Corpus(self._records, self._lengths, tuple(self._holding))


def _candidate(asked: Question, found: _Match, weights: Weights) -> Candidate:
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
            key.append(sorting.value_of(term, found.values))
    return Candidate(found.document.offset, tuple(key), found.document)


def _first(asked: Question, candidates: Iterable[Candidate]) -> list[Candidate]:
    """The first ones of a page."""
    request = asked.request
    if request.after is not None:
        after = request.after
        candidates = (one for one in candidates if sorting.is_after(one.key, after, request.sort))
    return sorting.in_order(candidates, request.sort, lambda one: one.key)[: request.size]


def ask(engine: Engine, asked: Question, snapshot: Snapshot, found: RunRange) -> Routine[Found]:
    """Asks a run; records that it can't decide are looked at, the newest first, while there is time."""
    reader = yield from engine.runs.open(found.run)
    request, config = asked.request, asked.config
    sorted_by = sorted(sorting.fields_of(request.sort))
    texts = sorted(_texts(request.node)) if asked.by_score or asked.words else []
    answer = yield from evaluation.evaluate(
        reader,
        request.node,
        config,
        columns=[*sorted_by, *(texts if asked.words else ())],
        lossy=[*sorted_by, *texts],
        words=[_postings_of(one) for one in asked.words],
        within=(found.first, found.end),
    )
    begin, end = found.first - answer.first, found.end - answer.first
    sure, unsure = _within(answer.sure, begin, end), _within(answer.unsure, begin, end)
    must_look = np.zeros(len(sure), np.bool_)
    for marked in answer.lossy.values():
        must_look |= marked.has(sure)
    look = docsets.unite(sure[must_look], unsure)
    known = sure[~must_look]
    matches: list[_Match] = []
    looked = 0
    ordered = look if _is_ascending(request) else look[::-1]
    while looked < len(ordered) and not (looked and asked.late()):
        chunk = np.sort(ordered[looked : looked + LOOK_RECORDS]) + answer.first
        records = yield from fetch(snapshot, chunk.tolist())
        for offset, data in records.items():
            document = asked.promoter.document(offset, data)
            values = asked.promoter.values(document, asked.fields)
            if match.matches(request.node, values):
                counted = scoring.frequencies(asked.words, values) if asked.words else None
                matches.append(_Match(document, values, counted))
        looked += len(chunk)

    def first(weights: Weights) -> list[Candidate]:
        best = _best(asked, answer, known, weights)
        return _first(asked, [*best, *(_candidate(asked, one, weights) for one in matches)])

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
    """The text fields that scores depend on."""
    if isinstance(node, And | Or):
        return set().union(*map(_texts, node.parts))
    if isinstance(node, Anywhere):
        return set().union(*map(_texts, node.options))
    if isinstance(node, Not):
        return set()
    return {node.field} if isinstance(node, Words) else set()


def _best(asked: Question, answer: Evaluated, rows: Rows, weights: Weights) -> list[Candidate]:
    """The first of the rows that the run alone decides."""
    request = asked.request
    if not len(rows):
        return []
    if request.sort[0].kind == "offset":  # rows are in that order: no key needs to be made of the others
        rows = _page(rows, answer.first, request)
    ranked = _ranked(asked, answer, rows, weights)
    if request.after is not None:
        places = np.flatnonzero(ranking.behind(ranked, request.sort, request.after))
        rows, ranked = rows[places], [one.at(places) for one in ranked]
    places = ranking.first(ranked, request.sort, request.size) if len(rows) else np.empty(0, np.int64)
    return [
        Candidate(int(rows[place]) + answer.first, tuple(one.value(place) for one in ranked), None)
        for place in places.tolist()
    ]


def _page(rows: Rows, first: int, request: SearchRequest) -> Rows:
    bound = None if request.after is None else request.after[0] - first
    if request.sort[0].descending:
        stop = len(rows) if bound is None else int(np.searchsorted(rows, bound))
        return rows[max(0, stop - request.size) : stop]
    start = 0 if bound is None else int(np.searchsorted(rows, bound, "right"))
    return rows[start : start + request.size]


def _ranked(asked: Question, answer: Evaluated, rows: Rows, weights: Weights) -> list[Ranked]:
    ranked: list[Ranked] = []
    for term in asked.request.sort:
        if term.kind == "offset":
            ranked.append(ranking.of_numbers(rows + answer.first))
        elif term.kind == "score":
            ranked.append(ranking.of_numbers(answer.step.scores(rows)))
        elif term.kind == "bm25":
            ranked.append(ranking.of_numbers(_bm25(asked, answer, rows, weights)))
        elif term.field in answer.columns:
            ranked.append(ranking.of_column(answer.columns[term.field], rows))
        else:
            ranked.append(ranking.absent(rows))
    return ranked


def _postings_of(one: Wanted) -> TermRequest:
    low = families.word_term(one.field, one.word)
    return TermRequest("fts", low, families.after(low) if one.prefix else None)


def _corpus(asked: Question, reader: RunReader, answer: Evaluated) -> Corpus:
    """Of the whole run. Records with several texts in a field count with no words: their number is not in `col`."""
    stats = reader.descriptor.fields
    names = {one.field for one in asked.words}
    lengths = {
        name: int(_lengths(answer, name, np.arange(len(answer.columns[name].values))).sum())
        for name in names
        if name in answer.columns
    }
    records = {name: stats[name].present - stats[name].lossy for name in names if name in stats}
    return Corpus(records, lengths, tuple(len(found.merged()) for found in answer.words))


def _lengths(answer: Evaluated, field: str, rows: Rows) -> Rows:
    """How many words records have in a text field."""
    column = answer.columns.get(field)
    if column is None:
        return np.zeros(len(rows), np.int64)
    lengths = column.values[rows].astype(np.int64)
    return lengths if column.valid is None else np.where(column.valid[rows], lengths, 0)


def _bm25(asked: Question, answer: Evaluated, rows: Rows, weights: Weights) -> ranking.Numbers:
    total = np.zeros(len(rows))
    for one, found, (rarity, mean) in zip(asked.words, answer.words, weights, strict=True):
        counts = _occurrences(found, rows + answer.first)
        lengths = _lengths(answer, one.field, rows)
        total += scoring.weighed(counts, lengths, rarity, mean)
    return total


def _occurrences(found: Postings, offsets: Rows) -> ranking.Numbers:
    docs = np.sort(found.docs)
    return np.searchsorted(docs, offsets, "right") - np.searchsorted(docs, offsets, "left")
