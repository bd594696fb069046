"""Every refusal of a registration has the contract's code, the exact path, and a reason that shows the value."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.features.errors import RegistrationError
from headrace.features.pipeline.nodes import parse_nodes
from headrace.features.pipeline.registry import Registry, plan
from headrace.features.pipeline.text import parse_duration
from tests.unit.features.pipeline.documents import count, derived, event, registered, table, total, where

INVALID = "invalid_registration"


def derivation(**members: Any) -> dict[str, Any]:
    return {**table("T"), **members}


def one(op: dict[str, Any]) -> list[Any]:
    return [event(), derived("D", op)]


def agg(feature: Any, name: str = "f") -> list[Any]:
    return [event(), table(agg={name: feature})]


def laned(**more: Any) -> dict[str, Any]:
    return event(lanes=4, lane_key="user", **more)


REFUSED: list[tuple[Any, str, str, str]] = [
    # the nodes
    ([5], INVALID, "nodes[0]", "not 5"),
    ([{"kind": "table", "name": "T"}], "unsupported_node_kind", "nodes[0].T.kind", "'table'"),
    ([{"name": "T"}], "unsupported_node_kind", "nodes[0].T.kind", "null"),
    ([{"kind": ["event"], "name": 3}], "unsupported_node_kind", "nodes[0].kind", "an array"),
    ([event(), event("")], INVALID, "nodes[1].name", "''"),
    ([event(), {"kind": "event"}], INVALID, "nodes[1].name", "null"),
    ([event("9lives")], INVALID, "nodes[0].name", "'9lives'"),
    ([event("a-b")], INVALID, "nodes[0].name", "'a-b'"),
    ([event("ünï")], INVALID, "nodes[0].name", "'ünï'"),
    ([event("_beava_x")], INVALID, "nodes[0].name", "reserved"),
    ([event("x" * 129)], INVALID, "nodes[0].name", "limit=128"),
    ([event(), event()], INVALID, "nodes[1].name", "twice"),
    ([event(event_time_field="at")], "unknown_field_event_time_v0", "nodes[0].Txn.event_time_field", "arrival"),
    ([event(tolerate_delay_ms=5)], "unknown_field_tolerate_delay_v0", "nodes[0].Txn.tolerate_delay_ms", "Remove"),
    (
        [event(fields={"event_time": "i64"})],
        "unknown_field_event_time_v0",
        "nodes[0].schema.fields.event_time",
        "arrival",
    ),
    # an event
    ([{"kind": "event", "name": "E"}], INVALID, "nodes[0].schema", "null"),
    ([{"kind": "event", "name": "E", "schema": {}}], INVALID, "nodes[0].schema.fields", "null"),
    ([event(fields={})], INVALID, "nodes[0].schema.fields", "{}"),
    ([event(fields={"a": "int"})], INVALID, "nodes[0].schema.fields.a", "'int'"),
    ([event(fields={"a": ["str"]})], INVALID, "nodes[0].schema.fields.a", "an array"),
    ([event(fields={"a b": "str"})], INVALID, "nodes[0].schema.fields", "'a b'"),
    ([event(fields={f"f{i}": "str" for i in range(255)})], INVALID, "nodes[0].schema.fields", "limit=254"),
    ([event(optional=["user", "nope"])], INVALID, "nodes[0].schema.optional_fields[1]", "'nope'"),
    ([event(optional=[5])], INVALID, "nodes[0].schema.optional_fields[0]", "5"),
    (
        [event(schema={"fields": {"a": "str"}, "optional_fields": "a"})],
        INVALID,
        "nodes[0].schema.optional_fields",
        "'a'",
    ),
    ([event(cold_after_ms=0)], INVALID, "nodes[0].cold_after_ms", "not 0"),
    ([event(cold_after_ms=True)], INVALID, "nodes[0].cold_after_ms", "not true"),
    ([event(cold_after_ms=10**400)], INVALID, "nodes[0].cold_after_ms", "many digits"),
    ([event(keep_events_for="30 days")], INVALID, "nodes[0].keep_events_for", "'30 days'"),
    ([event(keep_events_for="0d")], INVALID, "nodes[0].keep_events_for", "'0d'"),
    ([event(keep_events_for_ms="1d")], INVALID, "nodes[0].keep_events_for_ms", "'1d'"),
    ([event(keep_events_for="1d", keep_events_for_ms=5)], INVALID, "nodes[0].keep_events_for_ms", "'1d': 5"),
    ([event(dedupe_key="nope")], INVALID, "nodes[0].dedupe_key", "'nope'"),
    ([event(dedupe_key="extra")], INVALID, "nodes[0].dedupe_key", "json"),
    ([event(dedupe_key=5)], INVALID, "nodes[0].dedupe_key", "5"),
    ([event(dedupe_window_ms=-1)], INVALID, "nodes[0].dedupe_window_ms", "-1"),
    ([event(lanes=33, lane_key="user")], INVALID, "nodes[0].lanes", "33"),
    ([event(lanes=2)], INVALID, "nodes[0].lane_key", "2 lanes"),
    ([event(lanes=2, lane_key="nope")], INVALID, "nodes[0].lane_key", "'nope'"),
    ([event(search="yes")], INVALID, "nodes[0].search", "'yes'"),
    # a derivation
    ([event(), derivation(output_kind="stream")], INVALID, "nodes[1].output_kind", "'stream'"),
    ([event(), derivation(upstreams=[])], INVALID, "nodes[1].upstreams", "[]"),
    ([event(), derivation(upstreams="Txn")], INVALID, "nodes[1].upstreams", "'Txn'"),
    ([event(), derivation(upstreams=[None])], INVALID, "nodes[1].upstreams[0]", "null"),
    ([event(), derivation(upstreams=["Txn", "Txn"])], "feature_removed_no_unions_v0", "nodes[1].upstreams[1]", "2"),
    ([event(), derivation(upstreams=["Nope"])], INVALID, "nodes[1].upstreams[0]", "'Nope'"),
    ([event(), derivation(upstreams=["T"])], INVALID, "nodes[1].upstreams[0]", "'T'"),
    ([table(), event()], INVALID, "nodes[0].upstreams[0]", "'Txn'"),
    ([event(), derivation(ops=None)], INVALID, "nodes[1].ops", "null"),
    ([event(), derivation(ops=[])], INVALID, "nodes[1].ops", "group_by"),
    ([event(), derivation(ops=[where("ok")])], INVALID, "nodes[1].ops", "group_by"),
    ([event(), derivation(ops=[where("ok")] * 257)], INVALID, "nodes[1].ops", "limit=256"),
    ([event(), derivation(table_primary_key=None)], INVALID, "nodes[1].table_primary_key", "null"),
    ([event(), derivation(table_primary_key=["n"])], INVALID, "nodes[1].table_primary_key", "'user'"),
    ([event(), derivation(backfill=0)], INVALID, "nodes[1].backfill", "0"),
    ([event(), derived("D", schema=None)], INVALID, "nodes[1].schema", "null"),
    (
        [event(), table(), table("V", upstream="U")],
        "aggregation_on_table_not_supported",
        "nodes[2].upstreams[0]",
        "'U'",
    ),
    ([event(), table(), derived("D", upstream="U")], INVALID, "nodes[2].upstreams[0]", "'U'"),
    # operators of a chain
    (one("filter"), INVALID, "nodes[1].ops[0]", "'filter'"),  # type: ignore[arg-type]
    (one({"op": 3}), INVALID, "nodes[1].ops[0]", "an object"),
    (one({"op": "explode"}), INVALID, "nodes[1].ops[0].op", "'explode'"),
    (one({"op": "join", "other": "X"}), "feature_removed_no_joins_v0", "nodes[1].ops[0]", "joins"),
    (one({"op": "union"}), "feature_removed_no_unions_v0", "nodes[1].ops[0]", "unions"),
    (one({"op": "session_window"}), "window_not_supported", "nodes[1].ops[0]", "session windows"),
    (one({"op": "group_by", "keys": [], "agg": {}}), INVALID, "nodes[1].ops[0].op", "only tables"),
    ([event(), derivation(ops=[table()["ops"][0]] * 2)], INVALID, "nodes[1].ops[0].op", "last"),
    (one(where("nope")), "invalid_expression", "nodes[1].ops[0].expr", "'nope'"),
    (one({"op": "filter"}), "invalid_expression", "nodes[1].ops[0].expr", "null"),
    (one(where("n")), "invalid_expression", "nodes[1].ops[0].expr", "i64"),
    (one(where("(n > 'a')")), "invalid_expression", "nodes[1].ops[0].expr", "i64 with str"),
    (one({"op": "select", "fields": ["user", "x"]}), INVALID, "nodes[1].ops[0].fields[1]", "'x'"),
    (one({"op": "select", "fields": []}), INVALID, "nodes[1].ops[0].fields", "[]"),
    (one({"op": "select", "fields": ["user", "user"]}), INVALID, "nodes[1].ops[0].fields", "twice"),
    (one({"op": "drop", "fields": ["x"]}), INVALID, "nodes[1].ops[0].fields[0]", "'x'"),
    (one({"op": "drop", "fields": ["user", "amount", "n", "ok", "extra"]}), INVALID, "nodes[1].ops[0]", "no fields"),
    (one({"op": "rename", "mapping": {"x": "y"}}), INVALID, "nodes[1].ops[0].mapping.x", "'x'"),
    (one({"op": "rename", "mapping": {"n": "user"}}), INVALID, "nodes[1].ops[0].mapping.n", "'user'"),
    (one({"op": "rename", "mapping": {"n": "z", "user": "z"}}), INVALID, "nodes[1].ops[0].mapping.n", "'z'"),
    (one({"op": "rename", "mapping": {"n": "a b"}}), INVALID, "nodes[1].ops[0].mapping.n", "'a b'"),
    (one({"op": "rename", "mapping": {}}), INVALID, "nodes[1].ops[0].mapping", "{}"),
    (
        one({"op": "with_columns", "exprs": {"z": "(n + user)"}}),
        "invalid_expression",
        "nodes[1].ops[0].exprs.z",
        "str",
    ),
    (one({"op": "map", "exprs": {"z": "null"}}), "invalid_expression", "nodes[1].ops[0].exprs.z", "no type"),
    (one({"op": "map", "exprs": {"a b": "n"}}), INVALID, "nodes[1].ops[0].exprs", "'a b'"),
    (one({"op": "map", "exprs": {f"f{i}": "n" for i in range(250)}}), INVALID, "nodes[1].ops[0]", "255 fields"),
    (one({"op": "cast", "type_map": {"n": "date"}}), INVALID, "nodes[1].ops[0].type_map.n", "'date'"),
    (one({"op": "cast", "type_map": {"x": "int"}}), INVALID, "nodes[1].ops[0].type_map.x", "'x'"),
    (one({"op": "fillna", "defaults": {"n": 1.5}}), INVALID, "nodes[1].ops[0].defaults.n", "1.5"),
    (one({"op": "fillna", "defaults": {"user": "a\tb"}}), INVALID, "nodes[1].ops[0].defaults.user", "'a?b'"),
    (one({"op": "fillna", "defaults": {"user": "x" * 1025}}), INVALID, "nodes[1].ops[0].defaults.user", "1024 bytes"),
    (one({"op": "fillna", "defaults": {"extra": {}}}), INVALID, "nodes[1].ops[0].defaults.extra", "json"),
    # aggregations
    ([event(), table(keys=["nope"])], "aggregation_unknown_field", "nodes[1].ops[0].keys[0]", "'nope'"),
    ([event(), table(keys=["extra"])], INVALID, "nodes[1].ops[0].keys[0]", "json"),
    ([event(), table(keys=["user", "user"])], INVALID, "nodes[1].ops[0].keys", "repeated"),
    ([event(), table(keys=[f"k{i}" for i in range(17)])], INVALID, "nodes[1].ops[0].keys", "17"),
    ([event(), derivation(ops=[{"op": "group_by", "keys": "user"}])], INVALID, "nodes[1].ops[0].keys", "'user'"),
    ([event(), derivation(ops=[{"op": "group_by", "keys": [], "agg": {}}])], INVALID, "nodes[1].ops[0].agg", "{}"),
    ([event(), table(agg={f"f{i}": count() for i in range(1001)})], INVALID, "nodes[1].ops[0].agg", "limit=1000"),
    (agg(count(), "a b"), INVALID, "nodes[1].ops[0].agg", "'a b'"),
    (agg(count(), "_beava_f"), INVALID, "nodes[1].ops[0].agg._beava_f", "reserved"),
    (agg("count"), INVALID, "nodes[1].ops[0].agg.f", "'count'"),
    (agg({"op": "count", "params": []}), INVALID, "nodes[1].ops[0].agg.f.params", "[]"),
    (agg(count(x=[[1]])), INVALID, "nodes[1].ops[0].agg.f.params.x", "an array"),
    (agg(count(), "user"), "aggregation_group_key_collides_with_feature", "nodes[1].ops[0].agg.user", "'user'"),
    (agg(total("nope")), "aggregation_unknown_field", "nodes[1].ops[0].agg.f.params.field", "'nope'"),
    (agg(total("user")), INVALID, "nodes[1].ops[0].agg.f.params.field", "str"),
    (agg({"op": "median"}), "unbounded_op_in_lifetime_mode", "nodes[1].ops[0].agg.f.op", "'median'"),
    (
        agg({"op": "median", "params": {"window": "1h"}}),
        "aggregation_unknown_op",
        "nodes[1].ops[0].agg.f.op",
        "'median'",
    ),
    (agg(count(window="1 h")), "aggregation_invalid_window", "nodes[1].ops[0].agg.f.params.window", "1 h"),
    (
        agg({"op": "quantile", "params": {"field": "n", "q": 2}}),
        "invalid_percentile_q",
        "nodes[1].ops[0].agg.f.params.q",
        "2",
    ),
    (
        agg({"op": "top_k", "params": {"field": "n", "k": 0}}),
        "invalid_top_k_k",
        "nodes[1].ops[0].agg.f.params.k",
        "0",
    ),
    (
        agg({"op": "lag", "params": {"field": "n"}}),
        "unbounded_op_in_lifetime_mode",
        "nodes[1].ops[0].agg.f.params.n",
        "lag",
    ),
    (agg(count(where="(nope > 1)")), "aggregation_invalid_where", "nodes[1].ops[0].agg.f.params.where", "'nope'"),
    (agg(count(where="n")), "aggregation_invalid_where", "nodes[1].ops[0].agg.f.params.where", "i64"),
    (agg(count(where=5)), "aggregation_invalid_where", "nodes[1].ops[0].agg.f.params.where", "5"),
    # lanes
    ([laned(), table(keys=["n"])], INVALID, "nodes[1].table_primary_key", "'user'"),
    ([laned(), table(keys=[])], INVALID, "nodes[1].table_primary_key", "4 lanes"),
    (
        [laned(), table("U", {"op": "cast", "type_map": {"user": "str"}})],
        INVALID,
        "nodes[1].table_primary_key",
        "unchanged",
    ),
    (
        [laned(), table("U", {"op": "map", "exprs": {"user": "user"}})],
        INVALID,
        "nodes[1].table_primary_key",
        "unchanged",
    ),
]


@pytest.mark.parametrize(
    ("nodes", "code", "path", "said"), REFUSED, ids=[f"{case[2]} {case[3]}"[:60] for case in REFUSED]
)
def test_a_node_is_refused(nodes: list[Any], code: str, path: str, said: str) -> None:
    with pytest.raises(RegistrationError) as refusal:
        plan(Registry(), nodes, force=True)
    assert (refusal.value.code, refusal.value.path) == (code, path), refusal.value.reason
    assert said in refusal.value.reason
    assert len(refusal.value.reason) < 500


@pytest.mark.parametrize(
    ("body", "path", "said"),
    [
        ({}, "<body>", "null"),
        ({"nodes": None}, "<body>", "null"),
        ({"nodes": {}}, "<body>", "{}"),
        ({"descriptors": []}, "<body>", "null"),
        ([], "<body>", "[]"),
        (None, "<body>", "null"),
        ({"nodes": [], "force": 1}, "force", "1"),
        ({"nodes": [], "dry_run": "true"}, "dry_run", "'true'"),
        ({"nodes": [event(f"E{i}") for i in range(1001)]}, "<body>", "limit=1000"),
    ],
)
def test_a_body_is_refused(body: Any, path: str, said: str) -> None:
    with pytest.raises(RegistrationError) as refusal:
        parse_nodes(body)
    assert (refusal.value.code, refusal.value.path) == (INVALID, path)
    assert said in refusal.value.reason


def test_a_body_may_have_more_than_nodes() -> None:
    assert [node.name for node in parse_nodes({"nodes": [event()], "descriptors": 5, "force": True})] == ["Txn"]


def test_the_first_error_of_the_nodes_by_themselves_wins_then_that_of_their_relations() -> None:
    nodes = [event(), table(agg={"f": total("nope")}), {"kind": "upsert", "name": "X"}]
    with pytest.raises(RegistrationError) as refusal:
        plan(Registry(), nodes, force=False)
    assert refusal.value.path == "nodes[2].X.kind"
    with pytest.raises(RegistrationError) as refusal:
        plan(Registry(), [*nodes[:2], table("V", agg={"f": total("nope")})], force=False)
    assert refusal.value.path == "nodes[1].ops[0].agg.f.params.field"


def test_a_row_that_can_become_too_large_is_refused() -> None:
    sketches = {
        f"f{i}": {"op": "top_k", "params": {"field": "user", "window": "1h", "k": 1024 - i}} for i in range(8)
    }
    with pytest.raises(RegistrationError) as refusal:
        plan(Registry(), [event(), table(agg=sketches)], force=False)
    assert (refusal.value.code, refusal.value.path) == (INVALID, "nodes[1].ops[0].agg")
    assert "limit=4194304" in refusal.value.reason


@pytest.mark.parametrize("change", [{"lanes": 8}, {"lanes": None, "lane_key": None}, {"lane_key": "n"}])
def test_lanes_never_change(change: dict[str, Any]) -> None:
    registry = registered(laned())
    with pytest.raises(RegistrationError, match="can't change") as refusal:
        plan(registry, [laned() | change], force=True)
    assert refusal.value.path in ("nodes[0].lanes", "nodes[0].lane_key")


def test_a_namespace_has_a_limited_number_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.features.pipeline.registry.MAX_REGISTERED", 2)
    registry = registered(event(), event("Click"))
    assert plan(registry, [event()], force=False).registry is registry
    with pytest.raises(RegistrationError, match="3 nodes would be registered: limit=2") as refusal:
        plan(registry, [event("Third")], force=True)
    assert refusal.value.path == "<body>"


def test_a_cycle_is_refused() -> None:
    registry = registered(event(), derived("A"), derived("B", upstream="A"))
    with pytest.raises(RegistrationError, match="depend on itself") as refusal:
        plan(registry, [derived("A", upstream="B")], force=True)
    assert (refusal.value.code, refusal.value.path) == (INVALID, "nodes[0].upstreams[0]")


def test_an_event_never_becomes_a_derivation() -> None:
    registry = registered(event(), event("Other"))
    with pytest.raises(RegistrationError, match="can't become") as refusal:
        plan(registry, [derived("Other")], force=True)
    assert refusal.value.path == "nodes[0].Other.kind"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1ms", 1),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("30d", 2_592_000_000),
        ("36500d", 36500 * 86_400_000),
        ("0s", None),
        ("36501d", None),
        ("1h30m", None),
        ("1.5h", None),
        ("-1h", None),
        (" 1h", None),
        ("1h\n", None),
        ("١h", None),
        ("9" * 400 + "h", None),
        (3600, None),
        (None, None),
    ],
)
def test_durations(text: Any, expected: int | None) -> None:
    assert parse_duration(text) == expected
