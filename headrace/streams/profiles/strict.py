"""Reads JSON values strictly: a value of the wrong type is an error that names its place in the caller's terms."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from headrace.errors import InvalidRequest

_MOST_NAMES = 64  # maximum names in each list, as in the Prisma Streams server


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


# What several profiles have among their options.


def section(document: dict[str, Any], key: str, place: str) -> dict[str, Any]:
    """Returns the object under `key`; an empty one if there is none.

    Raises:
        InvalidRequest: the value is not an object.
    """
    return as_object(document[key], place) if key in document else {}


def names(document: dict[str, Any], key: str, place: str) -> tuple[str, ...] | None:
    """Returns the list of texts under `key`, as `distinct_texts` does; None if there is none."""
    return distinct_texts(document[key], f"{place}.{key}", _MOST_NAMES) if key in document else None


def redact_keys(document: dict[str, Any]) -> tuple[str, ...] | None:
    """Returns the option `redactKeys` in lower case; None if it is not given."""
    found = names(document, "redactKeys", "profile")
    return None if found is None else tuple(dict.fromkeys(name.lower() for name in found))


def counterpart(document: dict[str, Any], key: str) -> str | None:
    """Returns the stream that `profile.observability.request` names under `key`; None if it names none.

    Raises:
        InvalidRequest: there is another key, or the name is blank.
    """
    place = "profile.observability"
    observability = section(document, "observability", place)
    only(observability, ("request",), place)
    request = section(observability, "request", f"{place}.request")
    only(request, (key,), f"{place}.request")
    return required_text(request[key], f"{place}.request.{key}").strip() if key in request else None


def given(**options: Any) -> dict[str, Any]:
    """Returns the options that are not None, with tuples as JSON arrays."""
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in options.items() if value is not None
    }
