"""The features of one table: their state, and how events change it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from headrace.errors import NewerFormat
from headrace.features.pipeline.ops import CATALOGUE
from headrace.features.pipeline.ops.check import check_operator as check_operator
from headrace.features.pipeline.windows import BUCKETS, LIST_BYTES, NUMBER_BYTES, Cell, Operator, View, Window

VERSION = 1
"""The version of encoded states: `[version, stamp of the newest event, {window: axis}, {feature id: cell}]`."""
I64_MAX = 2**63 - 1

Where = Callable[[Mapping[str, Any]], Any]


class FeatureSpec(NamedTuple):
    """One feature of a table.

    Attributes:
        name: what readers call it.
        id: the stable text under which its state is stored.
        op: the operator's name.
        params: the operator's parameters as `check_operator` normalised them.
        where: decides whether a row counts; only True does. None counts every row.
    """

    name: str
    id: str
    op: str
    params: dict[str, Any]
    where: Where | None = None


class State:
    """The state of one row of a table. Only `FeatureSet` looks inside.

    Attributes:
        stamp_ms: the stamp of the newest event that was folded; -1 if there is none.
        axes: for each window of the table the numbers of its buckets, ascending.
        cells: for each feature its operator's state.
    """

    __slots__ = ("axes", "cells", "stamp_ms")

    def __init__(self, stamp_ms: int, axes: list[list[int]], cells: list[Cell]) -> None:
        self.stamp_ms = stamp_ms
        self.axes = axes
        self.cells = cells


Fold = Callable[[Cell, Any, int, int, int], None]


class _Group:
    """The features that share a condition, so that it is decided once for each row."""

    __slots__ = ("matchers", "steps", "where")

    def __init__(self, where: Where | None) -> None:
        self.where = where
        self.steps: list[tuple[int, Fold, int]] = []
        """Feature, fold and the place of its value among the row's inputs; they want the rows that match."""
        self.matchers: list[tuple[int, Fold]] = []
        """The features that want to know of each row whether it matches."""


class FeatureSet:
    """The features of one table.

    Attributes:
        max_bytes: the worst case of `encode`, in bytes, uncompressed.
        longest_window_ms: the ms after the newest event from which on no feature has a value that depends on it: the
            longest window. None if some feature remembers for ever.
    """

    def __init__(self, specs: Sequence[FeatureSpec]) -> None:
        unique = {spec.id: spec for spec in specs}
        self._specs = tuple(unique.values())
        """One for each id: features that differ in nothing but their names share a cell."""
        places = {key: index for index, key in enumerate(unique)}
        self._index = {spec.name: places[spec.id] for spec in specs}
        self._operators: list[Operator] = [CATALOGUE[spec.op](spec.params) for spec in self._specs]
        self._windows = sorted({operator.window for operator in self._operators if operator.window})
        self._members = [
            [index for index, operator in enumerate(self._operators) if operator.window == window]
            for window in self._windows
        ]
        self._axis_of = {index: axis for axis, members in enumerate(self._members) for index in members}
        self._fields: list[str] = []
        self._points: list[tuple[int, int]] = []
        self._groups = self._group()
        axes = len(self._windows) * (LIST_BYTES + (BUCKETS + 1) * NUMBER_BYTES)
        ids = sum(LIST_BYTES + len(spec.id.encode()) for spec in self._specs)
        cells = sum(operator.max_bytes for operator in self._operators)
        self.max_bytes = 3 * LIST_BYTES + 2 * NUMBER_BYTES + axes + ids + cells
        memories = [operator.memory_ms for operator in self._operators]
        finite = [memory for memory in memories if memory is not None]
        self.longest_window_ms = max(finite) if finite and len(finite) == len(memories) else None

    def _group(self) -> list[_Group]:
        groups: dict[int, _Group] = {}
        points: list[tuple[int, tuple[int, int]]] = []
        for index, (spec, operator) in enumerate(zip(self._specs, self._operators, strict=True)):
            group = groups.setdefault(id(spec.where), _Group(spec.where))
            if operator.reads == "match":
                group.matchers.append((index, operator.fold))
            elif operator.reads == "row":
                group.steps.append((index, operator.fold, -1))
            elif operator.reads == "point":
                pair = (self._field(spec.params["lat_field"]), self._field(spec.params["lon_field"]))
                if pair not in self._points:
                    self._points.append(pair)
                points.append((index, pair))
            else:
                group.steps.append((index, operator.fold, self._field(spec.params["field"])))
        for index, pair in points:  # points follow the fields among a row's inputs
            place = len(self._fields) + self._points.index(pair)
            groups[id(self._specs[index].where)].steps.append((index, self._operators[index].fold, place))
        return list(groups.values())

    def _field(self, name: str) -> int:
        if name not in self._fields:
            self._fields.append(name)
        return self._fields.index(name)

    def new(self) -> State:
        """Returns the state before any event."""
        return State(-1, [[] for _ in self._windows], [operator.new() for operator in self._operators])

    def fold(self, state: State, row: Mapping[str, Any], stamp_ms: int, lane: int, offset: int) -> None:
        """Adds an event to the state, in place. Events come in the order of (stamp, lane, offset)."""
        if stamp_ms < state.stamp_ms:  # stamps of a log never fall
            stamp_ms = state.stamp_ms
        state.stamp_ms = stamp_ms
        cells = state.cells
        for place, window in enumerate(self._windows):
            axis = state.axes[place]
            bucket = stamp_ms // window.width_ms
            if not axis or axis[-1] != bucket:
                self._advance(state, place, window, bucket)
        values = self._read_inputs(row)
        for group in self._groups:
            where = group.where
            matches = where is None or where(row) is True
            if matches:
                for index, fold, place in group.steps:
                    value = values[place]
                    if value is not None:
                        fold(cells[index], value, stamp_ms, lane, offset)
            for index, fold in group.matchers:
                fold(cells[index], matches, stamp_ms, lane, offset)

    def _read_inputs(self, row: Mapping[str, Any]) -> list[Any]:
        """Returns the fields that operators read, then the points, then True, which stands for the row itself.

        None stands for null, for floats that are not finite, and for points that are not on Earth; integers saturate
        at 64 bits.
        """
        values: list[Any] = []
        for field in self._fields:
            value = row.get(field)
            kind = value.__class__
            if kind is float:
                if value - value:  # type: ignore[operator]
                    value = None
            elif kind is int and not -I64_MAX <= value <= I64_MAX:  # type: ignore[operator]
                value = max(-I64_MAX - 1, min(I64_MAX, value))  # type: ignore[type-var]
            values.append(value)
        for lat, lon in self._points:
            point = (values[lat], values[lon])
            on_earth = None not in point and -90 <= point[0] <= 90 and -360 <= point[1] <= 360
            values.append(point if on_earth else None)
        values.append(True)
        return values

    def _advance(self, state: State, place: int, window: Window, bucket: int) -> None:
        """Opens a bucket, and removes what is dead at its start: whichever event opens it, the same is removed."""
        axis, cells, operators = state.axes[place], state.cells, self._operators
        floor = window.first_live(bucket * window.width_ms)
        dead = bisect_left(axis, floor)
        if dead:
            del axis[:dead]
        axis.append(bucket)
        for index in self._members[place]:
            if dead:
                operators[index].prune(cells[index], dead, floor)
            operators[index].open(cells[index])

    def read(self, state: State, now_ms: int, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Returns the values as of `now_ms`, as JSON values, in the order of the specs or of `names`.

        A time before the newest event counts as that event's.
        """
        now_ms = max(now_ms, state.stamp_ms)
        lifetime = View(now_ms)
        views = [
            View(now_ms, bisect_left(axis, floor := window.first_live(now_ms)), floor)
            for window, axis in zip(self._windows, state.axes, strict=True)
        ]
        values = {}
        for name in self._index if names is None else names:
            index = self._index[name]
            place = self._axis_of.get(index)
            value = self._operators[index].read(state.cells[index], lifetime if place is None else views[place])
            values[name] = None if value.__class__ is float and value - value else value
        return values

    def encode(self, state: State) -> bytes:
        """Returns the state as msgpack."""
        axes = {window.length_ms: axis for window, axis in zip(self._windows, state.axes, strict=True)}
        cells = {spec.id: cell for spec, cell in zip(self._specs, state.cells, strict=True)}
        return msgspec.msgpack.encode([VERSION, state.stamp_ms, axes, cells])

    def decode(self, data: bytes) -> State:
        """Returns the encoded state; features that it doesn't have start empty, features unknown here are dropped.

        Raises:
            NewerFormat: a newer release wrote it.
        """
        version, stamp_ms, axes, cells = msgspec.msgpack.decode(data)
        if version != VERSION:
            raise NewerFormat("feature state", version, VERSION)
        state = State(stamp_ms, [axes.get(window.length_ms, []) for window in self._windows], [])
        for index, spec in enumerate(self._specs):
            cell = cells.get(spec.id)
            if cell is None:
                operator = self._operators[index]
                cell = operator.new()
                for _ in state.axes[self._axis_of[index]] if index in self._axis_of else ():
                    operator.open(cell)
            state.cells.append(cell)
        return state

    def copy(self, state: State) -> State:
        """Returns a state that shares nothing with this one."""
        return self.decode(self.encode(state))
