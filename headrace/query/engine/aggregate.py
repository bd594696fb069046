"""Aggregates: answers a request for the groups of a rollup over a window of time.

Whole intervals come from the family `agg` of index runs, already summed. If one run holds all requested groups of an
interval, they are already rendered as text, too. The ends of the window that are not whole intervals, and queries on
fields other than dimensions, are answered from columns. Segments that no run covers, and the tail, are scanned within a
budget. The coverage says what was left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from headrace.clock import check_deadline, within_deadline
from headrace.errors import Damaged
from headrace.index import docsets, fetching
from headrace.log.requests import Head
from headrace.log.seam import Which
from headrace.objects import ObjectMissing
from headrace.query.engine import context, grouping
from headrace.query.engine.context import Coverage, Cursor, Document, Engine, Promoter, fetch_records, plan_overlay
from headrace.query.engine.grouping import Int64s, Shape, Sums
from headrace.query.engine.groups import OfRun, RunGroups, check_size
from headrace.query.engine.routing_keys import published_segments
from headrace.query.engine.sources import Snapshot
from headrace.query.language import query, rollup_request
from headrace.query.language.canonical import SearchConfig
from headrace.query.language.rollup import Cell, Key, Row, add
from headrace.query.language.rollup_request import AggregateRequest, Window


class Scan:
    """The groups of an aggregate request, to which records are added one by one.

    Attributes:
        documents: number of records that were looked at.
        newest_timestamp: their greatest primary timestamp, in milliseconds; None if no record has one.
    """

    def __init__(self, request: AggregateRequest, promoter: Promoter, primary_timestamp: str) -> None:
        """Creates a scan without any group."""
        self._request = request
        self._promoter = promoter
        self._primary = primary_timestamp
        self._fields = request.fields | {primary_timestamp}
        self._check = check_deadline if request.query is not None and query.is_long(request.query) else None
        self._cells: dict[tuple[int, Key], Cell] = {}
        self.documents = 0
        self.newest_timestamp: int | None = None

    def add(self, documents: Iterable[Document], windows: Sequence[Window]) -> None:
        """Adds the records whose timestamps are in one of the windows.

        Raises:
            DeadlineExceeded: the request's time is over.
            InvalidRequest: a lens can't promote a record.
        """
        rollup, interval = self._request.rollup, self._request.interval_ms
        for document in documents:
            check_deadline()
            self.documents += 1
            values = self._promoter.values(document, self._fields)
            self._see(values.get(self._primary, ()))
            contribution = rollup.contribution(values, document.value)
            if contribution is None:
                continue
            timestamp = contribution.timestamp_ms
            if not any(window.start_ms <= timestamp < window.end_ms for window in windows):
                continue
            if self._request.query is None or query.matches(self._request.query, values, self._check):
                add(self._cells, rollup, interval, contribution)

    def _see(self, times: Sequence[object]) -> None:
        for time in times:
            if isinstance(time, int) and (self.newest_timestamp is None or time > self.newest_timestamp):
                self.newest_timestamp = time

    @property
    def rows(self) -> list[Row]:
        """The groups so far, unsorted."""
        rollup = self._request.rollup
        return [
            Row(rollup.name, self._request.interval_ms, start, key, cell.records, cell.parts)
            for (start, key), cell in self._cells.items()
        ]


_LOOK_RECORDS = 1000  # that columns can't tell about: fetched at once


class Aggregated(NamedTuple):
    """The answer to an aggregate request.

    Attributes:
        request: the parsed request.
        head: the stream's state when the request began.
        coverage: how much of the stream the answer includes.
        used_rollups: whether groups of the family `agg` were used.
        indexed_segments: number of published segments that index runs cover.
        scanned_segments, scanned_tail_documents: number of scanned segments without an index, and of scanned
            unpublished records.
        families: the families of index runs that were read, sorted.
        buckets: the time buckets as JSON texts, in order.
        explain: how the answer was computed, if requested.
    """

    request: AggregateRequest
    head: Head
    coverage: Coverage
    used_rollups: bool
    indexed_segments: int
    scanned_segments: int
    scanned_tail_documents: int
    families: tuple[str, ...]
    buckets: list[str]
    explain: dict[str, Any] | None

    def members(self, cursor: Cursor) -> dict[str, Any]:
        """Returns the JSON members that describe the coverage, and what was read; `cursor` formats an offset."""
        return {
            **self.coverage.members(cursor),
            "used_rollups": self.used_rollups,
            "indexed_segments": self.indexed_segments,
            "scanned_segments": self.scanned_segments,
            "scanned_tail_docs": self.scanned_tail_documents,
            "index_families_used": list(self.families),
        }


def aggregate(engine: Engine, which: Which, body: Any, budget_ms: int, *, is_widened: bool = False) -> Aggregated:
    """Answers an aggregate request.

    Args:
        which: the log, such as a stream by its name.
        body: the request's parsed JSON body.
        budget_ms: the time that the request may take.
        is_widened: whether the request is about all intervals that its window touches, as wholes: groups alone answer that.

    Raises:
        InvalidRequest: the request is wrong, or a lens can't promote a record that had to be looked at.
        NotFound, Gone: as `Sources.snapshot`.
        Damaged: an object is missing or altered.
        DeadlineExceeded: the request took longer than `budget_ms`.
    """
    with within_deadline(budget_ms):
        try:
            return _answer(engine, engine.sources.snapshot(which), body, is_widened=is_widened)
        except (Damaged, ObjectMissing):
            # Perhaps a run was retired, or a segment merged, and removed since this process read of it.
            return _answer(engine, engine.sources.snapshot(which, fresh=True), body, is_widened=is_widened)


def _answer(engine: Engine, snapshot: Snapshot, body: Any, *, is_widened: bool) -> Aggregated:
    config = snapshot.definition.search
    request = rollup_request.parse(body, config)
    assert config is not None, "else the request is refused"
    return _Aggregation(engine, snapshot, config, request.widened if is_widened else request).answer()


class _Aggregation:
    """One aggregate request while it is being answered."""

    def __init__(self, engine: Engine, snapshot: Snapshot, config: SearchConfig, request: AggregateRequest) -> None:
        self._engine = engine
        self._snapshot = snapshot
        self._config = config
        self._request = request
        self._ranges = engine.ranges.fetches()
        self._promoter = Promoter(snapshot.definition)
        self._scan = Scan(request, self._promoter, config.primary_timestamp_field)
        rollup = request.rollup
        self._shape = Shape(
            request.group_by,
            [rollup.dimensions.index(name) for name in request.group_by],
            [rollup.measures.index(name) for name in request.measures],
        )
        self._groups = RunGroups(engine.runs, request, config, self._shape, snapshot.hidden)

    def answer(self) -> Aggregated:
        """Reads runs, unindexed segments and the tail, and returns the groups with their coverage and timing."""
        request = self._request
        began = self._engine.clock.monotonic()
        of_runs = self._read_runs()
        read = self._engine.clock.monotonic()
        unindexed = self._snapshot.unindexed
        overlay = plan_overlay(self._snapshot, unindexed, self._engine.budget)
        for found in overlay.segments:
            documents = context.of_segment(self._engine, self._snapshot, found, self._promoter, self._ranges)
            self._scan.add(documents, [request.window])
        self._look_at_picked(of_runs)
        looked_at = self._scan.documents
        self._scan.add(context.of_tail(self._snapshot, self._promoter), [self._request.window])
        scanned = self._engine.clock.monotonic()
        buckets = list(self._buckets(of_runs))
        ended = self._engine.clock.monotonic()
        families = {"agg" for one in of_runs if one.by_groups}
        families = families.union(*(one.picked.families for one in of_runs if one.picked is not None))
        times = [one.run.greatest_timestamp for one in self._snapshot.runs] + [self._scan.newest_timestamp]
        explain = None
        if self._request.explain:
            explain = self._explain(of_runs, {"runs": read - began, "scan": scanned - read, "merge": ended - scanned})
        return Aggregated(
            request=self._request,
            head=self._snapshot.head,
            coverage=Coverage(
                self._snapshot.end,
                overlay.omissions,
                max((time for time in times if time is not None), default=None),
            ),
            used_rollups="agg" in families,
            indexed_segments=published_segments(self._snapshot) - len(unindexed),
            scanned_segments=len(overlay.segments),
            scanned_tail_documents=self._scan.documents - looked_at,
            families=tuple(sorted(families)),
            buckets=buckets,
            explain=explain,
        )

    def _read_runs(self) -> list[OfRun]:
        window = self._request.window
        found = [one for one in self._snapshot.runs if self._groups.may_hold(one, window)]
        return fetching.run(fetching.gather([self._groups.read(one) for one in found]), self._ranges)

    def _look_at_picked(self, of_runs: Sequence[OfRun]) -> None:
        """Reads and adds the records that columns could not decide."""
        for one in of_runs:
            if one.picked is None or not len(one.picked.records):
                continue
            windows = self._request.edges if one.by_groups else [self._request.window]
            offsets = one.picked.records.tolist()
            for at in range(0, len(offsets), _LOOK_RECORDS):
                check_deadline()
                some = fetch_records(self._engine, self._snapshot, offsets[at : at + _LOOK_RECORDS])
                records = fetching.run(some, self._ranges)
                documents = (self._promoter.document(offset, *stored) for offset, stored in records.items())
                self._scan.add(documents, windows)

    def _buckets(self, of_runs: Sequence[OfRun]) -> Iterator[str]:
        """Yields the buckets as JSON texts, in order. An interval for which only one run has groups is taken as
        rendered; others are summed.
        """
        blocks = [block for one in of_runs for block in one.blocks or ()]
        blocks += [one.picked.block for one in of_runs if one.picked is not None and one.picked.block is not None]
        rows = self._scan.rows
        if rows:
            blocks.append(grouping.of_rows(rows, self._shape))
        printed = [(one, one.printed) for one in of_runs if one.printed is not None and len(one.printed.starts)]
        shared = self._shared([found.starts for _, found in printed], [block.starts for block in blocks])
        if len(shared):
            routines = [self._groups.shared(one.reader, found, shared) for one, found in printed]
            for summed in fetching.run(fetching.gather(routines), self._ranges):
                blocks += summed
        sums = Sums(blocks, self._shape)
        runs_of_groups = [_runs(sums.starts, list(self._render(sums)))]
        for _, found in printed:
            own = ~docsets.are_among(found.starts, shared)
            if own.all():
                runs_of_groups.append(_runs(found.starts, found.groups))
            else:
                at = np.flatnonzero(own)
                runs_of_groups.append(_runs(found.starts[at], [found.groups[row] for row in at.tolist()]))
        interval = self._request.interval_ms
        for start, groups in sorted(one for runs in runs_of_groups for one in runs):
            yield rollup_request.bucket(start, interval, groups)

    @staticmethod
    def _shared(printed: Sequence[Int64s], others: Sequence[Int64s]) -> Int64s:
        """Returns the starts of intervals for which several sources have groups, ascending."""
        distinct = [docsets.sort_unique(starts) for starts in (*printed, *others)]
        if len(distinct) < 2:
            return np.empty(0, np.int64)
        starts, counts = np.unique(np.concatenate(distinct), return_counts=True)
        return starts[counts > 1]

    def _render(self, sums: Sums) -> Iterator[str]:
        measures = self._request.rollup.rollup.measures
        shown = [(name, measures[name]) for name in self._request.measures]
        size = 0
        for number, (key, parts) in enumerate(zip(sums.keys, sums.parts(), strict=True)):
            if number % 1024 == 0:
                check_deadline()
                check_size(size)
            text = rollup_request.group(
                key, {name: (kind, part) for (name, kind), part in zip(shown, parts, strict=True)}
            )
            size += len(text)
            yield text

    def _explain(self, of_runs: Sequence[OfRun], stages_s: dict[str, float]) -> dict[str, Any]:
        return {
            "plan": {
                "aligned": None if self._request.aligned is None else list(self._request.aligned),
                "edges": [list(edge) for edge in self._request.edges],
                "by_groups": self._groups.by_groups,
                "rendered": self._groups.by_groups and self._request.is_whole,
            },
            "runs": {
                "considered": len(self._snapshot.runs),
                "opened": [one.explain() for one in of_runs],
            },
            **self._ranges.explain(),
            "stages_ms": {name: round(seconds * 1000, 3) for name, seconds in stages_s.items()},
        }


def _runs(starts: Int64s, groups: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields each interval's start with the texts of its groups. The groups of an interval must be next to each other."""
    if not len(starts):
        return
    bounds = np.flatnonzero(np.concatenate(([True], starts[1:] != starts[:-1]))).tolist()
    for first, end in pairwise([*bounds, len(groups)]):
        yield int(starts[first]), groups[first:end]
