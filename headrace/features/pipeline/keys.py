"""Keys of a table's rows: between typed values, the text under which a row is stored, and what requests send.

The stored text is injective for a table, whose key has fixed types:

- the values are joined by `|`; in strings, `%`, `|` and a leading `#` are escaped as `%25`, `%7C` and `%23`;
- above `MAX_ENTITY_BYTES` it is `#` and the SHA-256 of that text in hex, so no text is mistaken for a hash;
- the empty text is `%`, since DynamoDB has no empty keys. It is the key of the one row of a global table.

Requests send a list of values, or the values joined by `|`, where `%7C` is a `|` of a value (the contract's § 4).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from headrace.features.errors import KeyRefused
from headrace.features.pipeline import scalar
from headrace.features.pipeline.chain import conform
from headrace.features.pipeline.nodes import TEXT_TYPES
from headrace.features.pipeline.text import is_clean, show

MAX_ENTITY_BYTES = 900  # DynamoDB's sort keys have 1,024, and chunks of a row add a suffix
MAX_KEY_CHARS = 64 * 1024  # of a request's key
EMPTY = "%"


def encode(values: Sequence[Any]) -> str:
    """Returns the text under which the row of these values is stored. None of them is null."""
    text = "|".join([_escape(value) if value.__class__ is str else _render(value) for value in values])
    if text[:1] == "#":
        text = "%23" + text[1:]
    if len(text) * 4 > MAX_ENTITY_BYTES:
        data = text.encode()
        if len(data) > MAX_ENTITY_BYTES:
            return "#" + hashlib.sha256(data).hexdigest()
    return text or EMPTY


def parse(key: Any, types: Sequence[str]) -> tuple[Any, ...]:
    """Parses the key of a request.

    Args:
        key: a text, a list of values, or a single value.
        types: the types of the table's key columns.

    Raises:
        KeyRefused: it has another number of parts, or a part of another type.
    """
    if isinstance(key, str):
        if len(key) > MAX_KEY_CHARS:
            raise KeyRefused(f"key of {len(key)} characters is too long: limit={MAX_KEY_CHARS}")
        parts: Sequence[Any] = [part.replace("%7C", "|") for part in key.split("|")] if types or key else []
    else:
        parts = key if isinstance(key, list) else [key]
    if len(parts) != len(types):
        raise KeyRefused(f"key {show(key)} has {len(parts)} parts, and the table's key {len(types)}: join parts by |")
    return tuple([_parse_part(part, kind) for part, kind in zip(parts, types, strict=True)])


def _parse_part(part: Any, kind: str) -> Any:
    value: Any = None
    if kind in TEXT_TYPES:
        value = scalar.to_text(part)
        if value is not None and not is_clean(value):
            raise KeyRefused(f"a key can't have control characters: {show(part)}")
    elif isinstance(part, str):
        casts = {"i64": scalar.to_int, "f64": scalar.to_float, "bool": scalar.to_bool}
        value = casts[kind](part)
    else:
        value = conform(part, kind)
    if value is None:
        raise KeyRefused(f"{show(part)} is no key of type {kind}")
    return value


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("|", "%7C") if "%" in text or "|" in text else text


def _render(value: bool | int | float) -> str:
    if value.__class__ is float:
        # Equal values have one text: -0.0 and 0.0 too
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value) if value.__class__ is int else "true" if value else "false"
