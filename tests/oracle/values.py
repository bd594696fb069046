"""What a record says about a field, read the slow and obvious way. Knows nothing of the code under test.

A configuration is the JSON that is posted as `search`. Records are JSON, already promoted to the schema in force.
Only forms of values that the tests post are read: texts of times are ISO 8601, texts of numbers are plain decimals.
"""

from __future__ import annotations

import math
import re
import unicodedata
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Any

Config = dict[str, Any]
Document = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def resolve(config: Config, name: str) -> str:
    """Returns the field that a name or an alias means."""
    return str(config.get("aliases", {}).get(name, name))


def raw(config: Config, name: str, document: Document) -> list[Any]:
    """Returns everything that is at the field's place, arrays taken apart."""
    bindings = config["fields"][name]["bindings"]
    newest = bindings[0] if len(bindings) == 1 else max(bindings, key=lambda binding: binding["version"])
    place: Any = document
    for step in steps(newest["jsonPointer"]):
        if not isinstance(place, dict) or step not in place:
            return []
        place = place[step]
    return flat(place)


@cache
def steps(pointer: str) -> list[str]:
    """Returns the names of a JSON pointer."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def flat(value: Any) -> list[Any]:
    """Returns an array with the arrays in it taken apart; another value alone."""
    return [item for part in value for item in flat(part)] if isinstance(value, list) else [value]


def values(config: Config, name: str, document: Document) -> list[Any]:
    """Returns the canonical values of a field, in order; null and whatever is not of its kind are none."""
    field = config["fields"][name]
    read = [canonical(field, value) for value in raw(config, name, document)]
    return [value for value in read if value is not None]


def canonical(field: dict[str, Any], value: Any) -> Any:
    """Returns the form in which a value is compared: text, int, float, bool, or words; None if it is not of the
    field's kind.
    """
    kind = field["kind"]
    if kind in ("keyword", "text"):
        if not isinstance(value, str):
            return None
        if kind == "text":
            return words(value)
        return value.lower() if field.get("normalizer") == "lowercase_v1" else value
    if kind == "bool":
        names = {"true": True, "false": False}
        return names.get(value) if isinstance(value, str) else value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    return {"integer": integer, "float": number, "date": instant}[kind](value)


def integer(value: int | float | str) -> int | None:
    if isinstance(value, str):
        return int(value) if re.fullmatch("-?[0-9]+", value) else None
    return int(value) if value == math.floor(value) else None


def number(value: int | float | str) -> float | None:
    if isinstance(value, str) and not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value):
        return None
    return float(value)


@lru_cache(maxsize=100_000)  # a test asks many questions about the same records
def instant(value: int | float | str) -> int | None:
    """Milliseconds since 1970."""
    if not isinstance(value, str):
        return int(value)
    if re.fullmatch("[0-9]{5,}", value):
        return int(value)
    try:
        return (datetime.fromisoformat(value) - EPOCH) // timedelta(milliseconds=1)
    except (ValueError, TypeError):
        return None


@lru_cache(maxsize=100_000)
def words(text: str) -> list[str]:
    """Runs of letters and numbers, in lower case."""
    found, word = [], ""
    for character in text.lower() + " ":
        if unicodedata.category(character)[0] in "LN":
            word += character
        elif word:
            found.append(word)
            word = ""
    return found
