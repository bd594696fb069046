"""Sets of whole numbers, as ascending arrays.

numpy's own `unique`, `union1d` and, of numbers far apart, `isin` hash what they are given, which takes many times as long
as to sort it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


def distinct(values: Int64s) -> Int64s:
    """The values, ascending, each once."""
    return once(np.sort(values))


def once(values: Int64s) -> Int64s:
    """Ascending values, each once."""
    is_new = np.empty(len(values), np.bool_)
    is_new[:1] = True
    np.not_equal(values[1:], values[:-1], out=is_new[1:])
    return values if is_new.all() else values[is_new]


def either(one: Int64s, other: Int64s) -> Int64s:
    """The values of two arrays, ascending, each once."""
    return distinct(np.concatenate((one, other)))


def among(values: Int64s, wanted: Int64s) -> NDArray[np.bool_]:
    """Which of the values stand in `wanted`, which is ascending."""
    if not len(wanted):
        return np.zeros(len(values), np.bool_)
    at = np.searchsorted(wanted, values)
    at[at == len(wanted)] = 0
    found: NDArray[np.bool_] = wanted[at] == values
    return found
