"""What `convert` makes of a set of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from msgspec import UNSET

from headrace import instants
from headrace.errors import InvalidRequest
from headrace.json import jsontext
from headrace.json.lens import ops
from headrace.json.lens.closed import DATE_TIME, Fragment
from headrace.json.lens.convert import compile_convert
from headrace.json.lens.shapes import Shapes


@dataclass(frozen=True)
class _Total:
    """A builtin never fails on `domain`, and what it makes of it is within `result`."""

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


def converted(shapes: Shapes, op: ops.Convert, value: Fragment) -> Fragment:
    """The set of results.

    Raises:
        InvalidRequest: a value may be of another type than the operation says, be outside what the transform is
            defined for, or give a result of another type.
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


def _of_each(op: ops.Convert, values: list[Any]) -> Fragment:
    """Where the schema lists the values, each is tried."""
    function = compile_convert(op)
    results = []
    for value in values:
        try:
            results.append(function(value))
        except InvalidRequest as exc:
            raise InvalidRequest(f"{jsontext.dumps(value)[:100].decode(errors='replace')}: {exc}") from exc
    return {"enum": results} if results else False


def _of_table(transform: ops.Transform) -> Fragment:
    if transform.default is UNSET:
        raise InvalidRequest("the map has no default, and the old schema does not list the values")
    table = {} if transform.map is UNSET else transform.map
    return {"enum": [*table.values(), transform.default]}


def _of_builtin(shapes: Shapes, name: str, value: Fragment) -> Fragment:
    for total in _TOTAL[name]:
        if shapes.covers(total.domain, value):
            return total.result
    raise InvalidRequest(f"{name} is not defined for every value that the old schema accepts")
