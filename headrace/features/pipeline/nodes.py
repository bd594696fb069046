"""Reads the nodes of a registration: event sources and derivations, as JSON documents.

Only what a node says by itself is checked here. Whether its upstreams exist, and whether its operators fit their schema, is
decided by `registry`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from headrace.features.errors import RegistrationError
from headrace.features.pipeline.text import check_name, join, parse_duration, show
from headrace.limits import MAX_TTL_MS

MAX_NODES = 1000  # in one call
MAX_FIELDS = 254  # of an event; the contract's § 10
MAX_FEATURES = 1000  # of a table
MAX_OPS = 256  # of a derivation
MAX_KEYS = 16  # columns of a table's key
MAX_LANES = 32
DEFAULT_DEDUPE_WINDOW_MS = 86_400_000  # the contract's § 2: 24 h

FIELD_TYPES = ("str", "i64", "f64", "bool", "bytes", "datetime", "json")
TEXT_TYPES = frozenset({"str", "bytes", "datetime"})
"""Types whose values are strings: `bytes` in an encoding of the client's, `datetime` in RFC 3339."""

_EVENT_TIME = {
    "event_time": "unknown_field_event_time_v0",
    "event_time_ms": "unknown_field_event_time_v0",
    "event_time_field": "unknown_field_event_time_v0",
    "tolerate_delay": "unknown_field_tolerate_delay_v0",
    "tolerate_delay_ms": "unknown_field_tolerate_delay_v0",
}
_REMOVED_OPS = {
    "join": ("feature_removed_no_joins_v0", "joins"),
    "union": ("feature_removed_no_unions_v0", "unions"),
    "session": ("window_not_supported", "session windows"),
    "session_window": ("window_not_supported", "session windows"),
}
EVENT_TIME_FIELDS = frozenset({"event_time", "event_time_ms"})
"""Names that no field of an event can have: events have the time of their arrival."""


OP_PARAMETERS = {
    "filter": "expr",
    "select": "fields",
    "drop": "fields",
    "rename": "mapping",
    "with_columns": "exprs",
    "map": "exprs",
    "cast": "type_map",
    "fillna": "defaults",
}
"""The one parameter of each stateless operator."""
_SCALARS = (str, int, float, bool, type(None))


class EventNode(msgspec.Struct, frozen=True, tag_field="kind", tag="event", omit_defaults=True):
    """A source of events.

    Attributes:
        fields: the type of each field, in the order of the document.
        optional: the fields that an event can leave out.
        keep_events_ms: how long events are kept; None: for ever.
        cold_after_ms: the idle time after which a row is cold; None: never.
        dedupe_key: the field whose value makes an event unique within the window.
        lanes: the number of logs that the events are spread over; never changes.
        lane_key: the field that decides an event's lane; never changes.
        search: whether the events are indexed for search.
    """

    name: str
    fields: dict[str, str]
    optional: tuple[str, ...] = ()
    keep_events_ms: int | None = None
    cold_after_ms: int | None = None
    dedupe_key: str | None = None
    dedupe_window_ms: int = DEFAULT_DEDUPE_WINDOW_MS
    lanes: int = 1
    lane_key: str | None = None
    search: bool = False


class Derivation(msgspec.Struct, frozen=True, tag_field="kind", tag="derivation", omit_defaults=True):
    """A chain of operators over another node.

    Attributes:
        output_kind: "event" for a derived event, "table" for aggregations by key.
        upstreams: the one node that it reads.
        ops: the operators as flat documents; the last one of a table is `group_by`.
        primary_key: the columns of a table's key; none for one global row.
        backfill: whether a new table starts from the history.
    """

    name: str
    output_kind: str
    upstreams: tuple[str, ...]
    ops: tuple[dict[str, Any], ...]
    primary_key: tuple[str, ...] = ()
    backfill: bool = False


Node = EventNode | Derivation


def parse_nodes(body: Any, registered: Mapping[str, Node] | None = None) -> list[Node]:
    """Parses the body of a registration.

    Args:
        body: the decoded JSON body.
        registered: the registered nodes by name. An event that does not mention a setting keeps the registered one.

    Raises:
        RegistrationError: the first error.
    """
    if not isinstance(body, dict):
        _refuse("<body>", f"body must be an object with the list `nodes`, not {show(body)}")
    for flag in ("force", "dry_run"):
        if not isinstance(body.get(flag, False), bool):
            _refuse(flag, f"{flag} must be true or false, not {show(body[flag])}")
    if not isinstance(body.get("nodes"), list):
        _refuse("<body>", f"`nodes` must be a list of nodes, not {show(body.get('nodes'))}")
    return parse_list(body["nodes"], registered or {})


def parse_list(documents: Sequence[Any], registered: Mapping[str, Node]) -> list[Node]:
    """Parses node documents; see `parse_nodes`."""
    if len(documents) > MAX_NODES:
        _refuse("<body>", f"{len(documents)} nodes are too many for one call: limit={MAX_NODES}; use several calls")
    nodes: list[Node] = []
    names: set[str] = set()
    for index, document in enumerate(documents):
        node = _parse_node(document, f"nodes[{index}]", registered)
        if node.name in names:
            _refuse(f"nodes[{index}].name", f"{node.name!r} is declared twice in this call")
        names.add(node.name)
        nodes.append(node)
    return nodes


def _parse_node(document: Any, path: str, registered: Mapping[str, Node]) -> Node:
    if not isinstance(document, dict):
        _refuse(path, f"a node must be an object, not {show(document)}")
    name = document.get("name")
    inner = join(path, name)
    kind = document.get("kind")
    if kind not in ("event", "derivation") or not isinstance(kind, str):
        reason = (
            f"kind must be 'event' or 'derivation', not {show(kind)}; tables are derivations with output_kind 'table'"
        )
        raise RegistrationError("unsupported_node_kind", f"{inner}.kind", reason)
    for key, code in _EVENT_TIME.items():
        if key in document:
            reason = f"{key} is not supported: events have the time of their arrival. Remove it"
            raise RegistrationError(code, f"{inner}.{key}", reason)
    name = check_name(name, f"{path}.name", "a node")
    if kind == "derivation":
        return _parse_derivation(document, path)
    before = registered.get(name)
    return _parse_event(document, path, before if isinstance(before, EventNode) else None)


def _parse_event(document: dict[str, Any], path: str, before: EventNode | None) -> EventNode:
    fields, optional = _parse_schema(document.get("schema"), f"{path}.schema")
    kept = before or EventNode(document["name"], fields)
    settings: dict[str, Any] = {
        "cold_after_ms": kept.cold_after_ms,
        "keep_events_ms": kept.keep_events_ms,
        "dedupe_key": kept.dedupe_key,
        "dedupe_window_ms": kept.dedupe_window_ms,
        "lanes": kept.lanes,
        "lane_key": kept.lane_key,
        "search": kept.search,
    }
    readers = {
        "keep_events_for_ms": ("keep_events_ms", _read_millis, None),
        "keep_events_for": ("keep_events_ms", _read_duration, None),
        "cold_after_ms": ("cold_after_ms", _read_millis, None),
        "dedupe_key": ("dedupe_key", _read_text, None),
        "dedupe_window_ms": ("dedupe_window_ms", _read_millis, DEFAULT_DEDUPE_WINDOW_MS),
        "lanes": ("lanes", _read_lanes, 1),
        "lane_key": ("lane_key", _read_text, None),
        "search": ("search", _read_flag, False),
    }
    # Nulls first: of two spellings of a setting, the one with a value counts.
    for key in sorted(document.keys() & readers.keys(), key=lambda key: (document[key] is not None, key)):
        setting, read, default = readers[key]
        value = document[key]
        settings[setting] = default if value is None else read(value, f"{path}.{key}")
    spellings = [document.get(key) for key in ("keep_events_for", "keep_events_for_ms")]
    if None not in spellings and parse_duration(spellings[0]) != spellings[1]:
        _refuse(
            f"{path}.keep_events_for_ms", f"differs from keep_events_for {show(spellings[0])}: {show(spellings[1])}"
        )
    for key in ("dedupe_key", "lane_key"):
        field = settings[key]
        if field is not None and fields.get(field, "json") == "json":
            why = "is a json field, and can't be compared" if field in fields else "is not a field of the event"
            _refuse(f"{path}.{key}", f"{key} {show(field)} {why}")
    if settings["lanes"] > 1 and settings["lane_key"] is None:
        _refuse(
            f"{path}.lane_key",
            f"an event with {settings['lanes']} lanes needs lane_key, the field that decides the lane",
        )
    return EventNode(document["name"], fields, optional, **settings)


def _parse_schema(schema: Any, path: str) -> tuple[dict[str, str], tuple[str, ...]]:
    if not isinstance(schema, dict):
        _refuse(path, f"an event needs the object `schema`, not {show(schema)}")
    fields = schema.get("fields")
    if not isinstance(fields, dict) or not fields:
        _refuse(f"{path}.fields", f"an event needs at least one field in the object `fields`, not {show(fields)}")
    if len(fields) > MAX_FIELDS:
        _refuse(f"{path}.fields", f"{len(fields)} fields are too many: limit={MAX_FIELDS}")
    for name, wire_type in fields.items():
        place = join(f"{path}.fields", name)
        check_name(name, place, "a field")
        if name in EVENT_TIME_FIELDS:
            reason = f"{name} is not supported: events have the time of their arrival. Use another name"
            raise RegistrationError("unknown_field_event_time_v0", place, reason)
        if not isinstance(wire_type, str) or wire_type not in FIELD_TYPES:
            _refuse(place, f"unknown type {show(wire_type)}: use one of {', '.join(FIELD_TYPES)}")
    optional = schema.get("optional_fields")
    if optional is None:
        return dict(fields), ()
    if not isinstance(optional, list):
        _refuse(f"{path}.optional_fields", f"optional_fields must be a list of names, not {show(optional)}")
    for index, name in enumerate(optional):
        if not isinstance(name, str) or name not in fields:
            _refuse(
                f"{path}.optional_fields[{index}]", f"optional field {show(name)} is not declared in schema.fields"
            )
    return dict(fields), tuple(dict.fromkeys(optional))


def _parse_derivation(document: dict[str, Any], path: str) -> Derivation:
    kind = document.get("output_kind")
    if kind not in ("event", "table") or not isinstance(kind, str):
        _refuse(f"{path}.output_kind", f"output_kind must be 'event' or 'table', not {show(kind)}")
    upstreams = document.get("upstreams")
    if not isinstance(upstreams, list) or not upstreams:
        _refuse(f"{path}.upstreams", f"a derivation needs a list `upstreams` with one name, not {show(upstreams)}")
    if len(upstreams) > 1:
        reason = f"{len(upstreams)} upstreams would be a union, which is not supported: use one derivation for each"
        raise RegistrationError("feature_removed_no_unions_v0", f"{path}.upstreams[1]", reason)
    if not isinstance(upstreams[0], str):
        _refuse(f"{path}.upstreams[0]", f"an upstream must be the name of a node, not {show(upstreams[0])}")
    ops = _parse_ops(document.get("ops"), kind, f"{path}.ops")
    backfill = _read_flag(False if document.get("backfill") is None else document["backfill"], f"{path}.backfill")
    if kind == "event":
        # Clients send wrong types in it (the contract's § 8), so it must be there, and is not used: types are inferred.
        schema = document.get("schema")
        if not isinstance(schema, dict):
            _refuse(f"{path}.schema", f"a derived event needs the object `schema`, not {show(schema)}")
        return Derivation(document["name"], kind, (upstreams[0],), ops, backfill=backfill)
    keys = document.get("table_primary_key")
    if not isinstance(keys, list):
        reason = f"a table needs the list `table_primary_key` ([] for one global row), not {show(keys)}"
        _refuse(f"{path}.table_primary_key", reason)
    if keys != ops[-1]["keys"]:
        reason = f"table_primary_key must be the keys of group_by, in their order: {_names(ops[-1]['keys'])}"
        _refuse(f"{path}.table_primary_key", reason)
    return Derivation(document["name"], kind, (upstreams[0],), ops, tuple(keys), backfill)


def _parse_ops(documents: Any, output_kind: str, path: str) -> tuple[dict[str, Any], ...]:
    """Flattens the operators: parameters can stand beside `op`, or in an object `params`."""
    if not isinstance(documents, list):
        _refuse(path, f"a derivation needs the list `ops`, not {show(documents)}")
    if len(documents) > MAX_OPS:
        _refuse(path, f"{len(documents)} operators are too many: limit={MAX_OPS}")
    ops = []
    for index, document in enumerate(documents):
        here = f"{path}[{index}]"
        op = document.get("op") if isinstance(document, dict) else None
        if not isinstance(op, str):
            _refuse(here, f"an operator must be an object with the name `op`, not {show(document)}")
        if op in _REMOVED_OPS:
            code, what = _REMOVED_OPS[op]
            raise RegistrationError(code, here, f"{what} are not supported: remove the operator '{op}'")
        if op == "group_by" and (output_kind != "table" or index < len(documents) - 1):
            where = "only tables can aggregate" if output_kind != "table" else "it must be the last operator"
            _refuse(f"{here}.op", f"group_by can't be here: {where}")
        params = document.get("params")
        flat = {**params, **document} if isinstance(params, dict) else document
        if op == "group_by":
            ops.append(_parse_group_by(flat, here))
        else:
            ops.append({key: flat[key] for key in ("op", OP_PARAMETERS.get(op, "op")) if key in flat})
    if output_kind == "table" and (not ops or ops[-1]["op"] != "group_by"):
        _refuse(path, "a table must end with the operator group_by")
    return tuple(ops)


def _parse_group_by(document: dict[str, Any], path: str) -> dict[str, Any]:
    keys = document.get("keys")
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        _refuse(f"{path}.keys", f"group_by needs the list `keys` of field names, not {show(keys)}")
    if len(keys) > MAX_KEYS or len(set(keys)) < len(keys):
        why = "a key is repeated" if len(keys) <= MAX_KEYS else f"{len(keys)} keys are too many: limit={MAX_KEYS}"
        _refuse(f"{path}.keys", f"{why}: {_names(keys)}")
    agg = document.get("agg")
    if not isinstance(agg, dict) or not agg:
        _refuse(f"{path}.agg", f"group_by needs at least one aggregation in the object `agg`, not {show(agg)}")
    if len(agg) > MAX_FEATURES:
        _refuse(f"{path}.agg", f"{len(agg)} features are too many: limit={MAX_FEATURES}")
    parsed = {}
    for name, spec in agg.items():
        here = join(f"{path}.agg", name)
        check_name(name, here, "a feature")
        if not isinstance(spec, dict) or not isinstance(spec.get("op"), str):
            _refuse(here, f"an aggregation must be an object with the name `op`, not {show(spec)}")
        params = spec.get("params")
        if params is not None and not isinstance(params, dict):
            _refuse(f"{here}.params", f"params must be an object, not {show(params)}")
        for key, value in (params or {}).items():
            if not all(isinstance(item, _SCALARS) for item in (value if isinstance(value, list) else [value])):
                _refuse(
                    join(f"{here}.params", key), f"a parameter must be a value or a list of values, not {show(value)}"
                )
        parsed[name] = {"op": spec["op"], "params": dict(params or {})}
    return {"op": "group_by", "keys": list(keys), "agg": parsed}


def _read_millis(value: Any, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_TTL_MS:
        _refuse(path, f"must be a whole number of ms from 1 to {MAX_TTL_MS}, not {show(value)}")
    return value


def _read_duration(value: Any, path: str) -> int:
    millis = parse_duration(value)
    if millis is None:
        _refuse(path, f"must be a duration such as '12h' or '30d', above zero and below a century, not {show(value)}")
    return millis


def _read_lanes(value: Any, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_LANES:
        _refuse(path, f"lanes must be a whole number from 1 to {MAX_LANES}, not {show(value)}")
    return value


def _read_text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        _refuse(path, f"must be the name of a field, not {show(value)}")
    return value


def _read_flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        _refuse(path, f"must be true or false, not {show(value)}")
    return value


def _names(names: Sequence[str]) -> str:
    return ", ".join(show(name) for name in names[:5]) + (" and more" if len(names) > 5 else "") if names else "none"


def _refuse(path: str, reason: str) -> NoReturn:
    raise RegistrationError("invalid_registration", path, reason)
