"""Reads JSON values strictly: a value of the wrong type is an error that names its place in the caller's terms."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from headrace.errors import InvalidRequest


def as_object(value: Any, place: str) -> dict[str, Any]:
    """Returns `value` if it is a JSON object.

    Raises:
        InvalidRequest: `value` is not an object.
    """
    if not isinstance(value, dict):
        raise InvalidRequest(f"{place} must be an object")
    return value


def only(value: dict[str, Any], allowed: Collection[str], place: str) -> None:
    """Checks that an object has only `allowed` keys.

    Raises:
        InvalidRequest: there is an unknown key; the message names the first one.
    """
    for key in value:
        if key not in allowed:
            raise InvalidRequest(f"{place}.{key} is not supported")


def text_or_none(value: Any) -> str | None:
    """Returns a string without leading and trailing white space; None for an empty one and for anything else."""
    return value.strip() or None if isinstance(value, str) else None


def required_text(value: Any, place: str) -> str:
    """Returns a string unchanged, if it is not blank.

    Raises:
        InvalidRequest: the value is not a string, or is blank.
    """
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequest(f"{place} must be a non-empty string")
    return value


def distinct_texts(value: Any, place: str, limit: int) -> tuple[str, ...]:
    """Returns the strings of a list, trimmed and without repeats, in their order.

    Raises:
        InvalidRequest: the value is not a list of strings, has more than `limit` elements, or one is blank.
    """
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidRequest(f"{place} must be an array of strings")
    if len(value) > limit:
        raise InvalidRequest(f"{place} too large (max {limit})")
    trimmed = [item.strip() for item in value]
    if not all(trimmed):
        raise InvalidRequest(f"{place} must not contain empty strings")
    return tuple(dict.fromkeys(trimmed))
