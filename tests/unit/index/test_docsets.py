"""Sets of rows behave as sets, few or many."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.index.docsets import Docs

SIZE = 200
_ROWS = st.one_of(st.sets(st.integers(0, SIZE - 1), max_size=5), st.sets(st.integers(0, SIZE - 1)))


def docs(rows: set[int]) -> Docs:
    return Docs.of(SIZE, np.array(sorted(rows), np.int64))


def back(found: Docs) -> set[int]:
    rows = found.to_rows().tolist()
    assert rows == sorted(set(rows))
    assert found.to_mask().tolist() == [row in set(rows) for row in range(SIZE)]
    return set(rows)


@given(_ROWS, _ROWS)
def test_operations_are_those_of_sets(one: set[int], other: set[int]) -> None:
    assert back(docs(one) & docs(other)) == one & other
    assert back(docs(one) | docs(other)) == one | other
    assert back(docs(one) - docs(other)) == one - other
    assert back(~docs(one)) == set(range(SIZE)) - one
    asked = np.array(sorted(other), np.int64)
    assert docs(one).has(asked).tolist() == [row in one for row in sorted(other)]


@given(_ROWS)
def test_the_ends_of_all_sets(rows: set[int]) -> None:
    none, every = Docs.none(SIZE), Docs.all(SIZE)
    assert back(docs(rows) & none) == back(none - docs(rows)) == set()
    assert back(docs(rows) | none) == back(docs(rows) & every) == rows
    assert back(docs(rows) - every) == set()
    assert none.is_empty and not every.is_empty
