"""How values and arrivals change."""

from __future__ import annotations

from typing import Any

from headrace.features.pipeline.ops.core import Moments, deviation, merge_moments, z_score
from headrace.features.pipeline.windows import LIST_BYTES, NUMBER_BYTES, Cell, Columns, Operator, View

I64_MAX = 2**63 - 1
HOUR_MS = 3_600_000
OUTLIER_BASELINE = 5
"""Values that come before the first one that can be an outlier."""


class _Steps(Operator):
    """The newest two values with their stamps. It needs no buckets: older events don't matter, whichever the window."""

    windowed = True

    __slots__ = ()

    def new(self) -> Cell:
        return [None, None, None, None]

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        cell[0] = cell[2]
        cell[1] = cell[3]
        cell[2] = value
        cell[3] = stamp_ms

    def are_two(self, cell: Cell, view: View) -> bool:
        """Returns whether there are two values, both in the window."""
        then = cell[1]
        return then is not None and (self.window is None or then // self.window.width_ms >= view.floor)

    @property
    def max_bytes(self) -> int:
        return LIST_BYTES + 4 * NUMBER_BYTES


class DeltaFromPrev(_Steps):
    """The newest value less the one before; between integers it saturates at 64 bits. Null below two values."""

    result = "delta"

    __slots__ = ()

    def read(self, cell: Cell, view: View) -> Any:
        if not self.are_two(cell, view):
            return None
        change = cell[2] - cell[0]
        return change if change.__class__ is float else max(-I64_MAX - 1, min(I64_MAX, change))


class RateOfChange(_Steps):
    """The change per ms between the newest two values; null if they have one stamp."""

    __slots__ = ()

    def read(self, cell: Cell, view: View) -> Any:
        if not self.are_two(cell, view) or cell[1] == cell[3]:
            return None
        return (cell[2] - cell[0]) / (cell[3] - cell[1])


class InterArrivalStats(Columns):
    """The mean ms between rows; null below two."""

    reads = "row"
    empty = (0, None, None)

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        counts, firsts, lasts = cell
        if not counts[-1]:
            firsts[-1] = stamp_ms
        counts[-1] += 1
        lasts[-1] = stamp_ms

    def read(self, cell: Cell, view: View) -> Any:
        counts, firsts, lasts = (column[view.start :] for column in cell)
        rows = sum(counts)
        if rows < 2:
            return None
        first = next(stamp for stamp in firsts if stamp is not None)
        last = next(stamp for stamp in reversed(lasts) if stamp is not None)
        return (last - first) / (rows - 1)


class BurstCount(Columns):
    """The largest number of rows in a sub-window; sub-windows are aligned to the epoch.

    A row has a rank in its sub-window; a bucket holds the highest rank of its rows. So a sub-window that began before
    the oldest live bucket counts in full.
    """

    reads = "row"
    result = "i64"
    empty = (0,)
    extra = (None, 0)

    __slots__ = ("sub_window_ms",)

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(params)
        self.sub_window_ms: int = params["sub_window"]

    @property
    def memory_ms(self) -> int | None:
        return max(self.window.length_ms, self.sub_window_ms) if self.window else None

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        current = stamp_ms // self.sub_window_ms
        rank = cell[2] = cell[2] + 1 if cell[1] == current else 1
        cell[1] = current
        if rank > cell[0][-1]:
            cell[0][-1] = rank

    def read(self, cell: Cell, view: View) -> Any:
        return max(cell[0][view.start :], default=0)


class Trend(Columns):
    """The slope per ms of the least-squares line through (stamp, value); null below two stamps.

    A bucket holds the count, the first stamp, both means and both co-moments. Its times count from its first stamp: squares
    of epoch ms would leave a float no digits.
    """

    empty = (0, 0, 0.0, 0.0, 0.0, 0.0)
    extra = (None, None)  # the newest value and its stamp

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        counts, origins, times, values, squares, products, _, _ = cell
        count = counts[-1] = counts[-1] + 1
        if count == 1:
            origins[-1] = stamp_ms
        time = stamp_ms - origins[-1]
        ahead = time - times[-1]
        mean_time = times[-1] = times[-1] + ahead / count
        mean = values[-1] = values[-1] + (value - values[-1]) / count
        squares[-1] += ahead * (time - mean_time)
        products[-1] += ahead * (value - mean)
        cell[6] = value
        cell[7] = stamp_ms

    def read(self, cell: Cell, view: View) -> Any:
        line = self._fit(cell, view.start)
        return line[0] if line else None

    def _fit(self, cell: Cell, start: int) -> tuple[float, float, float] | None:
        """Returns the slope, and how far the newest point is above the means of stamps and values; or None."""
        total, origin, time, mean, square, product = 0, 0, 0.0, 0.0, 0.0, 0.0
        for count, first, b_time, b_mean, b_square, b_product in zip(
            *(column[start:] for column in cell[:6]), strict=True
        ):
            if not count:
                continue
            if not total:
                origin = first
            ahead, above = first - origin + b_time - time, b_mean - mean
            share = count / (total + count)
            square += b_square + ahead * ahead * total * share
            product += b_product + ahead * above * total * share
            time += ahead * share
            mean += above * share
            total += count
        if total < 2 or not square > 0:
            return None
        return product / square, cell[7] - origin - time, cell[6] - mean


class TrendResidual(Trend):
    """How far the newest value is above the line of `Trend`."""

    __slots__ = ()

    def read(self, cell: Cell, view: View) -> Any:
        line = self._fit(cell, view.start)
        if not line:
            return None
        slope, ahead, above = line
        return above - slope * ahead


class OutlierCount(Columns):
    """How many values were more than `sigma` sample deviations from the mean of all values before them.

    Values count from the sixth on. The window limits what is counted, not what it is compared with.
    """

    result = "i64"
    empty = (0,)
    extra = (0, 0.0, 0.0)
    remembers = True

    __slots__ = ("sigma",)

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(params)
        self.sigma: float = params["sigma"]

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        outliers, count, mean, square = cell
        delta = value - mean
        if count >= OUTLIER_BASELINE and abs(delta) > self.sigma * deviation(count, square) > 0:
            outliers[-1] += 1
        count += 1
        mean += delta / count
        cell[1], cell[2], cell[3] = count, mean, square + delta * (value - mean)

    def read(self, cell: Cell, view: View) -> Any:
        return sum(cell[0][view.start :])


class ValueChangeCount(Columns):
    """How many values differed from the one before. The window limits what is counted, not what it is compared with."""

    reads = "any"
    result = "i64"
    empty = (0,)
    extra = (None,)
    remembers = True

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        if value != cell[1]:
            if cell[1] is not None:
                cell[0][-1] += 1
            cell[1] = value

    def read(self, cell: Cell, view: View) -> Any:
        return sum(cell[0][view.start :])


class ZScore(Moments):
    """How many sample deviations the newest value is above the mean, itself included; null without any deviation."""

    extra = (None,)

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        super().fold(cell, value, stamp_ms, lane, offset)
        cell[3] = value

    def read(self, cell: Cell, view: View) -> Any:
        return z_score(cell[3], merge_moments(cell, view.start)) if cell[3] is not None else None


class SeasonalDeviation(Operator):
    """The z-score of the newest value among those of the same hour of the day (UTC)."""

    __slots__ = ()

    def new(self) -> Cell:
        return [{}, None, None]

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        hour = stamp_ms // HOUR_MS % 24
        moments = cell[0].get(hour)
        if moments is None:
            moments = cell[0][hour] = [0, 0.0, 0.0]
        moments[0] += 1
        delta = value - moments[1]
        moments[1] += delta / moments[0]
        moments[2] += delta * (value - moments[1])
        cell[1] = value
        cell[2] = hour

    def read(self, cell: Cell, view: View) -> Any:
        return z_score(cell[1], cell[0][cell[2]]) if cell[2] is not None else None

    @property
    def max_bytes(self) -> int:
        return 2 * LIST_BYTES + 2 * NUMBER_BYTES + 24 * (LIST_BYTES + 4 * NUMBER_BYTES)
