"""A snapshot of where a stream's records are: in index runs, in published segments that no run covers, and in the tail.

A stream consists of its ancestors' records and its own. In each log, published segments cover the records from the
start, index runs cover some of these segments, and the rest is in the write-ahead log. The tail is read first: a record
that was acknowledged before a snapshot was requested is in it. All ranges are of offsets, half open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import NamedTuple, TypeVar

from headrace.batch import Record
from headrace.definition import Definition
from headrace.errors import Damaged
from headrace.index import descriptors
from headrace.index import manifest as manifests
from headrace.index.descriptors import Run
from headrace.index.manifest import IndexManifest
from headrace.log import join
from headrace.log.join import PayloadTrimmed, read_payload
from headrace.log.logs import Log
from headrace.log.requests import Head
from headrace.log.seam import Which, split
from headrace.log.stores import Stores
from headrace.manifest.manifest import Manifest
from headrace.manifest.store import remembered
from headrace.query.engine.hidden import NOTHING, Hidden
from headrace.segment.descriptor import Segment

TAIL_BYTES = 64 * 1024 * 1024  # payload of one log's tail that a request takes along, the newest
_INDEX_AGE_S = 30.0  # then a generation is looked for that its publisher could not name in the watermark

A = TypeVar("A")
B = TypeVar("B")

FindHidden = Callable[[Head], Hidden]
"""The function that returns which records of a log no answer shows, given its state."""


def show_all(_: Head) -> Hidden:
    """Returns that no record is hidden."""
    return NOTHING


class Range(NamedTuple):
    """The offsets from `first` up to, but not including, `end`."""

    first: int
    end: int

    @property
    def size(self) -> int:
        """The number of records."""
        return self.end - self.first


class RunRange(NamedTuple):
    """The part of a run that belongs to the stream, `[first, end)`: all of it, except at the fork point of an
    ancestor.
    """

    log_id: str
    run: Run
    first: int
    end: int


class SegmentRange(NamedTuple):
    """A part of a published segment, `[first, end)`."""

    log_id: str
    segment: Segment
    first: int
    end: int


class TailPart(NamedTuple):
    """The records of one log that are not published yet, ascending; the oldest may be missing (see
    `LogPart.unread`).
    """

    log_id: str
    records: tuple[Record, ...]


class LogPart(NamedTuple):
    """The part of a stream that is in one log: its own, or an ancestor's.

    Attributes:
        log_id: the log.
        first, end: the range of records that the stream has in this log.
        published: records `[first, published)` are in segments.
        manifest: the manifest that names the segments; None if nothing is published.
        indexed: the index manifest that names the runs.
        tail: the unpublished records that were read.
        unread: the range of the oldest unpublished records, if there were too many to read.
        unread_time_ms: a time at or before their append times; 0 if it is not known.
    """

    log_id: str
    first: int
    end: int
    published: int
    manifest: Manifest | None
    indexed: IndexManifest
    tail: TailPart
    unread: Range
    unread_time_ms: int


class Snapshot:
    """A stream at one moment: its state, its definition, and where its records are.

    Attributes:
        name: the stream's name.
        head: its state at that moment; `head.state.next_offset` is the end of everything here.
        definition: its definition at that moment.
        plan: hash of the current plan (`descriptors.NONE` if runs hold only routing keys).
        parts: the parts in its ancestors' logs, oldest first, and in its own log.
        runs: the runs of the current plan, ascending and disjoint.
        hidden: the records that no answer shows.
        reads_columns: whether a search field is bound to a column of records.
    """

    def __init__(
        self,
        name: str,
        head: Head,
        definition: Definition,
        plan: str,
        parts: tuple[LogPart, ...],
        sources: Sources,
        hidden: Hidden = NOTHING,
    ) -> None:
        self.name = name
        self.head = head
        self.definition = definition
        self.plan = plan
        self.parts = parts
        self._sources = sources
        self.hidden = hidden
        self.reads_columns = definition.search is not None and definition.search.reads_columns
        self.runs: tuple[RunRange, ...] = tuple(
            found for part in parts for found in _cover(part, lambda run: run.plan == plan)
        )

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.head.state.next_offset

    @property
    def tail(self) -> Iterator[Record]:
        """The unpublished records, ascending."""
        return (record for part in self.parts for record in part.tail.records)

    def runs_of_any_plan(self) -> tuple[RunRange, ...]:
        """Returns runs of any plan that together cover as much as possible, ascending and disjoint. Routing keys do not
        depend on a plan.
        """
        return tuple(found for part in self.parts for found in _cover(part, lambda _: True))

    def segments_outside(self, runs: Iterable[RunRange]) -> list[SegmentRange]:
        """Returns the published segments, or parts of them, that these runs do not cover; ascending.

        Costs a GET for each sealed page of the manifest that is not cached.
        """
        covered = list(runs)
        found: list[SegmentRange] = []
        for part in self.parts:
            for gap in gaps(part.first, part.published, [one for one in covered if one.log_id == part.log_id]):
                found += self._sources.segments_in(part, gap)
        return found

    def segments_in(self, part: LogPart, wanted: Range) -> list[SegmentRange]:
        """Returns the published segments, or parts of them, that hold these records; ascending."""
        return self._sources.segments_in(part, wanted)

    @property
    def unindexed(self) -> list[SegmentRange]:
        """The published segments, or parts of them, that no run of the current plan covers; ascending."""
        return self.segments_outside(self.runs)

    def part_of(self, offset: int) -> LogPart:
        """Returns the part that holds the record at an offset, which must be below the end."""
        return next(part for part in self.parts if offset < part.end)


class Sources:
    """The source of snapshots of streams; caches the manifests that it reads. Thread-safe."""

    def __init__(self, stores: Stores, logs: Log, find_hidden: FindHidden = show_all) -> None:
        self._stores = stores
        self._logs = logs
        self._find_hidden = find_hidden
        self._manifests, self._indexes = logs.manifests, logs.indexes
        self._known = remembered()

    def snapshot(self, which: Which, *, fresh: bool = False) -> Snapshot:
        """Takes a snapshot of a log.

        Args:
            which: the log, such as a stream by its name.
            fresh: whether to read manifests again, because an object that an older one names is gone.

        Raises:
            NotFound: there is no such log, or it was deleted or has expired.
            Gone: it was deleted or has expired, but forks still need it.
            Damaged: there is a gap in a log, or an object that must be there is missing or altered.
            StoreTimeout, StoreThrottled: a store did not answer.
        """
        head = self._logs.head(which)
        if self._has_met(head.log_id):
            parts, definition = self._parts(head, fresh), self._logs.definition_of(head)
        else:
            parts, definition = _together(lambda: self._parts(head, fresh), lambda: self._logs.definition_of(head))
        plan = definition.derive(descriptors.hash_of)
        return Snapshot(split(which)[0], head, definition, plan, parts, self, self._find_hidden(head))

    def segments_in(self, part: LogPart, wanted: Range) -> list[SegmentRange]:
        """Returns the segments of a part that hold these records, ascending, cut to the range."""
        if part.manifest is None or wanted.first >= wanted.end:
            return []
        found: list[SegmentRange] = []
        for segment in self._manifests.segments_from(part.manifest, wanted.first):
            if segment.first_offset >= wanted.end:
                break
            first, end = max(segment.first_offset, wanted.first), min(segment.end_offset, wanted.end)
            found.append(SegmentRange(part.log_id, segment, first, end))
            if end == wanted.end:
                break
        return found

    def _has_met(self, log_id: str) -> bool:
        return self._known.get(log_id) is not None

    def _parts(self, head: Head, fresh: bool) -> tuple[LogPart, ...]:
        parts = []
        first = 0
        for ancestor in head.config.lineage:
            if ancestor.through > max(first, head.state.floor):
                begin = max(first, head.state.floor)
                parts.append(self._part(ancestor.log_id, begin, ancestor.through, fresh))
            first = max(first, ancestor.through)
        own = self._part(head.log_id, first, head.state.next_offset, fresh)
        # Segments below the floor may be gone. Entries of the tail are read as they are.
        parts.append(own._replace(first=min(max(first, head.state.floor), own.published)))
        return tuple(parts)

    def _part(self, log_id: str, first: int, end: int, fresh: bool) -> LogPart:
        """Reads the part `[first, end)` of a log: its manifests, and the tail that joins them."""
        for attempt in join.looks(log_id, f"first={first} end={end}"):
            watermark = self._stores.watermarks.get(log_id)
            index: IndexManifest | None = None
            if watermark.generation and not attempt and not fresh and not self._has_met(log_id):
                manifest, index = _together(
                    lambda mark=watermark: self._manifest(log_id, mark.generation, search=False),  # type: ignore[misc]
                    lambda mark=watermark: self._index(log_id, mark.index_generation, fresh),  # type: ignore[misc]
                )
            else:
                manifest = self._manifest(log_id, watermark.generation, search=fresh or attempt > 0)
            if manifest is not None and first < manifest.begin_offset <= end:
                first = manifest.begin_offset  # the floor has risen since, and what is below it was dropped
            published = first if manifest is None else max(first, min(manifest.end_offset, end))
            try:
                tail = TailPart(log_id, self._tail(log_id, published, end))
            except (PayloadTrimmed, join.NotJoined):
                continue  # published and trimmed since we looked
            held = tail.records[0].offset if tail.records else end
            since_ms = 0 if held == published or manifest is None else manifest.state.append_time_ms
            if index is None:
                has_runs = first < published
                index = (
                    self._index(log_id, watermark.index_generation, fresh) if has_runs else manifests.empty(log_id)
                )
            return LogPart(log_id, first, end, published, manifest, index, tail, Range(published, held), since_ms)
        raise AssertionError("the last look raises")

    def _manifest(self, log_id: str, generation: int, *, search: bool) -> Manifest | None:
        """Returns the generation that the watermark names, or a newer one that is cached; with `search`, looks for the
        newest. None if nothing is published. Raises Damaged if the named generation is missing.
        """
        known = self._known.get(log_id)
        if search:
            newest = self._manifests.newest(log_id, known, generation)
        elif known is not None and known.generation >= generation:
            newest = known
        elif generation == 0:
            newest = None
        else:
            newest = self._manifests.load(log_id, generation)
            if newest is None:
                raise Damaged(f"manifest is missing: log_id={log_id} generation={generation}")
        if newest is not None:
            self._known.put(log_id, newest)
        return newest

    def _index(self, log_id: str, at_least: int, fresh: bool) -> IndexManifest:
        """Returns the index manifest that the watermark names, or a newer one that is cached. If the cached one is old,
        or with `fresh`, looks for the newest.
        """
        if not fresh and (recent := self._indexes.recent(log_id, _INDEX_AGE_S, at_least)) is not None:
            return recent
        return self._indexes.look(log_id, at_least, trusts=not fresh)

    def _tail(self, log_id: str, first: int, end: int) -> tuple[Record, ...]:
        """Reads records `[first, end)` from the write-ahead log; if they are too large, only the newest."""
        records: list[Record] = []
        for entry in join.between(self._stores.wal, log_id, first, end, TAIL_BYTES) if first < end else ():
            start = max(first - entry.offset, 0)
            part = read_payload(self._stores, entry).part(start, end - entry.offset)
            records += part.records(entry.offset + start)
        return tuple(records)


def gaps(first: int, end: int, covered: Sequence[RunRange]) -> Iterator[Range]:
    """Yields the ranges of `[first, end)` that these ascending, disjoint runs leave out."""
    for one in covered:
        if one.first > first:
            yield Range(first, min(one.first, end))
        first = max(first, one.end)
        if first >= end:
            return
    if first < end:
        yield Range(first, end)


def _cover(part: LogPart, allowed: Callable[[Run], bool]) -> Iterator[RunRange]:
    """Yields runs that cover a part, ascending and disjoint. If several hold the next record, the one that reaches
    farthest is taken.
    """
    runs = [run for run in part.indexed.runs if allowed(run) and run.end_offset > part.first]
    position = part.first
    while runs and position < part.published:
        reached = [run for run in runs if run.first_offset <= position]
        if reached:
            best = max(reached, key=lambda run: run.end_offset)
            end = min(best.end_offset, part.published)
            yield RunRange(part.log_id, best, position, end)
            position = end
        else:
            position = min(run.first_offset for run in runs)
        runs = [run for run in runs if run.end_offset > position]


def _together(first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
    """Makes two calls at the same time, the second in a thread, both under the request's deadline. Returns both
    results.

    It shortens the waits of a cold process.
    """
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(copy_context().run, second)
        return first(), other.result()
