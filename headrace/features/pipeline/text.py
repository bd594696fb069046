"""Names, durations and strings of registrations and events, and how messages show values."""

from __future__ import annotations

import re
from typing import Any

from headrace.features.errors import UNPRINTABLE, RegistrationError
from headrace.limits import MAX_TTL_MS

MAX_NAME_CHARS = 128  # the contract's § 10
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_DURATION = re.compile(r"(\d{1,15})(ms|s|m|h|d)", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration(value: Any) -> int | None:
    """Parses a duration such as `500ms`, `30s`, `5m`, `1h` or `30d`, and returns milliseconds; None if the value is none,
    or is zero or above a century.
    """
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    millis = int(match[1]) * _UNIT_MS[match[2]]
    return millis if 0 < millis <= MAX_TTL_MS else None


def check_name(name: Any, path: str, what: str) -> str:
    """Returns the name of a node, field or feature.

    Raises:
        RegistrationError: it is no identifier, too long or reserved.
    """
    if not isinstance(name, str):
        raise RegistrationError(
            "invalid_registration", path, f"the name of {what} must be a string, not {show(name)}"
        )
    if not IDENTIFIER.fullmatch(name):
        raise RegistrationError(
            "invalid_registration",
            path,
            f"{show(name)} is no name for {what}: use letters, digits and _, and no digit first",
        )
    if len(name) > MAX_NAME_CHARS:
        raise RegistrationError(
            "invalid_registration",
            path,
            f"{show(name)} is too long a name for {what}: limit={MAX_NAME_CHARS} characters",
        )
    if name.startswith("_beava_"):
        raise RegistrationError(
            "invalid_registration",
            path,
            f"{name!r} is no name for {what}: names that begin with _beava_ are reserved",
        )
    return name


def join(path: str, name: Any) -> str:
    """Returns the path of a member; that of its parent if its name is no identifier, or is too long."""
    is_name = isinstance(name, str) and IDENTIFIER.fullmatch(name) and len(name) <= MAX_NAME_CHARS
    return f"{path}.{name}" if is_name else path


def is_clean(text: str) -> bool:
    """Returns whether a string has no control characters and can be encoded as UTF-8."""
    if text.isprintable():  # the fast case: true of most strings, and of none that is refused
        return True
    return not UNPRINTABLE.search(text)


def show(value: Any) -> str:
    """Formats a JSON value for a message: at most 60 characters, without control characters."""
    if isinstance(value, (dict, list)):
        text = f"an {'object' if isinstance(value, dict) else 'array'}" if value else "{}" if value == {} else "[]"
    elif value is None or isinstance(value, bool):
        text = {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, int) and abs(value) >= 1 << 200:
        text = "an integer of many digits"  # Python refuses to format more than 4,300 digits
    else:
        text = repr(value) if not isinstance(value, str) else f"'{UNPRINTABLE.sub('?', value[:80])}'"
    return text if len(text) <= 60 else text[:57] + "..."
