"""Answers an aggregate from index runs: whole intervals from groups of `agg`, everything else from picked records.

Rows of `agg` come as Arrow tables of `families.AGG`; only methods of the tables are used, so that this module need not
import pyarrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.clock import check_deadline
from headrace.errors import PayloadTooLarge
from headrace.index import docsets, fetching
from headrace.index.fetching import Routine
from headrace.index.reading import RunReader, Runs
from headrace.query.engine import grouping
from headrace.query.engine.grouping import Block, Entries, Int64s, MeasureBlock, Shape
from headrace.query.engine.hidden import NOTHING, Hidden
from headrace.query.engine.picking import Picked, pick
from headrace.query.engine.sources import RunRange
from headrace.query.language import canonical
from headrace.query.language.canonical import SearchConfig
from headrace.query.language.rollup_request import ADVICE, AggregateRequest, Window

MAX_GROUPS = 2_000_000  # maximum groups that one request reads from runs; as numbers they take about 200 bytes each
MAX_PRINTED_BYTES = 64 * 1024 * 1024  # maximum bytes of rendered groups that one request holds
_INTERVALS = 4096  # read at once: between them, it is seen whether there are too many groups
_FAR_APART = 16  # intervals: rather than so many that are not wanted, two ranges are read


class Printed(NamedTuple):
    """Groups as JSON texts, ascending by the start of their interval and by key; `starts` has those starts (epoch ms)."""

    starts: Int64s
    groups: list[str]


class OfRun(NamedTuple):
    """The part of an answer that comes from one run.

    Attributes:
        found: the part of the run that belongs to the stream.
        reader: the run's reader.
        printed: groups as rendered texts; None if they come as numbers, or if groups can't answer the request.
        blocks: groups as numbers; None if they come as texts, or if groups can't answer the request.
        picked: records of windows that groups can't answer; None if there are none.
    """

    found: RunRange
    reader: RunReader
    printed: Printed | None = None
    blocks: list[Block] | None = None
    picked: Picked | None = None

    @property
    def by_groups(self) -> bool:
        """Whether groups answered the whole intervals."""
        return self.printed is not None or self.blocks is not None

    def explain(self) -> dict[str, Any]:
        """Returns the run as JSON, with the number of groups, of records answered from columns, and of records to be
        read.
        """
        groups: int | None = None
        if self.printed is not None:
            groups = len(self.printed.groups)
        elif self.blocks is not None:
            groups = sum(len(block.starts) for block in self.blocks)
        in_columns = self.picked.block if self.picked is not None else None
        return {
            "id": self.found.run.id,
            "level": self.found.run.level,
            "groups": groups,
            "columns": len(in_columns.starts) if in_columns is not None else 0,
            "records": len(self.picked.records) if self.picked is not None else 0,
        }


class RunGroups:
    """The reader of the groups of runs for one request, which counts them against the limits.

    Attributes:
        by_groups: whether groups can answer the whole intervals of the window.
        impossible: whether no record can have the values that the query demands of dimensions.
    """

    def __init__(
        self, runs: Runs, request: AggregateRequest, config: SearchConfig, shape: Shape, hidden: Hidden = NOTHING
    ) -> None:
        """Creates a reader for one request, whose groups are shown in this shape. Groups of a run with hidden records,
        which they include, are not used.
        """
        self._runs = runs
        self._hidden = hidden
        self._request = request
        self._config = config
        self._shape = shape
        values = request.dimension_values
        self.by_groups = values is not None and request.aligned is not None
        texts = {name: {canonical.text(value) for value in demanded} for name, demanded in (values or {}).items()}
        self.impossible = any(len(demanded) > 1 for demanded in texts.values())
        self._demanded = {request.rollup.dimensions.index(name): min(demanded) for name, demanded in texts.items()}
        self._groups_read = 0
        self._bytes_read = 0

    def may_hold(self, found: RunRange, window: Window) -> bool:
        """Returns whether the run can have records in the window that match; True if that can't be told without reading
        it.
        """
        if self.impossible:
            return False
        if self._request.rollup.timestamp_field != self._config.primary_timestamp_field:
            return True
        least, greatest = found.run.least_timestamp, found.run.greatest_timestamp
        return least is not None and greatest is not None and least < window.end_ms and greatest >= window.start_ms

    def read(self, found: RunRange) -> Routine[OfRun]:
        """Reads the run's part of the answer.

        Raises:
            PayloadTooLarge: there are too many groups.
        """
        reader = yield from self._runs.open(found.run)
        aligned = self._request.aligned
        is_whole = (found.first, found.end) == (found.run.first_offset, found.run.end_offset)
        has_hidden = self._hidden.touches(found.first, found.end)
        if aligned is None or not self.by_groups or not is_whole or has_hidden:
            picked = yield from self._pick(reader, found, [self._request.window])
            return OfRun(found, reader, picked=picked)
        windows = self._windows(reader, aligned)
        routines: list[Routine[Any]] = [
            self._printed(reader, windows) if self._request.is_whole else self.by_numbers(reader, windows)
        ]
        edges = [edge for edge in self._request.edges if self.may_hold(found, edge)]
        if edges:
            routines.append(self._pick(reader, found, edges))
        groups, *picks = yield from fetching.gather(routines)
        edge = picks[0] if picks else None
        if isinstance(groups, Printed):
            return OfRun(found, reader, printed=groups, picked=edge)
        return OfRun(found, reader, blocks=groups, picked=edge)

    def by_numbers(self, reader: RunReader, windows: Sequence[Window]) -> Routine[list[Block]]:
        """Reads groups whose interval starts in the windows, as blocks of numbers. Raises PayloadTooLarge if the request
        has read too many groups.
        """
        rollup = self._request.rollup
        needs_dimensions = bool(self._demanded or self._request.group_by)
        blocks = []
        for window in windows:
            table = yield from self._table(reader, window, ["start", "measures"], needs_dimensions=needs_dimensions)
            kept = self._wanted(table) if self._demanded else None
            self._count_groups(table.num_rows)
            block = block_of(
                table, self._shape, dimensions=len(rollup.dimensions), measures=len(rollup.measures), kept=kept
            )
            blocks.append(block)
        return blocks

    def shared(self, reader: RunReader, printed: Printed, starts: Int64s) -> Routine[list[Block]]:
        """Reads the groups of some intervals again, as numbers, from a run that gave them as texts."""
        blocks = yield from self.by_numbers(reader, _spans(docsets.sort_unique(printed.starts), starts))
        return [grouping.of_starts(block, starts) for block in blocks]

    def _pick(self, reader: RunReader, found: RunRange, windows: Sequence[Window]) -> Routine[Picked]:
        return pick(reader, found, self._request, windows, self._config, self._shape, self._hidden)

    def _windows(self, reader: RunReader, aligned: Window) -> list[Window]:
        """Returns the whole intervals for which the run can have groups, split into windows of limited size."""
        interval = self._request.interval_ms
        start, end = aligned
        stats = reader.descriptor.fields.get(self._request.rollup.timestamp_field)
        if stats is not None and stats.least is not None and stats.greatest is not None:
            start = max(start, int(stats.least) // interval * interval)
            end = min(end, int(stats.greatest) // interval * interval + interval)
        step = interval * _INTERVALS
        return [Window(at, min(at + step, end)) for at in range(start, end, step)]

    def _printed(self, reader: RunReader, windows: Sequence[Window]) -> Routine[Printed]:
        starts: list[Int64s] = []
        groups: list[str] = []
        for window in windows:
            table = yield from self._table(
                reader, window, ["start", "fragment"], needs_dimensions=bool(self._demanded)
            )
            found, texts = starts_of(table), fragments_of(table)
            if self._demanded:
                rows = np.flatnonzero(self._wanted(table))
                found, texts = found[rows], [texts[row] for row in rows.tolist()]
            self._bytes_read += sum(map(len, texts))
            check_size(self._bytes_read)
            starts.append(found)
            groups += texts
        return Printed(np.concatenate(starts) if starts else np.empty(0, np.int64), groups)

    def _count_groups(self, count: int) -> None:
        self._groups_read += count
        if self._groups_read > MAX_GROUPS:
            raise PayloadTooLarge(f"too many groups would have to be summed: limit={MAX_GROUPS}: {ADVICE}")

    def _table(
        self, reader: RunReader, window: Window, columns: list[str], *, needs_dimensions: bool
    ) -> Routine[Any]:
        check_deadline()
        if needs_dimensions:
            columns.append("dimensions")
        request = self._request
        return reader.groups(request.rollup.name, request.interval_ms, window.start_ms, window.end_ms, columns)

    def _wanted(self, table: Any) -> Mask:
        return with_dimensions(table, len(self._request.rollup.dimensions), self._demanded)


def check_size(size: int) -> None:
    """Checks that rendered groups are not larger than an answer may be.

    Raises:
        PayloadTooLarge: they are larger.
    """
    if size > MAX_PRINTED_BYTES:
        raise PayloadTooLarge(f"the answer is too large: limit={MAX_PRINTED_BYTES}: {ADVICE}")


def _spans(starts: Int64s, wanted: Int64s) -> list[Window]:
    """Returns windows that include all of `starts` that are wanted, and few others. Usually runs share only their first and
    last intervals.
    """
    places = np.flatnonzero(docsets.are_among(starts, wanted))
    if not len(places):
        return []
    breaks = np.flatnonzero(np.diff(places) > _FAR_APART) + 1
    return [Window(int(starts[part[0]]), int(starts[part[-1]]) + 1) for part in np.split(places, breaks)]


Mask = NDArray[np.bool_]

_NUMBERS = ("count", "sum", "min", "max")


def starts_of(table: Any) -> Int64s:
    """Returns the start of each row's interval in milliseconds."""
    return _array(table, "start").cast("int64").to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def fragments_of(table: Any) -> list[str]:
    """Returns the rendered text of each row's group."""
    return table.column("fragment").to_pylist()  # type: ignore[no-any-return]


def with_dimensions(table: Any, width: int, wanted: Mapping[int, str]) -> Mask:
    """Returns a mask of the rows that have these values: `wanted` maps the position of a dimension, of `width`, to the
    value's text.
    """
    codes, texts = _dimensions(table, width)
    matching = np.ones(table.num_rows, bool)
    for place, text in wanted.items():
        matching &= codes[:, place] == (texts.index(text) if text in texts else -2)
    return matching


def block_of(table: Any, shape: Shape, *, dimensions: int, measures: int, kept: Mask | None = None) -> Block:
    """Converts rows of `agg`, or only those in the mask `kept`, to a block.

    Args:
        dimensions, measures: number of dimensions and measures of the rollup.
    """
    rows = np.arange(table.num_rows) if kept is None else np.flatnonzero(kept)
    if shape.dimensions:
        codes, texts = _dimensions(table, dimensions)
        shown = [codes[rows, place] for place in shape.dimensions]
        keys = shape.number_keys(shown, [texts] * len(shown), len(rows))
    else:
        keys = shape.number_keys([], [], len(rows))
    values = _array(table, "measures").flatten()
    numbers = {
        name: values.field(name).to_numpy(zero_copy_only=False).reshape(-1, measures)[rows] for name in _NUMBERS
    }
    places, buckets, counts = _histograms(values.field("histogram"), shape)
    new_row = np.full(table.num_rows, -1, np.int64)
    new_row[rows] = np.arange(len(rows))
    entry_rows = new_row[places // measures]
    blocks = []
    for place in shape.measures:
        own = (places % measures == place) & (entry_rows >= 0)
        histogram = Entries(entry_rows[own], buckets[own], counts[own])
        counts_of, sums, least, greatest = (numbers[name][:, place] for name in _NUMBERS)
        blocks.append(MeasureBlock(counts_of, sums, least, greatest, histogram))
    return Block(starts_of(table)[rows], keys, tuple(blocks))


def _dimensions(table: Any, width: int) -> tuple[NDArray[np.int32], list[str]]:
    """Returns for each row and dimension an index into the texts (-1 for none); and the texts."""
    encoded = _array(table, "dimensions").flatten().dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return codes.reshape(-1, width), encoded.dictionary.to_pylist()


def _histograms(lists: Any, shape: Shape) -> tuple[Int64s, Int64s, NDArray[np.float64]]:
    """Returns all histogram entries of all measures of all rows as three arrays: position of the measure, number of the
    bucket, count.
    """
    offsets = lists.offsets.to_numpy()
    places = np.repeat(np.arange(len(lists)), np.diff(offsets))
    entries = lists.flatten()
    encoded = entries.field("bucket").dictionary_encode()
    numbers = shape.buckets.of_all(encoded.dictionary.to_pylist())
    return places, numbers[encoded.indices.to_numpy()], entries.field("count").to_numpy()


def _array(table: Any, name: str) -> Any:
    """Returns a table's column as one array."""
    return table.column(name).combine_chunks()
