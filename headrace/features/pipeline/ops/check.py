"""The check of one aggregation's parameters at registration, with the contract's codes (§ 1, § 5, § 6)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from headrace.features.errors import OperatorError
from headrace.features.pipeline.ops import CATALOGUE
from headrace.features.pipeline.windows import TEXT_BYTES, Operator

UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LONGEST_MS = 36_525 * UNIT_MS["d"]
"""A hundred years. Windows stay far from 64 bits."""
MOST_VALUES = 1024
"""The greatest n, k, number of samples, of buckets and of categories (contract § 10)."""
MOST_CAPACITY = 16_384
LEAST_FPR = 1e-9
I64_MAX = 2**63 - 1

NUMERIC = ("i64", "f64", "bool")
NEEDS_N = ("time_since_last_n", "most_recent_n", "first_n", "last_n", "lag")
HALF_LIVES = ("ewma", "ema", "ewvar", "ew_zscore", "decayed_sum", "decayed_count")

_DURATION = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)", re.ASCII)


def check_operator(op: str, params: dict[str, Any], types: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Checks one aggregation against the fields' types.

    Unknown parameters are ignored and left out of the normal form, like unknown keys of a node.

    Args:
        op: the operator's name.
        params: its parameters, without `where`.
        types: the type of each field that the aggregation can see.

    Returns:
        The type of the result, and the parameters in their normal form: durations in ms, defaults filled in, and
        under `type` the type of the field.

    Raises:
        OperatorError: with the contract's code, the offending parameter and the reason.
    """
    kind = CATALOGUE.get(op)
    if not isinstance(params, dict):
        raise OperatorError("invalid_registration", None, f"params of '{op}' must be an object")
    if kind is None:
        # Bounds of lifetime operators are checked first, and an unknown name has none (contract § 6).
        code = "unbounded_op_in_lifetime_mode" if params.get("window") is None else "aggregation_unknown_op"
        raise OperatorError(code, None, f"operator {_show(op)} is not known")
    found = _bounds(op, params)
    found |= _fields(op, kind, params, types)
    found |= _options(op, params)
    window_ms = _window(op, kind, params)
    if window_ms is not None:
        found["window"] = window_ms
    result = kind.result
    if result == "same":
        result = found["type"]
    elif result == "delta":
        result = "f64" if found["type"] == "f64" else "i64"
    return result, found


def _bounds(op: str, params: dict[str, Any]) -> dict[str, Any]:
    """Checks what bounds the state of a lifetime operator."""
    if op in NEEDS_N:
        return {"n": _count(op, params, "n")}
    if op == "reservoir_sample":
        return {"samples": _count(op, params, "samples")}
    if op != "histogram":
        return {}
    buckets = params.get("buckets")
    if buckets is None or buckets == []:
        raise _unbounded(op, "buckets", "[10, 100]")
    if not isinstance(buckets, list) or not all(map(_is_number, buckets)):
        raise _invalid("buckets", f"{_show(buckets)} is not a list of numbers")
    if len(buckets) > MOST_VALUES:
        raise _invalid("buckets", f"{len(buckets)} bounds are more than {MOST_VALUES}")
    if any(low >= high for low, high in pairwise(buckets)):
        raise _invalid("buckets", f"{_show(buckets)} is not ascending")
    return {"buckets": list(buckets)}


def _count(op: str, params: dict[str, Any], name: str) -> int:
    value = params.get(name)
    if value is None:
        raise _unbounded(op, name, "10")
    return _integer(value, name, "invalid_registration", MOST_VALUES)


def _fields(op: str, kind: type[Operator], params: dict[str, Any], types: Mapping[str, str]) -> dict[str, Any]:
    if kind.reads == "point":
        found = {}
        for name, alias in (("lat_field", "lat"), ("lon_field", "lon")):
            given = name if params.get(name) is not None else alias if params.get(alias) is not None else name
            found[name] = _field(op, params.get(given), given, types, NUMERIC[:2])
        return found
    if kind.reads not in ("any", "number"):
        return {}
    allowed = NUMERIC if kind.reads == "number" else (*NUMERIC, "str", "bytes", "datetime")
    field = _field(op, params.get("field"), "field", types, allowed)
    return {"field": field, "type": types[field]}


def _field(op: str, field: Any, param: str, types: Mapping[str, str], allowed: tuple[str, ...]) -> str:
    if field is None:
        raise OperatorError(
            "aggregation_unknown_field", param, f"'{op}' needs the parameter '{param}', a field's name"
        )
    if not isinstance(field, str) or field not in types:
        raise OperatorError("aggregation_unknown_field", param, f"{_show(field)} is not a field of the events")
    if types[field] not in allowed:
        why = f"'{op}' takes {', '.join(allowed)}: field '{field}' is {types[field]}"
        raise _invalid(param, why)
    return field


def _options(op: str, params: dict[str, Any]) -> dict[str, Any]:
    """Checks what only some operators have."""
    if op in HALF_LIVES:
        return {"half_life": _duration(params.get("half_life"), "half_life", "invalid_registration")}
    if op == "burst_count":
        return {"sub_window": _duration(params.get("sub_window"), "sub_window", "invalid_registration")}
    if op == "quantile":
        q = _given(params, "q", 0.5)
        if not _is_number(q) or not 0 < q < 1:
            raise OperatorError("invalid_percentile_q", "q", f"q must be between 0 and 1, exclusive: {_show(q)}")
        return {"q": float(q)}
    if op == "top_k":
        return {"k": _integer(_given(params, "k", 10), "k", "invalid_top_k_k", MOST_VALUES)}
    if op == "distance_from_home":
        return {"samples": _integer(_given(params, "samples", 100), "samples", "invalid_registration", MOST_VALUES)}
    if op == "outlier_count":
        sigma = _given(params, "sigma", 3.0)
        if not _is_number(sigma) or sigma <= 0:
            raise _invalid("sigma", f"{_show(sigma)} is not a number above 0")
        return {"sigma": float(sigma)}
    if op == "event_type_mix":
        return _categories(params)
    if op == "bloom_member":
        fpr = _given(params, "fpr", _given(params, "target_fpr", 0.01))
        if not _is_number(fpr) or not 0 < fpr < 1:
            raise OperatorError("invalid_bloom_fpr", "fpr", f"fpr must be between 0 and 1, exclusive: {_show(fpr)}")
        capacity = _given(params, "capacity", _given(params, "expected_n", 1024))
        capacity = _integer(capacity, "capacity", "invalid_registration", MOST_CAPACITY)
        return {"capacity": capacity, "fpr": max(LEAST_FPR, float(fpr))}
    return {}


def _categories(params: dict[str, Any]) -> dict[str, Any]:
    most = _integer(_given(params, "max_categories", 256), "max_categories", "invalid_registration", MOST_VALUES)
    categories = params.get("categories")
    if categories is None:
        return {"max_categories": most}
    if not isinstance(categories, list) or not all(isinstance(value, str | int | float) for value in categories):
        raise _invalid("categories", f"{_show(categories)} is not a list of values")
    if len(categories) > MOST_VALUES:
        raise _invalid("categories", f"{len(categories)} categories are more than {MOST_VALUES}")
    for value in categories:
        if isinstance(value, str) and len(value.encode("utf-8", "surrogatepass")) > TEXT_BYTES:
            raise _invalid("categories", f"{_show(value)} is longer than {TEXT_BYTES} bytes")
        if not isinstance(value, str) and not _is_number(value) and not isinstance(value, bool):
            raise _invalid("categories", f"{_show(value)} is not a value that a field can have")
    return {"max_categories": most, "categories": list(categories)}


def _window(op: str, kind: type[Operator], params: dict[str, Any]) -> int | None:
    given = "window"
    if op == "z_score" and params.get("window") is None:
        given = "baseline_window"
    value = params.get(given)
    if op == "first_seen_in_window":
        return _duration(value, given, "aggregation_invalid_window")
    if value is None:
        return None
    if not kind.windowed:
        code = "window_not_supported" if op == "bloom_member" else "aggregation_invalid_window"
        raise OperatorError(code, given, f"'{op}' always covers all events: leave out '{given}'")
    return None if value == "forever" else _duration(value, given, "aggregation_invalid_window")


def _duration(value: Any, param: str, code: str) -> int:
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    duration_ms = int(match[1]) * UNIT_MS[match[2]] if match else 0
    if not 0 < duration_ms <= LONGEST_MS:
        why = f'{_show(value)} is not a duration: write a number above 0 with ms, s, m, h or d, as "5m"; at most 100 years'
        raise OperatorError(code, param, why)
    return duration_ms


def _integer(value: Any, param: str, code: str, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise OperatorError(code, param, f"{param} must be an integer from 1 to {most}: {_show(value)}")
    return value


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return abs(value) <= I64_MAX
    return isinstance(value, float) and math.isfinite(value)


def _given(params: dict[str, Any], name: str, default: Any) -> Any:
    value = params.get(name)
    return default if value is None else value


def _show(value: Any) -> str:
    """Returns the value for a message, cut: it may be as long as a request."""
    if isinstance(value, int) and value.bit_length() > 128:
        return "an integer of more than 128 bits"
    text = (
        repr(value) if isinstance(value, str | int | float | bool) or value is None else f"a {type(value).__name__}"
    )
    return text if len(text) <= 80 else text[:77] + "..."


def _invalid(param: str, reason: str) -> OperatorError:
    return OperatorError("invalid_registration", param, reason)


def _unbounded(op: str, param: str, example: str) -> OperatorError:
    why = f"'{op}' keeps values for ever: bound them with '{param}', for example {example}"
    return OperatorError("unbounded_op_in_lifetime_mode", param, why)
