"""Aggregates the records of a run from its columns: for windows that are not whole intervals, and for queries on fields
other than dimensions.

Columns decide about a record if it has at most one value of each field that is needed. All other records are listed
under the field's lossy term. Those, and all records if a measure needs more than columns, must be read themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.index import docsets, families
from headrace.index.evaluate import Evaluated, evaluate
from headrace.index.fetching import Routine, gather
from headrace.index.parts import Column
from headrace.index.postings import TermRequest
from headrace.index.reading import RunReader
from headrace.query.engine.grouping import Block, Entries, Int64s, MeasureBlock, Shape
from headrace.query.engine.hidden import NOTHING, Hidden
from headrace.query.engine.sources import RunRange
from headrace.query.language import canonical, histogram
from headrace.query.language.canonical import SearchConfig, Summary
from headrace.query.language.query import And, Node
from headrace.query.language.rollup import CompiledRollup
from headrace.query.language.rollup_request import AggregateRequest, Window

Mask = NDArray[np.bool_]


class Picked(NamedTuple):
    """The records of a run that fall in some windows.

    Attributes:
        block: the records that columns decide, as a block; None if columns can't decide any.
        records: offsets of the records that must be read, ascending.
        families: the families that were read.
    """

    block: Block | None
    records: Int64s
    families: frozenset[str]


def pick(
    reader: RunReader,
    found: RunRange,
    request: AggregateRequest,
    windows: Sequence[Window],
    config: SearchConfig,
    shape: Shape,
    hidden: Hidden = NOTHING,
) -> Routine[Picked]:
    """Finds the records whose timestamps are in one of the windows, and aggregates those that columns decide; lists the
    offsets of the others. Fetches one round of ranges.
    """
    rollup = request.rollup
    stats = reader.descriptor.fields
    needed = _needed(rollup)
    wanted = _both(rollup.include, request.query)
    counted = {place: rollup.meters[place].include for place in shape.measures}
    nodes = [node for node in (wanted, *counted.values()) if node is not None]
    present = [name for name in needed if name in stats and stats[name].column]
    lossy = [name for name in needed if name in stats and stats[name].lossy]
    routines: list[Routine[Any]] = [
        reader.columns(present),
        reader.postings([TermRequest("kw", families.lossy_term(name)) for name in lossy]),
        *(evaluate(reader, node, config) for node in nodes),
    ]
    columns, marked, *answers = yield from gather(routines)
    count = found.run.end_offset - found.run.first_offset
    first = found.run.first_offset
    own = np.zeros(count, bool)
    own[hidden.visible(np.arange(found.first, found.end)) - first] = True

    unsure, may_be_any_time = np.zeros(count, bool), np.zeros(count, bool)
    for name, posting in zip(lossy, marked, strict=True):
        unsure[posting.merged() - first] = True
        if name == rollup.timestamp_field:
            may_be_any_time[posting.merged() - first] = True
    evaluated = dict(zip(nodes, answers, strict=True))
    for answer in answers:
        unsure[answer.unsure] = True
    matching = own & _in_windows(columns.get(rollup.timestamp_field), windows, count)
    if wanted is not None:
        matching &= _rows(evaluated[wanted].sure, count) | unsure
    look = (matching & unsure) | (own & may_be_any_time)

    read = frozenset({"col"}).union(*(answer.families for answer in answers), {"kw"} if lossy else ())
    known = all(name in present or name not in stats or not stats[name].present for name in needed)
    if rollup.reads_document or not known:
        return Picked(None, np.flatnonzero(matching | look) + first, read)
    rows = np.flatnonzero(matching & ~look)
    times = columns[rollup.timestamp_field].values[rows] if len(rows) else np.empty(0, np.int64)
    starts = times.astype(np.int64) // request.interval_ms * request.interval_ms
    measures = []
    for place in shape.measures:
        measure, include = rollup.meters[place].measure, counted[place]
        if isinstance(measure, Summary):
            column, has_histogram = columns.get(measure.field), measure.histogram is not None
            measures.append(_summary(column, rows, _valid(column, count)[rows], shape, has_histogram=has_histogram))
        else:
            measures.append(_count(None if include is None else evaluated[include], rows))
    block = Block(starts, _keys(rollup, shape, columns, rows), tuple(measures))
    return Picked(block, np.flatnonzero(look) + first, read)


def _needed(rollup: CompiledRollup) -> list[str]:
    """Returns the fields whose values determine a record's group and what it adds to a summary."""
    summarised = {meter.measure.field for meter in rollup.meters if isinstance(meter.measure, Summary)}
    return sorted({rollup.timestamp_field, *rollup.dimensions, *summarised})


def _both(one: Node | None, other: Node | None) -> Node | None:
    if one is None or other is None:
        return one or other
    return And((one, other))


def _rows(rows: Int64s, count: int) -> Mask:
    mask = np.zeros(count, bool)
    mask[rows] = True
    return mask


def _in_windows(column: Column | None, windows: Sequence[Window], count: int) -> Mask:
    inside = np.zeros(count, bool)
    if column is not None:
        for window in windows:
            inside |= (column.values >= window.start_ms) & (column.values < window.end_ms)
    return inside & _valid(column, count)


def _valid(column: Column | None, count: int) -> Mask:
    if column is None:
        return np.zeros(count, bool)
    return np.ones(count, bool) if column.valid is None else column.valid


def _keys(rollup: CompiledRollup, shape: Shape, columns: Mapping[str, Column], rows: Int64s) -> Int64s:
    printed = [_printed(columns.get(rollup.dimensions[place]), rows) for place in shape.dimensions]
    return shape.number_keys([codes for codes, _ in printed], [texts for _, texts in printed], len(rows))


def _printed(column: Column | None, rows: Int64s) -> tuple[Int64s, list[str]]:
    """Returns for each of the rows an index into texts (-1: no value), and the texts of a column's values."""
    if column is None:
        return np.full(len(rows), -1, np.int64), []
    values = column.values[rows]
    if column.dictionary is not None:
        codes, texts = values.astype(np.int64), column.dictionary
    else:
        distinct, back = np.unique(values, return_inverse=True)
        codes, texts = back.astype(np.int64), [canonical.text(value) for value in distinct.tolist()]
    if column.valid is not None:
        codes[~column.valid[rows]] = -1
    return codes, texts


def _count(include: Evaluated | None, rows: Int64s) -> MeasureBlock:
    """Computes a count measure: 1 for rows that match `include`, else 0. `rows` are records that certainly match the
    query.
    """
    counts = np.ones(len(rows)) if include is None else docsets.are_among(rows, include.sure).astype(np.float64)
    none = np.full(len(rows), np.nan)
    return MeasureBlock(counts, none, none, none)


def _summary(
    column: Column | None, rows: Int64s, has_value: Mask, shape: Shape, *, has_histogram: bool
) -> MeasureBlock:
    """Computes a summary of a column for rows, of which some have a value."""
    numbers = np.full(len(rows), np.nan)
    if column is not None:
        numbers[has_value] = column.values[rows[has_value]]
    block = MeasureBlock(has_value.astype(np.float64), numbers, numbers, numbers)
    if not has_histogram:
        return block
    exponents = np.frexp(np.maximum(np.abs(numbers[has_value]), 1))[1]
    distinct, back = np.unique(exponents, return_inverse=True)
    # The rule of `histogram`, asked once per bucket.
    buckets = shape.buckets.of_all(histogram.log2_bucket(float(np.ldexp(0.5, one))) for one in distinct.tolist())
    return block._replace(histogram=Entries(np.flatnonzero(has_value), buckets[back], np.ones(len(back))))
