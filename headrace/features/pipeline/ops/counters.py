"""Counters by value and by hour. None has a window."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import Any

from headrace.features.pipeline.windows import LIST_BYTES, NUMBER_BYTES, Cell, Operator, View

HOUR_MS = 3_600_000
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
EPOCH_DAY = 3  # 1970-01-01 was a Thursday


class EventTypeMix(Operator):
    """The share of each value.

    Values that are not among `categories`, or beyond `max_categories`, count in the denominator. A cell is `[events,
    {value: count}]`.
    """

    reads = "any"
    result = "json"

    __slots__ = ("allowed", "most")

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(params)
        categories = params.get("categories")
        self.allowed = None if categories is None else frozenset(categories)
        self.most: int = params["max_categories"] if categories is None else len(categories)

    def new(self) -> Cell:
        return [0, {}]

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        cell[0] += 1
        counts = cell[1]
        count = counts.get(value)
        if count is not None:
            counts[value] = count + 1
        elif len(counts) < self.most and (self.allowed is None or value in self.allowed):
            counts[value] = 1

    def read(self, cell: Cell, view: View) -> Any:
        return {format_key(value): count / cell[0] for value, count in cell[1].items()}

    @property
    def max_bytes(self) -> int:
        return 2 * LIST_BYTES + NUMBER_BYTES + self.most * (self.value_bytes + NUMBER_BYTES)


class Histogram(Operator):
    """The number of values below the first bound, from each bound to the next, and from the last bound on."""

    result = "json"

    __slots__ = ("bounds", "labels")

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(params)
        self.bounds: list[float] = params["buckets"]
        texts = [format_key(bound) for bound in self.bounds]
        between = [f"{low}-{high}" for low, high in pairwise(texts)]
        self.labels = [f"<{texts[0]}", *between, f">={texts[-1]}"]

    def new(self) -> Cell:
        return [0] * len(self.labels)

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        cell[bisect_right(self.bounds, value)] += 1

    def read(self, cell: Cell, view: View) -> Any:
        return dict(zip(self.labels, cell, strict=True))

    @property
    def max_bytes(self) -> int:
        return LIST_BYTES + len(self.labels) * NUMBER_BYTES


class HourOfDayHistogram(Operator):
    """The number of rows in each hour of the day (UTC): a list of 24."""

    reads = "row"
    result = "json"

    __slots__ = ()

    def new(self) -> Cell:
        return [0] * 24

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        cell[stamp_ms // HOUR_MS % 24] += 1

    def read(self, cell: Cell, view: View) -> Any:
        return cell[:]

    @property
    def max_bytes(self) -> int:
        return LIST_BYTES + 24 * NUMBER_BYTES


class DowHourHistogram(Operator):
    """The number of rows in each hour of the week (UTC), by keys from "Mon-00" to "Sun-23".

    A cell is `[{hour: count}]`.
    """

    reads = "row"
    result = "json"

    __slots__ = ()

    def new(self) -> Cell:
        return [{}]

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        hour = (stamp_ms // HOUR_MS + EPOCH_DAY * 24) % 168
        cell[0][hour] = cell[0].get(hour, 0) + 1

    def read(self, cell: Cell, view: View) -> Any:
        return {f"{DAYS[hour // 24]}-{hour % 24:02}": cell[0].get(hour, 0) for hour in range(168)}

    @property
    def max_bytes(self) -> int:
        return 2 * LIST_BYTES + 168 * 2 * NUMBER_BYTES


def format_key(value: Any) -> str:
    """Returns the text of a value as a key of a JSON object; an integral float has no fraction."""
    if value.__class__ is bool:
        return "true" if value else "false"
    if value.__class__ is float and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
