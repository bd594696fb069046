"""When rows came, and in which runs."""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.features.pipeline.windows import LIST_BYTES, NUMBER_BYTES, Cell, Operator, View


class _Rows(Operator):
    """An operator that looks at no field, and keeps numbers."""

    reads = "row"
    result = "i64"
    empty: ClassVar[tuple[Any, ...]] = (None,)

    __slots__ = ()

    def new(self) -> Cell:
        return list(self.empty)

    @property
    def max_bytes(self) -> int:
        return LIST_BYTES + len(self.empty) * NUMBER_BYTES


class FirstSeen(_Rows):
    """The stamp of the first row."""

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        if cell[0] is None:
            cell[0] = stamp_ms

    def read(self, cell: Cell, view: View) -> Any:
        return cell[0]


class Age(FirstSeen):
    """The ms since the first row."""

    __slots__ = ()

    def read(self, cell: Cell, view: View) -> Any:
        return None if cell[0] is None else view.now_ms - cell[0]


class HasSeen(FirstSeen):
    """Whether a row came."""

    result = "bool"

    __slots__ = ()

    def read(self, cell: Cell, view: View) -> Any:
        return cell[0] is not None


class LastSeen(_Rows):
    """The stamp of the newest row."""

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        cell[0] = stamp_ms

    def read(self, cell: Cell, view: View) -> Any:
        return cell[0]


class TimeSince(LastSeen):
    """The ms since the newest row."""

    __slots__ = ()

    def read(self, cell: Cell, view: View) -> Any:
        return None if cell[0] is None else view.now_ms - cell[0]


class FirstSeenInWindow(LastSeen):
    """Whether the newest row is younger than the window. It is a threshold, exact to the ms: there are no buckets."""

    result = "bool"

    __slots__ = ("threshold_ms",)

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(params)
        self.threshold_ms: int = params["window"]

    def read(self, cell: Cell, view: View) -> Any:
        return cell[0] is not None and view.now_ms - cell[0] < self.threshold_ms


class TimeSinceLastN(Operator):
    """The ms since the n-th newest row; null until there are n."""

    reads = "row"
    result = "i64"

    __slots__ = ("n",)

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(params)
        self.n: int = params["n"]

    def new(self) -> Cell:
        return []

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        cell.append(stamp_ms)
        if len(cell) > self.n:
            del cell[0]

    def read(self, cell: Cell, view: View) -> Any:
        return view.now_ms - cell[0] if len(cell) == self.n else None

    @property
    def max_bytes(self) -> int:
        return LIST_BYTES + self.n * NUMBER_BYTES


class Streak(_Rows):
    """The length of the current run of rows that match `where`."""

    reads = "match"
    empty = (0,)

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        cell[0] = cell[0] + 1 if value else 0

    def read(self, cell: Cell, view: View) -> Any:
        return cell[0]


class NegativeStreak(Streak):
    """The length of the current run of rows that don't match `where`."""

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        cell[0] = 0 if value else cell[0] + 1


class MaxStreak(_Rows):
    """The length of the longest run of rows that match `where`."""

    reads = "match"
    empty = (0, 0)

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        if not value:
            cell[0] = 0
            return
        run = cell[0] = cell[0] + 1
        if run > cell[1]:
            cell[1] = run

    def read(self, cell: Cell, view: View) -> Any:
        return cell[1]
