"""What searches, aggregates and routing keys share: the engine, the budget for scans, coverage, and records as
documents of the current schema.

Coverage is measured against the stream's head when the request began. `complete` is true only if nothing at all was
left out; otherwise the members that begin with `possible_missing_` bound what the answer may lack.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from headrace import instants
from headrace.batch import Record
from headrace.clock import Bounded, Clock
from headrace.definition import Definition
from headrace.errors import Damaged
from headrace.index.fetching import CachedRanges, Ranges, Routine, gather, run
from headrace.index.reading import Runs
from headrace.json import jsontext, lens
from headrace.log.logs import Log
from headrace.log.stores import Stores
from headrace.objects import Objects, keys
from headrace.objects import Range as ByteRange
from headrace.query.engine.sources import FindHidden, Range, SegmentRange, Snapshot, Sources, show_all
from headrace.query.language import canonical
from headrace.query.language.canonical import Field, RecordColumns, Value
from headrace.segment import keypage
from headrace.segment import reader as segments
from headrace.segment.columns import Columns
from headrace.segment.descriptor import Segment

Cursor = Callable[[int], str | int]


class Omission(NamedTuple):
    """Records `[first, end)` that a request did not look at.

    Attributes:
        time_ms: a time at or before they were appended.
        is_published: whether they are in segments; otherwise they are in the write-ahead log.
        segments: number of segments that hold them.
    """

    first: int
    end: int
    time_ms: int
    is_published: bool
    segments: int = 0


class Coverage(NamedTuple):
    """The records that an answer left out, and up to where it is complete.

    Attributes:
        head: offset after the last record when the request began.
        omissions: the omitted ranges, ascending.
        newest_timestamp: greatest primary timestamp that the request saw, in milliseconds; None if it saw none.
    """

    head: int
    omissions: tuple[Omission, ...] = ()
    newest_timestamp: int | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing was left out."""
        return not self.omissions

    @property
    def visible_through(self) -> int:
        """The offset below which every record was looked at."""
        return self.omissions[0].first if self.omissions else self.head

    def members(self, cursor: Cursor) -> dict[str, Any]:
        """Returns the JSON members that describe the coverage; `cursor` formats an offset."""
        omitted = self.omissions
        return {
            "mode": "complete" if self.complete else "published",
            "complete": self.complete,
            "stream_head_offset": cursor(self.head),
            "visible_through_offset": cursor(self.visible_through),
            "visible_through_primary_timestamp_max": (
                None if self.newest_timestamp is None else instants.render(self.newest_timestamp)
            ),
            "oldest_omitted_append_at": instants.render(min(one.time_ms for one in omitted)) if omitted else None,
            "possible_missing_events_upper_bound": sum(one.end - one.first for one in omitted),
            "possible_missing_uploaded_segments": sum(one.segments for one in omitted),
            "possible_missing_sealed_rows": _rows(omitted, is_published=True),
            "possible_missing_wal_rows": _rows(omitted, is_published=False),
        }


def _rows(omissions: Sequence[Omission], *, is_published: bool) -> int:
    return sum(one.end - one.first for one in omissions if one.is_published == is_published)


_KEPT_BYTES = 64 * 1024 * 1024  # of decoded key pages


class Budget(NamedTuple):
    """The number of segments that are not indexed, and the bytes of data in them, that one request scans at most."""

    segments: int = 32  # small ones: each costs a GET
    payload_bytes: int = 64 * 1024 * 1024  # as measured: 16 MiB take 20 to 50 ms


class Overlay(NamedTuple):
    """The unindexed segments that a request scans, and the records that it leaves out.

    Attributes:
        segments: the segments to scan, newest first.
        omissions: records that are neither scanned nor covered by a run, ascending.
    """

    segments: tuple[SegmentRange, ...]
    omissions: tuple[Omission, ...]


def plan_overlay(snapshot: Snapshot, unindexed: Sequence[SegmentRange], budget: Budget) -> Overlay:
    """Returns the unindexed segments to scan, the newest that the budget allows, and the records that are left out.

    Args:
        snapshot: the stream's snapshot.
        unindexed: the segments that no run covers, ascending.
        budget: the maximum number of segments, and of bytes.
    """
    taken: list[SegmentRange] = []
    room = budget.payload_bytes
    for found in reversed(unindexed):
        share = found.segment.payload_bytes * (found.end - found.first) // found.segment.count
        if len(taken) >= budget.segments or share > room:
            break
        room -= share
        taken.append(found)
    left = unindexed[: len(unindexed) - len(taken)]
    omissions = [Omission(one.first, one.end, one.segment.min_time_ms, is_published=True, segments=1) for one in left]
    omissions += [
        Omission(part.unread.first, part.unread.end, part.unread_time_ms, is_published=False)
        for part in snapshot.parts
        if part.unread.size
    ]
    return Overlay(tuple(taken), tuple(sorted(omissions, key=lambda one: one.first)))


def _key_pages() -> Bounded[str, Columns]:
    return Bounded(_KEPT_BYTES, weigh=lambda columns: columns.weight)


@dataclass(frozen=True, slots=True)
class Engine:
    """Everything that searches, aggregates and routing keys need; it is their first argument. Thread-safe.

    Attributes:
        sources: takes snapshots of streams.
        runs: the cache of readers of index runs.
        ranges: the cache of ranges of objects; each request uses its own `ranges.fetches()`.
        objects: the bucket, for scans.
        budget: the maximum that one request scans of what is not indexed.
        key_pages: the cache of key pages, by the key of the segment.
    """

    sources: Sources
    runs: Runs
    ranges: CachedRanges
    objects: Objects
    clock: Clock
    budget: Budget = field(default_factory=Budget)
    key_pages: Bounded[str, Columns] = field(default_factory=_key_pages)


def assemble(
    stores: Stores, logs: Log, *, budget: Budget | None = None, find_hidden: FindHidden = show_all
) -> Engine:
    """Creates an engine on these stores.

    Args:
        logs: the streams on the same stores, whose caches of streams and index runs are used, too.
        budget: the budget for scans; the default one if None.
        find_hidden: returns which records of a log no answer shows; none by default.
    """
    runs, ranges = logs.run_cache.opened()
    return Engine(Sources(stores, logs, find_hidden), runs, ranges, stores.objects, stores.clock, budget or Budget())


_CHUNK_BYTES = 16 * 1024 * 1024  # payload that one GET of a scan fetches: a whole segment, as a rule


class Document(NamedTuple):
    """A record that was read, promoted to the current schema.

    Attributes:
        offset: its offset in the log.
        data: its JSON text; as it was appended if no lens applies.
        value: the parsed text; None if no search field needs it.
        columns: its key, node and append time; None if the definition has no field that is bound to them.
    """

    offset: int
    data: bytes
    value: Any
    columns: RecordColumns | None = None


class Stored(NamedTuple):
    """A record as it was read: its data, and its columns if the definition has a field that is bound to them."""

    data: bytes
    columns: RecordColumns | None = None


class Promoter:
    """The conversion of stored records to documents of the current schema, by the definition's lenses."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self._current = definition.schema_version
        self._reads_data = definition.search is None or definition.search.reads_data

    def document(self, offset: int, data: bytes, columns: RecordColumns | None = None) -> Document:
        """Parses and promotes the record at an offset.

        Raises:
            InvalidRequest: a lens can't promote it.
        """
        version = self._definition.version_at(offset) if self._current else 0
        # Of a record that was scrubbed, nothing is left.
        value = jsontext.loads(data) if data and self._reads_data else None
        if data and 0 < version < self._current:  # nothing is known of version 0, so there is no lens from it
            value = lens.promote(self._definition.lenses[version - 1 :], value)
            data = jsontext.dumps(value)
        return Document(offset, data, value, columns)

    def values(self, document: Document, fields: frozenset[str] | None = None) -> dict[str, list[Value]]:
        """Returns the canonical values of the given fields, by default of all; empty if there is no search
        configuration.
        """
        search = self._definition.search
        if search is None:
            return {}
        return canonical.values(search, self._current, document.value, fields, document.columns)

    def fields(self, document: Document) -> dict[str, Any]:
        """Returns the original values of the search fields by name: one value by itself, several as an array. A field
        without a value of its kind is left out.
        """
        found: dict[str, Any] = {}
        for name, column, path, counts in self._places:
            if column:
                raw: Any = None if document.columns is None else document.columns.at(column)
            else:
                raw = jsontext.get(document.value, path)
            if isinstance(raw, list):
                several = [one for one in canonical.flat(raw) if counts(one)]
                if several:
                    found[name] = several[0] if len(several) == 1 else several
            elif counts(raw):
                found[name] = raw
        return found

    def texts(self, document: Document, field: str) -> list[str]:
        """Returns the texts of a search field as they are in a document; none if the field is not bound."""
        search = self._definition.search
        binding = None if search is None else search.fields[field].bound_at(self._current)
        if binding is None:
            return []
        column, path = canonical.place_of(binding)
        raw: Any = jsontext.get(document.value, path)
        if column:
            raw = None if document.columns is None else document.columns.at(column)
        return [one for one in (canonical.flat(raw) if isinstance(raw, list) else (raw,)) if isinstance(one, str)]

    @cached_property
    def _places(self) -> list[tuple[str, str, jsontext.Path, Callable[[Any], bool]]]:
        """For each search field: its name, its column or else its path, and a function that tells whether a value
        counts.
        """
        search = self._definition.search
        return [
            (name, *canonical.place_of(binding), _counts(field))
            for name, field in (search.fields.items() if search is not None else ())
            if (binding := field.bound_at(self._current)) is not None
        ]


def _counts(field: Field) -> Callable[[Any], bool]:
    """Returns a function that tells whether a value is of the field's kind; it does not split texts into words."""
    if field.kind in ("keyword", "text"):
        return _is_text
    read = canonical.reader(field)
    return lambda value: read(value) is not None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def of_tail(snapshot: Snapshot, promoter: Promoter, records: Iterable[Record] | None = None) -> Iterator[Document]:
    """Yields the records that are not published yet and not hidden as documents, in ascending order; of `records` only,
    some of them, if given.
    """
    for record in snapshot.tail if records is None else records:
        if not snapshot.hidden.has(record.offset):
            columns = RecordColumns(record.key, record.node, record.time_ms)
            yield promoter.document(record.offset, record.data, columns)


def of_segment(
    engine: Engine, snapshot: Snapshot, found: SegmentRange, promoter: Promoter, ranges: Ranges
) -> Iterator[Document]:
    """Yields the documents of a segment that are not hidden, in ascending order. Costs one GET for each 16 MiB, and one
    for the key page if a field is bound to a column and the page is not cached.

    Raises:
        Damaged: the object is missing, or is not what the manifest says.
        InvalidRequest: as `Promoter.document`.
    """
    segment, hidden = found.segment, snapshot.hidden
    columns = None
    if snapshot.reads_columns:
        columns = run(fetch_key_pages(engine, [segment]), ranges)[segment.key]
    position = found.first
    while position < found.end:
        for data in segments.read_data(engine.objects, segment, position, found.end - position, _CHUNK_BYTES):
            if not hidden.has(position):
                row = None if columns is None else RecordColumns(*columns.row(position - segment.first_offset))
                yield promoter.document(position, data, row)
            position += 1


def fetch_key_pages(engine: Engine, wanted: Iterable[Segment]) -> Routine[dict[str, Columns]]:
    """Returns the key pages of segments, by the key of the segment. Fetches one round of those that are not cached.

    Raises:
        Damaged: a key page differs from the one that was published.
    """
    pages: dict[str, Columns] = {}
    missing: dict[str, Segment] = {}
    for segment in wanted:
        known = engine.key_pages.get(segment.key)
        if known is None:
            missing[keys.segment_keys(segment.key)] = segment
        else:
            pages[segment.key] = known
    if missing:
        fetched = yield [ByteRange(name, 0, keypage.MAX_BYTES) for name in missing]
        for (name, segment), data in zip(missing.items(), fetched, strict=True):
            decoded = keypage.decode(data, sha256=segment.keys_sha256, count=segment.count, source=name)
            pages[segment.key] = Columns(decoded)
            engine.key_pages.put(segment.key, pages[segment.key])
    return pages


def fetch_records(engine: Engine, snapshot: Snapshot, offsets: Sequence[int]) -> Routine[dict[int, Stored]]:
    """Returns published records by offset, ascending. Fetches one round of ranges.

    Args:
        offsets: the offsets of the records, ascending.

    Raises:
        Damaged: a record is in no segment, or an object differs from what the manifest says.
    """
    wanted: list[tuple[Segment, Sequence[int]]] = []
    for part in snapshot.parts:
        at, end = bisect_left(offsets, part.first), bisect_left(offsets, part.published)
        while at < end:
            # Segments are found one after another from the first wanted record on; those between are skipped.
            found = snapshot.segments_in(part, Range(offsets[at], offsets[at] + 1))[0].segment
            stop = bisect_left(offsets, found.end_offset, at, end)
            wanted.append((found, offsets[at:stop]))
            at = stop
    if not wanted:
        return {}
    routines: list[Routine[Any]] = [segments.read_scattered(wanted)]
    if snapshot.reads_columns:
        routines.append(fetch_key_pages(engine, [segment for segment, _ in wanted]))
    records, *pages = yield from gather(routines)
    if len(records) != len(offsets):
        missing = sorted(set(offsets) - set(records))
        raise Damaged(f"records stand in no segment: stream={snapshot.name} offsets={missing[:5]}")
    if not pages:
        return {offset: Stored(data) for offset, data in records.items()}
    return {
        offset: Stored(records[offset], RecordColumns(*pages[0][segment.key].row(offset - segment.first_offset)))
        for segment, inside in wanted
        for offset in inside
    }
