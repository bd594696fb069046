"""Each operator answers what the oracle recomputes from all events, wherever its state was stored, copied or pruned."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from typing import Any

import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from headrace.features.pipeline.features import FeatureSet, State
from headrace.features.pipeline.ops import CATALOGUE, sketch
from headrace.features.pipeline.windows import Window
from tests.support.examples import examples
from tests.unit.features.ops.oracle import Event
from tests.unit.features.ops.table import expected, fold, spec, specs
from tests.unit.features.oracle import is_same

HOUR_MS = 3_600_000
WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
"""A failure names the feature and its values; to shrink a log costs minutes."""

SPECS = specs()
TABLE = FeatureSet(SPECS)

# Quarters: sums of them are exact, so that equal values have no deviation in any formula.
FLOATS = st.integers(-4000, 4000).map(lambda number: number / 4)
INTEGERS = st.integers(-1_000_000, 1_000_000)
ROWS = st.fixed_dictionaries(
    {
        "f": st.none() | st.sampled_from([0.0, -0.0, 2.5, 7.0]) | FLOATS,
        "i": st.none() | st.sampled_from([0, 1, -10]) | INTEGERS,
        "s": st.none() | st.sampled_from(["", "a", "ab", "ä", "😀", "\uffff"]) | st.text(max_size=3),
        "b": st.none() | st.booleans(),
        "lat": st.none() | st.integers(-11, 11).map(lambda number: number * 7.5),
        "lon": st.none() | st.integers(-23, 23).map(lambda number: number * 7.5),
    }
)
GAPS = st.sampled_from([0, 0, 1, 2, 3, 7, 20, 36, 63, 64, 65, 98, 99, 100, 101, 150, 56_250, HOUR_MS, HOUR_MS * 25])


@st.composite
def logs(draw: st.DrawFn, most: int = 14) -> list[Event]:
    """Events in the order of a log, several of them with one stamp."""
    stamp = 1_750_000_000_000 + draw(st.integers(0, 7 * 24 * HOUR_MS))
    events = []
    for offset in range(draw(st.integers(0, most))):
        stamp += draw(GAPS)
        events.append(Event(stamp, 0, offset * 3, draw(ROWS)))
    return events


def check(table: FeatureSet, state: State, events: list[Event], now: int) -> None:
    """Asserts that each feature has the oracle's value."""
    values = table.read(state, now)
    json.dumps(values, allow_nan=False)
    last = events[-1].stamp if events else 0
    for feature in table._specs:
        wanted = expected(feature, events, max(now, last))
        absolute = 1e-9 if feature.op in ("trend", "rate_of_change") else 1e-6
        assert is_same(values[feature.name], wanted, absolute), (feature.name, values[feature.name], wanted)


def test_the_table_has_each_of_the_54_operators() -> None:
    assert len(set(CATALOGUE) - {"ema"}) == 54
    assert {feature.op for feature in SPECS} == set(CATALOGUE)


@examples(250, phases=WITHOUT_SHRINKING)
@given(st.data(), logs())
def test_each_operator_answers_what_the_oracle_says(data: st.DataObject, events: list[Event]) -> None:
    """A state that is stored and read in between ends with the same bytes as one that is not."""
    state = TABLE.new()
    for place, event in enumerate(events):
        fold(TABLE, [event], state)
        if data.draw(st.booleans()):
            encoded = TABLE.encode(state)
            assert len(encoded) <= TABLE.max_bytes
            TABLE.read(state, event.stamp + data.draw(GAPS))
            state = TABLE.decode(encoded)
        if data.draw(st.integers(0, 5)) == 0:
            check(TABLE, state, events[: place + 1], event.stamp + data.draw(GAPS))
    last = events[-1].stamp if events else 0
    for later in sorted(data.draw(st.lists(GAPS | st.integers(0, 2 * HOUR_MS), min_size=1, max_size=3))):
        check(TABLE, state, events, last + later)
    assert TABLE.encode(state) == TABLE.encode(fold(TABLE, events))


class Unpruned(FeatureSet):
    """A table that keeps dead buckets for ever."""

    def _advance(self, state: State, place: int, window: Window, bucket: int) -> None:
        state.axes[place].append(bucket)
        for index in self._members[place]:
            self._operators[index].open(state.cells[index])


UNPRUNED = Unpruned(SPECS)


@examples(150, phases=WITHOUT_SHRINKING)
@given(logs(), st.lists(GAPS, max_size=4))
def test_pruning_changes_no_later_read(events: list[Event], gaps: list[int]) -> None:
    pruned, kept = fold(TABLE, events), fold(UNPRUNED, events)
    now = events[-1].stamp if events else 0
    for gap in [0, *gaps]:
        now += gap
        left, right = TABLE.read(pruned, now), UNPRUNED.read(kept, now)
        assert all(is_same(left[name], right[name]) for name in left)


def test_features_that_differ_in_their_names_alone_share_their_state() -> None:
    sums = [spec("sum", {"field": "f", "window": "1h"})._replace(name=name) for name in ("x", "y")]
    table = FeatureSet([*sums, spec("count", {})._replace(name="z")])
    state = table.new()
    for offset in range(3):
        table.fold(state, {"f": 2.5}, 1000 + offset, 0, offset)
        state = table.copy(state)
    assert table.read(state, 2000) == {"x": 7.5, "y": 7.5, "z": 3}
    assert table.read(state, 2000, ["z", "y"]) == {"z": 3, "y": 7.5}
    assert len(state.cells) == 2


def test_what_is_dead_leaves_the_state() -> None:
    event = Event(10**12, 0, 0, {"f": 1.0, "i": 1, "s": "a", "b": True, "lat": 0.0, "lon": 0.0})
    later = event._replace(stamp=event.stamp + 10 * HOUR_MS)
    state, other = fold(TABLE, [event, later]), fold(UNPRUNED, [event, later])
    assert [len(axis) for axis in state.axes] == [1, 1, 1]
    assert [len(axis) for axis in other.axes] == [2, 2, 2]
    assert len(TABLE.encode(state)) < len(UNPRUNED.encode(other))


def never(row: dict[str, Any]) -> bool:
    """A condition of rows that are not of the test's noise."""
    return not row["noise"]


SMALL = ("n_unique", "top_k", "entropy", "quantile")


@examples(150, phases=WITHOUT_SHRINKING)
@given(logs(40), st.data())
def test_a_full_sketch_depends_on_its_own_events_alone(events: list[Event], data: st.DataObject) -> None:
    """Neither rows that don't match, which open buckets and prune, nor storing change the answer or what is evicted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketch, "EXACT_DISTINCT", 4)
        patch.setattr(sketch, "EXACT_VALUES", 3)
        patch.setattr(sketch, "WINDOW_BINS", 6)
        patch.setattr(sketch, "LIFETIME_BINS", 6)
        patch.setattr(sketch, "TEXT_BUDGET", 6)
        windows: list[dict[str, Any]] = [{}, {"window": "65ms"}, {"window": "100ms"}, {"window": "1h"}]
        asked = [(op, {"field": field, **window}) for op in SMALL for window in windows for field in "fs"]
        asked = [(op, given) for op, given in asked if (op, given["field"]) != ("quantile", "s")]
        table = FeatureSet([spec(op, given, never) for op, given in asked])
        state, noisy = table.new(), table.new()
        stamp = 0
        for event in events:
            row = {**event.row, "noise": False}
            table.fold(state, row, event.stamp, 0, event.offset)
            for noise in (
                data.draw(st.lists(st.integers(stamp, event.stamp), max_size=2).map(sorted)) if stamp else ()
            ):
                table.fold(noisy, {**row, "noise": True}, noise, 0, event.offset - 1)
            table.fold(noisy, row, event.stamp, 0, event.offset)
            stamp = event.stamp
            if data.draw(st.booleans()):
                noisy = table.copy(noisy)
            assert table.read(state, stamp) == table.read(noisy, stamp)
        later = stamp + data.draw(GAPS)
        assert table.read(state, later) == table.read(noisy, later)
        check_bounds(table, state)


def check_bounds(table: FeatureSet, state: State) -> None:
    """Asserts that no sketch is over its limits, lowered as above."""
    for feature, cell in zip(table._specs, state.cells, strict=True):
        if feature.op in ("top_k", "entropy"):
            assert len(cell[0]) <= 4
        if feature.op == "n_unique":
            assert len(cell[0]) <= 4 and not (cell[0] and cell[1])
        if feature.op == "quantile":
            assert all(len(bucket) <= 6 for bucket in cell[0])
        if feature.op == "top_k" and feature.params["type"] == "str":
            used = sum(len(value.encode()) for value in cell[0])
            assert cell[1] == used and (used <= 6 or len(cell[0]) == 1)


OLD, NEW = FeatureSet(SPECS[::4]), FeatureSet(SPECS[::6])


@examples(100, phases=WITHOUT_SHRINKING)
@given(logs(), st.data())
def test_a_feature_added_later_starts_empty_and_one_dropped_leaves_the_others(
    events: list[Event], data: st.DataObject
) -> None:
    split = data.draw(st.integers(0, len(events)))
    state = NEW.decode(OLD.encode(fold(OLD, events[:split])))
    fold(NEW, events[split:], state)
    now = (events[-1].stamp if events else 0) + data.draw(GAPS)
    kept = {feature.name for feature in OLD._specs}
    values = NEW.read(state, now)
    for feature in NEW._specs:
        since = events if feature.name in kept else events[split:]
        assert is_same(values[feature.name], expected(feature, since, now)), feature.name


def test_a_bucket_counts_until_its_start_is_as_old_as_the_window() -> None:
    window = Window.of(100)
    assert window.width_ms == 2
    for now in range(1_000, 1_205):
        wanted = [bucket for bucket in range(400, 700) if now - bucket * 2 < 100]
        assert window.first_live(now) == wanted[0]
        assert bisect_left(range(400, 603), window.first_live(now)) == wanted[0] - 400


HUGE = st.sampled_from(
    [1.7e308, -1.7e308, 5e-324, math.inf, -math.inf, math.nan, 2**63 - 1, -(2**63), 2**70, 10**400]
)


@examples(150, phases=WITHOUT_SHRINKING)
@given(st.lists(st.tuples(HUGE, HUGE, HUGE, HUGE, GAPS), max_size=12))
def test_no_number_raises_or_is_read_as_infinite(rows: list[tuple[Any, ...]]) -> None:
    state, stamp = TABLE.new(), 0
    for offset, (f, i, lat, lon, gap) in enumerate(rows):
        stamp += gap
        integer = int(i) if isinstance(i, int) or math.isfinite(i) else None
        row = {"f": f, "i": integer, "s": "x" * 1024, "b": True, "lat": lat, "lon": lon}
        TABLE.fold(state, row, stamp, 0, offset)
        state = TABLE.copy(state)
        json.dumps(TABLE.read(state, stamp), allow_nan=False)
    assert len(TABLE.encode(state)) <= TABLE.max_bytes
