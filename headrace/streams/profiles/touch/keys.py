r"""The keys of everything that a change can touch, each the XXH3-64 hash of a tagged text. Clients compute the same
keys.

    table         tbl\0 entity                        any change of the entity
    template id   tpl\0 entity \0 field \0 field …    one to three equality fields, sorted by name
    template      tpl\0 id                            any change of the entity, for a template's waiters
    membership    mem\0 id (\0 argument) …            a row enters or leaves the tuple of arguments
    field         fld\0 id \0 name (\0 argument) …    a field of a row within the tuple changes
    watch         key\0 id (\0 argument) …            anything of a row within the tuple changes

The id is in a key as its eight bytes, big endian. Arguments follow the order of the template's fields. A key is a
64-bit number here, 16 lower-case hexadecimal digits outside; its low half is its key id (Prisma Streams, `live.md`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import xxhash

from headrace.instants import parse_ms, render
from headrace.streams.profiles.numbers import is_finite, number_text

ENCODINGS = ("string", "int64", "bool", "datetime", "bytes")
KEY_ID_MASK = 0xFFFF_FFFF

_HEX16 = re.compile(r"[0-9a-f]{16}", re.ASCII)
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)", re.ASCII)


def table_key(entity: str) -> int:
    """Returns the key that every change of an entity touches."""
    return _hash(b"tbl", entity.encode())


def template_id(entity: str, fields: Iterable[str]) -> int:
    """Returns the id of the template on these fields, which must be sorted."""
    return _hash(b"tpl", entity.encode(), *map(str.encode, fields))


def membership_key(template: int, arguments: Iterable[str]) -> int:
    """Returns the key that is touched when a row begins or ceases to have these values in the template's fields."""
    return _hash(b"mem", _id_bytes(template), *map(str.encode, arguments))


def field_key(template: int, field: str, arguments: Iterable[str]) -> int:
    """Returns the key that is touched when `field` changes in a row that has these values in the template's fields."""
    return _hash(b"fld", _id_bytes(template), field.encode(), *map(str.encode, arguments))


def watch_key(template: int, arguments: Iterable[str]) -> int:
    """Returns the key that is touched by every change of a row that has these values in the template's fields."""
    return _hash(b"key", _id_bytes(template), *map(str.encode, arguments))


def as_hex(key: int) -> str:
    """Formats a key or template id as clients write it, in 16 hexadecimal digits."""
    return f"{key:016x}"


def from_hex(text: str) -> int | None:
    """Parses a key or template id (in any case, with white space around it); None if the text is none."""
    normal = text.strip().lower()
    return int(normal, 16) if _HEX16.fullmatch(normal) else None


def key_id_of_text(text: str) -> int:
    """Returns the key id of a key that is not 16 hexadecimal digits: its XXH32 hash."""
    return xxhash.xxh32_intdigest(text.strip().lower().encode())


def encode_argument(value: Any, encoding: str) -> str | None:
    """Encodes a field's value as text for a key; None if the encoding does not apply to it, or it is null.

    Encoding `string` takes strings, numbers (as ECMAScript prints them) and booleans; `int64` whole numbers and their
    decimal text, with every digit; `bool` booleans; `datetime` ISO 8601 text, converted to milliseconds in UTC; `bytes`
    any string.
    """
    if encoding == "bool":
        return str(int(value)) if isinstance(value, bool) else None
    if isinstance(value, str):
        return _encode_text(value, encoding)
    if encoding == "string" and isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not is_finite(value):
        return None
    if encoding == "string":
        return number_text(value)
    if encoding == "int64" and value == int(value):
        return str(int(value))
    return None


def _encode_text(value: str, encoding: str) -> str | None:
    if encoding == "int64":
        trimmed = value.strip()
        return trimmed if _DECIMAL.fullmatch(trimmed) else None
    if encoding == "datetime":
        instant_ms = parse_ms(value)
        return None if instant_ms is None else render(instant_ms)
    return value


def _hash(*parts: bytes) -> int:
    return xxhash.xxh3_64_intdigest(b"\0".join(parts))


def _id_bytes(template: int) -> bytes:
    return template.to_bytes(8, "big")
