"""Registrations exactly as the SDK sends them (the contract's § 8)."""

from __future__ import annotations

from typing import Any

from headrace.features.pipeline.compiled import compile_pipeline
from headrace.features.pipeline.nodes import parse_nodes
from headrace.features.pipeline.registry import Registry, pipeline_of, plan

WHERE = '(((amount > 100) and (not (user_id == "it\'s"))) or (opt == null))'
TXN = {
    "kind": "event",
    "name": "Txn",
    "schema": {
        "fields": {
            "user_id": "str",
            "amount": "f64",
            "n": "i64",
            "ok": "bool",
            "y": "f64",
            "txn_id": "str",
            "opt": "str",
            "lat": "f64",
            "lon": "f64",
        },
        "optional_fields": ["opt"],
    },
}
BIG = {
    "kind": "derivation",
    "name": "Big2",
    "output_kind": "event",
    "upstreams": ["Txn"],
    "ops": [{"op": "filter", "expr": "(y > 1)"}, {"op": "filter", "expr": "(y > 5)"}],
    "schema": {"fields": {"txn_id": "str"}, "optional_fields": []},
}
U1: dict[str, Any] = {
    "kind": "derivation",
    "name": "U1",
    "output_kind": "table",
    "upstreams": ["Txn"],
    "ops": [
        {"op": "filter", "expr": "(y > 5)"},
        {
            "op": "group_by",
            "keys": ["user_id"],
            "agg": {
                "c": {"op": "count", "params": {}},
                "s": {"op": "sum", "params": {"field": "y", "window": "1h", "where": "(amount > 1)"}},
                "w": {"op": "count", "params": {"where": WHERE}},
                "spread": {"op": "geo_spread", "params": {"lat_field": "lat", "lon_field": "lon"}},
                "home": {
                    "op": "distance_from_home",
                    "params": {"lat_field": "lat", "lon_field": "lon", "samples": 100},
                },
                "z": {"op": "z_score", "params": {"field": "amount", "baseline_window": "1h"}},
                "burst": {"op": "burst_count", "params": {"window": "1h", "sub_window": "1m"}},
                "mix": {"op": "event_type_mix", "params": {"field": "txn_id", "max_categories": 256}},
                "out": {"op": "outlier_count", "params": {"field": "amount", "sigma": 3.0}},
                "lag": {"op": "lag", "params": {"field": "amount", "n": 1}},
                "p": {"op": "quantile", "params": {"field": "amount", "q": 0.99, "window": "1h"}},
                "e": {"op": "ewma", "params": {"field": "amount", "half_life": "1h"}},
            },
        },
    ],
    "schema": {"fields": {"user_id": "str", "c": "i64"}, "optional_fields": []},
    "table_primary_key": ["user_id"],
}


def test_captured_nodes_register_and_compile() -> None:
    body = {"nodes": [TXN, BIG, U1]}
    assert [node.name for node in parse_nodes(body)] == ["Txn", "Big2", "U1"]
    planned = plan(Registry(), body["nodes"], force=False)
    assert planned.added == ["Txn", "Big2", "U1"]
    assert planned.registry.tables["U1"].started == dict.fromkeys(U1["ops"][1]["agg"], 1)
    assert plan(planned.registry, body["nodes"], force=False).registry is planned.registry

    pipeline = compile_pipeline(pipeline_of(planned.registry, "Txn"))
    table = pipeline.tables["U1"]
    data = {"user_id": "it's", "amount": 200, "n": 1, "ok": True, "y": 6, "txn_id": "t", "lat": 1.0, "lon": 2}
    state = table.features.new()
    for offset, event in enumerate([data, {**data, "opt": "x"}, {**data, "amount": 50}, {**data, "y": 5}]):
        entity_and_row = table.entity_of(pipeline.check(event))
        if entity_and_row is not None:
            assert entity_and_row[0] == "it's" == table.entity_for("it's")
            table.features.fold(state, entity_and_row[1], 1000, 0, offset)
    values = table.features.read(state, 1000, ["c", "s", "w", "lag"])
    assert values == {"c": 3, "s": 18.0, "w": 2, "lag": 200.0}
