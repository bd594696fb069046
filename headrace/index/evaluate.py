"""Evaluates a query in one run: which records match, and which must be looked at because the run does not hold enough
of them.

    clause            answered from
    equality          `col` if the field has few values there, else `kw`
    comparison        `col`
    prefix            the dictionary of `col` if it is small, else `kw`
    has:              nothing if all or none have it; else `col` if it is exact, else the field's term of `kw` or `fts`
    words, phrases    `fts`

The evaluation computes two sets: records that certainly match, and records that may match. They differ only by lossy
records, whose values the families can't hold exactly. This keeps negation correct: a record certainly matches `not X`
if it can't match X, and may match if it does not certainly match X.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headrace.clock import check_deadline
from headrace.index import docsets
from headrace.index.clauses import Step, Steps
from headrace.index.docsets import Docs, Rows
from headrace.index.families import CHUNK_BITS, column_name
from headrace.index.fetching import Routine
from headrace.index.parts import Column
from headrace.index.postings import Int64s, Postings, TermRequest
from headrace.index.reading import RunReader
from headrace.query.language.canonical import SearchConfig
from headrace.query.language.query import Check, Node


class Evaluated(NamedTuple):
    """The result of a query in a run, with the other data that was requested.

    Attributes:
        first: offset of row 0.
        sure: rows that certainly match, ascending.
        unsure: other rows that may match, ascending; the records themselves must be checked.
        columns: the requested columns that the run has, by field.
        lossy: the lossy rows of each requested field, ascending: the columns do not have their values, and
            the step's scores are wrong for them if the field is a text.
        words: the postings of each requested word.
        families: the families that were read.
        step: how the query was answered.
    """

    first: int
    sure: Rows
    unsure: Rows
    columns: dict[str, Column]
    lossy: dict[str, Docs]
    words: list[Postings]
    families: frozenset[str]
    step: Step


def candidates(reader: RunReader, node: Node, config: SearchConfig) -> Routine[tuple[Int64s, bool]]:
    """Returns the offsets of all records of a run that can match, ascending; and whether all of them certainly
    match.
    """
    found = yield from evaluate(reader, node, config)
    rows = docsets.unite(found.sure, found.unsure) if len(found.unsure) else found.sure
    return rows + found.first, not len(found.unsure)


def evaluate(
    reader: RunReader,
    node: Node,
    config: SearchConfig,
    *,
    columns: Sequence[str] = (),
    lossy: Sequence[str] = (),
    words: Sequence[TermRequest] = (),
    within: tuple[int, int] | None = None,
    check: Check = check_deadline,
) -> Routine[Evaluated]:
    """Evaluates a query in a run; everything is fetched in one round of range reads.

    Args:
        check: is called before each clause and word is evaluated, and raises an error if the time is over.
        within: offsets `[first, end)`; the result may be wrong for other records. It saves reading the word positions
            of those.
        columns: fields whose columns to return as well.
        lossy: fields whose lossy records to return as well.
        words: words whose postings to return as well.
    """
    plan = Steps(reader.descriptor, config, None if within is None else _chunks(reader, *within), check)
    step = plan.of(node)
    wanted = [plan.term(request) for request in words]
    marks = {field: plan.lossy(field) for field in lossy}
    for field in columns:
        plan.want_column(field)
    yield from plan.fetch(reader)
    sets = step.sets()
    unsure = sets.maybe - sets.sure
    names = {field: column_name(field, config.fields[field].kind) for field in columns}
    return Evaluated(
        first=plan.first,
        sure=sets.sure.to_rows(),
        unsure=unsure.to_rows(),
        columns={field: plan.columns[name] for field, name in names.items() if name in plan.columns},
        lossy={field: mark() for field, mark in marks.items()},
        words=[found() for found in wanted],
        families=frozenset(plan.families),
        step=step,
    )


def _chunks(reader: RunReader, first: int, end: int) -> tuple[int, int] | None:
    """Returns the chunks (of 65,536 offsets each) that hold the offsets `[first, end)`, as a half-open range of chunk
    numbers. Returns None, no restriction, if the run has no other chunks: postings are cached by request, so that
    queries with other ranges then share them.
    """
    run = reader.descriptor
    chunks = first >> CHUNK_BITS, (end - 1 >> CHUNK_BITS) + 1
    return None if chunks == (run.first_offset >> CHUNK_BITS, (run.end_offset - 1 >> CHUNK_BITS) + 1) else chunks


FEW = 1000  # up to so many records of a key are read without evaluating the filter in the run


def select(
    reader: RunReader,
    first: int,
    end: int,
    key: str | None,
    condition: tuple[Node, SearchConfig] | None,
    *,
    is_prefix: bool = False,
) -> Routine[Int64s]:
    """Returns the offsets in `[first, end)` of records that may meet both conditions, ascending; all other records
    certainly don't. At least one condition must be given.

    Args:
        key: the routing key that records must have; None means any.
        condition: the query that records must match, with the search configuration for which the run was built; None
            means any.
        is_prefix: whether a routing key that begins with `key` is enough.

    Raises:
        Damaged: an object of the run is missing, or is not what it should be.
    """
    found: Int64s | None = None
    if key is not None:
        found = _within((yield from reader.rows_of_key(key, is_prefix=is_prefix)), first, end)
        if len(found) <= FEW or condition is None:
            return found
    assert condition is not None, "something is selected"
    passing, _ = yield from candidates(reader, *condition)
    passing = _within(passing, first, end)
    return passing if found is None else np.intersect1d(found, passing, assume_unique=True)


def _within(offsets: Int64s, first: int, end: int) -> Int64s:
    low, high = offsets.searchsorted([first, end])
    return offsets[low:high]
