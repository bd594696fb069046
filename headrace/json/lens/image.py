"""A lens run on a set of documents: from a description of what goes in to a description of what comes out.

Each operation here is the counterpart of one in `apply`, and refuses a set in which some document might make that one
fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from headrace.errors import InvalidRequest
from headrace.json import pointer
from headrace.json.lens import growth, ops
from headrace.json.lens.cases import ArrayCase
from headrace.json.lens.closed import Fragment
from headrace.json.lens.converted import converted
from headrace.json.lens.focus import EMPTY_OBJECT, Place, Rebuild, places
from headrace.json.lens.shapes import Shapes
from headrace.json.pointer import Path

MAX_CHARS = 1024 * 1024  # of the description of a set, as JSON

_OBJECT: dict[str, Any] = {"type": "object"}
_ARRAY: dict[str, Any] = {"type": "array"}


def run(shapes: Shapes, operations: Sequence[ops.Op], whole: Fragment, location: str = "/ops") -> Fragment:
    """What the operations make of a set.

    Raises:
        InvalidRequest: an operation may fail on a document of the set, or that cannot be decided. Says which one.
    """
    for number, op in enumerate(operations):
        here = f"{location}/{number}"
        if isinstance(op, ops.In | ops.Map):
            whole = _nested(shapes, op, whole, here)
            continue
        try:
            whole = _apply(shapes, op, whole)
        except InvalidRequest as exc:
            raise InvalidRequest(f"{here} ({type(op).__name__.lower()}): {exc}") from exc
        if growth.exceeds(whole, MAX_CHARS):
            raise InvalidRequest(f"{here}: the description of its results is too long: limit_chars={MAX_CHARS}")
    return whole


def _apply(shapes: Shapes, op: ops.Op, whole: Fragment) -> Fragment:
    match op:
        case ops.Rename():
            return _move(shapes, whole, pointer.parse(op.from_), pointer.parse(op.to), removes=True)
        case ops.Copy():
            return _move(shapes, whole, pointer.parse(op.from_), pointer.parse(op.to), removes=False)
        case ops.Add():
            return _put(shapes, whole, pointer.parse(op.path), {"const": op.default})
        case ops.Remove():
            path = pointer.parse(op.path)
            return shapes.union([rebuild(None) for _, rebuild in _present(shapes, whole, path)])
        case ops.Hoist():
            host = pointer.parse(op.host)
            _require(shapes, whole, host, _OBJECT)
            return _move(shapes, whole, (*host, op.name), pointer.parse(op.to), removes=op.remove_from_host)
        case ops.Plunge():
            return _plunge(shapes, whole, op)
        case ops.Wrap():
            return _change(
                shapes, whole, pointer.parse(op.path), lambda value: ArrayCase((value,), False, 1, 1).fragment
            )
        case ops.Head():
            return _change(shapes, whole, pointer.parse(op.path), lambda value: _head(shapes, value))
        case ops.Convert():
            return _change(shapes, whole, pointer.parse(op.path), lambda value: converted(shapes, op, value))
    raise TypeError(f"not a plain operation: {op!r}")


def _nested(shapes: Shapes, op: ops.In | ops.Map, whole: Fragment, location: str) -> Fragment:
    """`in` and `map`: errors of their inner operations name those."""
    path = pointer.parse(op.path)
    inner = f"{location}/ops"
    try:
        kind = _OBJECT if isinstance(op, ops.In) else _ARRAY
        found = _present(shapes, whole, path)
        for value, _ in found:
            _require_kind(shapes, value, path, kind)
        cases = [(shapes.cases(value), value, rebuild) for value, rebuild in found]
    except InvalidRequest as exc:
        raise InvalidRequest(f"{location} ({type(op).__name__.lower()}): {exc}") from exc
    if isinstance(op, ops.In):
        return shapes.union([rebuild(run(shapes, op.ops, value, inner)) for value, rebuild in found])

    def mapped(item: Fragment) -> Fragment:
        return item if shapes.is_empty(item) else run(shapes, op.ops, item, inner)

    results = []
    for arrays, _, rebuild in cases:
        for case in arrays:
            if isinstance(case, ArrayCase):
                has_rest = case.high is None or case.high > len(case.prefix)
                rest = mapped(case.rest) if has_rest else False
                prefix = tuple(map(mapped, case.prefix))
                results.append(rebuild(replace(case, prefix=prefix, rest=rest).fragment))
    return shapes.union(results)


def _move(shapes: Shapes, whole: Fragment, source: Path, target: Path, *, removes: bool) -> Fragment:
    """`rename`, `copy` and `hoist`."""
    taken = _taken(shapes, whole, source, removes)
    if removes and source == target:
        return whole
    return shapes.union([_put(shapes, case, target, value) for value, case in taken])


def _plunge(shapes: Shapes, whole: Fragment, op: ops.Plunge) -> Fragment:
    source, host = pointer.parse(op.from_), pointer.parse(op.host)
    taken = _taken(shapes, whole, source, op.remove_from_source)
    if op.remove_from_source and source == (*host, op.name):
        return whole
    results = []
    for value, case in taken:
        for place in places(shapes, case, host, create=op.create_host):
            at_host = EMPTY_OBJECT if place.value is None else place.value
            if place.rebuild is None:
                raise InvalidRequest(f"the parent of {_show(host)} may be missing, or be no object")
            if place.value is None and not op.create_host:
                raise InvalidRequest(f"{_show(host)} may be missing")
            _require_kind(shapes, at_host, host, _OBJECT)
            results.append(place.rebuild(_put(shapes, at_host, (op.name,), value)))
    return shapes.union(results)


def _put(shapes: Shapes, whole: Fragment, path: Path, value: Fragment) -> Fragment:
    return shapes.union([rebuild(value) for rebuild in _rebuilds(places(shapes, whole, path), path)])


def _change(shapes: Shapes, whole: Fragment, path: Path, function: Callable[[Fragment], Fragment]) -> Fragment:
    return shapes.union([rebuild(function(value)) for value, rebuild in _present(shapes, whole, path)])


def _head(shapes: Shapes, value: Fragment) -> Fragment:
    firsts = []
    for case in shapes.cases(value):
        if not isinstance(case, ArrayCase):
            raise InvalidRequest("the value may be no array")
        if case.low < 1:
            raise InvalidRequest("the array may be empty: minItems is needed")
        firsts.append(case.item(0))
    return shapes.union(firsts)


def _require(shapes: Shapes, whole: Fragment, path: Path, kind: dict[str, Any]) -> None:
    for value, _ in _present(shapes, whole, path):
        _require_kind(shapes, value, path, kind)


def _require_kind(shapes: Shapes, value: Fragment, path: Path, kind: dict[str, Any]) -> None:
    if not shapes.covers(kind, value):
        raise InvalidRequest(f"{_show(path)} may be no {kind['type']}")


def _taken(shapes: Shapes, whole: Fragment, source: Path, removes: bool) -> list[tuple[Fragment, Fragment]]:
    """The cases of a value that has to be there, each with what the set then is: without it, if it is removed."""
    found = _present(shapes, whole, source)
    if removes and source:
        return [(value, rebuild(None)) for value, rebuild in found]
    if len(found) == 1:
        return [(found[0][0], whole)]
    return [(value, rebuild(value)) for value, rebuild in found]


def _present(shapes: Shapes, whole: Fragment, path: Path) -> list[tuple[Fragment, Rebuild]]:
    """The cases of a value that has to be there."""
    found = []
    for place in places(shapes, whole, path):
        if place.value is None or place.rebuild is None:
            raise InvalidRequest(f"{_show(path)} may be missing")
        found.append((place.value, place.rebuild))
    return found


def _rebuilds(found: list[Place], path: Path) -> list[Rebuild]:
    rebuilds = [place.rebuild for place in found if place.rebuild is not None]
    if len(rebuilds) < len(found):
        raise InvalidRequest(f"the parent of {_show(path)} may be missing, or have no such member")
    return rebuilds


def _show(path: Path) -> str:
    return pointer.render(path) or "the document"
