"""What a registration changes in a node: entries of the diff as the contract (§ 2) names them.

An additive entry keeps all state. A destructive one drops the state of the node and of all that comes from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.features.pipeline.nodes import OP_PARAMETERS, Derivation, EventNode, Node
from headrace.features.pipeline.syntax import canonical
from headrace.features.pipeline.tables import normalise

Entry = dict[str, Any]
ABSENT = "<absent>"
FOREVER = "forever"  # how the contract writes a window that never ends

_SETTINGS = ("keep_events_ms", "cold_after_ms", "dedupe_key", "dedupe_window_ms", "search")


class Change(NamedTuple):
    """What changes in one node."""

    additive: list[Entry]
    destructive: list[Entry]


def is_same(before: Node | None, after: Node) -> bool:
    """Returns whether two nodes are the same at a glance: those that differ may still mean the same. A
    back-fill is a request, and no part of the node.
    """
    if isinstance(before, EventNode) and isinstance(after, EventNode):
        return not event_change(before, after).destructive and not event_change(before, after).additive
    if isinstance(before, Derivation) and isinstance(after, Derivation):
        return (before.output_kind, before.upstreams, before.ops) == (after.output_kind, after.upstreams, after.ops)
    return False


def new_node(node: Node) -> Entry:
    """Returns the entry of a node that is new."""
    kind = "event" if isinstance(node, EventNode) else "derivation"
    return {"kind": "new_descriptor", "descriptor_kind": kind, "name": node.name}


def kind_change(before: Node, after: Node) -> Entry | None:
    """Returns the entry of a node that becomes one of another kind; None if it does not."""
    old, new = _kind_of(before), _kind_of(after)
    return None if old == new else {"kind": "type_change", "field": after.name, "from": old, "to": new}


def event_change(before: EventNode, after: EventNode) -> Change:
    """Returns what changes in an event."""
    additive: list[Entry] = []
    destructive: list[Entry] = []
    for field, old in before.fields.items():
        new = after.fields.get(field, ABSENT)
        place = f"{after.name}.{field}"
        was_optional, is_optional = field in before.optional, field in after.optional
        if new != old:
            destructive.append({"kind": "type_change", "field": place, "from": old, "to": new})
        elif was_optional and not is_optional:
            destructive.append({"kind": "type_change", "field": place, "from": f"optional {old}", "to": old})
        elif is_optional and not was_optional:
            additive.append({"kind": "optional_field", "event": after.name, "field": field})
    for field, new in after.fields.items():
        if field not in before.fields:
            additive.append({"kind": "new_field", "event": after.name, "field": field, "type": new})
    for setting in _SETTINGS:
        old, new = getattr(before, setting), getattr(after, setting)
        if old != new:
            additive.append(
                {"kind": "setting_change", "event": after.name, "setting": setting, "from": old, "to": new}
            )
    return Change(additive, destructive)


def derivation_change(
    before: Derivation,
    after: Derivation,
    old_types: Callable[[], dict[str, str]],
    new_types: Callable[[], dict[str, str]],
) -> Change:
    """Returns what changes in a derivation of the same output kind.

    Args:
        old_types: returns the types of the fields that the old aggregations see; it is only called for a table.
        new_types: the same for the new ones.
    """
    name = after.name
    destructive: list[Entry] = []
    if before.upstreams != after.upstreams:
        old, new = before.upstreams[0], after.upstreams[0]
        destructive.append({"kind": "type_change", "field": f"{name}.upstreams", "from": old, "to": new})
    is_table = after.output_kind == "table"
    end = -1 if is_table else None
    destructive += _op_changes(name, before.ops[:end], after.ops[:end])
    if not is_table:
        return Change([], destructive)
    if before.primary_key != after.primary_key:
        keys = {"from": list(before.primary_key), "to": list(after.primary_key)}
        destructive.append({"kind": "key_cols_change", "table": name, **keys})
    additive: list[Entry] = []
    source = after.upstreams[0]
    old_aggs, new_aggs = before.ops[-1]["agg"], after.ops[-1]["agg"]
    for feature, agg in old_aggs.items():
        if feature not in new_aggs:
            destructive.append({"kind": "agg_removal", "table": name, "agg": feature})
        elif agg != new_aggs[feature]:
            old_form = normalise(agg["op"], agg["params"], old_types())
            new_form = normalise(new_aggs[feature]["op"], new_aggs[feature]["params"], new_types())
            if old_form.rest != new_form.rest:
                destructive.append({"kind": "agg_removal", "table": name, "agg": feature})
                additive.append({"kind": "new_agg", "table": name, "agg": feature, "source": source})
            elif old_form.window != new_form.window:
                windows = {"from": _window_of(agg["params"]), "to": _window_of(new_aggs[feature]["params"])}
                destructive.append({"kind": "window_change", "agg": f"{name}.{feature}", **windows})
    added = [feature for feature in new_aggs if feature not in old_aggs]
    additive += [{"kind": "new_agg", "table": name, "agg": feature, "source": source} for feature in added]
    return Change(additive, destructive)


def _op_changes(name: str, before: tuple[dict[str, Any], ...], after: tuple[dict[str, Any], ...]) -> list[Entry]:
    """Returns what changes in a chain, between the operators that are equal at both ends."""
    old, new = [_normalise_op(op) for op in before], [_normalise_op(op) for op in after]
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    while len(old) > start and len(new) > start and old[-1] == new[-1]:
        old.pop(), new.pop()
    entries: list[Entry] = []
    for index in range(start, max(len(old), len(new))):
        place = {"descriptor": name, "index": index}
        if index >= len(new):
            entries.append({"kind": "op_removal", **place, "op": before[index]["op"]})
        elif index >= len(old):
            entries.append({"kind": "op_insertion", **place, "op": after[index]["op"]})
        else:
            entries.append({"kind": "op_change", **place, "from": before[index], "to": after[index]})
    return entries


def _normalise_op(op: dict[str, Any]) -> dict[str, Any]:
    """Returns a compiled operator in a form that equal ones share."""
    key = OP_PARAMETERS[op["op"]]
    if key not in ("expr", "exprs"):
        return op
    value = op[key]
    normal = canonical(value) if isinstance(value, str) else {name: canonical(text) for name, text in value.items()}
    return {"op": op["op"], key: normal}


def _window_of(params: dict[str, Any]) -> Any:
    return params.get("window") or params.get("baseline_window") or FOREVER


def _kind_of(node: Node) -> str:
    return "event" if isinstance(node, EventNode) else "derived event" if node.output_kind == "event" else "table"
