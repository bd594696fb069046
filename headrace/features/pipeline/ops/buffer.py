"""Operators that keep values of the field as they are. None has a window."""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import Any

import xxhash

from headrace.features.pipeline.windows import LIST_BYTES, NUMBER_BYTES, Cell, Operator, View

_ORDER = struct.Struct(">qqq")


class _Buffer(Operator):
    """A list of at most `size` values, oldest first."""

    reads = "any"
    result = "json"

    __slots__ = ("size",)

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(params)
        self.size: int = params.get("n", 1)

    def new(self) -> Cell:
        return []

    def read(self, cell: Cell, view: View) -> Any:
        return cell[:]

    @property
    def max_bytes(self) -> int:
        return LIST_BYTES + self.size * self.value_bytes


class FirstN(_Buffer):
    """The first n values."""

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        if len(cell) < self.size:
            cell.append(value)


class First(FirstN):
    """The first value."""

    result = "same"

    __slots__ = ()

    def read(self, cell: Cell, view: View) -> Any:
        return cell[0] if cell else None


class LastN(_Buffer):
    """The newest n values, oldest first."""

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        cell.append(value)
        if len(cell) > self.size:
            del cell[0]


class Last(_Buffer):
    """The newest value."""

    result = "same"

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        cell[:] = (value,)

    def read(self, cell: Cell, view: View) -> Any:
        return cell[0] if cell else None


class Lag(LastN):
    """The value n values before the newest; null until there are n + 1."""

    result = "same"

    __slots__ = ()

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(params)
        self.size += 1

    def read(self, cell: Cell, view: View) -> Any:
        return cell[0] if len(cell) == self.size else None


class ReservoirSample(Operator):
    """A uniform sample: the values of the events whose positions have the smallest hashes, in the order of those.

    A position is (stamp, lane, offset), so every fold of the same log keeps the same sample.
    """

    reads = "any"
    result = "json"

    __slots__ = ("size",)

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(params)
        self.size: int = params["samples"]

    def new(self) -> Cell:
        return [[], []]

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        hashes, values = cell
        hashed = xxhash.xxh64_intdigest(_ORDER.pack(stamp_ms, lane, offset))
        if len(hashes) == self.size:
            if hashed >= hashes[-1]:
                return
            del hashes[-1], values[-1]
        place = bisect_right(hashes, hashed)
        hashes.insert(place, hashed)
        values.insert(place, value)

    def read(self, cell: Cell, view: View) -> Any:
        return cell[1][:]

    @property
    def max_bytes(self) -> int:
        return 3 * LIST_BYTES + self.size * (NUMBER_BYTES + self.value_bytes)
