"""Compiles the operations of a lens to functions from document to document.

No function changes its argument: containers along the changed paths are copied, the rest is shared. So a copied value
and its source never affect each other. Every function is deterministic and raises `InvalidRequest` for a value outside
its domain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.errors import InvalidRequest
from headrace.json import jsontext
from headrace.json.jsontext import MISSING, Path
from headrace.json.lens import ops
from headrace.json.lens.convert import compile_convert

Step = Callable[[Any], Any]


def compile_ops(operations: Sequence[ops.Op]) -> tuple[Step, ...]:
    """Compiles operations to functions on documents, to be run in order.

    Raises:
        InvalidRequest: an operation has an invalid JSON pointer.

    Raises (each function):
        InvalidRequest: the document does not have the shape that the operation requires. The message says why, but not
            where.
    """
    return tuple(_compile(op) for op in operations)


def run(steps: Sequence[Step], document: Any) -> Any:
    """Runs all steps in order, and returns the resulting document. Raises InvalidRequest if one of them fails."""
    for step in steps:
        document = step(document)
    return document


def _compile(op: ops.Op) -> Step:
    match op:
        case ops.Rename():
            return _move(jsontext.parse_pointer(op.from_), jsontext.parse_pointer(op.to))
        case ops.Copy():
            return _copy(jsontext.parse_pointer(op.from_), jsontext.parse_pointer(op.to))
        case ops.Add():
            return _add(jsontext.parse_pointer(op.path), op.default)
        case ops.Remove():
            path = jsontext.parse_pointer(op.path)
            return lambda document: jsontext.drop(document, path)
        case ops.Hoist():
            return _hoist(op)
        case ops.Plunge():
            return _plunge(op)
        case ops.Wrap():
            return _change(jsontext.parse_pointer(op.path), lambda value: [value])
        case ops.Head():
            return _change(jsontext.parse_pointer(op.path), _head)
        case ops.Convert():
            return _change(jsontext.parse_pointer(op.path), compile_convert(op))
        case ops.In():
            steps = compile_ops(op.ops)
            return _change(jsontext.parse_pointer(op.path), lambda value: run(steps, _object(value)))
        case ops.Map():
            steps = compile_ops(op.ops)
            return _change(
                jsontext.parse_pointer(op.path), lambda value: [run(steps, item) for item in _array(value)]
            )


def _move(source: Path, target: Path) -> Step:
    def move(document: Any) -> Any:
        value = _value(document, source)
        return jsontext.put(jsontext.drop(document, source), target, value)

    def move_member(document: Any) -> Any:
        if not isinstance(document, dict) or source_name not in document:
            return move(document)
        changed = document.copy()
        changed[target_name] = changed.pop(source_name)
        return changed

    def stay(document: Any) -> Any:
        _value(document, source)
        return document

    if source == target:
        return stay
    if len(source) == len(target) == 1:  # the common case, in one copy
        source_name, target_name = source[0], target[0]
        return move_member
    return move


def _add(path: Path, default: Any) -> Step:
    def add(document: Any) -> Any:
        return jsontext.put(document, path, default)

    def add_member(document: Any) -> Any:
        return {**document, name: default} if isinstance(document, dict) else add(document)

    if len(path) == 1:
        name = path[0]
        return add_member
    return add


def _copy(source: Path, target: Path) -> Step:
    return lambda document: jsontext.put(document, target, _value(document, source))


def _hoist(op: ops.Hoist) -> Step:
    host, target = jsontext.parse_pointer(op.host), jsontext.parse_pointer(op.to)
    source = (*host, op.name)
    step = _move(source, target) if op.remove_from_host else _copy(source, target)

    def hoist(document: Any) -> Any:
        _object(_value(document, host))
        return step(document)

    return hoist


def _plunge(op: ops.Plunge) -> Step:
    source, host = jsontext.parse_pointer(op.from_), jsontext.parse_pointer(op.host)
    target, removes, creates = (*host, op.name), op.remove_from_source, op.create_host

    def plunge(document: Any) -> Any:
        value = _value(document, source)
        if removes and source == target:
            return document
        if removes:
            document = jsontext.drop(document, source)
        found = jsontext.get(document, host)
        if found is not MISSING or not creates:
            _object(found)
        return jsontext.put(document, target, value, create=creates)

    return plunge


def _change(path: Path, function: Step) -> Step:
    def change(document: Any) -> Any:
        return jsontext.put(document, path, function(_value(document, path)))

    def change_member(document: Any) -> Any:
        if not isinstance(document, dict) or name not in document:
            return change(document)
        return {**document, name: function(document[name])}

    if len(path) == 1:
        name = path[0]
        return change_member
    return change


def _value(document: Any, path: Path) -> Any:
    value = jsontext.get(document, path)
    if value is MISSING:
        raise InvalidRequest("path is missing")
    return value


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRequest("expected an object")
    return value


def _array(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidRequest("expected an array")
    return value


def _head(value: Any) -> Any:
    items = _array(value)
    if not items:
        raise InvalidRequest("array is empty")
    return items[0]
