"""The records of a log that no answer shows, though segments and runs may still hold them: removed or expired ones."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Offsets = NDArray[np.int64]


class Hidden:
    """A set of hidden offsets, as ranges. Immutable."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        """Creates a set of these ranges: first offset, and the offset after the last; ascending and disjoint."""
        self._bounds = [bound for pair in ranges for bound in pair]

    def __bool__(self) -> bool:
        """Returns whether anything is hidden."""
        return bool(self._bounds)

    def has(self, offset: int) -> bool:
        """Returns whether the record at an offset is hidden."""
        return bisect_right(self._bounds, offset) % 2 == 1

    def touches(self, first: int, end: int) -> bool:
        """Returns whether some record in `[first, end)` is hidden."""
        at = bisect_right(self._bounds, first)
        return at % 2 == 1 or (at < len(self._bounds) and self._bounds[at] < end)

    def visible(self, offsets: Offsets) -> Offsets:
        """Returns those of some offsets that are not hidden, in their order."""
        if not self._bounds or not len(offsets):
            return offsets
        is_visible = np.searchsorted(np.array(self._bounds, np.int64), offsets, "right") % 2 == 0
        found: Offsets = offsets[is_visible]
        return found


NOTHING = Hidden()
