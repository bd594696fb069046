"""Node documents as clients send them."""

from __future__ import annotations

from typing import Any

from headrace.features.pipeline.registry import Plan, Registry, plan

FIELDS = {"user": "str", "amount": "f64", "n": "i64", "ok": "bool", "extra": "json"}


def event(name: str = "Txn", fields: dict[str, Any] | None = None, optional: Any = (), **more: Any) -> dict[str, Any]:
    schema = {"fields": FIELDS if fields is None else fields, "optional_fields": list(optional)}
    return {"kind": "event", "name": name, "schema": schema, **more}


def derived(name: str, *ops: dict[str, Any], upstream: str = "Txn", **more: Any) -> dict[str, Any]:
    document = {"kind": "derivation", "name": name, "output_kind": "event", "upstreams": [upstream], "ops": list(ops)}
    return {**document, "schema": {"fields": {}}, **more}


def table(
    name: str = "U",
    *ops: dict[str, Any],
    agg: dict[str, Any] | None = None,
    keys: Any = ("user",),
    upstream: str = "Txn",
    **more: Any,
) -> dict[str, Any]:
    group_by = {"op": "group_by", "keys": list(keys), "agg": agg or {"c": count()}}
    document = {"kind": "derivation", "name": name, "output_kind": "table", "upstreams": [upstream]}
    return {**document, "ops": [*ops, group_by], "table_primary_key": list(keys), **more}


def count(**params: Any) -> dict[str, Any]:
    return {"op": "count", "params": params}


def total(field: str = "amount", **params: Any) -> dict[str, Any]:
    return {"op": "sum", "params": {"field": field, **params}}


def where(expression: str) -> dict[str, Any]:
    return {"op": "filter", "expr": expression}


def register(registry: Registry, *nodes: Any, force: bool = False) -> Plan:
    return plan(registry, list(nodes), force=force)


def registered(*nodes: Any) -> Registry:
    return register(Registry(), *nodes).registry
