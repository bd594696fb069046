"""Operators whose past fades by half in each half-life, as of the newest event; and the time-weighted average."""

from __future__ import annotations

import math
from typing import Any

from headrace.features.pipeline.windows import LIST_BYTES, NUMBER_BYTES, Cell, Columns, Operator, View


class _Decay(Operator):
    """Numbers and, last, the stamp of the newest event; empty before the first one."""

    __slots__ = ("half_life_ms",)

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(params)
        self.half_life_ms: int = params["half_life"]

    def new(self) -> Cell:
        return []

    @property
    def max_bytes(self) -> int:
        return LIST_BYTES + 4 * NUMBER_BYTES


class Ewma(_Decay):
    """The exponentially weighted mean: the first value, then m += a (x - m) with a = 1 - 0.5^(Δt / half-life).

    Events of one ms blend half and half, else the second would not count.
    """

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        if not cell:
            cell += (float(value), stamp_ms)
            return
        mean, then = cell
        passed = stamp_ms - then
        weight = 1 - 0.5 ** (passed / self.half_life_ms) if passed else 0.5
        cell[0] = mean + weight * (value - mean)
        cell[1] = stamp_ms

    def read(self, cell: Cell, view: View) -> Any:
        return cell[0] if cell else None


class EwVar(_Decay):
    """The exponentially weighted variance s: d = x - m, m' = m + a d, s' = (1 - a) s + a d (x - m').

    Within one ms a is 0.
    """

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        if not cell:
            cell += (float(value), 0.0, 0.0, stamp_ms)
            return
        mean, variance, _, then = cell
        keep = 0.5 ** ((stamp_ms - then) / self.half_life_ms)
        delta = value - mean
        # x - m' is (1 - a) d: the difference itself would leave no digits after a long pause. Likewise m' is computed from
        # the one of m and x that it is nearer to, so that it is exactly x when all before has faded.
        cell[0] = mean + (1 - keep) * delta if keep > 0.5 else value - keep * delta
        cell[1] = keep * (variance + (1 - keep) * delta * delta)
        cell[2] = keep * delta
        cell[3] = stamp_ms

    def read(self, cell: Cell, view: View) -> Any:
        return cell[1] if cell else None


class EwZScore(EwVar):
    """How many exponentially weighted deviations the newest value is above the mean; null without any deviation."""

    __slots__ = ()

    def read(self, cell: Cell, view: View) -> Any:
        if not cell or not cell[1] > 0:
            return None
        return cell[2] / math.sqrt(cell[1])


class DecayedSum(_Decay):
    """The sum in which each value has faded since its event."""

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        if not cell:
            cell += (float(value), stamp_ms)
            return
        total, then = cell
        cell[0] = total * 0.5 ** ((stamp_ms - then) / self.half_life_ms) + value
        cell[1] = stamp_ms

    def read(self, cell: Cell, view: View) -> Any:
        return cell[0] if cell else None


class DecayedCount(DecayedSum):
    """The number of rows, each of which has faded since."""

    reads = "row"

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        super().fold(cell, 1.0, stamp_ms, lane, offset)


class Twa(Columns):
    """The time-weighted average: each value weighs the ms until the next event. Without a passed ms it is the newest value.

    A bucket holds Σ v Δt, ΣΔt, the first stamp, and the newest value with its stamp; where buckets meet, the gap
    between them weighs the older one's newest value.
    """

    empty = (0.0, 0, None, None, None)

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        areas, spans, firsts, values, stamps = cell
        then = stamps[-1]
        if then is None:
            firsts[-1] = stamp_ms
        elif stamp_ms > then:
            areas[-1] += values[-1] * (stamp_ms - then)
            spans[-1] += stamp_ms - then
        values[-1] = value
        stamps[-1] = stamp_ms

    def read(self, cell: Cell, view: View) -> Any:
        area, span = 0.0, 0
        newest: Any = None
        then: Any = None
        for bucket_area, bucket_span, first, value, stamp in zip(
            *(column[view.start :] for column in cell), strict=True
        ):
            if stamp is None:
                continue
            gap = first - then if then is not None else 0
            area += bucket_area + (newest * gap if gap else 0.0)
            span += bucket_span + gap
            newest, then = value, stamp
        if newest is None:
            return None
        return area / span if span else float(newest)
