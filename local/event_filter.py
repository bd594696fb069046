"""Event patterns, as Lambda's FilterCriteria and EventBridge understand them. Pure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

_MISSING = object()
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def matches_any(patterns: Iterable[dict[str, Any]], event: dict[str, Any]) -> bool:
    """Whether one of the patterns matches, or there is none."""
    patterns = list(patterns)
    return not patterns or any(matches(pattern, event) for pattern in patterns)


def matches(pattern: dict[str, Any], event: Any) -> bool:
    """Whether every field of the pattern matches. Raises ValueError for a rule that does not exist."""
    for field, expected in pattern.items():
        if field == "$or":
            if not any(matches(alternative, event) for alternative in expected):
                return False
            continue
        actual = event.get(field, _MISSING) if isinstance(event, dict) else _MISSING
        matched = matches(expected, actual) if isinstance(expected, dict) else _matches_one_of(expected, actual)
        if not matched:
            return False
    return True


def _matches_one_of(rules: list[Any], actual: Any) -> bool:
    values = actual if isinstance(actual, list) else [actual]
    return any(_obeys(rule, value) for rule in rules for value in values)


def _obeys(rule: Any, value: Any) -> bool:
    if not isinstance(rule, dict):
        # True is not 1 in JSON.
        return value is not _MISSING and type(value) is type(rule) and bool(value == rule)
    ((name, operand),) = rule.items()
    if name == "exists":
        return bool((value is not _MISSING) == operand)
    if value is _MISSING:
        return False
    match name:
        case "prefix":
            return isinstance(value, str) and value.startswith(operand)
        case "suffix":
            return isinstance(value, str) and value.endswith(operand)
        case "equals-ignore-case":
            return isinstance(value, str) and value.lower() == str(operand).lower()
        case "anything-but":
            refused = operand if isinstance(operand, list) else [operand]
            return not any(_obeys(entry, value) for entry in refused)
        case "numeric":
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            pairs = zip(operand[::2], operand[1::2], strict=True)
            return is_number and all(_COMPARISONS[sign](value, bound) for sign, bound in pairs)
    raise ValueError(f"unknown rule in an event pattern: {name}")
