"""Windows, and the base classes of the operators that stand on them.

A window of `length_ms` is cut into at most 64 buckets of `width_ms`, aligned to the epoch and numbered `stamp //
width_ms`. A bucket is live at `now` while `now - start < length_ms`, so an event counts for between 63/64 of the
window and the window.

All features of a table that have the same window share its list of bucket numbers, the *axis*. The first
event in a bucket adds it, and removes what is dead at the bucket's start: which event that is makes no difference.
Reads skip what is dead at their own `now`, which is never before the newest stamp, so they would skip what was removed.

A cell is the state of one feature: a list of plain values that msgpack can carry. Its operator is the only one to
look inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

BUCKETS = 64
"""The most buckets that are live at once."""

Cell = list[Any]

NUMBER_BYTES = 9
"""The most bytes that msgpack takes for a number."""
COUNT_BYTES = 5
"""The most bytes that msgpack takes for a number below 2^32."""
LIST_BYTES = 5
"""The most bytes that msgpack takes for the head of a list, a map or a string."""
TEXT_BYTES = 1024
"""The longest string that an operator retains; the check of events refuses longer ones."""
SHORT_TYPES = frozenset({"i64", "f64", "bool"})


class Window(NamedTuple):
    """The length of a window and of its buckets, in ms."""

    length_ms: int
    width_ms: int

    @classmethod
    def of(cls, length_ms: int) -> Window:
        """Returns the window of this length."""
        return cls(length_ms, -(-length_ms // BUCKETS))

    def first_live(self, now_ms: int) -> int:
        """Returns the number of the oldest bucket that is live at `now_ms`."""
        return (now_ms - self.length_ms) // self.width_ms + 1


class View(NamedTuple):
    """What of a cell a read sees.

    Attributes:
        now_ms: the time of the read.
        start: the index of the oldest live bucket on the axis; columns are read from there on. 0 without a window.
        floor: the number of the oldest live bucket. 0 without a window.
    """

    now_ms: int
    start: int = 0
    floor: int = 0


class Operator:
    """One feature's arithmetic, made from its normalised parameters; it has no state of its own.

    Attributes:
        reads: what `fold` gets as its value. "number" or "any": the field, never null; "point": latitude and
            longitude; "row": nothing of use, for each row; "match": whether the row matches `where`, for each row.
        windowed: whether it can have a window.
        remembers: whether a windowed feature keeps something that no window forgets.
        result: the type of its value; "same" is the field's.
    """

    reads: ClassVar[str] = "number"
    windowed: ClassVar[bool] = False
    remembers: ClassVar[bool] = False
    result: ClassVar[str] = "f64"

    __slots__ = ("value_bytes", "window")

    def __init__(self, params: dict[str, Any]) -> None:
        length_ms = params.get("window") if self.windowed else None
        self.window = Window.of(length_ms) if length_ms is not None else None
        short = self.reads != "any" or params.get("type") in SHORT_TYPES
        self.value_bytes = NUMBER_BYTES if short else LIST_BYTES + TEXT_BYTES
        """The most bytes of one retained value of the field."""

    def new(self) -> Cell:
        """Returns the state before any event."""
        raise NotImplementedError

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        """Adds one event to the cell."""
        raise NotImplementedError

    def read(self, cell: Cell, view: View) -> Any:
        """Returns the value; a float that is not finite stands for null."""
        raise NotImplementedError

    def open(self, cell: Cell) -> None:
        """Begins a bucket, the newest of the axis."""

    def prune(self, cell: Cell, dead: int, floor: int) -> None:
        """Removes the `dead` oldest buckets of the axis; `floor` is the number of the oldest that stays."""

    @property
    def max_bytes(self) -> int:
        """The worst case of an encoded cell."""
        raise NotImplementedError

    @property
    def memory_ms(self) -> int | None:
        """The ms after an event from which on it can't matter; None: never."""
        return self.window.length_ms if self.window and not self.remembers else None

    @property
    def bucket_bytes(self) -> int:
        """The most bytes of a bucket's number: those of more than a second stay below 2^32 until the year 2109."""
        return COUNT_BYTES if self.window is None or self.window.width_ms >= 1024 else NUMBER_BYTES

    @property
    def buckets(self) -> int:
        """The most buckets that a cell has: the live ones, and one that died after the newest began."""
        return BUCKETS + 1 if self.window else 1


class Columns(Operator):
    """An operator with one list for each number that it keeps, and in it one element for each bucket of the axis.

    Folding changes the last elements, reading merges the live ones. Without a window there is one bucket.

    Attributes:
        empty: what a new bucket holds, column by column.
        extra: what follows the columns in the cell, and that no window forgets.
        retained: how many columns hold values of the field.
    """

    windowed = True
    empty: ClassVar[tuple[Any, ...]] = (0,)
    extra: ClassVar[tuple[Any, ...]] = ()
    retained: ClassVar[int] = 0

    __slots__ = ()

    def new(self) -> Cell:
        cell: Cell = [*([] for _ in self.empty), *self.extra]
        if self.window is None:
            self.open(cell)
        return cell

    def open(self, cell: Cell) -> None:
        for column, empty in zip(cell, self.empty, strict=False):
            column.append(empty)

    def prune(self, cell: Cell, dead: int, floor: int) -> None:
        for column in cell[: len(self.empty)]:
            del column[:dead]

    @property
    def max_bytes(self) -> int:
        numbers = (len(self.empty) - self.retained) * NUMBER_BYTES + self.retained * self.value_bytes
        extras = len(self.extra) * (LIST_BYTES + self.value_bytes)
        return LIST_BYTES * (1 + len(self.empty)) + self.buckets * numbers + extras


class Tally:
    """Counts by key and bucket: `{key: [total, bucket, count, bucket, count, ...]}`, the buckets ascending."""

    @staticmethod
    def add(entry: list[int], bucket: int) -> None:
        """Counts one event for the key of `entry`."""
        entry[0] += 1
        if len(entry) > 1 and entry[-2] == bucket:
            entry[-1] += 1
        else:
            entry += (bucket, 1)

    @staticmethod
    def live(entry: Sequence[int], floor: int) -> int:
        """Returns the count in the bucket `floor` and newer ones."""
        total = entry[0]
        for index in range(1, len(entry), 2):
            if entry[index] >= floor:
                break
            total -= entry[index + 1]
        return total

    @staticmethod
    def prune(entries: dict[Any, list[int]], floor: int) -> list[Any]:
        """Removes the buckets before `floor`; returns the keys that have none left, which are removed too."""
        gone = []
        for key, entry in entries.items():
            if entry[1] >= floor:
                continue
            index, end = 1, len(entry)
            while index < end and entry[index] < floor:
                entry[0] -= entry[index + 1]
                index += 2
            if index == end:
                gone.append(key)
            else:
                del entry[1:index]
        for key in gone:
            del entries[key]
        return gone
