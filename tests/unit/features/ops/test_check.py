"""Registration refuses parameters with the contract's codes, and keeps a normal form of the others."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.features.errors import OperatorError
from headrace.features.pipeline.features import FeatureSet, FeatureSpec, check_operator
from headrace.features.pipeline.ops import CATALOGUE

TYPES = {"x": "f64", "n": "i64", "s": "str", "ok": "bool", "t": "datetime", "raw": "bytes", "doc": "json"}
FIELD = {"field": "x"}
UNBOUNDED, INVALID, WINDOW = "unbounded_op_in_lifetime_mode", "invalid_registration", "aggregation_invalid_window"
UNKNOWN_FIELD = "aggregation_unknown_field"
LAT_LON = {"lat_field": "x", "lon_field": "x"}
NEEDED: dict[str, dict[str, Any]] = {
    "histogram": {"buckets": [1]}, "reservoir_sample": {"samples": 1}, "burst_count": {"sub_window": "1s"},
    **{op: {"n": 1} for op in ("time_since_last_n", "most_recent_n", "first_n", "last_n", "lag")},
    **{op: {"half_life": "1s"} for op in ("ewma", "ema", "ewvar", "ew_zscore", "decayed_sum", "decayed_count")},
    **dict.fromkeys(("geo_velocity", "geo_distance", "geo_spread", "distance_from_home"), LAT_LON),
}  # fmt: skip
WINDOWED = {
    "count", "sum", "mean", "min", "max", "var", "std", "ratio", "n_unique", "quantile", "top_k", "entropy",
    "delta_from_prev", "rate_of_change", "inter_arrival_stats", "burst_count", "trend", "trend_residual", "outlier_count",
    "value_change_count", "z_score", "twa", "first_seen_in_window",
}  # fmt: skip


def refusal(op: str, params: Any) -> tuple[str, str | None]:
    """Returns code and parameter of the refusal; its reason has to say something."""
    with pytest.raises(OperatorError) as caught:
        check_operator(op, params, TYPES)
    assert 10 < len(caught.value.reason) < 250
    return caught.value.code, caught.value.param


@pytest.mark.parametrize("op", CATALOGUE)
def test_a_window_is_accepted_where_the_contract_says(op: str) -> None:
    params = {**FIELD, **NEEDED.get(op, {}), "window": "90s"}
    if op in WINDOWED:
        assert check_operator(op, params, TYPES)[1]["window"] == 90_000
    else:
        assert refusal(op, params) == ("window_not_supported" if op == "bloom_member" else WINDOW, "window")


@pytest.mark.parametrize(
    ("op", "params", "code", "param"),
    [
        ("median", {}, UNBOUNDED, None),
        ("x" * 10_000, {}, UNBOUNDED, None),
        ("median", {"window": "1h"}, "aggregation_unknown_op", None),
        ("avg", {"window": "1h"}, "aggregation_unknown_op", None),
        ("count", [], INVALID, None),
        ("sum", {}, UNKNOWN_FIELD, "field"),
        ("sum", {"field": "nope"}, UNKNOWN_FIELD, "field"),
        ("sum", {"field": ["x"]}, UNKNOWN_FIELD, "field"),
        ("sum", {"field": "s"}, INVALID, "field"),
        ("last", {"field": "doc"}, INVALID, "field"),
        ("geo_distance", {"lat_field": "x"}, UNKNOWN_FIELD, "lon_field"),
        ("geo_distance", {"lat": "nope", "lon": "x"}, UNKNOWN_FIELD, "lat"),
        ("geo_distance", {"lat": "s", "lon": "x"}, INVALID, "lat"),
        *[
            ("count", {"window": window}, WINDOW, "window")
            for window in ("0s", "5", "1w", "", 60, "-1s", "1.5h", True)
        ],
        *[("count", {"window": window}, WINDOW, "window") for window in ("1h ", "１h", "9" * 30 + "d", "36526d", [])],
        ("first_seen_in_window", {}, WINDOW, "window"),
        ("first_seen_in_window", {"window": "forever"}, WINDOW, "window"),
        ("first", {**FIELD, "window": "forever"}, WINDOW, "window"),
        ("z_score", {**FIELD, "baseline_window": "x"}, WINDOW, "baseline_window"),
        *[
            ("quantile", {**FIELD, "q": q}, "invalid_percentile_q", "q")
            for q in (0, 1, -1, "0.5", True, float("nan"))
        ],
        *[("top_k", {**FIELD, "k": k}, "invalid_top_k_k", "k") for k in (0, 1025, 1.5, "1", True, 10**400)],
        *[("bloom_member", {**FIELD, "fpr": fpr}, "invalid_bloom_fpr", "fpr") for fpr in (0, 1, "x")],
        ("bloom_member", {**FIELD, "capacity": 10**9}, INVALID, "capacity"),
        *[(op, FIELD, UNBOUNDED, "n") for op in ("most_recent_n", "first_n", "last_n", "lag", "time_since_last_n")],
        *[("lag", {**FIELD, "n": n}, INVALID, "n") for n in (0, 1025, "1", 1.0, True)],
        ("histogram", FIELD, UNBOUNDED, "buckets"),
        ("histogram", {**FIELD, "buckets": []}, UNBOUNDED, "buckets"),
        *[("histogram", {**FIELD, "buckets": b}, INVALID, "buckets") for b in ([2, 1], [1, 1], ["1"], 5, [1e999])],
        ("histogram", {**FIELD, "buckets": list(range(1025))}, INVALID, "buckets"),
        ("reservoir_sample", FIELD, UNBOUNDED, "samples"),
        ("reservoir_sample", {**FIELD, "samples": 0}, INVALID, "samples"),
        ("distance_from_home", {**LAT_LON, "samples": 1025}, INVALID, "samples"),
        *[("ewma", {**FIELD, "half_life": value}, INVALID, "half_life") for value in (None, "forever", "0s", 5)],
        ("burst_count", {}, INVALID, "sub_window"),
        ("burst_count", {"sub_window": "forever"}, INVALID, "sub_window"),
        *[("outlier_count", {**FIELD, "sigma": sigma}, INVALID, "sigma") for sigma in (0, -1, "3", float("inf"))],
        ("event_type_mix", {"field": "s", "categories": "a"}, INVALID, "categories"),
        ("event_type_mix", {"field": "s", "categories": [["a"]]}, INVALID, "categories"),
        ("event_type_mix", {"field": "s", "categories": ["x" * 1025]}, INVALID, "categories"),
        ("event_type_mix", {"field": "s", "max_categories": 0}, INVALID, "max_categories"),
    ],
)
def test_bad_parameters_are_refused(op: str, params: Any, code: str, param: str | None) -> None:
    assert refusal(op, params) == (code, param)


@pytest.mark.parametrize(
    ("op", "params", "result", "normal"),
    [
        ("count", {"window": "1h", "unknown": 1}, "i64", {"window": 3_600_000}),
        ("count", {"window": "forever"}, "i64", {}),
        ("sum", {"field": "n"}, "f64", {"field": "n", "type": "i64"}),
        ("max", {"field": "s"}, "str", {"field": "s", "type": "str"}),
        ("lag", {"field": "t", "n": 2}, "datetime", {"n": 2, "field": "t", "type": "datetime"}),
        ("first", {"field": "raw"}, "bytes", {"field": "raw", "type": "bytes"}),
        ("delta_from_prev", {"field": "n"}, "i64", {"field": "n", "type": "i64"}),
        ("delta_from_prev", FIELD, "f64", {"field": "x", "type": "f64"}),
        ("quantile", FIELD, "f64", {"q": 0.5, "field": "x", "type": "f64"}),
        ("top_k", FIELD, "json", {"k": 10, "field": "x", "type": "f64"}),
        ("outlier_count", FIELD, "i64", {"sigma": 3.0, "field": "x", "type": "f64"}),
        ("z_score", {**FIELD, "baseline_window": "2s"}, "f64", {"window": 2_000, "field": "x", "type": "f64"}),
        ("geo_spread", {"lat": "x", "lon": "n"}, "f64", {"lat_field": "x", "lon_field": "n"}),
        ("distance_from_home", LAT_LON, "f64", {**LAT_LON, "samples": 100}),
        ("event_type_mix", FIELD, "json", {"max_categories": 256, "field": "x", "type": "f64"}),
        ("bloom_member", FIELD, "bool", {"capacity": 1024, "fpr": 0.01, "field": "x", "type": "f64"}),
        ("first_seen_in_window", {"window": "5m"}, "bool", {"window": 300_000}),
        ("ema", {**FIELD, "half_life": "250ms"}, "f64", {"half_life": 250, "field": "x", "type": "f64"}),
    ],
)
def test_good_parameters_get_a_normal_form(op: str, params: Any, result: str, normal: dict[str, Any]) -> None:
    assert check_operator(op, params, TYPES) == (result, normal)


def longest(*asked: tuple[str, dict[str, Any]]) -> int | None:
    """Returns the longest window of a table with these features."""
    specs = [FeatureSpec(op, op, op, check_operator(op, params, TYPES)[1]) for op, params in asked]
    return FeatureSet(specs).longest_window_ms


def test_a_table_forgets_only_if_all_its_features_do() -> None:
    short, long = ("count", {"window": "1m"}), ("sum", {**FIELD, "window": "1h"})
    assert longest() is None
    assert longest(short, long) == 3_600_000
    assert longest(short, ("mean", FIELD)) is None
    assert longest(short, ("outlier_count", {**FIELD, "window": "1m"})) is None  # its baseline has no window
    assert longest(("burst_count", {"window": "1m", "sub_window": "1h"})) == 3_600_000
