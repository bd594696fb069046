"""What `convert` does to one value: the tables and the builtins.

Every function here is deterministic and raises `InvalidRequest` for a value outside its domain. Integers keep every
digit; a number without a fraction counts as an integer however it is written, as in JSON Schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from msgspec import UNSET

from headrace import instants
from headrace.errors import InvalidRequest
from headrace.json.lens.ops import Convert, Transform

Transformation = Callable[[Any], Any]

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,4300}")  # CPython refuses to parse more digits than that


def compile_convert(op: Convert) -> Transformation:
    """The function of a `convert`; it checks the types that the operation names before and after.

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
    """The function of a table or a builtin."""
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
    """Whether a JSON value is of a type, in JSON Schema's sense."""
    if name == "integer":
        return type(value) is int or (type(value) is float and value.is_integer())
    return isinstance(value, _TYPES[name]) and (name != "number" or type(value) is not bool)


def text_of(value: Any) -> str | None:
    """The key under which a table lists a scalar; None for an object or array, which no table lists.

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
    """ECMAScript's Number::toString: no exponent from 1e-6 on. From 1e21 on it has one there, and all digits here."""
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
