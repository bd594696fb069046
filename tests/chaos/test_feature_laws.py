"""Each law of feature tables fails on what breaks it, and none on what does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headrace.features.rows import AsOf
from tests.chaos.feature_laws import LAWS, Log, Push, Read, Registered, Tables, judge
from tests.unit.features.oracle import Event, Node, Shape

LANE = ("Tx", 0)
FIELDS = {"id": "str", "user": "str", "n": "i64"}
WIDER = FIELDS | {"more": "i64"}
STAMP_MS = 1_000_000


def shape(since: int, version: int, fields: dict[str, str], field: str) -> Shape:
    """Returns a pipeline with one table, whose state began with it."""
    agg = {"c": {"op": "count", "params": {}}, "s": {"op": "sum", "params": {"field": field}}}
    node = Node(
        str(version), ({"op": "group_by", "keys": ["user"], "agg": agg},), ("user",), dict.fromkeys(agg, version)
    )
    return Shape(since, version, 1, fields, frozenset(), None, {"U": node})


def event(offset: int, **more: Any) -> Event:
    return Event(offset, STAMP_MS, {"id": f"e{offset}", "user": "a", "n": offset, **more})


def read(began: float, end: int, row: dict[str, Any]) -> Read:
    return Read(began, began + 0.5, AsOf(STAMP_MS, {LANE: end}), (("U", "a"),), (row,))


def good() -> Tables:
    """Returns a round that keeps all laws: a batch, a push of unknown outcome that is there and one that is not, one that
    was refused, and a registration in between that drops the table's state.
    """
    return Tables(
        roots={"U": "Tx"},
        pushes=[
            Push(("e0", "e1"), 1.0, 1.5, "acknowledged", 1),
            Push(("e2",), 2.0, 2.5, "unknown"),
            Push(("lost",), 2.0, 2.5, "unknown"),
            Push(("no",), 2.0, 2.5, "refused"),
            Push(("e3", "e4"), 5.0, 5.5, "acknowledged", 2),
        ],
        reads=[
            read(1.6, 2, {"c": 2, "s": 1.0}),
            read(3.0, 3, {"c": 3, "s": 3.0}),
            read(3.6, 3, {}),  # the registration is in force
            read(6.0, 5, {"c": 2, "s": 14.0}),
        ],
        registered=[Registered(2, 3.5, 4.0)],
        logs={
            LANE: Log(
                [shape(0, 1, FIELDS, "n"), shape(3, 2, WIDER, "more")],
                [event(0), event(1), event(2), event(3, more=7), event(4, more=7)],
            )
        },
    )


def broken(change: Callable[[Tables], object]) -> set[str]:
    """Returns the laws that a round breaks after a change."""
    tables = good()
    change(tables)
    return {law for law, verdict in judge(tables).items() if verdict.count}


def names(*laws: Callable[[Tables], Any]) -> set[str]:
    return {law.__name__.replace("_", " ") for law in laws}


ONCE, WHOLE, ACKED, SHRINKS, ROW, OLD = LAWS


def set_read(number: int, **changes: Any) -> Callable[[Tables], None]:
    def change(tables: Tables) -> None:
        tables.reads[number] = tables.reads[number]._replace(**changes)

    return change


def set_events(*events: Event) -> Callable[[Tables], None]:
    def change(tables: Tables) -> None:
        tables.logs[LANE] = replace(tables.logs[LANE], events=list(events))

    return change


def set_push(number: int, **changes: Any) -> Callable[[Tables], None]:
    def change(tables: Tables) -> None:
        tables.pushes[number] = tables.pushes[number]._replace(**changes)

    return change


def test_a_good_round_breaks_no_law_and_each_looked() -> None:
    verdicts = judge(good())
    assert [(verdict.broken, verdict.checked > 0) for verdict in verdicts.values()] == [([], True)] * len(LAWS)


@pytest.mark.parametrize(
    ("change", "laws"),
    [
        (set_push(2, ids=("gone",), outcome="acknowledged"), names(ONCE, WHOLE)),
        (set_push(2, ids=("e2", "gone")), names(WHOLE)),
        (set_push(1, outcome="refused"), names(WHOLE)),
        (set_push(4, ids=("e4", "e3")), names(WHOLE, OLD)),
        (set_push(4, version=1), names(OLD)),
        (set_read(1, as_of=AsOf(STAMP_MS, {LANE: 1}), rows=({"c": 1, "s": 0.0},)), names(ACKED, SHRINKS)),
        (set_read(1, as_of=AsOf(STAMP_MS, {LANE: 2}), rows=({"c": 2, "s": 1.0},)), set()),
        (set_read(1, rows=({"c": 2, "s": 1.0},)), names(ROW)),
        (set_read(2, rows=({"c": 3, "s": 3.0},)), set()),  # or not yet
        (set_read(2, started=4.5, rows=({"c": 3, "s": 3.0},)), names(ROW)),
        (set_read(3, rows=({"c": 5, "s": 17.0},)), names(ROW)),
        (set_read(3, as_of=AsOf(STAMP_MS, {})), names(ROW)),
        (set_events(event(0), event(1), event(2), event(3, more=7), event(4)), names(ROW, OLD)),
        (set_events(event(0), event(1), event(2), event(3), event(4)), names(ROW, OLD)),
    ],
)
def test_a_law_sees_what_breaks_it(change: Callable[[Tables], None], laws: set[str]) -> None:
    assert broken(change) == laws


def test_an_event_that_is_twice_in_the_log_is_seen() -> None:
    def again(tables: Tables) -> None:
        events = [*tables.logs[LANE].events, event(0)._replace(offset=5)]
        tables.logs[LANE] = replace(tables.logs[LANE], events=events)

    assert names(ONCE) <= broken(again)


def test_a_push_under_an_old_pipeline_is_seen() -> None:
    def late(tables: Tables) -> None:
        tables.pushes.append(Push(("e2",), 5.0, 5.5, "acknowledged", 2))

    assert broken(late) == names(OLD)
