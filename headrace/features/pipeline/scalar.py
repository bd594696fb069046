"""The functions of expressions on single values. None is null, and every function returns null for null, but for the
logical ones, which follow SQL's three-valued logic.

Integers are of 64 bits and saturate. A float that is not finite becomes null.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

MIN_I64, MAX_I64 = -(2**63), 2**63 - 1
MAX_ZOOM = 30  # of a quadkey, one digit each
_MAX_LATITUDE = 85.05112878  # of a square Web Mercator map
_INTEGER = re.compile(r"[+-]?\d{1,100}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][+-]?\d{1,5})?", re.ASCII)

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


def compare(symbol: str) -> Callable[[Any, Any], Any]:
    """Returns the comparison of two values that are of one kind."""
    holds = COMPARISONS[symbol]
    return lambda a, b: None if a is None or b is None else holds(a, b)


def both(a: Any, b: Any) -> Any:
    """Returns the logical and."""
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def either(a: Any, b: Any) -> Any:
    """Returns the logical or."""
    if a is True or b is True:
        return True
    return None if a is None or b is None else False


def negate(a: Any) -> Any:
    """Returns the logical not."""
    return None if a is None else not a


def is_null(a: Any) -> bool:
    """Returns whether a value is null."""
    return a is None


def is_not_null(a: Any) -> bool:
    """Returns whether a value is not null."""
    return a is not None


def _saturate(n: int) -> int:
    return n if MIN_I64 <= n <= MAX_I64 else MIN_I64 if n < 0 else MAX_I64


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None


def _divide_i64(a: Any, b: Any) -> Any:
    if a is None or b is None or b == 0:
        return None
    quotient = abs(a) // abs(b)
    return _saturate(quotient if (a < 0) == (b < 0) else -quotient)


def _divide_f64(a: Any, b: Any) -> Any:
    return None if a is None or b is None or b == 0 else _finite(float(a) / float(b))


def _i64(apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: None if a is None or b is None else _saturate(apply(a, b))


def _f64(apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: None if a is None or b is None else _finite(apply(float(a), float(b)))


_APPLY: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
ARITHMETIC: dict[tuple[str, str], Callable[[Any, Any], Any]] = {
    **{(symbol, "i64"): _i64(apply) for symbol, apply in _APPLY.items()},
    **{(symbol, "f64"): _f64(apply) for symbol, apply in _APPLY.items()},
    ("/", "i64"): _divide_i64,
    ("/", "f64"): _divide_f64,
}
"""The function of an operator symbol and the type of its result."""


def to_int(value: Any) -> int | None:
    """Casts to i64. Floats are truncated; what does not fit becomes null."""
    if isinstance(value, float):
        value = int(value) if math.isfinite(value) else None
    elif isinstance(value, str):
        value = int(value) if _INTEGER.fullmatch(value) else None
    if not isinstance(value, int) or not MIN_I64 <= value <= MAX_I64:
        return None
    return int(value)


def to_float(value: Any) -> float | None:
    """Casts to f64."""
    if isinstance(value, str):
        return _finite(float(value)) if _DECIMAL.fullmatch(value) else None
    if not isinstance(value, (int, float)) or (isinstance(value, int) and abs(value) >> 1023):
        return None
    return _finite(float(value))


def to_text(value: Any) -> str | None:
    """Casts to str: numbers as in JSON, `true` and `false`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if MIN_I64 <= value <= MAX_I64 else None
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else None
    return value if isinstance(value, str) else None


def to_bool(value: Any) -> bool | None:
    """Casts to bool: a number unless it is zero, the texts `true` and `false`."""
    if isinstance(value, (bool, int, float)):
        return value != 0
    return {"true": True, "false": False}.get(value) if isinstance(value, str) else None


CASTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "str": ("str", to_text),
    "int": ("i64", to_int),
    "i64": ("i64", to_int),
    "float": ("f64", to_float),
    "f64": ("f64", to_float),
    "bool": ("bool", to_bool),
}
"""The type and the function of each target of a cast."""


def quadkey(latitude: Any, longitude: Any, zoom: Any) -> str | None:
    """Returns the quadkey of the Web Mercator tile that has a point; null if there is no such point or zoom. Latitudes
    beyond the map's edge belong to the outermost tiles.
    """
    if latitude is None or longitude is None or zoom is None:
        return None
    if not -90 <= latitude <= 90 or not -180 <= longitude <= 180 or not 0 <= zoom <= MAX_ZOOM:
        return None
    sine = math.sin(math.radians(max(-_MAX_LATITUDE, min(_MAX_LATITUDE, latitude))))
    tiles = 1 << zoom
    x = min(tiles - 1, int((longitude + 180) / 360 * tiles))
    y = max(0, min(tiles - 1, int((0.5 - math.log((1 + sine) / (1 - sine)) / (4 * math.pi)) * tiles)))
    return "".join(str((x >> bit & 1) + 2 * (y >> bit & 1)) for bit in range(zoom - 1, -1, -1))
