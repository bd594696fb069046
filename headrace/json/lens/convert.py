"""What a `convert` operation does to one value (`compile_convert`) and to a set of values (`convert_set`): conversion
tables and builtins.

Every function is deterministic and raises `InvalidRequest` for a value outside its domain. Integers keep every digit; a
number without a fraction counts as an integer however it is written, as in JSON Schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from headrace import instants
from headrace.errors import InvalidRequest
from headrace.json import jsontext
from headrace.json.lens.closed import DATE_TIME, Fragment
from headrace.json.lens.ops import Convert, Transform

if TYPE_CHECKING:  # it loads jsonschema-rs, which functions that only convert do not ship
    from headrace.json.lens.shapes import Shapes

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


@dataclass(frozen=True)
class _Total:
    """A set of values (`domain`) on which a builtin never fails, and a set (`result`) that includes all its results."""

    domain: dict[str, Any]
    result: dict[str, Any]


_STRING: Final[dict[str, Any]] = {"type": "string"}
_DATE_TIMES: Final[dict[str, Any]] = {"allOf": [_STRING, DATE_TIME]}
_FIRST_MS, _END_MS = -62_167_219_200_000, 253_402_300_800_000  # the years 0000 to 9999

# Per builtin, the narrower first. `string_to_int` is total on no set that a schema describes but by listing it.
_TOTAL: Final[dict[str, list[_Total]]] = {
    "lowercase": [_Total(_STRING, _STRING)],
    "uppercase": [_Total(_STRING, _STRING)],
    "string_to_int": [],
    "int_to_string": [_Total({"type": "integer"}, {"type": "string", "pattern": "^-?[0-9]+$", "minLength": 1})],
    "rfc3339_to_unix_millis": [
        _Total(
            _DATE_TIMES,
            {"type": "integer", "minimum": _FIRST_MS - instants.DAY_MS, "maximum": _END_MS + instants.DAY_MS},
        )
    ],
    "unix_millis_to_rfc3339": [
        _Total({"type": "number", "minimum": _FIRST_MS, "exclusiveMaximum": _END_MS}, _DATE_TIMES),
        _Total({"type": "number"}, {"type": "string", "minLength": 1}),
    ],
}


def convert_set(shapes: Shapes, op: Convert, value: Fragment) -> Fragment:
    """Runs a `convert` on a set of values, and returns the set of results.

    Raises:
        InvalidRequest: a value may have another type than the operation says, may be outside the transform's domain, or
            may give a result of another type.
    """
    listed = shapes.values(value)
    if listed is not None:
        return _of_each(op, listed)
    if not shapes.covers({"type": op.from_type}, value):
        raise InvalidRequest(f"the value may be of another type than {op.from_type}")
    result = _of_table(op.forward) if op.forward.builtin is UNSET else _of_builtin(shapes, op.forward.builtin, value)
    if not shapes.covers({"type": op.to_type}, result):
        raise InvalidRequest(f"the result may be of another type than {op.to_type}")
    return result


def _of_each(op: Convert, values: list[Any]) -> Fragment:
    """Converts each of the values that a schema lists, and returns the set of results. Raises InvalidRequest if one can't
    be converted.
    """
    function = compile_convert(op)
    results = []
    for value in values:
        try:
            results.append(function(value))
        except InvalidRequest as exc:
            raise InvalidRequest(f"{jsontext.dumps(value)[:100].decode(errors='replace')}: {exc}") from exc
    return {"enum": results} if results else False


def _of_table(transform: Transform) -> Fragment:
    if transform.default is UNSET:
        raise InvalidRequest("the map has no default, and the old schema does not list the values")
    table = {} if transform.map is UNSET else transform.map
    return {"enum": [*table.values(), transform.default]}


def _of_builtin(shapes: Shapes, name: str, value: Fragment) -> Fragment:
    for total in _TOTAL[name]:
        if shapes.covers(total.domain, value):
            return total.result
    raise InvalidRequest(f"{name} is not defined for every value that the old schema accepts")
