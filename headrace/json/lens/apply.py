"""A lens at work: each operation compiled into a function from document to document.

No function changes its argument: containers along the touched paths are copied, the rest is shared. So a copied value
and its source never alias in a way that a later operation could show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.errors import InvalidRequest
from headrace.json import pointer
from headrace.json.lens import ops
from headrace.json.lens.convert import compile_convert
from headrace.json.pointer import MISSING, Path

Step = Callable[[Any], Any]


def compile_ops(operations: Sequence[ops.Op]) -> tuple[Step, ...]:
    """The operations as functions, to be run in order.

    Raises:
        InvalidRequest: an operation has a pointer that is none.

    Raises (each function):
        InvalidRequest: the document has not the shape that the operation asks for. Says why, not where.
    """
    return tuple(_compile(op) for op in operations)


def run(steps: Sequence[Step], document: Any) -> Any:
    """The document after all steps."""
    for step in steps:
        document = step(document)
    return document


def _compile(op: ops.Op) -> Step:
    match op:
        case ops.Rename():
            return _move(pointer.parse(op.from_), pointer.parse(op.to))
        case ops.Copy():
            return _copy(pointer.parse(op.from_), pointer.parse(op.to))
        case ops.Add():
            return _add(pointer.parse(op.path), op.default)
        case ops.Remove():
            path = pointer.parse(op.path)
            return lambda document: pointer.drop(document, path)
        case ops.Hoist():
            return _hoist(op)
        case ops.Plunge():
            return _plunge(op)
        case ops.Wrap():
            return _change(pointer.parse(op.path), lambda value: [value])
        case ops.Head():
            return _change(pointer.parse(op.path), _head)
        case ops.Convert():
            return _change(pointer.parse(op.path), compile_convert(op))
        case ops.In():
            steps = compile_ops(op.ops)
            return _change(pointer.parse(op.path), lambda value: run(steps, _object(value)))
        case ops.Map():
            steps = compile_ops(op.ops)
            return _change(pointer.parse(op.path), lambda value: [run(steps, item) for item in _array(value)])


def _move(source: Path, target: Path) -> Step:
    def move(document: Any) -> Any:
        value = _value(document, source)
        return pointer.put(pointer.drop(document, source), target, value)

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
        return pointer.put(document, path, default)

    def add_member(document: Any) -> Any:
        return {**document, name: default} if isinstance(document, dict) else add(document)

    if len(path) == 1:
        name = path[0]
        return add_member
    return add


def _copy(source: Path, target: Path) -> Step:
    return lambda document: pointer.put(document, target, _value(document, source))


def _hoist(op: ops.Hoist) -> Step:
    host, target = pointer.parse(op.host), pointer.parse(op.to)
    source = (*host, op.name)
    step = _move(source, target) if op.remove_from_host else _copy(source, target)

    def hoist(document: Any) -> Any:
        _object(_value(document, host))
        return step(document)

    return hoist


def _plunge(op: ops.Plunge) -> Step:
    source, host = pointer.parse(op.from_), pointer.parse(op.host)
    target, removes, creates = (*host, op.name), op.remove_from_source, op.create_host

    def plunge(document: Any) -> Any:
        value = _value(document, source)
        if removes and source == target:
            return document
        if removes:
            document = pointer.drop(document, source)
        found = pointer.get(document, host)
        if found is not MISSING or not creates:
            _object(found)
        return pointer.put(document, target, value, create=creates)

    return plunge


def _change(path: Path, function: Step) -> Step:
    def change(document: Any) -> Any:
        return pointer.put(document, path, function(_value(document, path)))

    def change_member(document: Any) -> Any:
        if not isinstance(document, dict) or name not in document:
            return change(document)
        return {**document, name: function(document[name])}

    if len(path) == 1:
        name = path[0]
        return change_member
    return change


def _value(document: Any, path: Path) -> Any:
    value = pointer.get(document, path)
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
