"""Which records of a run a read of selected records must look at."""

from __future__ import annotations

import numpy as np

from headrace.index.evaluate import candidates
from headrace.index.fetching import Routine
from headrace.index.reading import Int64s, RunReader
from headrace.query.language.config import SearchConfig
from headrace.query.language.query import Node

FEW = 1000  # records of a key that are looked at without asking which of them pass the filter


def selected(
    reader: RunReader, first: int, end: int, key: str | None, condition: tuple[Node, SearchConfig] | None
) -> Routine[Int64s]:
    """Offsets in `[first, end)` of records that may be wanted, ascending; of all others it is known that they are not.

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
