"""A compiled pipeline checks events and gives each table its rows."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from headrace.features.errors import EventRefused
from headrace.features.pipeline.compiled import Pipeline, compile_pipeline
from headrace.features.pipeline.registry import pipeline_of
from tests.unit.features.pipeline.documents import count, derived, event, registered, table, total, where

ALL = {"s": "str", "i": "i64", "f": "f64", "b": "bool", "y": "bytes", "d": "datetime", "j": "json"}
GOOD: dict[str, Any] = {
    "s": "a",
    "i": 1,
    "f": 1.5,
    "b": True,
    "y": "AAE=",
    "d": "2026-02-25T12:00:00Z",
    "j": {"k": [1]},
}


def compiled(*nodes: Any, name: str = "Txn") -> Pipeline:
    return compile_pipeline(pipeline_of(registered(*nodes), name))


STRICT = compiled(event(fields=ALL))
LENIENT = compiled(event(fields=ALL, optional=list(ALL)))


def refuse(data: Any, pipeline: Pipeline = STRICT) -> tuple[str, str]:
    before = copy.deepcopy(data)
    with pytest.raises(EventRefused) as refusal:
        pipeline.check(data)
    assert data == before
    return refusal.value.code, refusal.value.reason


def test_an_event_that_fits_is_a_row_of_its_own() -> None:
    row = STRICT.check(dict(reversed(GOOD.items())))
    assert row == GOOD
    assert list(row) == list(ALL), "in the order of the schema"


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("f", 7, 7.0),
        ("f", -(2**63), -(2.0**63)),
        ("f", 10**300, 1e300),
        ("i", 3.0, 3),
        ("i", -0.0, 0),
        ("i", 1e18, 10**18),
        ("i", 2**63 - 1, 2**63 - 1),
        ("i", -(2**63), -(2**63)),
        ("s", "", ""),
        ("s", "ünïcode 👍 \u00a0\u2028", "ünïcode 👍 \u00a0\u2028"),
        ("s", "x" * 100_000, "x" * 100_000),
        ("j", "text", "text"),
        ("j", 5, 5),
        ("j", [None, {"a": []}], [None, {"a": []}]),
    ],
)
def test_a_value_is_one_of_its_fields_type(field: str, value: Any, expected: Any) -> None:
    actual = STRICT.check({**GOOD, field: value})[field]
    assert (actual, type(actual)) == (expected, type(expected))


@pytest.mark.parametrize("pipeline", [STRICT, LENIENT], ids=["required", "optional"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("s", 5),
        ("s", True),
        ("s", ["a"]),
        ("s", {"a": 1}),
        ("i", 1.5),
        ("i", 2**63),
        ("i", -(2**63) - 1),
        ("i", 2**70),
        ("i", float(2**70)),
        ("i", "1"),
        ("i", True),
        ("i", [1]),
        ("f", "1.5"),
        ("f", False),
        ("f", 10**400),
        ("f", float("inf")),
        ("f", float("nan")),
        ("b", 1),
        ("b", 0.0),
        ("b", "true"),
        ("y", 1),
        ("d", "yesterday"),
        ("d", 1_700_000_000_000),
        ("d", "2026-02-30T12:00:00Z"),
    ],
)
def test_a_value_of_another_type_is_refused(field: str, value: Any, pipeline: Pipeline) -> None:
    code, reason = refuse({**GOOD, field: value}, pipeline)
    assert code == "invalid_event"
    assert f"'{field}' must be of type {ALL[field]}" in reason


@pytest.mark.parametrize("field", list(ALL))
def test_a_required_field_that_is_missing_or_null_is_refused_and_an_optional_one_is_null(field: str) -> None:
    without = {name: value for name, value in GOOD.items() if name != field}
    assert refuse(without) == ("invalid_event", f"field '{field}' is missing, and is not optional")
    assert refuse({**GOOD, field: None}) == ("invalid_event", f"field '{field}' is null, and is not optional")
    assert LENIENT.check(without) == LENIENT.check({**GOOD, field: None}) == {**GOOD, field: None}


@pytest.mark.parametrize("pipeline", [STRICT, LENIENT], ids=["required", "optional"])
def test_an_unknown_field_is_refused(pipeline: Pipeline) -> None:
    code, reason = refuse({**GOOD, "nope": 1}, pipeline)
    assert code == "unknown_field_v0"
    assert "'nope'" in reason
    assert refuse({"nope": 1, "i": "x"}, pipeline)[0] == "unknown_field_v0"


@pytest.mark.parametrize("field", ["event_time", "event_time_ms"])
def test_an_event_has_no_time_of_its_own(field: str) -> None:
    assert refuse({"nope": 1, **GOOD, field: 5})[0] == "unknown_field_event_time_v0"


@pytest.mark.parametrize("bad", ["\x00", "\t", "\n", "\x1f", "\x7f", "\x85", "\x9f", "\ud800", "\udfff"])
@pytest.mark.parametrize("field", ["s", "y", "j"])
def test_a_control_character_or_half_a_pair_is_refused(field: str, bad: str) -> None:
    assert refuse({**GOOD, field: f"ünï{bad}"})[0] == "control_character_in_string"


@pytest.mark.parametrize("value", [["\n"], {"a": {"b": "\n"}}, {"\n": 1}])
def test_a_control_character_within_json_is_refused(value: Any) -> None:
    assert refuse({**GOOD, "j": value})[0] == "control_character_in_string"


def test_a_value_of_json_has_a_limited_depth() -> None:
    assert STRICT.check({**GOOD, "j": json.loads("[" * 200 + "]" * 200)})
    with pytest.raises(EventRefused, match="deeper than 200 levels"):
        STRICT.check({**GOOD, "j": json.loads("[" * 900 + "]" * 900)})


@pytest.mark.parametrize("data", [None, 5, "x", [], [GOOD]])
def test_the_data_of_an_event_is_an_object(data: Any) -> None:
    assert refuse(data)[0] == "invalid_event"


@pytest.mark.parametrize(
    ("nodes", "is_kept"),
    [
        ([table(keys=["amount"])], False),
        ([table()], False),
        ([table(agg={"f": {"op": "last", "params": {"field": "user"}}})], True),
        (
            [
                derived("D", {"op": "rename", "mapping": {"user": "u"}}),
                table("T", upstream="D", keys=[], agg={"f": {"op": "last", "params": {"field": "u"}}}),
            ],
            True,
        ),
        (
            [
                table(
                    "U",
                    {"op": "map", "exprs": {"z": "cast(user, str)"}},
                    agg={"f": {"op": "last", "params": {"field": "z"}}},
                )
            ],
            True,
        ),
        (
            [
                table(
                    "U",
                    {"op": "map", "exprs": {"z": "(user == 'a')"}},
                    agg={"f": {"op": "last", "params": {"field": "z"}}},
                )
            ],
            False,
        ),
    ],
)
def test_a_string_that_an_operator_keeps_has_at_most_a_kilobyte(nodes: list[Any], is_kept: bool) -> None:
    fields = {"user": "str", "amount": "f64"}
    pipeline = compiled(event(fields=fields), *nodes)
    for text, is_long in [
        ("x" * 1024, False),
        ("ü" * 512, False),
        ("x" * 1025, True),
        ("ü" * 513, True),
        ("👍" * 257, True),
    ]:
        data = {"user": text, "amount": 1.0}
        if is_kept and is_long:
            code, reason = refuse(data, pipeline)
            assert code == "invalid_event" and "limit=1024 bytes" in reason
        else:
            assert pipeline.check(data) == data


def test_json_that_an_operator_keeps_as_text_has_at_most_a_kilobyte() -> None:
    op = {"op": "cast", "type_map": {"j": "str"}}
    pipeline = compiled(
        event(fields=ALL), table("U", op, keys=["i"], agg={"f": {"op": "last", "params": {"field": "j"}}})
    )
    assert pipeline.check(GOOD) == GOOD
    assert "limit=1024 bytes" in refuse({**GOOD, "j": ["x"] * 400}, pipeline)[1]
    assert "too large" in refuse({**GOOD, "j": [10**30]}, pipeline)[1]


FIELDS = {"user": "str", "amount": "f64", "n": "i64", "ok": "bool"}


def feed(pipeline: Pipeline, name: str, *events: dict[str, Any]) -> list[Any]:
    rows = [pipeline.check(each) for each in events]
    before = copy.deepcopy(rows)
    results = [pipeline.tables[name].entity_of(row) for row in rows]
    assert rows == before, "a chain never changes the row that other tables see"
    return results


def test_groups_and_operators_see_what_the_chain_makes() -> None:
    pipeline = compiled(
        event(fields=FIELDS, optional=list(FIELDS)),
        derived("Big", where("(Txn.amount > 5)"), {"op": "with_columns", "exprs": {"amount": "(amount * 2)"}}),
        derived("Named", {"op": "rename", "mapping": {"user": "who", "n": "user"}}, upstream="Big"),
        table("Direct"),
        table("Chained", {"op": "fillna", "defaults": {"who": "nobody"}}, keys=["who", "user"], upstream="Named"),
    )
    (seen,) = feed(pipeline, "Chained", {"amount": 6, "user": "a|b", "n": 3})
    assert seen == ("a%7Cb|3", {"who": "a|b", "amount": 12.0, "user": 3, "ok": None})
    assert feed(pipeline, "Chained", {"amount": 5, "user": "a", "n": 3}) == [None]
    assert feed(pipeline, "Chained", {"amount": None, "user": "a", "n": 3}) == [None]
    assert feed(pipeline, "Chained", {"amount": 6, "user": "a"}) == [None], "a part of the key is null"
    assert feed(pipeline, "Chained", {"amount": 6, "n": 1})[0][0] == "nobody|1"
    assert feed(pipeline, "Direct", {"amount": 6, "user": "a"})[0][1]["amount"] == 6.0
    assert pipeline.tables["Chained"].entity_for("a%7Cb|3") == seen[0]
    assert pipeline.tables["Chained"].entity_for(["a|b", 3]) == seen[0]


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ({"op": "select", "fields": ["n", "user"]}, {"n": 3, "user": "7"}),
        ({"op": "drop", "fields": ["amount", "ok"]}, {"n": 3, "user": "7"}),
        ({"op": "rename", "mapping": {"n": "ok", "ok": "n"}}, {"user": "7", "amount": 1.9, "ok": 3, "n": None}),
        (
            {"op": "cast", "type_map": {"user": "int", "amount": "int", "n": "str"}},
            {"user": 7, "amount": 1, "n": "3", "ok": None},
        ),
        ({"op": "fillna", "defaults": {"ok": True, "n": 9}}, {"user": "7", "amount": 1.9, "n": 3, "ok": True}),
        ({"op": "fillna", "defaults": {"amount": 9}}, {"user": "7", "amount": 1.9, "n": 3, "ok": None}),
        (
            {"op": "map", "exprs": {"n": "(n + 1)", "m": "(n * 10)"}},
            {"user": "7", "amount": 1.9, "n": 4, "ok": None, "m": 30},
        ),
        (
            {"op": "with_columns", "params": {"exprs": {"n": "cast(user, int)"}}},
            {"user": "7", "amount": 1.9, "n": 7, "ok": None},
        ),
    ],
)
def test_each_operator_of_a_chain(op: dict[str, Any], expected: dict[str, Any]) -> None:
    pipeline = compiled(event(fields=FIELDS, optional=list(FIELDS)), table("U", op, keys=[]))
    assert feed(pipeline, "U", {"user": "7", "amount": 1.9, "n": 3}) == [("%", expected)]


def test_the_types_of_a_chain_are_inferred() -> None:
    ops = [
        {"op": "cast", "type_map": {"n": "float"}},
        {"op": "map", "exprs": {"k": "quadkey(amount, amount, 5)", "half": "(n / 2)"}},
    ]
    features = {name: {"op": "last", "params": {"field": name}} for name in ("n", "k", "half", "ok")}
    assert compiled(event(fields=FIELDS), table("U", *ops, agg=features)).tables["U"].types == {
        "n": "f64",
        "k": "str",
        "half": "f64",
        "ok": "bool",
    }


def test_where_counts_only_what_is_true() -> None:
    features = {
        "some": count(where="(amount > 5)"),
        "none": count(where="(user > 5)"),
        "all": count(),
        "sum": total(where="ok"),
    }
    pipeline = compiled(event(fields=FIELDS, optional=["amount", "ok"]), table("U", agg=features))
    u = pipeline.tables["U"]
    state = u.features.new()
    for offset, data in enumerate(
        [{"amount": 6, "ok": True}, {"amount": 5, "ok": False}, {"amount": 9}, {"ok": True}]
    ):
        entity, row = u.entity_of(pipeline.check({"user": "a", "n": 1, **data})) or ("", {})
        assert entity == "a"
        u.features.fold(state, row, 1000 + offset, 0, offset)
    assert u.features.read(state, 2000) == {"some": 2, "none": 0, "all": 4, "sum": 6.0}


def test_a_table_over_lanes_knows_where_its_lane_key_is() -> None:
    nodes = [
        event(fields=FIELDS, lanes=4, lane_key="user", cold_after_ms=5),
        derived("D", {"op": "rename", "mapping": {"user": "who"}}, {"op": "drop", "fields": ["ok"]}),
        table("U", keys=["n", "who"], upstream="D"),
    ]
    u = compiled(*nodes).tables["U"]
    assert (u.aligned, u.lane_key_at, u.lanes, u.cold_after_ms) == (True, 1, 4, 5)
    assert u.lane_value_for("3|a%7Cb") == "a|b"
    single = compiled(event(fields=FIELDS), table("U", keys=["n"])).tables["U"]
    assert (single.aligned, single.lane_key_at, single.cold_after_ms) == (True, None, None)
