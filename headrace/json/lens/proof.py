"""Checks for a lens's proof, explanations of failures, and defaults for every `add` without one, taken from the new
schema.

Defaults follow Prisma Streams: the new schema's own `default` at that path, otherwise an empty object or array if the
schema allows one there. The default is written into the lens, so that a later change of this rule changes no record.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from jsonschema_rs import CanonicalSchema, canonical
from msgspec import UNSET

from headrace.errors import InvalidRequest
from headrace.json import draft07, jsontext, validate
from headrace.json.draft07 import Subschema
from headrace.json.jsontext import Path
from headrace.json.lens import image, ops
from headrace.json.lens.closed import Fragment, close
from headrace.json.lens.shapes import MAX_REFERENCES, ArrayCase, Case, ObjectCase, Shapes

_EVERY_ITEM = "0"  # stands for an item of an array on the way down into `map`


def with_defaults(document: dict[str, Any], operations: Sequence[ops.Op], new_schema: Any) -> dict[str, Any]:
    """Returns the lens document with a default in every `add`; the same document if none was missing.

    Raises:
        InvalidRequest: a default is missing and the new schema has none.
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
            inner = (*base, *jsontext.parse_pointer(op.path), *((_EVERY_ITEM,) if isinstance(op, ops.Map) else ()))
            _fill(document["ops"], op.ops, schema, inner, f"{location}/{number}/ops")
        elif isinstance(op, ops.Add) and op.default is UNSET:
            path = (*base, *jsontext.parse_pointer(op.path))
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
    """Yields the schemas, and all schemas that they include by reference or `allOf`."""
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
    """Yields the subschemas that a schema applies to the member or item `key`; `items` applies to every item."""
    for group in schema.members:
        yield from (child for child in group if child.path[len(schema.path) :] == ("properties", key))
    if jsontext.index_of(key) is not None:
        own = len(schema.path)
        for group in schema.items:
            yield from (child for child in group if child.path[own:] in (("items",), ("items", key)))


_MAX_EXPLAINED_DEPTH = 32
_MAX_EXPLAINED_CASES = 8
_MAX_SINGLE_CASES = 64
_MAX_SHOWN = 120  # characters of a schema in a message


def check_defaults(operations: Sequence[ops.Op], location: str = "/ops") -> None:
    """Checks that the default of an `add` or `remove` fits the schema that the operation itself declares.

    Raises:
        InvalidRequest: a default does not fit, or the declared schema is invalid.
    """
    for number, op in enumerate(operations):
        here = f"{location}/{number}"
        if isinstance(op, ops.In | ops.Map):
            check_defaults(op.ops, f"{here}/ops")
        elif isinstance(op, ops.Add | ops.Remove):
            kind = type(op).__name__.lower()
            try:
                validator = validate.compile(op.schema)
                if op.default is not UNSET:
                    validator.check(op.default)
            except InvalidRequest as exc:
                raise InvalidRequest(f"{here} ({kind}): default or schema: {exc}") from exc


def check(operations: Sequence[ops.Op], old_schema: Fragment, new_schema: Fragment) -> None:
    """Checks that the operations convert every document of the old schema to a document of the new schema.

    Raises:
        InvalidRequest: this can't be proven.
    """
    old, new = close(old_schema), close(new_schema)
    shapes = Shapes(old.definitions)
    goal = Shapes(new.definitions).normal(new.fragment)
    result = image.run(shapes, operations, old.fragment)
    if shapes.covers(goal, result):
        return
    # Case by case it may work out: with fewer documents at a time, more is known of each.
    cases = shapes.cases(result)
    if len(cases) > _MAX_SINGLE_CASES:
        raise InvalidRequest(f"too many cases to check one by one: limit={_MAX_SINGLE_CASES} actual={len(cases)}")
    for case in cases:
        if not shapes.covers(goal, case.fragment):
            path, why = _reason(shapes, goal, case, ())
            raise InvalidRequest(f"{_blame(operations, path)}{jsontext.render_pointer(path) or 'the document'} {why}")


def _reason(shapes: Shapes, goal: CanonicalSchema, case: Case, path: Path) -> tuple[Path, str]:
    """Explains why a case is not within the goal. Returns a path, as deep as possible, and a message."""
    deeper: Iterator[tuple[str, Fragment, CanonicalSchema]] = iter(())
    if isinstance(case, ObjectCase):
        wanted = _only(goal, canonical.ObjectView)
        if isinstance(wanted, canonical.ObjectView):
            missing = sorted(set(wanted.required) - case.required)
            if missing:
                return (*path, missing[0]), "is required by the new schema and may be missing"
            present = [name for name, inner in case.properties.items() if not shapes.is_empty(inner)]
            if wanted.property_names is not None:
                for name in present:
                    if not shapes.covers(wanted.property_names, {"const": name}):
                        return (*path, name), "is not allowed by the new schema and may be there"
            named = [name for name in present if name in wanted.properties]
            deeper = ((name, case.properties[name], wanted.properties[name]) for name in named)
    elif isinstance(case, ArrayCase):
        wanted = _only(goal, canonical.ArrayView)
        if isinstance(wanted, canonical.ArrayView):
            deeper = _items(case, wanted)
    if len(path) < _MAX_EXPLAINED_DEPTH:
        for key, inner, part in deeper:
            for inner_case in shapes.cases(inner)[:_MAX_EXPLAINED_CASES]:
                if not shapes.covers(part, inner_case.fragment):
                    return _reason(shapes, part, inner_case, (*path, key))
    return path, f"may be {_show(case.fragment)}, but the new schema accepts {_show(goal.to_json_schema())}"


def _items(case: ArrayCase, wanted: canonical.ArrayView) -> Iterator[tuple[str, Fragment, CanonicalSchema]]:
    for at in range(max(len(case.prefix), len(wanted.prefix_items)) + 1):
        part = wanted.prefix_items[at] if at < len(wanted.prefix_items) else wanted.items
        if part is not None and (case.high is None or at < case.high):
            yield str(at), case.item(at), part


def _only(goal: CanonicalSchema, kind: type, references: int = MAX_REFERENCES) -> canonical.CanonicalViewType | None:
    """Returns the only alternative of the goal that is of this kind; None if there are several or none."""
    view = goal.view()
    if isinstance(view, canonical.ReferenceView) and references:
        target = goal.definition(view.uri)
        return None if target is None else _only(target, kind, references - 1)
    if isinstance(view, canonical.AnyOfView):
        alternatives = [branch.view() for branch in view.branches if isinstance(branch.view(), kind)]
        return alternatives[0] if len(alternatives) == 1 else None
    return view if isinstance(view, kind) else None


def _show(schema: Any) -> str:
    """Formats a schema for a message: shortened, without its definitions."""
    kept = schema
    if isinstance(schema, dict):
        kept = {name: value for name, value in schema.items() if name not in ("$schema", "definitions")}
    text = jsontext.dumps(kept).decode()
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _blame(operations: Sequence[ops.Op], path: Path) -> str:
    """Returns the beginning of a message that names the last operation that changes something at this path, or says
    that none does.
    """
    blamed = "no operation changes it: "
    for number, op in enumerate(operations):
        if any(_meet(jsontext.parse_pointer(written), path) for written in _written(op)):
            blamed = f"/ops/{number} ({type(op).__name__.lower()}): "
    return blamed


def _written(op: ops.Op) -> list[str]:
    match op:
        case ops.Rename() | ops.Copy():
            return [op.to] if isinstance(op, ops.Copy) else [op.from_, op.to]
        case ops.Hoist():
            return [op.host, op.to] if op.remove_from_host else [op.to]
        case ops.Plunge():
            return [op.from_, op.host] if op.remove_from_source else [op.host]
        case _:
            return [op.path]


def _meet(one: Path, other: Path) -> bool:
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]
