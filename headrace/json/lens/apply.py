"""Compiles the operations of a lens to functions from document to document; includes conversion tables and builtins.

No function changes its argument: containers along the changed paths are copied, the rest is shared. So a copied value
and its source never affect each other. Every function is deterministic and raises `InvalidRequest` for a value outside
its domain. Integers keep every digit; a number without a fraction counts as an integer however it is written, as in
JSON Schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import UNSET

from headrace import instants
from headrace.errors import InvalidRequest
from headrace.json import jsontext
from headrace.json.jsontext import MISSING, Path
from headrace.json.lens import ops
from headrace.json.lens.ops import Convert, Transform

Transformation = Callable[[Any], Any]

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,4300}")  # CPython refuses to parse more digits than that


def compile_convert(op: Convert) -> Transformation:
    """Compiles a `convert` operation to a function on values, which checks the types before and after that the
    operation names.

    Raises (the function):
        InvalidRequest: the value or the result is of another type, or the value is outside the transform's domain.
    """
    transform = compile_transform(op.forward)
    from_type, to_type = op.from_type, op.to_type

    def convert(value: Any) -> Any:
        if not is_type(value, from_type):
            raise InvalidRequest(f"expected type {from_type}")
        result = transform(value)
        if not is_type(result, to_type):
            raise InvalidRequest(f"result is not of type {to_type}")
        return result

    return convert


def compile_transform(transform: Transform) -> Transformation:
    """Compiles a conversion table or a builtin to a function on values, which raises InvalidRequest for a value that it
    can't convert.
    """
    if transform.builtin is not UNSET:
        return _BUILTINS[transform.builtin]
    if transform.map is UNSET:  # not reachable: a transform is one of both
        raise TypeError("transform has neither map nor builtin")
    table, default = transform.map, transform.default

    def look_up(value: Any) -> Any:
        text = text_of(value)
        result = default if text is None else table.get(text, default)
        if result is UNSET:
            raise InvalidRequest("value is not in the map, which has no default")
        return result

    return look_up


def is_type(value: Any, name: str) -> bool:
    """Returns whether a JSON value is of a type, as JSON Schema defines it: `1.0` is an integer, a boolean is no number."""
    if name == "integer":
        return type(value) is int or (type(value) is float and value.is_integer())
    return isinstance(value, _TYPES[name]) and (name != "number" or type(value) is not bool)


def text_of(value: Any) -> str | None:
    """Returns the key under which a conversion table lists a scalar; None for an object or array, which no table lists.

    Numbers are written as JavaScript does, except that integers keep all their digits.
    """
    match value:
        case str():
            return value
        case True:
            return "true"
        case False:
            return "false"
        case None:
            return "null"
        case int():
            return str(value)
        case float():
            return _float_text(value)
    return None


def _float_text(value: float) -> str:
    """Formats a number as ECMAScript's Number::toString does, except that numbers from 1e21 on have all digits and no
    exponent.
    """
    if value.is_integer():
        return str(int(value))
    digits, _, exponent = f"{value!r}".partition("e")
    if exponent:
        power = int(exponent)
        if power < -6:
            return f"{digits}e{power}"
        sign, mantissa = ("-", digits[1:]) if digits[0] == "-" else ("", digits)
        return f"{sign}0.{'0' * (-power - 1)}{mantissa.replace('.', '')}"
    return digits


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidRequest("expected a string")
    return value


def _string_to_int(value: Any) -> int:
    if not _INTEGER.fullmatch(_string(value)):
        raise InvalidRequest("not a decimal integer")
    return int(value)


def _int_to_string(value: Any) -> str:
    if not is_type(value, "integer"):
        raise InvalidRequest("expected an integer")
    return str(int(value))


def _text_to_millis(value: Any) -> int:
    millis = instants.parse_rfc3339_ms(_string(value))
    if millis is None:
        raise InvalidRequest("not an rfc 3339 date-time")
    return millis


def _millis_to_text(value: Any) -> str:
    if not is_type(value, "number"):
        raise InvalidRequest("expected a number")
    return instants.render(int(value))  # a fraction of a millisecond is cut off


_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "string": str,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "object": dict,
    "array": list,
}
_BUILTINS: Final[dict[str, Transformation]] = {
    "lowercase": lambda value: _string(value).lower(),
    "uppercase": lambda value: _string(value).upper(),
    "string_to_int": _string_to_int,
    "int_to_string": _int_to_string,
    "rfc3339_to_unix_millis": _text_to_millis,
    "unix_millis_to_rfc3339": _millis_to_text,
}


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
