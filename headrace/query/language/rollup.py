"""Defines what a record contributes to the rollups of a search configuration, and how contributions are added up.

Jobs that build the family `agg`, scans of segments and tail, and tests all use it:

    groups = Groups(rollups(config).values())
    groups.add(canonical.values(config, version, document, groups.fields), document)     per record, promoted
    for row in merged(groups.rows(), …): …                                             rows in the order of
        `Row.sort_key`

A record contributes to a rollup if `include` matches it and it has exactly one timestamp and at most one value of each
dimension. Then every `count` of its group counts it. A `summary` adds it if it has exactly one number of its field, a
`summary_parts` if it has all four. Values are canonical; a number that a double can't hold is none.

A row of the family `agg` is a `Row`, with `fragment` (headrace.query.language.rollup_request) beside it:

    rollup string, interval_ms int64, start timestamp(ms, UTC), dimensions list<string>, count int64,
    measures list<struct<count double, sum double, min double, max double,
                         histogram list<struct<bucket string, count double>>>>, fragment string

Dimensions and measures are in the order of their names. Counts are doubles since records may bring their own, and
buckets are text since records may name them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from headrace.clock import check_deadline
from headrace.json import jsontext
from headrace.query.language import canonical, grammar, histogram, query
from headrace.query.language.canonical import Count, Measure, Rollup, SearchConfig, Summary, SummaryParts, interval_ms
from headrace.query.language.histogram import Histogram
from headrace.query.language.query import Values

MAX_TIME_MS = 8_640_000_000_000_000  # instants of ECMA-262 § 21.4.1.1: no request can ask for others

Key = tuple[str | None, ...]


class Part(msgspec.Struct):
    """The values of one measure for the records of a group. A `count` has only the count.

    Attributes:
        count: number of values; for a `count`, number of records.
        sum, min, max: sum and bounds of the values; None if there are no values.
        histogram: the histogram; None if the measure has none.
    """

    count: float = 0
    sum: float | None = None
    min: float | None = None
    max: float | None = None
    histogram: Histogram | None = None

    def add(self, other: Part) -> None:
        """Adds the values of another part, which is of the same measure, to this one."""
        self.count += other.count
        if other.sum is not None:
            self.sum = other.sum if self.sum is None else self.sum + other.sum
        if other.min is not None:
            self.min = other.min if self.min is None else min(self.min, other.min)
        if other.max is not None:
            self.max = other.max if self.max is None else max(self.max, other.max)
        if other.histogram:
            if self.histogram is None:
                self.histogram = {}
            histogram.merge(self.histogram, other.histogram)

    def add_value(self, value: float, bucket: str | None) -> None:
        """Adds one value; `bucket` is None if there is no histogram."""
        self.count += 1
        if self.sum is None:
            self.sum = self.min = self.max = value
        else:
            self.sum += value
            if value < self.min:  # type: ignore[operator]
                self.min = value
            elif value > self.max:  # type: ignore[operator]
                self.max = value
        if bucket is not None:
            if self.histogram is None:
                self.histogram = {}
            self.histogram[bucket] = self.histogram.get(bucket, 0) + 1


class Row(NamedTuple):
    """One group of one interval of a rollup.

    Attributes:
        rollup: its name.
        interval_ms: length of the interval.
        start_ms: its start, a multiple of its length.
        dimensions: the values as text, in the order of the dimensions' names; None where records have no value.
        records: number of records; the column `count`.
        parts: the parts of the measures, in the order of their names.
    """

    rollup: str
    interval_ms: int
    start_ms: int
    dimensions: Key
    records: int
    parts: tuple[Part, ...]


class Contribution(NamedTuple):
    """The contribution of one record to a rollup: its time, its group, and a reading per measure (see `Meter`), None for a
    measure that it has no values of.
    """

    timestamp_ms: int
    key: Key
    readings: tuple[Any, ...]


class Meter:
    """A compiled measure: `read` extracts a record's reading, and `add` adds a reading to a part.

    Attributes:
        include: the query that a `count` counts; None means all records.
        fields: the fields whose values `read` needs.
        reads_document: whether `read` needs the record's document, too.
    """

    def __init__(self, measure: Measure, config: SearchConfig) -> None:
        self.measure = measure
        self.include: query.Node | None = None
        self.fields: frozenset[str] = frozenset()
        self.reads_document = isinstance(measure, SummaryParts)
        if isinstance(measure, Count):
            self.include = None if measure.include is None else grammar.parse_query(measure.include, config)
            self.fields = frozenset() if self.include is None else query.fields_of(self.include)
            self.read: Callable[[Values, Any], Any] = _count_reader(self.include)
            self.add: Callable[[Part, Any], None] = _add_count
        elif isinstance(measure, Summary):
            self.fields = frozenset({measure.field})
            self.read = _value_reader(measure.field)
            self.add = _add_to_histogram if measure.histogram else _add_value
        else:
            self.read = _parts_reader(measure)
            self.add = Part.add


def _count_reader(node: query.Node | None) -> Callable[[Values, Any], int]:
    if node is None:
        return lambda values, document: 1  # noqa: ARG005
    check = check_deadline if query.is_long(node) else None
    return lambda values, document: int(query.matches(node, values, check))  # noqa: ARG005


def _value_reader(field: str) -> Callable[[Values, Any], float | None]:
    def read(values: Values, document: Any) -> float | None:  # noqa: ARG001
        found = values.get(field)
        if found is None or len(found) != 1:
            return None
        return histogram.number(found[0])

    return read


def _parts_reader(measure: SummaryParts) -> Callable[[Values, Any], Part | None]:
    places = (
        measure.count_json_pointer,
        measure.sum_json_pointer,
        measure.min_json_pointer,
        measure.max_json_pointer,
    )
    paths = [jsontext.parse_pointer(place) for place in places]
    buckets = (
        None if measure.histogram_json_pointer is None else jsontext.parse_pointer(measure.histogram_json_pointer)
    )

    def read(values: Values, document: Any) -> Part | None:  # noqa: ARG001
        count, total, least, greatest = (histogram.number(jsontext.get(document, path)) for path in paths)
        if count is None or total is None or least is None or greatest is None:
            return None
        brought = None if buckets is None else histogram.parse(jsontext.get(document, buckets))
        return Part(count, total, least, greatest, brought)

    return read


def _add_count(part: Part, reading: int) -> None:
    part.count += reading


def _add_value(part: Part, reading: float) -> None:
    part.add_value(reading, None)


def _add_to_histogram(part: Part, reading: float) -> None:
    part.add_value(reading, histogram.log2_bucket(reading))


class CompiledRollup:
    """A compiled rollup, which reads contributions from records.

    Attributes:
        name, rollup: name and configuration of the rollup.
        dimensions, measures: their names, sorted.
        meters: the meter of each measure, in that order.
        include: the query that records must match; None means all.
        fields: the fields whose values `contribution` needs.
        reads_document: whether `contribution` needs the record's document, too.
        intervals: distinct lengths of the intervals in milliseconds, ascending.
    """

    def __init__(self, name: str, config: SearchConfig) -> None:
        rollup: Rollup = (config.rollups or {})[name]
        self.name = name
        self.rollup = rollup
        self.timestamp_field = rollup.timestamp_field
        self.dimensions = tuple(sorted(rollup.dimensions or ()))
        self.measures = tuple(sorted(rollup.measures))
        self.meters = tuple(Meter(rollup.measures[measure], config) for measure in self.measures)
        self.include = None if rollup.include is None else grammar.parse_query(rollup.include, config)
        self._check = check_deadline if self.include is not None and query.is_long(self.include) else None
        wanted = frozenset() if self.include is None else query.fields_of(self.include)
        self.fields = wanted.union({self.timestamp_field}, self.dimensions, *(meter.fields for meter in self.meters))
        self.reads_document = any(meter.reads_document for meter in self.meters)
        self.intervals = tuple(sorted({interval_ms(interval) for interval in rollup.intervals}))

    def contribution(self, values: Values, document: Any) -> Contribution | None:
        """Returns what a record contributes; None if it does not contribute.

        Args:
            values: the record's canonical values, at least of `fields`.
            document: the record; only used if `reads_document` is set.
        """
        times = values.get(self.timestamp_field)
        if times is None or len(times) != 1:
            return None
        timestamp = times[0]
        if not isinstance(timestamp, int) or not -MAX_TIME_MS <= timestamp <= MAX_TIME_MS:
            return None
        key: list[str | None] = []
        for dimension in self.dimensions:
            found = values.get(dimension)
            if not found:
                key.append(None)
            elif len(found) > 1:
                return None
            else:
                value = found[0]
                key.append(value if isinstance(value, str) else canonical.text(value))  # type: ignore[arg-type]
        if self.include is not None and not query.matches(self.include, values, self._check):
            return None
        return Contribution(timestamp, tuple(key), tuple(meter.read(values, document) for meter in self.meters))

    @cached_property
    def derived(self) -> dict[int, int | None]:
        """For each interval, the longest shorter interval that divides it, from whose groups it can be summed; None if
        there is none.
        """
        found: dict[int, int | None] = {}
        for interval in self.intervals:
            found[interval] = max((shorter for shorter in found if not interval % shorter), default=None)
        return found


@lru_cache(maxsize=256)
def rollups(config: SearchConfig) -> dict[str, CompiledRollup]:
    """Returns the compiled rollups of a configuration, by name. The result is cached and must not be changed."""
    return {name: CompiledRollup(name, config) for name in sorted(config.rollups or {})}


class Groups:
    """A collection that adds up the contributions of records, by rollup, interval and group."""

    def __init__(self, compiled: Iterable[CompiledRollup]) -> None:
        self._rollups = tuple(compiled)
        self.fields: frozenset[str] = frozenset().union(*(rollup.fields for rollup in self._rollups))
        self.reads_document = any(rollup.reads_document for rollup in self._rollups)
        # Records are added to the intervals that can't be summed from others.
        self._cells: list[tuple[CompiledRollup, list[tuple[int, _Cells]]]] = [
            (rollup, [(interval, {}) for interval, source in rollup.derived.items() if source is None])
            for rollup in self._rollups
        ]

    def add(self, values: Values, document: Any) -> None:
        """Adds a record to every rollup. For the arguments see `CompiledRollup.contribution`."""
        for rollup, intervals in self._cells:
            contribution = rollup.contribution(values, document)
            if contribution is not None:
                for interval, cells in intervals:
                    add(cells, rollup, interval, contribution)

    def rows(self) -> Iterator[Row]:
        """Yields every group of every rollup and interval once, unsorted."""
        for rollup, intervals in self._cells:
            by_interval = dict(intervals)
            for interval, source in rollup.derived.items():
                if source is not None:
                    by_interval[interval] = _coarser(by_interval[source], interval)
                for (start, key), cell in by_interval[interval].items():
                    yield Row(rollup.name, interval, start, key, cell.records, cell.parts)


class Cell(msgspec.Struct):
    """A group while records are added: the number of records, and a part per measure."""

    records: int
    parts: tuple[Part, ...]


_Cells = dict[tuple[int, Key], Cell]


def add(cells: _Cells, rollup: CompiledRollup, interval: int, contribution: Contribution) -> None:
    """Adds a contribution to the cell of its key and of its interval, whose length is `interval` milliseconds. Creates the
    cell in `cells` if it is missing.
    """
    timestamp = contribution.timestamp_ms
    place = (timestamp - timestamp % interval, contribution.key)
    cell = cells.get(place)
    if cell is None:
        cell = cells[place] = Cell(0, tuple(Part() for _ in rollup.meters))
    cell.records += 1
    for meter, part, reading in zip(rollup.meters, cell.parts, contribution.readings, strict=True):
        if reading is not None:
            meter.add(part, reading)


def _coarser(cells: _Cells, interval: int) -> _Cells:
    found: _Cells = {}
    for (start, key), cell in cells.items():
        place = (start - start % interval, key)
        target = found.get(place)
        if target is None:
            target = found[place] = Cell(0, tuple(Part() for _ in cell.parts))
        target.records += cell.records
        for part, other in zip(target.parts, cell.parts, strict=True):
            part.add(other)
    return found


def key_text(names: Iterable[str], dimensions: Key) -> str:
    """Formats a group's key as the JSON object that answers show. Groups are sorted by the bytes of this text.

    Args:
        names: names of the dimensions, in order.
        dimensions: their values, in that order.
    """
    return jsontext.dumps(dict(zip(names, dimensions, strict=True))).decode()


def sort_key(row: Row, compiled: Mapping[str, CompiledRollup]) -> tuple[str, int, int, str]:
    """Returns the key by which rows of the family `agg` are sorted."""
    return row.rollup, row.interval_ms, row.start_ms, key_text(compiled[row.rollup].dimensions, row.dimensions)


def sum_groups(rows: Iterable[Row]) -> Iterator[Row]:
    """Sums rows of equal groups, which must be next to each other, and yields the sums."""
    for _, same in groupby(rows, key=lambda row: row[:4]):
        first, *rest = same
        if rest:
            parts = tuple(Part() for _ in first.parts)
            for row in (first, *rest):
                for part, other in zip(parts, row.parts, strict=True):
                    part.add(other)
            first = first._replace(records=sum(row.records for row in (first, *rest)), parts=parts)
        yield first
