"""Computes the rows that a segment's records add to each family of a run. Uses neither Spark nor a store.

Values are read as in `canonical.values`, after the lenses have promoted the record to the plan's schema version.
Contributions to rollups are computed as in `headrace.query.language.rollup`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from emr_jobs import columns, intervals, postings
from emr_jobs.columns import Column
from emr_jobs.postings import Numbers, Postings
from emr_jobs.segments import Records
from headrace.definition import Definition
from headrace.errors import Damaged, InvalidRequest
from headrace.index import docsets, families
from headrace.index.descriptors import FieldPlan, Plan
from headrace.json import jsontext, lens
from headrace.query.language import canonical, rollup
from headrace.query.language.canonical import SearchConfig
from headrace.query.language.rollup import Groups, Row

# A keyword with this many values in a segment, most of them used once, gets no column in a run: it would be too long.
_MANY_VALUES = 8192
_LEAST_TIME, _GREATEST_TIME = -(2**63), 2**63 - 1  # the range of times that a descriptor can hold


class FieldCounts(msgspec.Struct, frozen=True):
    """Counts of a field in some records: how many have a value, how many a lossy one (which an index can't hold
    exactly), and the bounds of the numbers in its column (None without a column or numbers).
    `headrace.index.descriptors.FieldStats` adds what is known only for a whole run.
    """

    present: int
    lossy: int
    least: int | float | None
    greatest: int | float | None


class Counts(msgspec.Struct, frozen=True):
    """The counts of some records, as a run's descriptor reports them.

    Attributes:
        records: number of records.
        least_timestamp, greatest_timestamp: bounds of their primary timestamps, in milliseconds; None if no record has
            one.
        fields: counts by field name.
    """

    records: int
    least_timestamp: int | None
    greatest_timestamp: int | None
    fields: dict[str, FieldCounts]


class Extracted(NamedTuple):
    """The rows that records add to each family; empty if the plan does not ask for the family.

    Attributes:
        kw, fts, lex: postings of keywords, of words and of routing keys, sorted.
        col: one row per record, None without a plan; a keyword field with too many different values for a column may be
            missing.
        agg: rollup groups, unsorted.
        mblk: metric intervals, unsorted.
        counts: what the descriptor reports of the records.
    """

    kw: Postings
    fts: Postings
    lex: Postings
    col: pa.Table | None
    agg: list[Row]
    mblk: list[dict[str, Any]]
    counts: Counts


def extract(records: Records, definition: Definition, plan: Plan | None) -> Extracted:
    """Computes what the records of a segment add to each family of a run.

    Args:
        records: records of one segment; without a plan, only their keys are needed.
        definition: the log's definition, from which the plan was derived.
        plan: None if the run holds routing keys alone.

    Raises:
        Damaged: a record that an append would have refused: it is not JSON, or the lenses can't promote it.
    """
    lex = _keys(records)
    if plan is None:
        none = postings.NOTHING
        return Extracted(none, none, lex, None, [], [], Counts(len(records.keys), None, None, {}))
    search = definition.search
    assert search is not None, "it has a plan"
    documents = _promoted(records, definition) if _reads_data(search, plan) else [None] * len(records.data)
    own = _own_columns(records) if search.reads_columns else columns.NO_COLUMNS
    found = {
        field.name: columns.read(search, plan.schema_version, documents, field.name, own) for field in plan.fields
    }
    table, kept = _table(records.first_offset, len(documents), plan, found)
    return Extracted(
        kw=_terms(records.first_offset, plan, found),
        fts=_words(records.first_offset, plan, found),
        lex=lex,
        col=table,
        agg=_groups(definition, documents, found) if "agg" in plan.families else [],
        mblk=_intervals(records.first_offset, documents) if "mblk" in plan.families else [],
        counts=_counts(plan, found, kept, len(documents)),
    )


def _reads_data(search: SearchConfig, plan: Plan) -> bool:
    """Returns whether anything in a run depends on the data of records, so that it must be parsed."""
    return search.reads_data or "mblk" in plan.families


def _own_columns(records: Records) -> dict[str, list[Any]]:
    """Returns the columns of the records to which fields may be bound, by name."""
    assert records.nodes is not None and records.times is not None, "whole segments were read"
    own = {canonical.KEY: records.keys, canonical.NODE: records.nodes, canonical.TIME: records.times}
    is_blank = [not data for data in records.data]
    return {
        name: [None if blank else value for blank, value in zip(is_blank, column.to_pylist(), strict=True)]
        for name, column in own.items()
    }


def _promoted(records: Records, definition: Definition) -> list[Any]:
    """Parses the records and promotes them with the lenses, so that they look as readers see them
    (`headrace.log.view`).
    """
    current, first = definition.schema_version, records.first_offset
    documents = []
    try:
        for row, data in enumerate(records.data):
            documents.append(jsontext.loads(data) if data else None)  # nothing is left of a record that was scrubbed
            if data and current > 1:
                version = definition.version_at(first + row)
                if 0 < version < current:
                    documents[row] = lens.promote(definition.lenses[version - 1 :], documents[row])
    except InvalidRequest as exc:
        raise Damaged(f"record can't be read: offset={first + len(documents)} reason={exc}") from exc
    return documents


def _keys(records: Records) -> Postings:
    keys = records.keys
    rows = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
    if not len(rows):
        return postings.NOTHING
    encoded = pc.dictionary_encode(keys.drop_null())
    unique = encoded.dictionary.cast(pa.binary())
    order = pc.sort_indices(unique).to_numpy()
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    codes = ranks[encoded.indices.to_numpy()]
    return postings.group(unique.take(pa.array(order)), codes, rows + records.first_offset, words=False)


def _terms(first_offset: int, plan: Plan, found: dict[str, Column]) -> Postings:
    """Returns the rows of `kw`, the family of keyword postings: for each field, the records that have a value, those
    whose value is lossy (not held exactly by an index), and the records of each value.
    """
    has, lossy, values = [], [], []
    for field in sorted(plan.fields, key=lambda field: field.name):
        column = found[field.name]
        if field.kind != "text":
            has.append(postings.one_term(families.has_term(field.name), column.rows + first_offset))
        is_lossy = np.flatnonzero(column.is_lossy)
        lossy.append(postings.one_term(families.lossy_term(field.name), is_lossy + first_offset))
        if field.terms:
            texts, codes = columns.printed(column.values)
            named = _named(field.name, texts)
            values.append(postings.group(named, codes, column.rows + first_offset, words=False))
    return postings.join([*has, *lossy, *values])


def _words(first_offset: int, plan: Plan, found: dict[str, Column]) -> Postings:
    """Returns the rows of `fts`, the family for full-text search: the records of each word, and the word's positions in
    them. Between two texts of a record, one position is left free, so that no phrase matches across both.
    """
    has, values = [], []
    for field in sorted(plan.fields, key=lambda field: field.name):
        if not field.words:
            continue
        column = found[field.name]
        rows = docsets.sort_unique(column.rows)
        has.append(postings.one_term(families.has_term(field.name), rows + first_offset, words=True))
        words = [word for text in column.values for word in text]  # type: ignore[union-attr]
        lengths = np.fromiter(map(len, column.values), np.int64, len(column.values))  # type: ignore[arg-type]
        texts, codes = columns.in_order(words)
        offsets = np.repeat(column.rows + first_offset, lengths)
        places = _places(column.rows, lengths) if field.positions else None
        values.append(postings.group(_named(field.name, texts), codes, offsets, places, words=True))
    return postings.join([*has, *values])


def _named(name: str, texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(families.word_term(name, ""), pa.binary()), texts, b"")


def _places(rows: Numbers, lengths: Numbers) -> Numbers:
    """Returns the position of each word within its record, with one position left free between two texts."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    is_first = np.concatenate(([True], rows[1:] != rows[:-1]))[: len(rows)]
    # Where a record's first text begins, counted in all words and gaps of all records.
    starts = ends - lengths + np.arange(len(rows))
    origin = np.maximum.accumulate(np.where(is_first, starts, 0)) if len(rows) else starts
    places: Numbers = np.arange(total) - np.repeat(ends - lengths, lengths) + np.repeat(starts - origin, lengths)
    return places


def _table(
    first_offset: int, count: int, plan: Plan, found: dict[str, Column]
) -> tuple[pa.Table, dict[str, pa.Array]]:
    """Returns the rows of `col`, the family of columns, as a table of offsets and columns; and these columns by field
    name. A keyword field with too many different values gets no column.
    """
    kept = {}
    wanted = [field for field in plan.fields if field.column != "none"]
    types = families.col({field.name: field.kind for field in wanted}).types[1:]
    for field, type_ in zip(wanted, types, strict=True):
        column = columns.typed(found[field.name], type_)
        if field.column == "always" or not _has_many_values(column):
            kept[field.name] = column
    schema = families.col({field.name: field.kind for field in plan.fields if field.name in kept})
    offsets = pa.array(np.arange(first_offset, first_offset + count, dtype=np.int64))
    return pa.Table.from_arrays([offsets, *kept.values()], schema=schema), kept


def _has_many_values(column: pa.Array) -> bool:
    distinct = len(column.dictionary)
    return distinct > _MANY_VALUES and 2 * distinct > len(column)


def _groups(definition: Definition, documents: Sequence[Any], found: dict[str, Column]) -> list[Row]:
    assert definition.search is not None, "it has a plan"
    groups = Groups(rollup.rollups(definition.search).values())
    names = sorted(groups.fields)
    of_records: Iterable[tuple[Any, ...]] = zip(*(found[name].of_record for name in names), strict=True)
    for document, of_record in zip(documents, of_records, strict=True):
        values = {
            name: value if type(value) is list else (value,)
            for name, value in zip(names, of_record, strict=True)
            if value is not None
        }
        groups.add(values, document)
    return list(groups.rows())


def _intervals(first_offset: int, documents: Sequence[Any]) -> list[dict[str, Any]]:
    rows = (intervals.row(document, first_offset + row) for row, document in enumerate(documents))
    return [row for row in rows if row is not None]


def _counts(plan: Plan, found: dict[str, Column], kept: dict[str, pa.Array], count: int) -> Counts:
    times: Sequence[Any] = found[plan.primary_timestamp].values
    return Counts(
        records=count,
        least_timestamp=_in_range(min(times)) if times else None,
        greatest_timestamp=_in_range(max(times)) if times else None,
        fields={field.name: _field_counts(field, found[field.name], kept.get(field.name)) for field in plan.fields},
    )


def _in_range(time: int) -> int:
    return min(max(time, _LEAST_TIME), _GREATEST_TIME)


def _field_counts(field: FieldPlan, column: Column, kept: pa.Array | None) -> FieldCounts:
    least = greatest = None
    if kept is not None and field.kind in ("integer", "float", "date"):
        numbers = kept.cast(pa.int64()) if field.kind == "date" else kept
        bounds = pc.min_max(numbers)
        least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
    return FieldCounts(
        present=len(docsets.sort_unique(column.rows)),
        lossy=int(column.is_lossy.sum()),
        least=least,
        greatest=greatest,
    )
