"""Ascending arrays behave as sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.index import docsets
from headrace.index.docsets import Int64s

_NUMBERS = st.lists(st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1)))


def array(numbers: list[int]) -> Int64s:
    return np.array(numbers, np.int64)


@given(_NUMBERS, _NUMBERS)
def test_operations_are_those_of_sets(one: list[int], other: list[int]) -> None:
    kept = array(one)
    assert docsets.sort_unique(kept).tolist() == sorted(set(one))
    assert kept.tolist() == one, "what is given is left as it is"
    assert docsets.drop_repeats(array(sorted(one))).tolist() == sorted(set(one))
    assert docsets.unite(array(one), array(other)).tolist() == sorted({*one, *other})
    found = docsets.are_among(array(one), array(sorted(other)))
    assert found.tolist() == [number in set(other) for number in one]
