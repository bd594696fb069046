"""What each operator answers over HTTP, against the plainest recomputation from all events (`ops/oracle.py`)."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.features.pipeline.ops import CATALOGUE
from headrace.features.pipeline.ops.check import check_operator
from tests.conformance.features.client import Namespace, alike, answered, rejected
from tests.conformance.features.test_read import as_of
from tests.unit.features.ops import oracle
from tests.unit.features.ops.table import PARAMS
from tests.unit.features.ops.test_golden_values import NOTHING
from tests.unit.features.pipeline.documents import event, table

TYPES = {"k": "str", "x": "f64", "i": "i64", "s": "str", "b": "bool", "lat": "f64", "lon": "f64"}
OPTIONAL = ["x", "i", "s", "b", "lat", "lon"]
EVENT = event("Ev", fields=TYPES, optional=OPTIONAL)
WINDOWED = {"count", "sum", "mean", "min", "max", "var", "std", "ratio", "n_unique", "quantile", "top_k", "entropy"}
VELOCITY = {
    "rate_of_change", "inter_arrival_stats", "burst_count", "trend", "trend_residual", "outlier_count",
    "value_change_count", "z_score", "delta_from_prev", "twa",
}  # fmt: skip
WHERE = "(x > 1)"
MONTH_MS = 30 * 86_400_000


def params_of(op: str, field: str = "x") -> dict[str, Any]:
    """Returns parameters with which an operator is accepted."""
    kind = CATALOGUE[op].reads
    found: dict[str, Any] = dict(PARAMS.get(op, {}))
    if kind in ("number", "any"):
        found["field"] = field
    if kind == "point":
        found |= {"lat_field": "lat", "lon_field": "lon"}
    if op == "first_seen_in_window":
        found["window"] = "30d"
    return found


def every() -> dict[str, dict[str, Any]]:
    """Returns an aggregation for each operator and each kind of field that it takes, some with a window or a condition."""
    found: dict[str, dict[str, Any]] = {}
    for op, kind in CATALOGUE.items():
        fields = {"number": "xi", "any": "xisb"}.get(kind.reads, "x")
        for field in fields:
            found[f"{op}_{field}"] = {"op": op, "params": params_of(op, field)}
        first = params_of(op)
        found[f"{op}_where"] = {"op": op, "params": first | {"where": WHERE}}
        if kind.windowed:
            found[f"{op}_window"] = {"op": op, "params": first | {"window": "30d"}}
    return found


def expected(spec: dict[str, Any], events: list[oracle.Event], now: int) -> Any:
    """Returns what the oracle says about a feature."""
    given = dict(spec["params"])
    where = given.pop("where", None)
    judged = [
        one._replace(matches=where is None or (one.row["x"] is not None and one.row["x"] > 1)) for one in events
    ]
    return oracle.answer(spec["op"], check_operator(spec["op"], given, TYPES)[1], judged, now)


ROWS: list[dict[str, Any]] = [
    {"x": 1.5, "i": 3, "s": "b", "b": True, "lat": 48.8566, "lon": 2.3522},
    {"x": -4.0, "i": 3, "s": "a", "b": False, "lat": 51.5074, "lon": -0.1278},
    {"x": None, "i": None, "s": None, "b": None, "lat": None, "lon": 3.0},
    {"x": 2.5, "i": 2**40, "s": "b", "b": True, "lat": 48.8566, "lon": 2.3522},
    {"x": 2.5, "i": -7, "s": "c", "b": True, "lat": 0.0, "lon": 179.9},
    {"x": 100.0, "i": 3, "s": "", "b": False, "lat": 0.0, "lon": -179.9},
]  # fmt: skip
BATCH: list[dict[str, Any]] = [
    {"x": 2.0, "i": 1, "s": "b", "b": True, "lat": 10.0, "lon": 10.0},
    {"x": 7.0, "i": 0, "s": "d", "b": False, "lat": 10.0, "lon": 11.0},
    {"x": 1000.0, "i": 5, "s": "a", "b": True, "lat": 10.0, "lon": 10.0},
]  # fmt: skip


@pytest.mark.sensitive("sealed events, and rows of the folder")
def test_each_operator_agrees_with_the_oracle(space: Namespace) -> None:
    specs = every()
    names = sorted(specs)
    tables = [
        table(f"T{place}", upstream="Ev", keys=["k"], agg={name: specs[name] for name in names[place::4]})
        for place in range(4)
    ]
    clock = table("Clock", upstream="Ev", keys=["k"], agg={"at": {"op": "last_seen", "params": {}}})
    space.has(EVENT, *tables, clock)
    events: list[oracle.Event] = []

    def check() -> None:
        answer = space.get_all(*[(f"T{place}", "a") for place in range(4)])
        now, lanes = as_of(answer)
        assert lanes == {"Ev": len(events)}
        for place, row in enumerate(answered(answer)["results"]):
            for name in names[place::4]:
                wanted = expected(specs[name], events, now)
                assert alike(row[name], wanted), (name, row[name], wanted, events)

    for rows in ([ROWS[0]], [ROWS[1]], [ROWS[2]], ROWS[3:4], ROWS[4:5], ROWS[5:], BATCH, BATCH[:1]):
        answered(space.post("/push/Ev/batch", [{"k": "a", **row} for row in rows]))
        stamp = space.row("Clock")["at"]
        events += [oracle.Event(stamp, 0, len(events) + place, row) for place, row in enumerate(rows)]
        check()


def test_an_operator_to_which_no_event_contributes_answers(space: Namespace) -> None:
    agg = {op: {"op": op, "params": params_of(op) | {"where": "(x > 1000)"}} for op in CATALOGUE}
    space.has(EVENT, table("T", upstream="Ev", keys=["k"], agg=agg))
    space.filled({"k": "a", "x": 1, "lat": 1, "lon": 1}, event="Ev")
    row = space.row("T")
    hours = {"dow_hour_histogram": dict.fromkeys(row["dow_hour_histogram"], 0)}
    histogram = {"histogram": {"<-10": 0, "-10-0": 0, "0-2.5": 0, "2.5-100": 0, ">=100": 0}}
    lists = {op: [] for op in ("most_recent_n", "first_n", "last_n", "reservoir_sample")}
    null = dict.fromkeys(("lag", "time_since_last_n", "ewma", "ema", "ewvar", "ew_zscore", "decayed_sum"))
    other = {
        "burst_count": 0,
        "first_seen_in_window": False,
        "decayed_count": None,
        "ratio": 0.0,
        "negative_streak": 1,
    }
    assert row == {**NOTHING, **hours, **histogram, **lists, **null, **other}
    assert len(row["dow_hour_histogram"]) == 168


def test_nulls_are_skipped_by_fields_and_counted_as_rows(space: Namespace) -> None:
    agg = {op: {"op": op, "params": params_of(op)} for op in CATALOGUE}
    space.has(EVENT, table("T", upstream="Ev", keys=["k"], agg=agg))
    space.filled({"k": "a"}, {"k": "a"}, event="Ev")
    row = space.row("T")
    of_rows = {op for op, kind in CATALOGUE.items() if kind.reads in ("row", "match")}
    for op, nothing in NOTHING.items():
        if op not in of_rows:
            assert row[op] == nothing, op
    assert (row["count"], row["ratio"], row["streak"], row["negative_streak"]) == (2, 1.0, 2, 0)
    assert row["has_seen"] is True and sum(row["hour_of_day_histogram"]) == 2


def test_results_have_their_types(space: Namespace) -> None:
    space.has(EVENT, table("T", upstream="Ev", keys=["k"], agg=every()))
    space.filled({"k": "a", "x": 2, "i": 2, "s": "2", "b": True, "lat": 1, "lon": 1}, event="Ev")
    row = space.row("T")
    for name in ("min_", "max_", "first_", "last_"):
        assert [row[name + field] for field in "xisb"] == [2.0, 2, "2", True]
        assert [type(row[name + field]) for field in "xisb"] == [float, int, str, bool]
    assert type(row["sum_i"]) is float and type(row["mean_i"]) is float and type(row["count_x"]) is int
    assert isinstance(row["top_k_s"], list) and isinstance(row["histogram_x"], dict), "JSON, no text of it"


def test_sketches_are_close(space: Namespace) -> None:
    agg = {
        "n": {"op": "n_unique", "params": {"field": "i"}},
        "q": {"op": "quantile", "params": {"field": "x", "q": 0.9}},
        "median": {"op": "quantile", "params": {"field": "x"}},
        "top": {"op": "top_k", "params": {"field": "s", "k": 2}},
        "bits": {"op": "entropy", "params": {"field": "i"}},
        "new": {"op": "bloom_member", "params": {"field": "i"}},
    }
    space.has(EVENT, table("T", upstream="Ev", keys=["k"], agg=agg))
    events = [{"k": "a", "x": n, "i": n, "s": str(n) if n % 3 else "often"} for n in range(1, 4001)]
    answered(space.post("/push/Ev/batch", events))
    row = space.row("T")
    assert row["n"] == pytest.approx(4000, rel=0.05)  # three standard errors of 1.6 %
    assert row["q"] == pytest.approx(3600, rel=0.011) and row["median"] == pytest.approx(2000, rel=0.011)
    first, second = row["top"]
    assert first["value"] == "often" and 1333 <= first["count"] <= 1333 + 4000 / 1024
    assert second["count"] <= 1 + 4000 / 1024
    assert row["bits"] == pytest.approx(10), "of the first 1,024 values; others are dropped"
    assert row["new"] in (True, False)
    answered(space.push(events[0], "Ev"))
    assert space.row("T")["new"] is True


def test_only_some_operators_take_a_window(space: Namespace) -> None:
    space.has(EVENT)
    for op in CATALOGUE:
        given = params_of(op) | {"window": "1h"}
        answer = space.register(
            table("T", upstream="Ev", keys=["k"], agg={"f": {"op": op, "params": given}}), dry_run=True
        )
        if op in WINDOWED | VELOCITY | {"first_seen_in_window"}:
            answered(answer)
        else:
            code = "window_not_supported" if op == "bloom_member" else "aggregation_invalid_window"
            rejected(answer, code, "nodes[0].ops[0].agg.f.params.window")


BAD: list[tuple[str, dict[str, Any], str, str]] = [
    *[(op, {"n": None}, "unbounded_op_in_lifetime_mode", "n") for op in ("first_n", "last_n", "lag", "most_recent_n")],
    ("time_since_last_n", {"n": None}, "unbounded_op_in_lifetime_mode", "n"),
    ("histogram", {"buckets": None}, "unbounded_op_in_lifetime_mode", "buckets"),
    ("reservoir_sample", {"samples": None}, "unbounded_op_in_lifetime_mode", "samples"),
    *[("first_n", {"n": n}, "invalid_registration", "n") for n in (0, 1025, 1.5, "2")],
    ("reservoir_sample", {"samples": 1025}, "invalid_registration", "samples"),
    ("histogram", {"buckets": [10, 5]}, "invalid_registration", "buckets"),
    *[("quantile", {"q": q}, "invalid_percentile_q", "q") for q in (0, 1, -1, "0.5")],
    *[("top_k", {"k": k}, "invalid_top_k_k", "k") for k in (0, 1025, 2.5)],
    *[("bloom_member", {"fpr": fpr}, "invalid_bloom_fpr", "fpr") for fpr in (0, 1, 2)],
    *[("ewma", {"half_life": half}, "invalid_registration", "half_life") for half in (None, "0s", "forever", 5)],
    ("burst_count", {"sub_window": None}, "invalid_registration", "sub_window"),
    *[("count", {"window": window}, "aggregation_invalid_window", "window") for window in ("0s", "1w", "1.5h", "", 60)],
    ("first_seen_in_window", {"window": None}, "aggregation_invalid_window", "window"),
    *[("sum", {"field": field}, "aggregation_unknown_field", "field") for field in (None, "nope", 5)],
    *[("sum", {"field": "s"}, "invalid_registration", "field")],
    ("geo_spread", {"lat_field": "nope"}, "aggregation_unknown_field", "lat_field"),
    ("geo_spread", {"lat_field": "s"}, "invalid_registration", "lat_field"),
    ("event_type_mix", {"max_categories": 0}, "invalid_registration", "max_categories"),
    ("outlier_count", {"sigma": 0}, "invalid_registration", "sigma"),
    ("distance_from_home", {"samples": 0}, "invalid_registration", "samples"),
]  # fmt: skip


def test_parameters_have_bounds(space: Namespace) -> None:
    space.has(EVENT)
    for op, changes, code, param in BAD:
        spec = {"op": op, "params": params_of(op) | changes}
        answer = space.register(table("T", upstream="Ev", keys=["k"], agg={"f": spec}), dry_run=True)
        rejected(answer, code, f"nodes[0].ops[0].agg.f.params.{param}")


def test_parameters_have_defaults(space: Namespace) -> None:
    agg = {
        "median": {"op": "quantile", "params": {"field": "i"}},
        "top": {"op": "top_k", "params": {"field": "i"}},
        "mix": {"op": "event_type_mix", "params": {"field": "s"}},
        "out": {"op": "outlier_count", "params": {"field": "x"}},
        "home": {"op": "distance_from_home", "params": {"lat": "lat", "lon": "lon"}},
        "rate": {"op": "ratio"},
    }
    space.has(EVENT, table("T", upstream="Ev", keys=["k"], agg=agg))
    events = [{"k": "a", "i": n, "s": str(n), "x": n % 2, "lat": 0, "lon": 0} for n in range(300)]
    answered(space.post("/push/Ev/batch", [*events, {"k": "a", "x": 1000, "lat": 1, "lon": 0}]))
    row = space.row("T")
    assert len(row["top"]) == 10 and len(row["mix"]) == 256 and row["out"] == 1 and row["rate"] == 1.0
    assert row["median"] == pytest.approx(149.5, rel=0.01)
    assert row["home"] == pytest.approx(0.99 * 6371 * 3.141592653589793 / 180, rel=1e-6)  # of the last 100 points
