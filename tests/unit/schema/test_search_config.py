"""Which search configurations are accepted, and how they are shown."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.json import search_config
from headrace.query.language.canonical import Count, DefaultField, Rollup, Summary, SummaryParts, interval_ms


def field(kind: str, *capabilities: str, **more: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "bindings": [{"version": 1, "jsonPointer": f"/{kind}"}],
        **more,
        **dict.fromkeys(capabilities, True),
    }


FULL: dict[str, Any] = {
    "profile": "evlog",
    "primaryTimestampField": "at",
    "defaultFields": [{"field": "note", "boost": 2}, {"field": "service"}],
    "containsDefaultFields": ["note"],
    "aliases": {"svc": "service", "at": "at"},
    "fields": {
        "at": field("date", "exact", "column", "exists", "sortable", "aggregatable"),
        "service": field(
            "keyword",
            "exact",
            "prefix",
            "column",
            "exists",
            "sortable",
            "aggregatable",
            "contains",
            normalizer="lowercase_v1",
        ),
        "plain": field("keyword", normalizer="identity_v1"),
        "status": field("integer", "exact", "column", "exists", "sortable", "aggregatable"),
        "cost": field("float", "exact", "column", "exists", "sortable", "aggregatable"),
        "paid": field("bool", "exact", "column", "exists", "sortable", "aggregatable"),
        "note": field("text", "exists", "contains", "positions", analyzer="unicode_word_v1"),
    },
    "rollups": {
        "requests": {
            "timestampField": "at",
            "include": "service:a* -paid:false",
            "dimensions": ["service", "paid"],
            "intervals": ["5ms", "10s", "1m", "2h", "90d"],
            "measures": {
                "requests": {"kind": "count"},
                "failures": {"kind": "count", "include": "status:>=500"},
                "cost": {"kind": "summary", "field": "cost", "histogram": "log2_v1"},
                "status": {"kind": "summary", "field": "status"},
                "parts": {
                    "kind": "summary_parts",
                    "countJsonPointer": "/count",
                    "sumJsonPointer": "/sum",
                    "minJsonPointer": "/min",
                    "maxJsonPointer": "/max",
                    "histogramJsonPointer": "/buckets",
                },
            },
        }
    },
}
LEAST: dict[str, Any] = {"primaryTimestampField": "at", "fields": {"at": field("date")}}


def changed(path: str, value: Any) -> dict[str, Any]:
    """Returns the full configuration with something else at `a/b/0`; ellipsis removes it."""
    search = copy.deepcopy(FULL)
    *parents, last = path.split("/")
    place: Any = search
    for step in parents:
        place = place[_key(place, step)]
    if value is ...:
        del place[_key(place, last)]
    else:
        place[_key(place, last)] = value
    return search


def _key(place: Any, step: str) -> Any:
    return int(step) if isinstance(place, list) else step


@pytest.mark.parametrize("search", [FULL, LEAST])
def test_what_is_in_normal_form_is_shown_as_it_was_sent(search: dict[str, Any]) -> None:
    shown = search_config.parse(search, 1).document()
    assert shown == search
    assert search_config.parse(shown, 1).document() == shown


def test_the_values() -> None:
    config = search_config.parse(FULL, 1)
    assert config.resolve("svc") == config.resolve("service") == "service"
    assert config.resolve("other") is None
    assert config.targets() == (DefaultField(field="note", boost=2), DefaultField(field="service"))
    assert config.fields["service"].normalizer == "lowercase_v1"
    assert config.rollups is not None
    rollup = config.rollups["requests"]
    assert rollup.dimensions == ("service", "paid")
    assert [interval_ms(interval) for interval in rollup.intervals] == [5, 10_000, 60_000, 7_200_000, 90 * 86_400_000]
    assert rollup.measures["failures"] == Count(include="status:>=500")
    assert rollup.measures["cost"] == Summary(field="cost", histogram="log2_v1")
    assert isinstance(rollup.measures["parts"], SummaryParts)


def test_the_normal_form_leaves_out_what_says_nothing_and_fills_in_the_timestamp() -> None:
    search = copy.deepcopy(LEAST)
    search["fields"]["at"] |= {"exact": False, "normalizer": None}
    search["rollups"] = {"r": {"intervals": ["1m"], "measures": {"n": {"kind": "count", "include": " has:at "}}}}
    search["fields"]["at"]["column"] = True
    search["aliases"] = {}
    search["profile"] = None
    assert search_config.parse(search, 1).document() == {
        "primaryTimestampField": "at",
        "aliases": {},
        "fields": {"at": field("date", "column")},
        "rollups": {
            "r": {
                "timestampField": "at",
                "intervals": ["1m"],
                "measures": {"n": {"kind": "count", "include": "has:at"}},
            }
        },
    }


def test_the_order_of_members_is_kept() -> None:
    fields = {name: field("keyword", "exact") for name in ("zeta", "alpha", "10", "2")}
    search = {"fields": {**fields, "at": field("date")}, "primaryTimestampField": "at"}
    assert list(search_config.parse(search, 1).document()["fields"]) == ["zeta", "alpha", "10", "2", "at"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("fields/" + "n" * 64, field("keyword")),
        ("fields/error.message-x_y", field("keyword")),
        ("fields/0", field("keyword")),
        ("fields/plain/bindings/0/jsonPointer", ""),
        ("fields/plain/bindings", [{"version": 9, "jsonPointer": "/b"}, {"version": 1, "jsonPointer": "/a"}]),
        ("defaultFields", []),
        ("defaultFields", ...),
        ("defaultFields/0/boost", 0.5),
        ("aliases", ...),
        ("rollups", {}),
        ("rollups/requests/dimensions", []),
        ("rollups/requests/dimensions", ...),
        ("rollups/requests/timestampField", ...),
        ("rollups/requests/include", ...),
        ("rollups/requests/intervals", ["1ms", "1000ms", "1s"]),
    ],
)
def test_a_variation_that_is_accepted(path: str, value: Any) -> None:
    search = changed(path, value)
    shown = search_config.parse(search, 1).document()
    search["rollups"].get("requests", {})["timestampField"] = "at"
    assert shown == search


_TYPED = ("at", "status", "cost", "paid")
REFUSED = [
    ("", None, ": expected `object`, got `null`"),
    ("", [], ": expected `object`, got `array`"),
    ("indexes", [], ": object contains unknown field `indexes`"),
    ("profile", 5, "/profile: expected `str | null`, got `int`"),
    ("primaryTimestampField", ..., ": object missing required field `primaryTimestampField`"),
    ("primaryTimestampField", "x", "/primaryTimestampField: no field of this name: 'x'"),
    ("primaryTimestampField", "status", "/primaryTimestampField: field status is not a date"),
    ("primaryTimestampField", "svc", "/primaryTimestampField: no field of this name: 'svc'"),
    ("fields", ..., ": object missing required field `fields`"),
    ("fields", {}, "/fields: expected `object` of length >= 1"),
    ("fields", [], "/fields: expected `object`, got `array`"),
    *(
        (f"fields/{name}", field("keyword"), f"/fields: not a name: {name[:64]!r}")
        for name in ("", "n" * 65, "a b", ".a", "-a", "_a", "é", "a:b", "a\n")
    ),
    ("fields/plain", "keyword", "/fields/plain: expected `object`, got `str`"),
    ("fields/plain/kind", ..., "/fields/plain: object missing required field `kind`"),
    ("fields/plain/kind", "string", "/fields/plain/kind: invalid enum value 'string'"),
    ("fields/plain/indexed", True, "/fields/plain: object contains unknown field `indexed`"),
    ("fields/plain/exact", "yes", "/fields/plain/exact: expected `bool`, got `str`"),
    ("fields/plain/exact", 1, "/fields/plain/exact: expected `bool`, got `int`"),
    ("fields/plain/bindings", ..., "/fields/plain: object missing required field `bindings`"),
    ("fields/plain/bindings", [], "/fields/plain/bindings: expected `array` of length >= 1"),
    ("fields/plain/bindings", {}, "/fields/plain/bindings: expected `array`, got `object`"),
    ("fields/plain/bindings/0/version", ..., "/fields/plain/bindings/0: object missing required field `version`"),
    ("fields/plain/bindings/0/version", 0, "/fields/plain/bindings/0/version: expected `int` >= 1"),
    ("fields/plain/bindings/0/version", 1.5, "/fields/plain/bindings/0/version: expected `int`, got `float`"),
    ("fields/plain/bindings/0/version", True, "/fields/plain/bindings/0/version: expected `int`, got `bool`"),
    ("fields/plain/bindings/0/version", "1", "/fields/plain/bindings/0/version: expected `int`, got `str`"),
    ("fields/plain/bindings/0/version", 2**53, "/fields/plain/bindings/0/version: expected `int` <= 9007199254740991"),
    ("fields/plain/bindings/0/version", 2, "/fields/plain/bindings: no binding for schema version 1"),
    ("fields/plain/bindings/0/jsonPointer", "id", "/fields/plain/bindings/0/jsonPointer: invalid json pointer: 'id'"),
    ("fields/plain/bindings/0/jsonPointer", "/~2", "/fields/plain/bindings/0/jsonPointer: invalid json pointer: '/~2'"),
    ("fields/plain/bindings/0/x", 1, "/fields/plain/bindings/0: object contains unknown field `x`"),
    (
        "fields/plain/bindings",
        [{"version": 1, "jsonPointer": p} for p in ("/a", "/b")],
        "/fields/plain/bindings/1: version 1 is bound twice",
    ),
    ("fields/plain/normalizer", "upper", "/fields/plain/normalizer: invalid enum value 'upper'"),
    ("fields/note/analyzer", "english_v1", "/fields/note/analyzer: invalid enum value 'english_v1'"),
    ("fields/note/analyzer", ..., "/fields/note/analyzer: required for text fields"),
    *(
        (f"fields/note/{option}", True, f"/fields/note/{option}: not supported for text fields")
        for option in ("exact", "prefix", "column", "sortable", "aggregatable")
    ),
    ("fields/note/normalizer", "identity_v1", "/fields/note/normalizer: not supported for text fields"),
    ("fields/plain/analyzer", "unicode_word_v1", "/fields/plain/analyzer: not supported for keyword fields"),
    ("fields/plain/positions", True, "/fields/plain/positions: not supported for keyword fields"),
    *(
        (f"fields/{name}/{option}", True, f"/fields/{name}/{option}: not supported for")
        for name in _TYPED
        for option in ("prefix", "contains", "positions")
    ),
    *(
        (f"fields/{name}/{option}", value, f"/fields/{name}/{option}: not supported for")
        for name in _TYPED
        for option, value in (("normalizer", "lowercase_v1"), ("analyzer", "unicode_word_v1"))
    ),
    ("aliases/a b", "note", "/aliases: not a name: 'a b'"),
    ("aliases/x", "nothing", "/aliases/x: no field of this name: 'nothing'"),
    ("aliases/x", "svc", "/aliases/x: no field of this name: 'svc'"),
    ("aliases/x", 5, "/aliases: expected `str`, got `int`"),
    ("aliases/status", "cost", "/aliases/status: hides the field of that name"),
    ("defaultFields", {}, "/defaultFields: expected `array | null`, got `object`"),
    ("defaultFields/0", "note", "/defaultFields/0: expected `object`, got `str`"),
    ("defaultFields/0/field", "x", "/defaultFields/0/field: no field of this name: 'x'"),
    ("defaultFields/0/field", "svc", "/defaultFields/0/field: no field of this name: 'svc'"),
    ("defaultFields/1/field", "status", "/defaultFields/1/field: not a keyword or text field"),
    ("defaultFields/0/boost", 0, "/defaultFields/0/boost: expected"),
    ("defaultFields/0/boost", -0.5, "/defaultFields/0/boost: expected"),
    ("defaultFields/0/boost", 1e300, "/defaultFields/0/boost: expected"),
    ("defaultFields/0/boost", 10**400, "/defaultFields/0/boost: "),
    ("fields/plain/bindings/0/version", 10**400, "/fields/plain/bindings/0/version: "),
    ("defaultFields/0/boost", "2", "/defaultFields/0/boost: expected"),
    ("containsDefaultFields/0", "x", "/containsDefaultFields/0: no field of this name: 'x'"),
    ("rollups", [], "/rollups: expected `object | null`, got `array`"),
    ("rollups/a b", {}, "/rollups: not a name: 'a b'"),
    ("rollups/requests", [], "/rollups/requests: expected `object`, got `array`"),
    ("rollups/requests/x", 1, "/rollups/requests: object contains unknown field `x`"),
    ("rollups/requests/timestampField", "status", "/rollups/requests/timestampField: field status is not a date"),
    ("rollups/requests/timestampField", "x", "/rollups/requests/timestampField: no field of this name: 'x'"),
    ("rollups/requests/include", " ", "/rollups/requests/include: empty"),
    ("rollups/requests/include", "other:1", "/rollups/requests/include: unknown field other: position=0"),
    ("rollups/requests/include", "status:>", "/rollups/requests/include: no value where one is needed: position=8"),
    ("rollups/requests/dimensions/0", "x", "/rollups/requests/dimensions/0: no field of this name: 'x'"),
    ("rollups/requests/dimensions/0", "plain", "/rollups/requests/dimensions/0: field plain is not exact"),
    ("rollups/requests/dimensions/1", "service", "/rollups/requests/dimensions/1: given twice"),
    ("rollups/requests/intervals", ..., "/rollups/requests: object missing required field `intervals`"),
    ("rollups/requests/intervals", [], "/rollups/requests/intervals: expected `array` of length >= 1"),
    *(
        ("rollups/requests/intervals/1", text, "/rollups/requests/intervals/1: not a duration above zero")
        for text in ("", "soon", "0s", "1", "1w", "-1m", "1.5h", "1h30m", " 1m", "1m ", "1234567890s", "１m")
    ),
    ("rollups/requests/intervals/1", 60, "/rollups/requests/intervals/1: expected `str`, got `int`"),
    ("rollups/requests/intervals/1", "5ms", "/rollups/requests/intervals/1: given twice"),
    ("rollups/requests/measures", ..., "/rollups/requests: object missing required field `measures`"),
    ("rollups/requests/measures", {}, "/rollups/requests/measures: expected `object` of length >= 1"),
    ("rollups/requests/measures/a b", {"kind": "count"}, "/rollups/requests/measures: not a name: 'a b'"),
    ("rollups/requests/measures/x", {}, "/rollups/requests/measures/x: object missing required field `kind`"),
    ("rollups/requests/measures/x", {"kind": "median"}, "/rollups/requests/measures/x/kind: invalid value 'median'"),
    ("rollups/requests/measures/requests/field", "cost", "/rollups/requests/measures/requests: object contains"),
    ("rollups/requests/measures/failures/include", "", "/rollups/requests/measures/failures/include: empty"),
    (
        "rollups/requests/measures/failures/include",
        "service:>1",
        "/rollups/requests/measures/failures/include: field service does not offer comparison: position=9",
    ),
    ("rollups/requests/measures/cost/field", ..., "/rollups/requests/measures/cost: object missing required field"),
    ("rollups/requests/measures/cost/field", "x", "/rollups/requests/measures/cost/field: no field of this name"),
    ("rollups/requests/measures/cost/field", "service", "/rollups/requests/measures/cost/field: not an integer or"),
    ("rollups/requests/measures/cost/histogram", "linear", "/rollups/requests/measures/cost/histogram: invalid enum"),
    ("rollups/requests/measures/parts/sumJsonPointer", "sum", "/rollups/requests/measures/parts/sumJsonPointer: invalid"),
    ("rollups/requests/measures/parts/sumJsonPointer", ..., "/rollups/requests/measures/parts: object missing required"),
    (
        "rollups/requests/measures/parts/histogramJsonPointer",
        "b",
        "/rollups/requests/measures/parts/histogramJsonPointer: invalid json pointer: 'b'",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "message"), REFUSED)
def test_what_is_refused_says_what_and_where(path: str, value: Any, message: str) -> None:
    search = changed(path, value) if path else value
    with pytest.raises(InvalidRequest) as refusal:
        search_config.parse(search, 1)
    assert str(refusal.value).startswith("/search" + message)


def test_a_refusal_is_short() -> None:
    for path, value in (("fields/plain/kind", "x" * 10_000), ("x" * 10_000, 1), ("aliases/x", "x" * 10_000)):
        with pytest.raises(InvalidRequest) as refusal:
            search_config.parse(changed(path, value), 1)
        assert len(str(refusal.value)) < 300


def test_a_summary_needs_an_aggregatable_field() -> None:
    search = changed("fields/cost/aggregatable", False)
    with pytest.raises(
        InvalidRequest, match="/search/rollups/requests/measures/cost/field: not an aggregatable field"
    ):
        search_config.parse(search, 1)


def test_bindings_of_later_versions_may_wait_but_not_alone() -> None:
    search = changed("fields/plain/bindings/0/version", 3)
    for version in (1, 2):
        with pytest.raises(InvalidRequest, match=f"no binding for schema version {version}"):
            search_config.parse(search, version)
    for version in (3, 4, 0):
        search_config.parse(search, version)


def _many(count: int, make: Callable[[int], Any]) -> dict[str, Any]:
    return {f"n{number}": make(number) for number in range(count)}


@pytest.mark.parametrize(
    ("path", "most", "make"),
    [
        (
            "fields",
            search_config.MAX_FIELDS - 7,
            lambda n: {**FULL["fields"], **_many(n, lambda _: field("bool", "exact"))},
        ),
        ("aliases", search_config.MAX_ALIASES, lambda n: _many(n, lambda _: "note")),
        ("rollups", search_config.MAX_ROLLUPS, lambda n: _many(n, lambda _: FULL["rollups"]["requests"])),
        ("rollups/requests/intervals", search_config.MAX_INTERVALS, lambda n: [f"{i + 1}s" for i in range(n)]),
        ("rollups/requests/measures", search_config.MAX_MEASURES, lambda n: _many(n, lambda _: {"kind": "count"})),
    ],
)
def test_numbers_are_bounded(path: str, most: int, make: Callable[[int], Any]) -> None:
    search_config.parse(changed(path, make(most)), 1)
    with pytest.raises(InvalidRequest, match=f"/search/{path}: too many: limit="):
        search_config.parse(changed(path, make(most + 1)), 1)


def test_dimensions_are_bounded() -> None:
    search = changed("fields", {**FULL["fields"], **_many(20, lambda _: field("bool", "exact"))})
    rollup = search["rollups"]["requests"]
    rollup["dimensions"] = [f"n{number}" for number in range(search_config.MAX_DIMENSIONS)]
    search_config.parse(search, 1)
    rollup["dimensions"].append("n19")
    with pytest.raises(InvalidRequest, match="/dimensions: too many: limit=16 received=17"):
        search_config.parse(search, 1)


def test_the_example_of_the_contract() -> None:
    """seed-streams-schemas.txt, "Search update with rollups"."""
    search = json.loads(
        '{"primaryTimestampField": "eventTime", "fields": {"eventTime": {"kind": "date", "bindings": [{"version": 1, '
        '"jsonPointer": "/eventTime"}], "exact": true, "column": true, "exists": true, "sortable": true}, "service": '
        '{"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "/service"}], "exact": true, "prefix": true, '
        '"exists": true}, "duration": {"kind": "float", "bindings": [{"version": 1, "jsonPointer": "/duration"}], '
        '"exact": true, "column": true, "exists": true, "sortable": true, "aggregatable": true}}, "rollups": {"requests": '
        '{"dimensions": ["service"], "intervals": ["1m"], "measures": {"requests": {"kind": "count"}, "latency": '
        '{"kind": "summary", "field": "duration", "histogram": "log2_v1"}}}}}'
    )
    rollups = search_config.parse(search, 1).rollups or {}
    measures: dict[str, Any] = {"requests": Count(), "latency": Summary(field="duration", histogram="log2_v1")}
    expected = Rollup(timestamp_field="eventTime", dimensions=("service",), intervals=("1m",), measures=measures)
    assert rollups == {"requests": expected}


def _paths(value: Any, prefix: str = "") -> list[str]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, child in members for path in (f"{prefix}{key}", *_paths(child, f"{prefix}{key}/"))]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(_paths(FULL)), _JSON)
def test_any_document_is_accepted_or_refused(path: str, value: Any) -> None:
    try:
        config = search_config.parse(changed(path, value), 1)
    except InvalidRequest as refusal:
        assert str(refusal).startswith("/search")
    else:
        assert search_config.parse(config.document(), 1).document() == config.document()
