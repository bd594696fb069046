"""Defaults that an `add` leaves out, taken from the new schema.

As the peer does: the schema's own `default` at that path, or else an empty object or array where it may be one. What
is found is written into the lens, so that a later change of mind about this rule changes no record.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET

from headrace.errors import InvalidRequest
from headrace.json import draft07, pointer
from headrace.json.draft07 import Subschema
from headrace.json.lens import ops
from headrace.json.pointer import Path

_EVERY_ITEM = "0"  # stands for an item of an array on the way down into `map`


def with_defaults(document: dict[str, Any], operations: Sequence[ops.Op], new_schema: Any) -> dict[str, Any]:
    """The lens document with a default in every `add`; itself if nothing was missing.

    Raises:
        InvalidRequest: the new schema suggests none.
    """
    if not any(_lacks(op) for op in operations):
        return document
    filled = copy.deepcopy(document)
    _fill(filled["ops"], operations, draft07.Graph(new_schema).root, (), "/ops")
    return filled


def _lacks(op: ops.Op) -> bool:
    if isinstance(op, ops.In | ops.Map):
        return any(map(_lacks, op.ops))
    return isinstance(op, ops.Add) and op.default is UNSET


def _fill(documents: list[Any], operations: Sequence[ops.Op], schema: Subschema, base: Path, location: str) -> None:
    for number, (document, op) in enumerate(zip(documents, operations, strict=True)):
        if isinstance(op, ops.In | ops.Map):
            inner = (*base, *pointer.parse(op.path), *((_EVERY_ITEM,) if isinstance(op, ops.Map) else ()))
            _fill(document["ops"], op.ops, schema, inner, f"{location}/{number}/ops")
        elif isinstance(op, ops.Add) and op.default is UNSET:
            path = (*base, *pointer.parse(op.path))
            try:
                document["default"] = _derive([schema], path)
            except LookupError as exc:
                raise InvalidRequest(f"lens not proven: {location}/{number} (add): a default is needed") from exc


def _derive(schemas: Sequence[Subschema], path: Path) -> Any:
    for key in path:
        schemas = [child for schema in _all_of(schemas) for child in _children(schema, key)]
    found = list(_all_of(schemas))
    for schema in found:
        if "default" in schema.keywords:
            return copy.deepcopy(schema.keywords["default"])
    types = [schema.keywords.get("type") for schema in found]
    for name, empty in (("object", {}), ("array", [])):
        if any(one == name or (isinstance(one, list) and name in one) for one in types):
            return empty
    raise LookupError


def _all_of(schemas: Sequence[Subschema]) -> Iterator[Subschema]:
    """The schemas and those that they demand too, by reference or `allOf`."""
    waiting, seen = list(reversed(schemas)), set()
    while waiting:
        schema = waiting.pop()
        if schema in seen:
            continue
        seen.add(schema)
        yield schema
        demanded = [group[0] for group in schema.here if group and _is_demand(schema, group[0])]
        waiting.extend(reversed(demanded))


def _is_demand(schema: Subschema, child: Subschema) -> bool:
    return "$ref" in schema.keywords or child.path[: len(schema.path) + 1] == (*schema.path, "allOf")


def _children(schema: Subschema, key: str) -> Iterator[Subschema]:
    """What the schema says of a member or an item under a key by name; `items` stand for each."""
    for group in schema.members:
        yield from (child for child in group if child.path[len(schema.path) :] == ("properties", key))
    if pointer.index(key) is not None:
        own = len(schema.path)
        for group in schema.items:
            yield from (child for child in group if child.path[own:] in (("items",), ("items", key)))
