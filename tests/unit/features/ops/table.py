"""A table with each operator: for all time, in windows, and with conditions."""

from __future__ import annotations

from typing import Any

from headrace.features.pipeline.features import FeatureSet, FeatureSpec, check_operator
from headrace.features.pipeline.ops import CATALOGUE
from tests.unit.features.ops.oracle import Event, answer

TYPES = {"f": "f64", "i": "i64", "s": "str", "b": "bool", "lat": "f64", "lon": "f64"}

PARAMS: dict[str, dict[str, Any]] = {
    "histogram": {"buckets": [-10, 0, 2.5, 100]},
    "reservoir_sample": {"samples": 3},
    "burst_count": {"sub_window": "7ms"},
    "quantile": {"q": 0.3},
    "top_k": {"k": 2},
    "outlier_count": {"sigma": 1.37},
    "event_type_mix": {"max_categories": 2},
    "distance_from_home": {"samples": 3},
    **{op: {"n": 2} for op in ("time_since_last_n", "most_recent_n", "first_n", "last_n", "lag")},
    **{op: {"half_life": "40ms"} for op in ("ewma", "ema", "ewvar", "ew_zscore", "decayed_sum", "decayed_count")},
}
WINDOWS = ("64ms", "100ms", "1h")
"""Buckets of 1 ms; of 2 ms, which don't divide the window evenly into 64; and of nearly a minute."""


def is_large(row: dict[str, Any]) -> Any:
    """A condition with three answers, of which only True counts."""
    return None if row["f"] is None else row["f"] > 0


def spec(op: str, given: dict[str, Any], where: Any = None) -> FeatureSpec:
    """Returns a feature named after what it is."""
    params = check_operator(op, given, TYPES)[1]
    name = f"{op} {sorted(given.items())}{' where' if where else ''}"
    return FeatureSpec(name, name, op, params, where)


def specs() -> list[FeatureSpec]:
    """Returns each operator over each kind of field it takes, in each window it takes, with and without a condition."""
    found = []
    for op, kind in CATALOGUE.items():
        fields: list[dict[str, Any]] = [{}]
        if kind.reads == "number":
            fields = [{"field": "f"}, {"field": "i"}]
        if kind.reads == "any":
            fields = [{"field": name} for name in "fisb"]
        if kind.reads == "point":
            fields = [{"lat_field": "lat", "lon_field": "lon"}]
        windows: list[dict[str, Any]] = [{}]
        if kind.windowed:
            windows += [{"window": window} for window in WINDOWS]
        if op == "first_seen_in_window":
            windows = [{"window": window} for window in WINDOWS]
        for field in fields:
            for window in windows:
                given = {**PARAMS.get(op, {}), **field, **window}
                wheres = (None, is_large) if field in ({}, fields[0]) else (None,)
                found += [spec(op, given, where) for where in wheres]
    return found


def expected(feature: FeatureSpec, events: list[Event], now: int) -> Any:
    """Returns what the oracle says about a feature."""
    where = feature.where
    judged = [event._replace(matches=where is None or where(event.row) is True) for event in events]
    return answer(feature.op, feature.params, judged, now)


def fold(table: FeatureSet, events: list[Event], state: Any = None) -> Any:
    """Returns the state after these events."""
    state = table.new() if state is None else state
    for event in events:
        table.fold(state, event.row, event.stamp, event.lane, event.offset)
    return state
