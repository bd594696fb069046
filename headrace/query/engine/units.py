"""The units of a search (runs, segments, tails): their order, bounds on what they can hold, and scans.

A unit is either scanned record by record, or searched through an index run (`runs`). Both give the same kind of result:
the number of matching records, and the first of them in the search's order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from headrace.index.clauses import Step
from headrace.index.descriptors import Descriptor, Run
from headrace.index.families import CHUNK_BITS
from headrace.query.engine.context import Document, Omission, Promoter
from headrace.query.engine.sources import LogPart, Range, RunRange, SegmentRange, Snapshot
from headrace.query.language import query, scoring, search_request
from headrace.query.language.canonical import SearchConfig
from headrace.query.language.query import And, Anywhere, Equals, Has, Node, Or, OutOfTime, Values
from headrace.query.language.scoring import Corpus, Wanted
from headrace.query.language.search_request import Key, SearchRequest

Unit = SegmentRange | LogPart | RunRange  # a log's part stands for its tail

_FIRST_STEP = 1 << CHUNK_BITS  # records: a page of a phrase of frequent words is full with them
_GROWTH = 8
_LEAST_TIME, _GREATEST_TIME = -(2**63), 2**63 - 1  # a run that says so may hold times beyond them


def grouped(units: Sequence[Unit], first_wave: int) -> list[list[Unit]]:
    """Returns the units in waves, in their order, for a search by offset: each scan is a wave; neighbouring runs share one,
    but the first `first_wave` runs are not joined by later ones.
    """
    waves: list[list[Unit]] = []
    taken = 0
    for unit in units:
        is_run = isinstance(unit, RunRange)
        joins = is_run and bool(waves) and isinstance(waves[-1][0], RunRange) and taken != first_wave
        taken += is_run
        if joins:
            waves[-1].append(unit)
        else:
            waves.append([unit])
    return waves


def paced(units: Iterable[Unit], *, descending: bool, after: int | None) -> list[list[Unit]]:
    """Groups units into the waves of a search by offset for a phrase, which costs much to read and compare.

    Each scan is a wave. Runs are cut into pieces: first pieces with the next `_FIRST_STEP` records, then each time with
    `_GROWTH` times as many. So most pages are full after one wave, and a phrase that no record holds takes few waves.
    Pieces end at the ends of chunks of postings.

    Args:
        units: the units in the order of the search.
        after: offset of the record after which the page begins; None for the first page.
    """
    waves: list[list[Unit]] = []
    size = room = _FIRST_STEP
    for unit in units:
        if not isinstance(unit, RunRange):
            waves.append([unit])
            continue
        rest = unit if after is None else _behind(unit, after, descending=descending)
        while rest.first < rest.end:
            if not room:
                size = room = size * _GROWTH
            piece, rest = _piece(rest, room, descending=descending)
            if room == size or not isinstance(waves[-1][0], RunRange):
                waves.append([])
            waves[-1].append(piece)
            room = max(0, room - (piece.end - piece.first))
    return waves


def _behind(found: RunRange, after: int, *, descending: bool) -> RunRange:
    """Returns the part of a run that comes after a record in the search's order."""
    if descending:
        return found._replace(end=min(found.end, after))
    return found._replace(first=max(found.first, after + 1))


def _piece(found: RunRange, records: int, *, descending: bool) -> tuple[RunRange, RunRange]:
    """Cuts a run into its next piece, of about so many records, and the rest."""
    if descending:
        cut = max(found.first, (found.end - records) >> CHUNK_BITS << CHUNK_BITS)
        return found._replace(first=cut), found._replace(end=cut)
    cut = min(found.end, -(-(found.first + records) >> CHUNK_BITS) << CHUNK_BITS)
    return found._replace(end=cut), found._replace(first=cut)


def begin_of(unit: Unit) -> int:
    """Returns the offset of a unit's first record; for a log's part, of the first record that is not published."""
    return unit.published if isinstance(unit, LogPart) else unit.first


def end_of(unit: Unit) -> int:
    """Returns the offset after a unit's last record."""
    return unit.end


def omissions(snapshot: Snapshot, units: Iterable[Unit]) -> list[Omission]:
    """Converts units for which there was no time to omissions, ascending. A segment that is in several units is counted
    once.

    Costs up to two GETs for each run, of sealed pages of the manifest that are not cached.
    """
    found: list[Omission] = []
    counted: dict[str, int] = {}  # by log, the number of the last segment
    for unit in sorted(units, key=begin_of):
        if isinstance(unit, LogPart):
            records = unit.tail.records
            found.append(Omission(records[0].offset, unit.end, records[0].time_ms, is_published=False))
            continue
        first, last = _numbers(snapshot, unit)
        first = max(first, counted.get(unit.log_id, -1) + 1)
        counted[unit.log_id] = last
        time_ms = unit.run.min_time_ms if isinstance(unit, RunRange) else unit.segment.min_time_ms
        found.append(Omission(unit.first, unit.end, time_ms, is_published=True, segments=last + 1 - first))
    return found


def _numbers(snapshot: Snapshot, unit: RunRange | SegmentRange) -> tuple[int, int]:
    """Returns the numbers of the segments that hold a unit's first and last record."""
    if isinstance(unit, SegmentRange):
        return unit.segment.number, unit.segment.number
    part = snapshot.part_of(unit.first)
    first, last = (snapshot.segments_in(part, Range(at, at + 1))[0] for at in (unit.first, unit.end - 1))
    return first.segment.number, last.segment.number


def published(snapshot: Snapshot) -> int:
    """Returns the number of published segments of the stream, including all segments of its ancestors."""
    return sum(
        part.manifest.segment_count - part.manifest.begin_number
        for part in snapshot.parts
        if part.manifest is not None
    )


def bound_of(run_: Run, *, descending: bool, is_whole: bool) -> float:
    """Returns the least `distance` that a record of the run can have. `is_whole` says whether each record has a
    timestamp.
    """
    time = run_.greatest_timestamp if descending else run_.least_timestamp
    if descending and (not is_whole or time == _GREATEST_TIME):
        return -math.inf
    return -math.inf if time == _LEAST_TIME and not descending else distance(time, descending=descending)


def distance(time: int | None, *, descending: bool) -> float:
    """Converts a timestamp to a number that is smaller the earlier it comes in the order. A missing timestamp comes
    first in descending order, last in ascending order.
    """
    if time is None:
        return -math.inf if descending else math.inf
    return -time if descending else time


def expected(node: Node, descriptor: Descriptor) -> float:
    """Estimates how many records of a run match; too high where nothing is known."""
    size = descriptor.end_offset - descriptor.first_offset
    if isinstance(node, And):
        return min(expected(part, descriptor) for part in node.parts)
    if isinstance(node, Or):
        return sum(expected(part, descriptor) for part in node.parts)
    if isinstance(node, Anywhere):
        return sum(expected(part, descriptor) for part in node.options)
    if isinstance(node, Equals | Has):
        stats = descriptor.fields.get(node.field)
        if stats is None:
            return 0
        return stats.present / max(1, stats.distinct) if isinstance(node, Equals) else stats.present
    return size


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
        is_long: whether the time is checked between the clauses of the query, too.
    """

    request: SearchRequest
    config: SearchConfig
    promoter: Promoter
    late: Callable[[], bool]
    words: tuple[Wanted, ...]
    is_long: bool

    def check(self) -> None:
        """Raises OutOfTime if the request's time is over."""
        if self.late():
            raise OutOfTime

    @property
    def check_long(self) -> query.Check:
        """The check of the time between clauses: that of a long query, nothing for any other."""
        return self.check if self.is_long else scoring.unchecked

    def match(self, document: Document, values: Values) -> Match | None:
        """Returns a record that was read as a match; None if it does not match.

        Raises:
            OutOfTime: the request's time was over before that was known.
        """
        node = self.request.node
        if not query.matches(node, values, self.check if self.is_long else None):
            return None
        return Match(document, values, scoring.score(node, values, self.check_long) if self.by_score else 0.0)

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
    """Returns the question that a search with this request asks of each unit; with words only if hits are sorted by
    BM25.
    """
    is_bm25 = any(term.kind == "bm25" for term in request.sort)
    words = scoring.wanted(request.node) if is_bm25 else ()
    return Question(request, config, promoter, late, words, query.is_long(request.node))


class Match(NamedTuple):
    """A record that was read and matches, with its canonical values, its score if the order needs it and, for BM25, its
    word counts; its sort key is computed later.
    """

    document: Document
    values: Values
    score: float
    frequencies: scoring.Frequencies | None = None


def candidate_of(asked: Question, found: Match, weights: Weights) -> Candidate:
    key: list[object] = []
    for term in asked.request.sort:
        if term.kind == "offset":
            key.append(found.document.offset)
        elif term.kind == "score":
            key.append(found.score)
        elif term.kind == "bm25":
            assert found.frequencies is not None, "counted"
            key.append(scoring.bm25(found.frequencies, weights))
        else:
            key.append(search_request.value_of(term, found.values))
    return Candidate(found.document.offset, tuple(key), found.document)


def page_of(asked: Question, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Returns the candidates of the requested page, in order: at most `size` of those that come after the page before."""
    request = asked.request
    if request.after is not None:
        after = request.after
        candidates = (one for one in candidates if search_request.is_after(one.key, after, request.sort))
    return search_request.in_order(candidates, request.sort, lambda one: one.key)[: request.size]


class Found(NamedTuple):
    """The result of searching one unit.

    Attributes:
        matched: number of matching records; a lower bound if `whole` is false.
        first: returns the first of them for a page, given the weights of BM25 (empty if hits are not sorted by it).
        corpus: the counts that BM25 needs; None if hits are not sorted by it.
        newest_timestamp: greatest primary timestamp of the unit, if known.
        scanned: number of records that were read one by one.
        families: the families that were read.
        step: how a run was searched; None for a scan.
        whole: whether all of the unit was searched.
    """

    matched: int
    first: Callable[[Weights], list[Candidate]]
    corpus: Corpus | None
    newest_timestamp: int | None
    scanned: int
    families: frozenset[str]
    step: Step | None
    whole: bool


def scan(asked: Question, documents: Iterable[Document]) -> Found:
    """Searches documents one by one, while there is time, and returns the matching ones with the counts that the answer
    needs.
    """
    fields = asked.fields
    primary = asked.config.primary_timestamp_field
    matches: list[Match] = []
    newest: int | None = None
    scanned = 0
    whole = True
    tally = _Tally(asked.words)
    for document in documents:
        if scanned and asked.late():
            whole = False
            break
        scanned += 1
        values = asked.promoter.values(document, fields)
        for instant in values.get(primary, ()):
            assert isinstance(instant, int), "a date"
            newest = instant if newest is None else max(newest, instant)
        try:
            frequencies = tally.add(values, asked.check) if asked.words else None
            match = asked.match(document, values)
        except OutOfTime:
            whole = False
            break
        if match is not None:
            matches.append(match._replace(frequencies=frequencies))

    def first(weights: Weights) -> list[Candidate]:
        return page_of(asked, (candidate_of(asked, one, weights) for one in matches))

    corpus = tally.corpus() if asked.words else None
    return Found(len(matches), first, corpus, newest, scanned, frozenset(), None, whole)


class _Tally:
    """A sum of the counts of documents that BM25 needs."""

    def __init__(self, words: Sequence[Wanted]) -> None:
        self._words = words
        self._records: dict[str, int] = {}
        self._lengths: dict[str, int] = {}
        self._holding = [0] * len(words)

    def add(self, values: Values, check: query.Check) -> scoring.Frequencies:
        found = scoring.frequencies(self._words, values, check)
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
