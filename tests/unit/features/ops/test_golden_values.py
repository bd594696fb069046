"""The contract's sentences about operators (§ 5, § 6) on small logs, with values worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.features.pipeline.features import FeatureSet, FeatureSpec, check_operator

TYPES = {"x": "f64", "n": "i64", "s": "str", "lat": "f64", "lon": "f64", "ok": "bool"}
HOUR_MS = 3_600_000
MONDAY = 1_767_571_200_000  # 2026-01-05T00:00Z, a Monday


def ask(op: str, events: list[tuple[int, Any]], now: int | None = None, **params: Any) -> Any:
    """Returns what the operator answers after events of (stamp, value of its field, or whole row)."""
    where = params.pop("where", None)
    checked = check_operator(op, params, TYPES)[1]
    table = FeatureSet([FeatureSpec("f", "f", op, checked, where)])
    state = table.new()
    for offset, (stamp, value) in enumerate(events):
        row = value if isinstance(value, dict) else {params.get("field", "x"): value}
        table.fold(state, row, stamp, 0, offset)
    return table.read(state, events[-1][0] if now is None and events else now or 0)["f"]


def at(*values: Any, gap: int = 1000, start: int = MONDAY) -> list[tuple[int, Any]]:
    """Returns events a gap apart."""
    return [(start + place * gap, value) for place, value in enumerate(values)]


NOTHING: dict[str, Any] = {
    "count": 0, "sum": None, "mean": None, "min": None, "max": None, "var": None, "std": None, "ratio": None,
    "n_unique": 0, "first": None, "last": None, "quantile": None, "top_k": [], "bloom_member": False, "entropy": 0.0,
    "hour_of_day_histogram": [0] * 24, "event_type_mix": {}, "first_seen": None, "last_seen": None, "age": None,
    "time_since": None, "has_seen": False, "streak": 0, "max_streak": 0, "negative_streak": 0, "twa": None,
    "rate_of_change": None, "inter_arrival_stats": None, "trend": None, "trend_residual": None, "outlier_count": 0,
    "value_change_count": 0, "z_score": None, "seasonal_deviation": None, "delta_from_prev": None,
    "geo_velocity": None, "geo_distance": 0.0, "geo_spread": None, "distance_from_home": None,
}  # fmt: skip
FIELDS = {"field": "x", "lat_field": "lat", "lon_field": "lon"}


@pytest.mark.parametrize(("op", "value"), NOTHING.items())
def test_an_operator_without_events_answers(op: str, value: Any) -> None:
    assert ask(op, [], **FIELDS) == value


@pytest.mark.parametrize(
    ("op", "value"),
    [
        ("sum", 12.0), ("mean", 4.0), ("min", 1.0), ("max", 8.0), ("var", 13.0), ("std", 13.0**0.5), ("first", 3.0),
        ("last", 8.0), ("count", 4), ("value_change_count", 2), ("delta_from_prev", 7.0),
    ],
)  # fmt: skip
def test_nulls_are_skipped_but_counted_as_rows(op: str, value: Any) -> None:
    assert ask(op, at(3.0, 1.0, None, 8.0), field="x") == pytest.approx(value)


def test_var_divides_by_n_less_one_and_is_null_below_two_values() -> None:
    assert ask("var", at(5.0), field="x") is None
    assert ask("var", at(2.0, 4.0), field="x") == 2.0


def test_min_and_max_keep_the_type_of_the_field() -> None:
    assert ask("min", at("b", "ab", "ä"), field="s") == "ab"
    assert ask("max", at("\uffff", "😀"), field="s") == "😀"  # UTF-8 order; UTF-16 has it the other way round
    assert ask("max", at(7, 6), field="n") == 7
    assert ask("max", at(7, 6.5), field="x") == 7
    assert ask("max", at(True, False), field="ok") is True


def test_a_condition_narrows_the_numerator_of_a_ratio() -> None:
    assert ask("ratio", at(1.0, 5.0, 6.0, 2.0), where=lambda row: row["x"] > 4) == 0.5
    assert ask("ratio", at(1.0)) == 1.0


def test_a_window_forgets_what_is_older() -> None:
    events = [(0, 1.0), (99, 10.0), (101, 100.0)]  # buckets of 2 ms: [0, 2), [98, 100), [100, 102)
    assert ask("sum", events[:2], now=99, field="x", window="100ms") == 11.0
    assert ask("sum", events[:2], now=100, field="x", window="100ms") == 10.0
    assert ask("sum", events, now=0, field="x", window="100ms") == 110.0  # a read is never before the newest event
    assert ask("sum", events, now=197, field="x", window="100ms") == 110.0
    assert ask("sum", events, now=198, field="x", window="100ms") == 100.0
    assert ask("sum", events, now=200, field="x", window="100ms") is None
    assert ask("sum", events, now=200, field="x", window="forever") == 111.0


def test_a_quantile_interpolates_at_q_times_n_less_one() -> None:
    assert ask("quantile", at(10.0, 40.0, 20.0, 30.0), field="x", q=0.5) == 25.0
    assert ask("quantile", at(10.0, 40.0, 20.0, 30.0), field="x", q=0.9) == pytest.approx(37.0)
    assert ask("quantile", at(7, 5), field="n") == 6.0


def test_top_k_is_by_count_then_value() -> None:
    values = at("b", "c", "a", "c", "b", "d")
    assert ask("top_k", values, field="s", k=3) == [
        {"value": "b", "count": 2},
        {"value": "c", "count": 2},
        {"value": "a", "count": 1},
    ]


def test_bloom_member_says_whether_the_newest_value_came_before() -> None:
    assert ask("bloom_member", at("a"), field="s") is False
    assert ask("bloom_member", at("a", "b"), field="s") is False
    assert ask("bloom_member", at("a", "b", None, "a"), field="s") is True


def test_entropy_is_in_bits() -> None:
    assert ask("entropy", at("a", "b", "c", "d"), field="s") == 2.0
    assert ask("entropy", at("a", "a", "b", "c"), field="s") == 1.5
    assert ask("entropy", at("a", "a"), field="s") == 0.0


def test_numbers_are_one_value_however_they_are_written() -> None:
    assert ask("n_unique", at(1, 1.0, 0.0, -0.0, 1.5), field="x") == 3
    assert ask("top_k", at(1, 1.0), field="x") == [{"value": 1, "count": 2}]
    assert ask("bloom_member", at(1, 1.0), field="x") is True


def test_a_histogram_has_a_label_for_each_range() -> None:
    found = ask("histogram", at(9.9, 10, 99.5, 100, -1), field="x", buckets=[10, 100.0])
    assert found == {"<10": 2, "10-100": 2, ">=100": 1}
    assert list(ask("histogram", [], field="x", buckets=[0.5])) == ["<0.5", ">=0.5"]


def test_histograms_of_hours_are_in_utc() -> None:
    events = [(MONDAY, 0.0), (MONDAY + 23 * HOUR_MS, 0.0), (MONDAY + 6 * 24 * HOUR_MS, 0.0)]
    assert ask("hour_of_day_histogram", events) == [2, *[0] * 22, 1]
    week = ask("dow_hour_histogram", events)
    assert len(week) == 168
    assert {key: count for key, count in week.items() if count} == {"Mon-00": 1, "Mon-23": 1, "Sun-00": 1}


def test_rejected_categories_stay_in_the_denominator_of_a_mix() -> None:
    events = at("a", "b", "a", "c")
    assert ask("event_type_mix", events, field="s", categories=["a", "z"]) == {"a": 0.5}
    assert ask("event_type_mix", events, field="s", max_categories=2) == {"a": 0.5, "b": 0.25}


def test_buffers_are_oldest_first() -> None:
    events = at(1.0, None, 2.0, 3.0, 4.0)
    assert ask("first_n", events, field="x", n=2) == [1.0, 2.0]
    assert ask("last_n", events, field="x", n=2) == [3.0, 4.0]
    assert ask("most_recent_n", events, field="x", n=3) == [2.0, 3.0, 4.0]
    assert ask("lag", events, field="x", n=3) == 1.0
    assert ask("lag", events, field="x", n=4) is None


def test_recency_is_in_ms() -> None:
    events, now = at(1.0, 1.0, 1.0), MONDAY + 5000
    assert ask("first_seen", events) == MONDAY
    assert ask("last_seen", events) == MONDAY + 2000
    assert ask("age", events, now) == 5000
    assert ask("time_since", events, now) == 3000
    assert ask("time_since_last_n", events, now, n=3) == 5000
    assert ask("time_since_last_n", events, now, n=4) is None
    assert ask("has_seen", events) is True
    assert ask("first_seen_in_window", events, MONDAY + 2099, window="100ms") is True
    assert ask("first_seen_in_window", events, MONDAY + 2100, window="100ms") is False


def test_time_does_not_run_backwards() -> None:
    assert ask("time_since", at(1.0, 1.0), now=MONDAY) == 0
    assert ask("last_seen", [(MONDAY, 1.0), (MONDAY - 5, 1.0)]) == MONDAY


def test_streaks_are_runs_of_the_condition() -> None:
    events = at(1.0, 1.0, 1.0, 0.0, None, 1.0)
    condition = {"where": lambda row: None if row["x"] is None else row["x"] > 0}
    assert ask("streak", events, **condition) == 1
    assert ask("max_streak", events, **condition) == 3
    assert ask("negative_streak", events, **condition) == 0
    assert ask("negative_streak", events[:5], **condition) == 2
    assert ask("streak", events) == 6


def test_ewma_moves_half_way_in_a_half_life_and_within_one_ms() -> None:
    assert ask("ewma", at(10.0), field="x", half_life="1s") == 10.0
    assert ask("ewma", at(10.0, 20.0), field="x", half_life="1s") == 15.0
    assert ask("ema", at(10.0, 20.0), field="x", half_life="500ms") == 17.5
    assert ask("ewma", at(10.0, 20.0, 30.0, gap=0), field="x", half_life="1s") == 22.5


def test_ewvar_and_its_score_follow_the_contract() -> None:
    # a = 1/2: d = 8, m = 4, s = 1/2 * 0 + 1/2 * 8 * 4 = 16; z = (8 - 4) / 4
    assert ask("ewvar", at(0.0), field="x", half_life="1s") == 0.0
    assert ask("ewvar", at(0.0, 8.0), field="x", half_life="1s") == 16.0
    assert ask("ew_zscore", at(0.0, 8.0), field="x", half_life="1s") == 1.0
    # then d = 0, m = 4, s = 8
    assert ask("ewvar", at(0.0, 8.0, 4.0), field="x", half_life="1s") == 8.0
    assert ask("ewvar", at(0.0, 8.0, gap=0), field="x", half_life="1s") == 0.0
    assert ask("ew_zscore", at(0.0, 8.0, gap=0), field="x", half_life="1s") is None
    # after a pause in which all before has faded, equal values have no deviation
    paused = [*at(0.1, 661.3), *at(0.7, 0.7, start=MONDAY + 10**8)]
    assert ask("ew_zscore", paused, field="x", half_life="1s") is None
    assert ask("ewvar", paused, field="x", half_life="1s") == 0.0


def test_decay_is_as_of_the_newest_event() -> None:
    assert ask("decayed_sum", at(8.0, 1.0, 1.0), now=MONDAY + 9 * HOUR_MS, field="x", half_life="1s") == 3.5
    assert ask("decayed_count", at(8.0, None, 1.0), half_life="1s") == 1.75


def test_twa_weighs_a_value_by_the_time_until_the_next() -> None:
    events = [(MONDAY, 10.0), (MONDAY + 1000, 20.0), (MONDAY + 4000, 99.0)]
    assert ask("twa", events, field="x") == (10 * 1000 + 20 * 3000) / 4000
    assert ask("twa", events[:1], field="x") == 10.0
    assert ask("twa", at(1.0, 2.0, gap=0), field="x") == 2.0


def test_velocity_is_per_ms() -> None:
    assert ask("rate_of_change", at(1.0, 5.0, 3.0), field="x") == -0.002
    assert ask("rate_of_change", at(1.0, 5.0, gap=0), field="x") is None
    assert ask("inter_arrival_stats", at(1.0, None, 3.0)) == 1000.0
    assert ask("delta_from_prev", at(5, 3), field="n") == -2
    assert ask("delta_from_prev", at(2**63 - 1, -(2**63)), field="n") == -(2**63)


def test_a_window_of_a_velocity_operator_is_honoured() -> None:
    events = [(0, 1.0), (1000, 5.0), (1001, 8.0)]
    assert ask("rate_of_change", events, now=1001, field="x", window="100ms") == 3.0
    assert ask("delta_from_prev", events, now=1001, field="x", window="100ms") == 3.0
    assert ask("delta_from_prev", events[:2], now=1000, field="x", window="100ms") is None
    assert ask("rate_of_change", events[:2], now=1000, field="x", window="100ms") is None
    assert ask("inter_arrival_stats", events, now=1001, window="100ms") == 1.0
    assert ask("value_change_count", events, now=1001, field="x") == 2
    assert ask("trend", events, now=1001, field="x", window="100ms") == 3.0
    assert ask("twa", events, now=1001, field="x", window="100ms") == 5.0
    assert ask("z_score", [(0, 9.0), *events[1:]], now=1001, field="x", baseline_window="100ms") == pytest.approx(
        0.5**0.5
    )


def test_burst_count_is_the_largest_count_of_an_aligned_sub_window() -> None:
    events = [(MONDAY + ms, 0.0) for ms in (0, 900, 999, 1000, 1001, 5000)]
    assert ask("burst_count", events, sub_window="1s") == 3


def test_trend_keeps_its_digits_at_epoch_stamps() -> None:
    # y = 0.5 t + 1e-3 t^2 over t = 0 .. 4 ms: slope 0.5 + 4e-3, last residual (16 - 6 - 4 * 2) * 1e-3
    events = [(MONDAY + t, 0.5 * t + 1e-3 * t * t) for t in range(5)]
    assert ask("trend", events, field="x") == pytest.approx(0.504, rel=1e-12)
    assert ask("trend_residual", events, field="x") == pytest.approx(2e-3, rel=1e-9)
    assert ask("trend", at(1.0, 2.0, gap=0), field="x") is None


def test_an_outlier_needs_five_values_before_it() -> None:
    assert ask("outlier_count", at(1.0, 2.0, 3.0, 2.0, 1000.0), field="x") == 0
    assert ask("outlier_count", at(1.0, 2.0, 3.0, 2.0, 2.0, 1000.0), field="x") == 1
    assert ask("outlier_count", at(2.0, 2.0, 2.0, 2.0, 2.0, 1000.0), field="x") == 0  # no spread, no measure
    # mean 2, deviation 0.5 ** 0.5: 4 is 2.83 deviations away
    assert ask("outlier_count", at(1.0, 2.0, 3.0, 2.0, 2.0, 4.0), field="x") == 0
    assert ask("outlier_count", at(1.0, 2.0, 3.0, 2.0, 2.0, 4.0), field="x", sigma=2.8) == 1


def test_scores_include_the_newest_value() -> None:
    assert ask("z_score", at(1.0, 2.0, 3.0), field="x") == 1.0
    assert ask("z_score", at(2.0, 2.0), field="x") is None
    events = [(MONDAY, 1.0), (MONDAY + HOUR_MS, 77.0), (MONDAY + 24 * HOUR_MS, 2.0), (MONDAY + 48 * HOUR_MS, 3.0)]
    assert ask("seasonal_deviation", events, field="x") == 1.0


def point(lat: float | None, lon: float | None) -> dict[str, Any]:
    return {"lat": lat, "lon": lon}


def test_distances_are_haversine_on_a_sphere_of_6371_km() -> None:
    degree = 6371 * 3.141592653589793 / 180
    path = [(0, point(0, 0)), (0, point(0, None)), (HOUR_MS, point(0, 1)), (HOUR_MS, point(1, 1))]
    names = {"lat_field": "lat", "lon_field": "lon"}
    assert ask("geo_distance", path, **names) == pytest.approx(2 * degree, rel=1e-9)
    assert ask("geo_velocity", path, **names) == pytest.approx(degree, rel=1e-9)
    assert ask("geo_velocity", path[:1], **names) == 0.0
    assert ask("geo_velocity", [(0, point(0, 0)), (1, point(0, 1))], **names) == pytest.approx(degree * HOUR_MS)
    # Paris to London
    cities = [(0, point(48.8566, 2.3522)), (1, point(51.5074, -0.1278))]
    assert ask("geo_distance", cities, lat="lat", lon="lon") == pytest.approx(343.556, abs=1e-3)
    assert ask("geo_spread", [(0, point(0, 0)), (1, point(0, 2))], **names) == pytest.approx(111.32)
    assert ask("geo_spread", [(0, point(60, 0)), (1, point(60, 2))], **names) == pytest.approx(111.32 / 2)
    home = [(0, point(80, 80)), (1, point(0, 0)), (2, point(0, 2))]
    assert ask("distance_from_home", home, **names, samples=2) == pytest.approx(degree, rel=1e-9)
    assert ask("geo_distance", [(0, point(0, 0)), (1, point(91, 0)), (2, point(0, 400))], **names) == 0.0
