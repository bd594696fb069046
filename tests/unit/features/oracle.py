"""What the rows of tables must be, recomputed from a prefix of a lane's events with the plainest code.

It reads node documents by itself and takes each feature's value from the oracle of operators (`ops.oracle`), which shares
nothing with the product. It knows as much of the language as the simulation and the load of feature tables use.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headrace.features.pipeline.compiled import PipelineDocument
from tests.unit.features.ops import oracle

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_DURATION = re.compile(r"(\d+)(ms|s|m|h)")
_EXPRESSION = re.compile(r"\((\w+) ([>/]) (\d+)\)")
_DURATIONS = ("window", "half_life", "sub_window")


class Event(NamedTuple):
    """An event as it is in a lane's log."""

    offset: int
    stamp_ms: int
    data: Mapping[str, Any]


class Node(NamedTuple):
    """A table under one pipeline.

    Attributes:
        ops: those of the derived events before it, too; the last one groups.
        keys: the columns of its key.
        started: the registry version in which each feature began.
        building: the generation that a back-fill computes; empty if there is none.
    """

    generation: str
    ops: tuple[Mapping[str, Any], ...]
    keys: tuple[str, ...]
    started: Mapping[str, int]
    building: str = ""

    @property
    def agg(self) -> Mapping[str, Any]:
        """The aggregations by name."""
        agg: Mapping[str, Any] = self.ops[-1]["agg"]
        return agg


class Shape(NamedTuple):
    """A pipeline as registered: what applies to the events from `since` on.

    Attributes:
        floor: events below had been let go of when it was registered.
    """

    since: int
    version: int
    lanes: int
    fields: Mapping[str, str]
    optional: frozenset[str]
    cold_after_ms: int | None
    tables: Mapping[str, Node]
    floor: int = 0

    def has(self, table: str, generation: str) -> bool:
        """Returns whether events are folded into a generation of a table."""
        node = self.tables.get(table)
        return node is not None and generation in (node.generation, node.building)

    def fits(self, data: Mapping[str, Any]) -> bool:
        """Returns whether an event has the fields that it must have, and no others."""
        given = {name for name, value in data.items() if value is not None}
        return self.fields.keys() - self.optional <= given <= self.fields.keys() >= data.keys()


def shape_of(since: int, document: PipelineDocument, floor: int = 0) -> Shape:
    """Returns the shape that a lane's pipeline document says."""
    ops: dict[str, tuple[Mapping[str, Any], ...]] = {document.event.name: ()}
    tables: dict[str, Node] = {}
    for node in document.derivations:
        ops[node.name] = (*ops[node.upstreams[0]], *node.ops)
        if node.output_kind == "table":
            state = document.tables[node.name]
            building = state.building.generation if state.building is not None else ""
            tables[node.name] = Node(state.generation, ops[node.name], node.primary_key, state.started, building)
    event = document.event
    return Shape(
        since,
        document.version,
        event.lanes,
        event.fields,
        frozenset(event.optional),
        event.cold_after_ms,
        tables,
        floor,
    )


def barriers(shapes: Sequence[Shape], table: str) -> list[Shape]:
    """Returns the shapes under which a back-fill can have read older events, if the newest one's generation of a table is
    that of a back-fill: registrations that came before its job, with no event in between, may be known to the job or not.
    """
    last = shapes[-1].tables.get(table)
    having = [shape for shape in shapes if last is not None and shape.has(table, last.generation)]
    if last is None or having[0].tables[table].building != last.generation:
        return []
    return [shape for shape in having if shape.since == having[0].since]


def row(
    shapes: Sequence[Shape],
    events: Sequence[Event],
    table: str,
    key: Sequence[Any],
    now_ms: int,
    lane: int = 0,
    barrier: Shape | None = None,
) -> dict[str, Any] | None:
    """Returns the row of an entity as of a time, if the lane has just these events, and just these shapes; None if there is
    no such table.

    Args:
        barrier: one of `barriers`: older events are read under it, if they fit it.
    """
    last = shapes[-1].tables.get(table)
    if last is None:
        return None
    found: list[tuple[Shape, oracle.Event]] = []
    sinces = [shape.since for shape in shapes]
    for event in events:
        place = bisect_right(sinces, event.offset) - 1
        own = shapes[place] if place >= 0 else None
        shape = barrier if barrier is not None and event.offset < barrier.since else own
        if shape is None or not shape.has(table, last.generation):
            continue
        if shape is not own and (event.offset < shape.floor or not shape.fits(event.data)):
            continue
        node = shape.tables[table]
        seen = _run(node.ops[:-1], _typed(shape, event.data))
        if seen is not None and [seen[name] for name in node.keys] == list(key):
            found.append((shape, oracle.Event(event.stamp_ms, lane, event.offset, seen)))
    if not found:
        return {}
    now_ms = max(now_ms, found[-1][1].stamp)
    if _is_cold(shapes[-1], last, found[-1][1].stamp, now_ms):
        return {}
    return {name: _value(name, last, found, table, now_ms) for name in last.agg}


def _value(name: str, last: Node, found: Sequence[tuple[Shape, oracle.Event]], table: str, now_ms: int) -> Any:
    feature = last.agg[name]
    params = {one: _ms(value) if one in _DURATIONS else value for one, value in feature["params"].items()}
    where = params.pop("where", None)
    counted = [
        event._replace(matches=where is None or _evaluate(where, event.row) is True)
        for shape, event in found
        if shape.tables[table].started.get(name) == last.started[name]
    ]
    return oracle.answer(feature["op"], params, counted, now_ms)


def is_same(found: Any, wanted: Any, absolute: float = 1e-6) -> bool:
    """Returns whether two answers are equal, floats but for rounding."""
    if isinstance(found, float) or isinstance(wanted, float):
        is_number = all(isinstance(value, float | int) for value in (found, wanted))
        return is_number and math.isclose(found, wanted, rel_tol=1e-7, abs_tol=absolute)
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(is_same(found[key], wanted[key], absolute) for key in found)
    return type(found) is type(wanted) and bool(found == wanted)


def _typed(shape: Shape, data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: data.get(name) for name in shape.fields}


def _is_cold(shape: Shape, node: Node, stamp_ms: int, now_ms: int) -> bool:
    windows = [feature["params"].get("window") for feature in node.agg.values()]
    if shape.cold_after_ms is None or None in windows:
        return False
    return now_ms >= stamp_ms + max(map(_ms, windows)) + shape.cold_after_ms


def _ms(text: str) -> int:
    match = _DURATION.fullmatch(text)
    assert match is not None, text
    return int(match[1]) * _UNITS[match[2]]


def _run(ops: Sequence[Mapping[str, Any]], seen: dict[str, Any]) -> dict[str, Any] | None:
    for op in ops:
        if op["op"] == "filter":
            if _evaluate(op["expr"], seen) is not True:
                return None
        else:
            assert op["op"] == "map", op
            seen = seen | {name: _evaluate(text, seen) for name, text in op["exprs"].items()}
    return seen


def _evaluate(text: str, seen: Mapping[str, Any]) -> Any:
    match = _EXPRESSION.fullmatch(text)
    assert match is not None, text
    value = seen[match[1]]
    if value is None:
        return None
    return value > int(match[3]) if match[2] == ">" else int(value / int(match[3]))
