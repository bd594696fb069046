"""A query in one run: which records match, and which must be looked at because the run does not hold enough of them.

    clause            answered from
    equality          `col` if the field has few values there, else `kw`
    comparison        `col`
    prefix            the dictionary of `col` if it is small, else `kw`
    has:              nothing if all or none have it; else `col` if it is exact, else the field's term of `kw` or `fts`
    words, phrases    `fts`

Two sets are carried through the query: records that surely match, and records that may. They differ only by lossy
records, for which the families do not hold every value. So a negation is right as well: it surely holds where the part
can't, and may hold where the part is not sure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headrace.index import docsets
from headrace.index.clauses import Step, Steps
from headrace.index.columns import Column
from headrace.index.docsets import Docs, Rows
from headrace.index.families import CHUNK_BITS, column_name
from headrace.index.fetching import Routine
from headrace.index.postings import Int64s, Postings, TermRequest
from headrace.index.reading import RunReader
from headrace.query.language.canonical import SearchConfig
from headrace.query.language.query import Node


class Evaluated(NamedTuple):
    """A query's records of a run, and what was asked for beside them.

    Attributes:
        first: offset of row 0.
        sure: rows that match, ascending.
        unsure: rows that may, ascending: the records decide.
        columns: that were asked for and that the run has, by field.
        lossy: rows of the fields that were asked for, ascending: their values are not in the columns, nor their scores
            in `scores`.
        words: what was found for each word that was asked for.
        families: that were read.
        step: how it was answered.
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
    """Returns offsets of every record of a run that can match, ascending; and whether all of them do."""
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
) -> Routine[Evaluated]:
    """Evaluates a query in a run, in one round of ranges.

    Args:
        within: offsets `[first, end)`: what is said of other records need not be true. It saves reading where the words
            of phrases are in those.
        columns: fields whose columns are wanted beside the answer.
        lossy: fields whose lossy records are wanted.
        words: of which postings are wanted.
    """
    plan = Steps(reader.descriptor, config, None if within is None else _chunks(reader, *within))
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
    """Returns the chunks that hold these records; None if they are those of the whole run: then others' postings serve,
    too.
    """
    run = reader.descriptor
    chunks = first >> CHUNK_BITS, (end - 1 >> CHUNK_BITS) + 1
    return None if chunks == (run.first_offset >> CHUNK_BITS, (run.end_offset - 1 >> CHUNK_BITS) + 1) else chunks


FEW = 1000  # records of a key that are looked at without asking which of them pass the filter


def select(
    reader: RunReader, first: int, end: int, key: str | None, condition: tuple[Node, SearchConfig] | None
) -> Routine[Int64s]:
    """Returns offsets in `[first, end)` of records that may be wanted, ascending; of all others it is known that they
    are not.

    Args:
        key: the routing key that they have; None: any.
        condition: the query that they match, under the search configuration that the run was built for; None: any.

    Raises:
        Damaged: an object of the run is missing, or is not what it should be.
    """
    found: Int64s | None = None
    if key is not None:
        found = _within((yield from reader.rows_of_key(key)), first, end)
        if len(found) <= FEW or condition is None:
            return found
    assert condition is not None, "something is selected"
    passing, _ = yield from candidates(reader, *condition)
    passing = _within(passing, first, end)
    return passing if found is None else np.intersect1d(found, passing, assume_unique=True)


def _within(offsets: Int64s, first: int, end: int) -> Int64s:
    low, high = offsets.searchsorted([first, end])
    return offsets[low:high]
