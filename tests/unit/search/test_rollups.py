"""What records contribute to rollups, how groups add up and how they are shown: against sums made by hand."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import instants
from headrace.errors import InvalidRequest
from headrace.json import search_config
from headrace.query.language import canonical, histogram, rollup, rollup_request
from headrace.query.language.canonical import SearchConfig
from headrace.query.language.rollup import Groups, Part, Row

MINUTE, HOUR = 60_000, 3_600_000


def field(kind: str, pointer: str, **options: Any) -> dict[str, Any]:
    return {"kind": kind, "bindings": [{"version": 1, "jsonPointer": pointer}], **options}


def config(**rollups: Any) -> SearchConfig:
    """Returns a configuration with these rollups."""
    document = {
        "primaryTimestampField": "at",
        "fields": {
            "at": field("date", "/at"),
            "service": field("keyword", "/service", exact=True, normalizer="lowercase_v1"),
            "status": field("integer", "/status", exact=True, column=True),
            "ms": field("float", "/ms", aggregatable=True, column=True),
            "note": field("text", "/note", analyzer="unicode_word_v1"),
        },
        "rollups": rollups,
    }
    return search_config.parse(document, 1)


REQUESTS: dict[str, Any] = {
    "dimensions": ["service", "status"],
    "intervals": ["1m", "1h", "90s"],
    "measures": {
        "requests": {"kind": "count"},
        "errors": {"kind": "count", "include": "status:>=500"},
        "latency": {"kind": "summary", "field": "ms", "histogram": "log2_v1"},
    },
}
SEARCH = config(requests=REQUESTS)


def rows_of(search: SearchConfig, *documents: Any) -> dict[tuple[int, int, rollup.Key], Row]:
    """Returns the groups of documents, by interval, start and key."""
    groups = Groups(rollup.rollups(search).values())
    for document in documents:
        groups.add(canonical.values(search, 1, document, groups.fields), document)
    return {(row.interval_ms, row.start_ms, row.dimensions): row for row in groups.rows()}


def shown(search: SearchConfig, row: Row) -> Any:
    return json.loads(rollup_request.fragment(rollup.rollups(search)[row.rollup], row))


def test_a_record_is_in_one_group_of_every_interval() -> None:
    rows = rows_of(SEARCH, {"at": 61_500, "service": "API", "status": 500, "ms": 3.5})
    assert set(rows) == {(MINUTE, MINUTE, ("api", "500")), (HOUR, 0, ("api", "500")), (90_000, 0, ("api", "500"))}
    for row in rows.values():
        assert shown(SEARCH, row) == {
            "key": {"service": "api", "status": "500"},
            "measures": {
                "errors": {"count": 1},
                "latency": {
                    "count": 1, "sum": 3.5, "min": 3.5, "max": 3.5, "avg": 3.5,
                    "p50": 2, "p95": 2, "p99": 2, "histogram": {"2": 1},
                },
                "requests": {"count": 1},
            },
        }  # fmt: skip


def test_time_before_1970_falls_into_the_interval_that_began_before_it() -> None:
    (row,) = rows_of(config(r={"intervals": ["1m"], "measures": {"n": {"kind": "count"}}}), {"at": -1}).values()
    assert row.start_ms == -MINUTE


WHOLE = {"at": 0, "service": "a", "status": 200, "ms": 1}


@pytest.mark.parametrize(
    "changed",
    [
        {"at": None}, {"at": "no time"}, {"at": [1, 2]}, {"at": []}, {"at": 8_640_000_000_000_001}, {"at": 10**30},
        {"service": ["a", "b"]}, {"status": [1, 2]},
    ],
)  # fmt: skip
def test_a_record_contributes_nothing_without_one_time_and_single_dimensions(changed: Any) -> None:
    assert rows_of(SEARCH, WHOLE)
    assert not rows_of(SEARCH, {**WHOLE, **changed})
    assert not rows_of(SEARCH, {name: value for name, value in WHOLE.items() if name not in ("at", *changed)})


@pytest.mark.parametrize("ms", [None, "fast", [1, 2], 10**400])
def test_a_count_counts_every_record_of_its_group_and_a_summary_its_own_values(ms: Any) -> None:
    rows = rows_of(SEARCH, WHOLE, {**WHOLE, "ms": ms})
    for row in rows.values():
        measures = shown(SEARCH, row)["measures"]
        assert measures["requests"] == {"count": 2}
        assert measures["latency"]["count"] == measures["latency"]["sum"] == 1
    alone = rows_of(SEARCH, {**WHOLE, "ms": ms})
    nothing = dict.fromkeys(("sum", "min", "max", "avg", "p50", "p95", "p99"))
    assert {str(shown(SEARCH, row)["measures"]["latency"]) for row in alone.values()} == {
        str({"count": 0, **nothing})
    }


@pytest.mark.parametrize("service", [None, 5, {}, []])
def test_a_record_without_a_dimension_is_in_the_group_of_null(service: Any) -> None:
    rows = rows_of(SEARCH, {**WHOLE, "service": service}, {"at": 0, "ms": 1})
    assert {key for _, _, key in rows} == {(None, "200"), (None, None)}


def test_arrays_of_one_value_and_numbers_in_text_count() -> None:
    rows = rows_of(SEARCH, {"at": ["1970-01-01T00:00:00Z"], "service": [["A"]], "status": "0", "ms": "1e2"})
    assert shown(SEARCH, rows[MINUTE, 0, ("a", "0")])["measures"]["latency"]["sum"] == 100


def test_include_leaves_records_out_and_counts_count_what_they_include() -> None:
    search = config(
        r={
            "include": "service:a",
            "intervals": ["1m"],
            "measures": {"all": {"kind": "count"}, "bad": {"kind": "count", "include": "NOT has:status"}},
        }
    )
    (row,) = rows_of(search, {"at": 0, "service": "a"}, WHOLE, {"at": 0, "service": "b"}).values()
    assert shown(search, row)["measures"] == {"all": {"count": 2}, "bad": {"count": 1}}


PARTS: dict[str, Any] = {
    "intervals": ["1m"],
    "measures": {
        "value": {
            "kind": "summary_parts",
            "countJsonPointer": "/n",
            "sumJsonPointer": "/sum",
            "minJsonPointer": "/min",
            "maxJsonPointer": "/max",
            "histogramJsonPointer": "/buckets",
        }
    },
}


def test_summaries_that_records_bring_are_merged() -> None:
    search = config(r=PARTS)
    one = {"at": 0, "n": 2, "sum": 3.5, "min": 1, "max": "2.5", "buckets": {"10": 1, "2": 1, "x": 5, "y": None}}
    two = {"at": 1, "n": 0.5, "sum": -1, "min": -1, "max": -1, "buckets": {"10": 2, "00": 0}}
    (row,) = rows_of(search, one, two, {"at": 2, "n": 1, "sum": 1, "min": None, "max": 1}, {"at": 3, "n": 1}).values()
    assert shown(search, row)["measures"]["value"] == {
        "count": 2.5, "sum": 2.5, "min": -1, "max": 2.5, "avg": 1, "p50": 10, "p95": 10, "p99": 10,
        "histogram": {"00": 0, "2": 1, "10": 3, "x": 5},
    }  # fmt: skip
    assert list(shown(search, row)["measures"]["value"]["histogram"]) == ["00", "2", "10", "x"]


def test_without_a_histogram_there_are_no_percentiles() -> None:
    search = config(r={"intervals": ["1m"], "measures": {"ms": {"kind": "summary", "field": "ms"}}})
    (row,) = rows_of(search, WHOLE).values()
    assert shown(search, row)["measures"]["ms"] == {
        "count": 1, "sum": 1, "min": 1, "max": 1, "avg": 1, "p50": None, "p95": None, "p99": None,
    }  # fmt: skip


def test_what_no_double_holds_is_null() -> None:
    search = config(r={"intervals": ["1m"], "measures": {"ms": {"kind": "summary", "field": "ms"}}})
    (row,) = rows_of(search, {"at": 0, "ms": 1.7e308}, {"at": 0, "ms": 1.7e308}).values()
    assert shown(search, row)["measures"]["ms"]["sum"] is None


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_bucket_of_log2_is_the_power_of_two_below(value: float) -> None:
    bound = float(histogram.log2_bucket(value))
    assert math.log2(bound) == int(math.log2(bound))
    assert bound <= max(1.0, abs(value))
    assert bound == 2.0**1023 or max(1.0, abs(value)) < bound * 2


@given(st.dictionaries(st.integers(-50, 50).map(str), st.integers(0, 9), max_size=8), st.floats(0.01, 1))
def test_a_percentile_is_the_first_bucket_that_reaches_its_share(counts: dict[str, int], share: float) -> None:
    values = sorted(int(name) for name, count in counts.items() for _ in range(count))
    (found,) = histogram.percentiles(histogram.sort_buckets(dict(counts)), (share,))
    if not values:
        assert found is None
    else:
        reached = [value for number, value in enumerate(values, 1) if number >= len(values) * share]
        assert found == reached[0]


documents = st.fixed_dictionaries(
    {"at": st.integers(-2 * HOUR, 3 * HOUR), "ms": st.integers(-5, 2000)},
    optional={
        "service": st.sampled_from(["a", "B", "Ä", '"', None]),
        "status": st.sampled_from([200, 404, 500, None]),
    },
)


@given(st.lists(documents, max_size=30), st.data())
def test_sums_do_not_depend_on_who_adds_what(made: list[Any], data: Any) -> None:
    cut = data.draw(st.integers(0, len(made)))
    compiled = rollup.rollups(SEARCH)
    halves = [*rows_of(SEARCH, *made[:cut]).values(), *rows_of(SEARCH, *made[cut:]).values()]
    halves.sort(key=lambda row: rollup.sort_key(row, compiled))
    merged = list(rollup.sum_groups(halves))
    whole = rows_of(SEARCH, *made)
    assert {(row.interval_ms, row.start_ms, row.dimensions): row for row in merged} == whole
    assert len(merged) == len(whole)
    for (interval, start, key), row in whole.items():
        members = [
            one
            for one in made
            if one["at"] // interval * interval == start
            and ((one.get("service") or "").lower() or None, str(one["status"]) if one.get("status") else None) == key
        ]
        said = shown(SEARCH, row)["measures"]
        assert said["requests"]["count"] == row.records == len(members)
        assert said["errors"]["count"] == sum((one.get("status") or 0) >= 500 for one in members)
        numbers = [one["ms"] for one in members]
        assert [said["latency"][name] for name in ("sum", "min", "max")] == [sum(numbers), min(numbers), max(numbers)]
        assert sum(said["latency"]["histogram"].values()) == len(members)


def test_groups_are_in_the_order_of_their_keys_as_bytes() -> None:
    compiled = rollup.rollups(SEARCH)
    made = [
        Row("requests", MINUTE, 0, (name, None), 1, (Part(),) * 3)
        for name in ("é", "z", "Z", None, "a", "\U0001f600", "￿")
    ]
    made.sort(key=lambda row: rollup.sort_key(row, compiled))
    keys = [rollup.key_text(("service", "status"), row.dimensions).encode() for row in made]
    assert keys == sorted(keys)
    fragments = [rollup_request.fragment(compiled["requests"], row).encode() for row in made]
    assert fragments == sorted(fragments)


@given(st.integers(-8_640_000_000_000_000, 8_640_000_000_000_000))
def test_an_instant_in_print_is_that_instant(ms: int) -> None:
    assert instants.parse_ms(instants.render(ms)) == ms


ASKED: dict[str, Any] = {"rollup": "requests", "from": 0, "to": HOUR, "interval": "1m"}


@pytest.mark.parametrize(
    ("given_time", "ms"),
    [
        (90_000, 90_000), (1.9, 1), ("1970-01-01T00:01:30Z", 90_000), ("90000000000", 90_000), ("999999", 0),
        ("1969-12-31T23:59:59.999Z", -1), (-5, -5), ("1970-01-01", 0),
    ],
)  # fmt: skip
def test_times_are_iso_nanoseconds_in_digits_or_milliseconds(given_time: Any, ms: int) -> None:
    asked = rollup_request.parse({**ASKED, "from": given_time, "to": 10**9}, SEARCH)
    assert asked.window == (ms, 10**9)


@pytest.mark.parametrize(
    "changed",
    [
        {"rollup": None}, {"rollup": ""}, {"rollup": "no"}, {"rollup": 5},
        {"from": None}, {"from": "soon"}, {"from": True}, {"from": HOUR}, {"from": [0]}, {"to": 10**16}, {"to": 1e300},
        {"interval": "1d"}, {"interval": ""}, {"interval": 60},
        {"q": 5}, {"q": ""}, {"q": "no:1"}, {"q": "service:a*"},
        {"group_by": "service"}, {"group_by": ["ms"]}, {"group_by": [1]}, {"group_by": None},
        {"measures": []}, {"measures": ["no"]}, {"measures": "requests"}, {"measures": None}, {"explain": 1},
    ],
)  # fmt: skip
def test_a_request_that_makes_no_sense_is_refused(changed: Any) -> None:
    with pytest.raises(InvalidRequest):
        rollup_request.parse({**ASKED, **changed}, SEARCH)


@pytest.mark.parametrize("body", [[], "x", None, 5, {}])
def test_a_body_that_is_no_request_is_refused(body: Any) -> None:
    with pytest.raises(InvalidRequest):
        rollup_request.parse(body, SEARCH)
    with pytest.raises(InvalidRequest):
        rollup_request.parse(ASKED, None)


def test_names_are_sorted_and_each_is_taken_once() -> None:
    asked = rollup_request.parse(
        {**ASKED, "group_by": ["status", " service", "status"], "measures": ["requests", "errors", "requests"]},
        SEARCH,
    )
    assert (asked.group_by, asked.measures) == (("service", "status"), ("errors", "requests"))
    plain = rollup_request.parse(ASKED, SEARCH)
    assert (plain.group_by, plain.measures) == ((), ("errors", "latency", "requests"))


@pytest.mark.parametrize(
    ("window", "aligned", "edges"),
    [
        ((0, HOUR), (0, HOUR), []),
        ((1, HOUR + 1), (MINUTE, HOUR), [(1, MINUTE), (HOUR, HOUR + 1)]),
        ((1, MINUTE), None, [(1, MINUTE)]),
        ((MINUTE - 1, MINUTE + 1), None, [(MINUTE - 1, MINUTE + 1)]),
        ((-MINUTE - 1, 5), (-MINUTE, 0), [(-MINUTE - 1, -MINUTE), (0, 5)]),
    ],
)
def test_a_window_is_whole_intervals_and_what_they_leave_over(window: Any, aligned: Any, edges: Any) -> None:
    asked = rollup_request.parse({**ASKED, "from": window[0], "to": window[1]}, SEARCH)
    assert (asked.aligned, asked.edges) == (aligned, edges)


@pytest.mark.parametrize(
    ("q", "demanded"),
    [
        (None, {}),
        ("service:A", {"service": {"a"}}),
        ('service:a AND (status:500 AND service:"b")', {"service": {"a", "b"}, "status": {500}}),
        ("service:a OR service:b", None),
        ("NOT service:a", None),
        ("status:>=500", None),
        ("has:service", None),
        ("note:slow service:a", None),
    ],
)
def test_a_query_for_values_of_dimensions_is_told_from_others(q: str | None, demanded: Any) -> None:
    assert rollup_request.parse({**ASKED, "q": q}, SEARCH).dimension_values == demanded
