"""The text of JSON: whether it is valid, and the text of its parts as they were sent.

Numbers stay text, whatever their length, since nothing here calculates with them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

_SPACE = re.compile(r"[ \t\n\r]*")


def _refuse(name: str) -> str:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)


def problem(text: bytes) -> str:
    """Returns why `text` is not exactly one JSON value; empty if it is, or if it is nested too deeply to tell."""
    if not text:
        return "a value is missing"
    try:
        _decoder.decode(text.decode())
    except ValueError as error:
        return str(error)
    except RecursionError:
        return ""  # the server decides
    return ""


def array_elements(text: str) -> list[str]:
    """Returns the text of each element of an array. Raises ValueError or RecursionError if `text` is anything else."""
    found = []
    at = _start(text, "[")
    while at is not None:
        end = _end_of_value(text, at)
        found.append(text[at:end])
        at = _next(text, end, "]")
    return found


def object_members(text: str) -> dict[str, str]:
    """Returns the text of each member's value. Raises ValueError or RecursionError if `text` is no object."""
    found = {}
    at = _start(text, "{")
    while at is not None:
        name, end = _decoder.raw_decode(text, at)
        if not isinstance(name, str) or text[at] != '"':
            raise ValueError(f"a name is missing at {at}")
        at = _skip(text, end, ":")
        end = _end_of_value(text, at)
        found[name] = text[at:end]
        at = _next(text, end, "}")
    return found


def join_object(members: Mapping[str, str]) -> str:
    """Returns the object whose members have these names and these texts as values."""
    return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{value}" for name, value in members.items()) + "}"


def _start(text: str, opening: str) -> int | None:
    """Returns where the first item starts; None if there is none."""
    at = _skip(text, 0, opening)
    if text[at : at + 1] == ("]" if opening == "[" else "}"):
        _require_end(text, at + 1)
        return None
    return at


def _next(text: str, end: int, closing: str) -> int | None:
    """Returns where the item behind `end` starts; None behind the last one."""
    at = _space(text, end)
    if text[at : at + 1] == closing:
        _require_end(text, at + 1)
        return None
    return _skip(text, at, ",")


def _end_of_value(text: str, at: int) -> int:
    return _decoder.raw_decode(text, at)[1]


def _skip(text: str, at: int, mark: str) -> int:
    """Returns where the token behind `mark` starts."""
    at = _space(text, at)
    if text[at : at + 1] != mark:
        raise ValueError(f"{mark} is missing at {at}")
    return _space(text, at + 1)


def _space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _require_end(text: str, at: int) -> None:
    if _space(text, at) != len(text):
        raise ValueError(f"more than one value: {at}")
