"""Reading JSON values without guessing: the wrong type is named with its place, in the caller's own terms."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from headrace.errors import InvalidRequest


def as_object(value: Any, place: str) -> dict[str, Any]:
    """`value` if it is a JSON object.

    Raises:
        InvalidRequest: it is not.
    """
    if not isinstance(value, dict):
        raise InvalidRequest(f"{place} must be an object")
    return value


def only(value: dict[str, Any], allowed: Collection[str], place: str) -> None:
    """Refuses keys that are not `allowed`.

    Raises:
        InvalidRequest: names the first unknown key.
    """
    for key in value:
        if key not in allowed:
            raise InvalidRequest(f"{place}.{key} is not supported")


def text_or_none(value: Any) -> str | None:
    """Returns a string without its outer white space; None for an empty one and for anything else."""
    return value.strip() or None if isinstance(value, str) else None


def required_text(value: Any, place: str) -> str:
    """Returns a string that is not blank, as it is given.

    Raises:
        InvalidRequest: it is not one.
    """
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequest(f"{place} must be a non-empty string")
    return value


def distinct_texts(value: Any, place: str, limit: int) -> tuple[str, ...]:
    """Returns a list of strings, trimmed, without repeats, in the order given.

    Raises:
        InvalidRequest: not a list of strings, over `limit` elements, or one is blank.
    """
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidRequest(f"{place} must be an array of strings")
    if len(value) > limit:
        raise InvalidRequest(f"{place} too large (max {limit})")
    trimmed = [item.strip() for item in value]
    if not all(trimmed):
        raise InvalidRequest(f"{place} must not contain empty strings")
    return tuple(dict.fromkeys(trimmed))
