"""Answers a search: in which order parts of the stream are searched, when enough was found, and what the answer says
about itself.

The tail and the unindexed segments are scanned. Runs are searched through their families, several in the same rounds of
GETs. A search in the order of offsets goes from one end to the other and stops when its page is full; any other search
looks at everything. Between parts the remaining time is checked; parts for which there is no time are reported like
other omissions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headrace.clock import within_deadline
from headrace.errors import Damaged, InvalidRequest
from headrace.index.fetching import gather, run
from headrace.log.requests import JSON, check_cursor
from headrace.log.seam import Which
from headrace.objects import ObjectMissing
from headrace.query.engine import context
from headrace.query.engine.context import Coverage, Document, Engine, Overlay, Promoter, fetch_records, plan_overlay
from headrace.query.engine.runs import ask
from headrace.query.engine.sources import LogPart, RunRange, SegmentRange, Snapshot
from headrace.query.engine.units import (
    Candidate,
    Found,
    Question,
    Unit,
    begin_of,
    bound_of,
    distance,
    end_of,
    expected,
    grouped,
    omissions,
    paced,
    published,
    question,
    scan,
)
from headrace.query.language import scoring, search_request
from headrace.query.language import search_request as requests
from headrace.query.language.canonical import SearchConfig
from headrace.query.language.query import OutOfTime, fields_of, has_phrase
from headrace.query.language.search_request import SearchRequest
from headrace.query.language.snippets import snippets
from headrace.wal.state import decode_cursor, encode_cursor

_FIRST_WAVE = 2  # runs: most pages of the newest records are full with them
REQUEST_MS = 5000  # the limit of any request in Prisma Streams


class Hit(NamedTuple):
    """A hit on the page: the candidate with its offset and sort key, the record as a document, and the score as Prisma
    Streams computes it, whatever the sort order; 0 if the query has no words.
    """

    candidate: Candidate
    document: Document
    score: float


class Times(NamedTuple):
    """The milliseconds spent on runs, on segments, on the tail, and on fetching hits."""

    runs: float
    segments: float
    tail: float
    hits: float


class SearchAnswer(NamedTuple):
    """The answer to a search.

    Attributes:
        snapshot: the stream's snapshot.
        hits: the hits of the page, in order.
        total: number of matching records; a lower bound if `exact` is false.
        timed_out: whether the time was over before everything needed was searched.
        indexed_segments: number of segments that runs cover.
        scanned_segments, scanned_tail: number of scanned segments, and of scanned records of the tail.
        families: the families that were read.
        explained: how it was answered, as JSON; None unless requested.
    """

    snapshot: Snapshot
    request: SearchRequest
    promoter: Promoter
    hits: list[Hit]
    total: int
    exact: bool
    timed_out: bool
    coverage: Coverage
    indexed_segments: int
    scanned_segments: int
    scanned_tail: int
    times: Times
    took_ms: float
    families: tuple[str, ...]
    explained: dict[str, Any] | None

    def cursor(self, position: int) -> str:
        """Formats a position of the stream as a cursor."""
        return encode_cursor(self.snapshot.head.incarnation, position)

    def snippet_of(self, hit: Hit) -> dict[str, list[str]] | None:
        """Returns the pieces of a hit's texts that the request asks for, by field; None if it asks for none."""
        request = self.request
        if request.snippet is None:
            return None
        return snippets(request.snippet, request.node, lambda field: self.promoter.texts(hit.document, field))

    def place_of(self, hit: Hit) -> list[Any]:
        """Returns the place of a hit in the order, as `search_after` takes it."""
        offset = self.cursor(hit.candidate.offset + 1)
        terms = zip(self.request.sort, hit.candidate.key, strict=True)
        return [offset if term.kind == "offset" else value for term, value in terms]


def search(engine: Engine, which: Which, asked: Mapping[str, Any]) -> SearchAnswer:
    """Answers a search.

    Args:
        which: the log, such as a stream by its name.
        asked: the members of the request's body (`headrace.query.language.search_request.parse`).

    Raises:
        InvalidRequest: the request is invalid for this stream, or a record can't be promoted.
        NotFound, Gone, Damaged, StoreTimeout, StoreThrottled: as a read.
    """
    began = engine.clock.monotonic()
    with within_deadline(REQUEST_MS):
        snapshot = engine.sources.snapshot(which)
        try:
            return _Search(engine, snapshot, _parse(snapshot, asked), began).answer()
        except (ObjectMissing, Damaged):
            # Perhaps a run that was retired, or a segment that was merged, while we read the manifest that names it.
            snapshot = engine.sources.snapshot(which, fresh=True)
            return _Search(engine, snapshot, _parse(snapshot, asked), began).answer()


def _parse(snapshot: Snapshot, asked: Mapping[str, Any]) -> SearchRequest:
    if snapshot.head.config.content_type != JSON:
        raise InvalidRequest("search needs a stream of application/json")
    return requests.parse(asked, snapshot.definition.search, lambda text: _place(snapshot, text))


def _place(snapshot: Snapshot, text: str) -> int:
    """Returns the offset of the hit that a cursor stands for: a cursor points behind its record. Raises InvalidRequest or
    Gone if it is no valid cursor of this stream.
    """
    cursor = decode_cursor(text)
    check_cursor(snapshot.head.config, cursor, snapshot.head.state.recoveries)
    return cursor.position - 1


class _Search:
    """One search while it is being answered."""

    def __init__(self, engine: Engine, snapshot: Snapshot, request: SearchRequest, began: float) -> None:
        config = snapshot.definition.search
        assert config is not None, "the request was parsed with it"
        self._engine = engine
        self._snapshot = snapshot
        self._request = request
        self._config: SearchConfig = config
        self._began = began
        self._clock = engine.clock.monotonic
        self._promoter = Promoter(snapshot.definition)
        self._asked: Question = question(request, config, self._promoter, self._late)
        self._ranges = engine.ranges.fetches()
        self._found: list[tuple[Unit, Found]] = []
        self._bounds: dict[str, float] = {}
        self._spent = {"runs": 0.0, "segments": 0.0, "tail": 0.0, "hits": 0.0}

    def answer(self) -> SearchAnswer:
        unindexed = self._snapshot.unindexed
        overlay = plan_overlay(self._snapshot, unindexed, self._engine.budget)
        waves = self._waves(overlay)
        candidates: list[Candidate] = []
        timed_out = stopped = False
        left: list[Unit] = []
        for number, wave in enumerate(waves):
            if self._by_time and wave and isinstance(wave[0], RunRange):
                wave, before = self._in_reach(wave), wave
                stopped = stopped or len(wave) < len(before)
            if self._late():
                timed_out = True
                left = [unit for later in waves[number:] for unit in later]
                break
            found = self._look(wave) if wave else []
            self._found += zip(wave, found, strict=True)
            timed_out = timed_out or not all(one.whole for one in found)
            if not self._asked.words and self._by_offset:
                candidates += [one for each in found for one in each.first(())]
                if len(candidates) >= self._request.size and number + 1 < len(waves):
                    stopped = True
                    break
        if self._asked.words or not self._by_offset:
            candidates = self._ranked()
        page = search_request.in_order(candidates, self._request.sort, lambda one: one.key)[: self._request.size]
        hits = self._hits(page)
        timed_out = timed_out or len(hits) < len(page)
        return self._answered(hits, overlay, unindexed, left, timed_out=timed_out, stopped=stopped)

    @property
    def _by_offset(self) -> bool:
        return self._request.sort[0].kind == "offset"

    @property
    def _by_time(self) -> bool:
        """Whether hits are sorted by the primary timestamp. Then runs can be skipped by their bounds of it."""
        first = self._request.sort[0]
        return first.kind == "field" and first.field == self._config.primary_timestamp_field

    def _late(self) -> bool:
        return (self._clock() - self._began) * 1000 >= self._request.timeout_ms

    def _waves(self, overlay: Overlay) -> list[list[Unit]]:
        """Returns the parts to search in waves. After each wave the search may have enough."""
        tails: list[Unit] = [part for part in self._snapshot.parts if part.tail.records]
        if not self._by_offset:
            scans: list[list[Unit]] = [[one] for one in (*reversed(tails), *overlay.segments)]
            runs = self._by_bound() if self._by_time else list(reversed(self._snapshot.runs))
            first = self._first_wave(runs) if self._by_time else len(runs)
            return scans + [list(some) for some in (runs[:first], runs[first:]) if some]
        units = sorted([*tails, *overlay.segments, *self._snapshot.runs], key=begin_of)
        descending = self._request.sort[0].descending
        bound: int | None = None if self._request.after is None else self._request.after[0]
        if descending:
            units.reverse()
        if bound is not None:
            units = [unit for unit in units if (begin_of(unit) < bound if descending else end_of(unit) > bound + 1)]
        if has_phrase(self._request.node):
            return paced(units, descending=descending, after=bound)
        return grouped(units, self._first_wave([unit for unit in units if isinstance(unit, RunRange)]))

    def _first_wave(self, runs: Sequence[RunRange]) -> int:
        """Returns how many of these runs to search in the first wave; all of them if the first few will probably not
        fill the page.
        """
        if len(runs) <= _FIRST_WAVE:
            return len(runs)
        readers = run(gather([self._engine.runs.open(found.run) for found in runs]), self._ranges)
        hits = sum(expected(self._request.node, reader.descriptor) for reader in readers[:_FIRST_WAVE])
        return _FIRST_WAVE if hits >= self._request.size else len(readers)

    def _by_bound(self) -> list[RunRange]:
        """Returns the runs ordered by the earliest place in the order that their records can have; runs with a record
        without a timestamp may come first.
        """
        runs = self._snapshot.runs
        readers = run(gather([self._engine.runs.open(found.run) for found in runs]), self._ranges)
        primary, descending = self._config.primary_timestamp_field, self._request.sort[0].descending
        for found, reader in zip(runs, readers, strict=True):
            stats = reader.descriptor.fields.get(primary)
            records = reader.descriptor.end_offset - reader.descriptor.first_offset
            is_whole = stats is not None and stats.present == records
            self._bounds[found.run.id] = bound_of(found.run, descending=descending, is_whole=is_whole)
        return sorted(runs, key=lambda found: self._bounds[found.run.id])

    def _in_reach(self, wave: Sequence[Unit]) -> list[Unit]:
        """Returns those runs of a wave that can still have a hit for the page, considering what was found so far."""
        if not self._found:
            return list(wave)
        best = search_request.in_order(
            [one for _, each in self._found for one in each.first(())], self._request.sort, lambda one: one.key
        )
        if len(best) < self._request.size:
            return list(wave)
        last = best[self._request.size - 1].key[0]
        descending = self._request.sort[0].descending
        reach = distance(last, descending=descending)
        return [unit for unit in wave if isinstance(unit, RunRange) and self._bounds[unit.run.id] <= reach]

    def _look(self, wave: Sequence[Unit]) -> list[Found]:
        began = self._clock()
        first = wave[0]
        if isinstance(first, RunRange):
            routines = [
                ask(self._engine, self._asked, self._snapshot, one) for one in wave if isinstance(one, RunRange)
            ]
            found = run(gather(routines), self._ranges)
            self._spent["runs"] += self._clock() - began
            return found
        if isinstance(first, SegmentRange):
            documents = context.of_segment(self._engine, self._snapshot, first, self._promoter, self._ranges)
            found = [scan(self._asked, documents)]
            self._spent["segments"] += self._clock() - began
            return found
        found = [scan(self._asked, context.of_tail(self._snapshot, self._promoter, first.tail.records))]
        self._spent["tail"] += self._clock() - began
        return found

    def _ranked(self) -> list[Candidate]:
        """Returns the candidates of all parts that were searched."""
        weights: list[tuple[float, float]] = []
        if self._asked.words:
            corpora = [found.corpus for _, found in self._found if found.corpus is not None]
            if not corpora:
                return []
            whole = corpora[0]
            for one in corpora[1:]:
                whole = whole.plus(one)
            weights = whole.weights(self._asked.words)
        return [one for _, found in self._found for one in found.first(weights)]

    def _hits(self, page: Sequence[Candidate]) -> list[Hit]:
        """Returns the hits of the page; only the first of them, at least one if there are any, if the time is over."""
        began = self._clock()
        missing = sorted(one.offset for one in page if one.document is None)
        records = run(fetch_records(self._engine, self._snapshot, missing), self._ranges) if missing else {}
        hits: list[Hit] = []
        for one in page:
            if hits and self._late():
                break
            document = one.document or self._promoter.document(one.offset, *records[one.offset])
            try:
                hits.append(Hit(one, document, self._score(document)))
            except OutOfTime:
                break
        self._spent["hits"] += self._clock() - began
        return hits

    def _score(self, document: Document) -> float:
        node = self._request.node
        if not search_request.has_text(node):
            return 0.0
        return scoring.score(node, self._promoter.values(document, fields_of(node)), self._asked.check_long)

    def _answered(
        self,
        hits: list[Hit],
        overlay: Overlay,
        unindexed: Sequence[SegmentRange],
        left: Sequence[Unit],
        *,
        timed_out: bool,
        stopped: bool,
    ) -> SearchAnswer:
        unfinished = [*left, *(unit for unit, found in self._found if not found.whole)]
        left_out = [*overlay.omissions, *omissions(self._snapshot, unfinished)]
        stamps = [found.newest_timestamp for _, found in self._found if found.newest_timestamp is not None]
        stamps += [
            one.run.greatest_timestamp for one in self._snapshot.runs if one.run.greatest_timestamp is not None
        ]
        left_out.sort(key=lambda one: one.first)
        coverage = Coverage(self._snapshot.end, tuple(left_out), max(stamps, default=None))
        # Units that lie before `search_after` are not looked at: what matches there is not counted.
        everything = not stopped and not timed_out and (self._request.after is None or not self._by_offset)
        families = {family for _, found in self._found for family in found.families}
        return SearchAnswer(
            snapshot=self._snapshot,
            request=self._request,
            promoter=self._promoter,
            hits=hits,
            total=sum(found.matched for _, found in self._found),
            exact=everything and coverage.complete,
            timed_out=timed_out,
            coverage=coverage,
            indexed_segments=published(self._snapshot) - len(unindexed),
            scanned_segments=sum(isinstance(unit, SegmentRange) for unit, _ in self._found),
            scanned_tail=sum(found.scanned for unit, found in self._found if isinstance(unit, LogPart)),
            times=Times(**{stage: spent * 1000 for stage, spent in self._spent.items()}),
            took_ms=(self._clock() - self._began) * 1000,
            families=tuple(sorted(families)),
            explained=self._explained() if self._request.explain else None,
        )

    def _explained(self) -> dict[str, Any]:
        asked = [(unit, found) for unit, found in self._found if isinstance(unit, RunRange)]
        return {
            "plan": [
                {
                    "run": unit.run.id,
                    "level": unit.run.level,
                    "records": unit.end - unit.first,
                    "matched": found.matched,
                    "looked_at": found.scanned,
                    "query": found.step.explain() if found.step is not None else None,
                }
                for unit, found in asked
            ],
            "runs": {"considered": len(self._snapshot.runs), "opened": len({unit.run.id for unit, _ in asked})},
            "scanned": {
                "segments": sum(isinstance(unit, SegmentRange) for unit, _ in self._found),
                "tail_records": sum(found.scanned for unit, found in self._found if isinstance(unit, LogPart)),
            },
            **self._ranges.explain(),
            "stages_ms": {stage: round(spent * 1000, 3) for stage, spent in self._spent.items()},
        }
