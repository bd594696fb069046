"""How a setting of a deployment is declared, read from text, and checked."""

from __future__ import annotations

import re
from dataclasses import Field, field
from typing import Any

NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
DOMAIN = re.compile(r"(?=.{4,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}")
CERTIFICATE = re.compile(r"arn:aws[a-z-]*:acm:[a-z0-9-]+:[0-9]{12}:certificate/[0-9a-f-]+")
ZONE = re.compile(r"Z[A-Z0-9]{1,31}")
EMAIL = re.compile(r"[^\s@,=]+@[^\s@,=]+\.[^\s@,=]+")
# What every service takes in a tag; `aws:` is AWS's own.
_WORD = r"(?!aws:)[\w.:/@+-]([\w .:/@+-]*[\w.:/@+-])?"
TAGS = re.compile(rf"{_WORD}={_WORD}(,{_WORD}={_WORD})*", re.ASCII)


class BadEnvironment(ValueError):
    """A setting is invalid. The message names it, what is allowed, and what was given."""


def setting(meaning: str, **bounds: Any) -> Any:
    """Declares a setting: its meaning, and its bounds (`least` and `most` of a number, `one_of`, or the `form` of a
    text, which is `called` something; an empty text means none).
    """
    return field(metadata={"meaning": meaning, **bounds})


def check(one: Field[Any], value: Any) -> None:
    """Raises BadEnvironment if a setting has the wrong type or is out of bounds."""
    expected = {"int": int, "bool": bool, "str": str}[str(one.type)]
    if type(value) is not expected or not _is_within(one, value):
        raise BadEnvironment(f"{one.name} is not {allowed(one)}: {value!r}")


def _is_within(one: Field[Any], value: Any) -> bool:
    if "form" in one.metadata:
        return (not value and one.name != "name") or one.metadata["form"].fullmatch(value) is not None
    if "one_of" in one.metadata:
        return value in one.metadata["one_of"]
    return "least" not in one.metadata or bool(one.metadata["least"] <= value <= one.metadata["most"])


def allowed(one: Field[Any]) -> str:
    """Describes in words what a setting may be."""
    if "form" in one.metadata:
        return str(one.metadata["called"])
    if "one_of" in one.metadata:
        return "one of " + ", ".join(map(str, one.metadata["one_of"]))
    if "least" in one.metadata:
        return f"{one.metadata['least']:,} to {one.metadata['most']:,}"
    return "true or false"


def parse(kind: str, value: Any) -> Any:
    """Converts text to the number or boolean that a setting of this kind needs. Text that is neither is returned
    unchanged, and is refused later.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if kind == "bool":
        return {"true": True, "false": False}.get(text.lower(), value)
    if kind == "int":
        return int(text) if text.isascii() and text.isdigit() else value
    return text
