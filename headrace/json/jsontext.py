"""Converts JSON between bytes and Python values, and reads, replaces and removes the value at a pointer.

Integers of any size are kept (a double holds them only to 2^53), and so is the order of keys. Fractions become doubles.
Of msgspec, orjson and the standard library, only msgspec is both fast and exact for large integers.

JSON pointers (RFC 6901): a parsed pointer is a tuple of keys; the empty tuple is the whole document. A key means a
member of an object or, in an array, an index written without leading zeros. `put` and `drop` never change the document
that they are given: they copy the containers along the path and share the rest.
"""

from __future__ import annotations

import enum
import re
from array import array
from itertools import accumulate
from typing import Any, Final

import msgspec

from headrace.errors import InvalidRequest

# Documents are walked by recursion, here and in libraries: the validator's own limit is 255 levels.
MAX_DEPTH = 200

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


def loads(data: bytes) -> Any:
    """Parses a JSON text. If an object has a key twice, the last one counts.

    Raises:
        InvalidRequest: the text is not JSON (RFC 8259) in UTF-8, has an unpaired surrogate or a number beyond a double,
            or is nested deeper than `MAX_DEPTH`.
    """
    try:
        value = _decoder.decode(data)
    except msgspec.DecodeError as exc:
        raise InvalidRequest(f"not valid JSON: {exc}") from exc
    except UnicodeDecodeError as exc:
        raise InvalidRequest("not valid JSON: it is not UTF-8") from exc
    except RecursionError as exc:
        raise InvalidRequest(f"JSON is nested too deeply: limit={MAX_DEPTH}") from exc
    # Counting brackets costs nothing next to parsing, and most documents have too few to be deep.
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and not _is_shallow(value):
        raise InvalidRequest(f"JSON is nested too deeply: limit={MAX_DEPTH}")
    return value


def check_depth(text: bytes | msgspec.Raw) -> None:
    """Raises InvalidRequest if a valid JSON text is nested deeper than `MAX_DEPTH`. Builds no values: many small ones would
    take a second for each MiB.
    """
    data = bytes(text)
    if data.count(b"{") + data.count(b"[") <= MAX_DEPTH:
        return
    bare = _STRING.sub(b"", data.replace(b"\\\\", b"").replace(b'\\"', b""))
    steps = array("b", bare.translate(_STEPS, _NO_BRACKETS))
    if max(accumulate(steps), default=0) > MAX_DEPTH:
        raise InvalidRequest(f"JSON is nested too deeply: limit={MAX_DEPTH}")


_STRING = re.compile(rb'"[^"]*"')
_STEPS = bytes.maketrans(b"{[]}", b"\x01\x01\xff\xff")  # by one level down, or up again
_NO_BRACKETS = bytes(set(range(256)) - set(b"{[]}"))


def dumps(value: Any) -> bytes:
    """Writes a value as compact JSON, with keys in their order and non-ASCII text unescaped. Accepts the values that
    `loads` returns.
    """
    return _encoder.encode(value)


def _is_shallow(value: Any) -> bool:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, (dict, list))
        ]
    return not level


Path = tuple[str, ...]

_BAD_ESCAPE = re.compile(r"~(?![01])")
_INDEX_DIGITS = 9  # an array of a billion items does not come in one record


class Missing(enum.Enum):
    """The type of `MISSING`, which means that there is no value; null is a value."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


def parse_pointer(text: str) -> Path:
    """Parses a pointer, and returns its keys; none for an empty text, the whole document.

    Raises:
        InvalidRequest: the text does not begin with a slash, or has a `~` that is neither `~0` nor `~1`.
    """
    if not text:
        return ()
    if not text.startswith("/") or _BAD_ESCAPE.search(text):
        raise InvalidRequest(f"invalid json pointer: {text!r}")
    return tuple(key.replace("~1", "/").replace("~0", "~") for key in text[1:].split("/"))


def render_pointer(path: Path) -> str:
    """Returns the text of a parsed pointer."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in path)


def index_of(key: str) -> int | None:
    """Returns the array index that a key stands for; None if it is no index: leading zeros, `-` and more than 9 digits are
    not allowed.
    """
    if not (key.isascii() and key.isdecimal()) or len(key) > _INDEX_DIGITS or (key[0] == "0" and key != "0"):
        return None
    return int(key)


def get(document: Any, path: Path) -> Any:
    """Returns the value at the path; `MISSING` if there is none."""
    for key in path:
        if isinstance(document, dict):
            document = document.get(key, MISSING)
        elif isinstance(document, list):
            position = index_of(key)
            document = MISSING if position is None or position >= len(document) else document[position]
        else:
            return MISSING
    return document


def put(document: Any, path: Path, value: Any, *, create: bool = False) -> Any:
    """Returns a copy of the document with `value` at the path, replacing what is there.

    A new member goes to the end of its object; an array is not extended.

    Args:
        document: the document, which is not changed.
        path: the path; its parent must exist unless `create` is set.
        value: the value, which is shared and not copied.
        create: whether to create an object for each missing parent.

    Raises:
        InvalidRequest: the parent is missing, is neither object nor array, or an array has no such item.
    """
    return _put(document, path, 0, value, create)


def _put(document: Any, path: Path, at: int, value: Any, create: bool) -> Any:
    if at == len(path):
        return value
    key = path[at]
    if isinstance(document, dict):
        changed = document.copy()
        if at + 1 < len(path):
            child = document.get(key, MISSING)
            if child is MISSING:
                if not create:
                    raise InvalidRequest("parent is missing")
                child = {}
            value = _put(child, path, at + 1, value, create)
        changed[key] = value
        return changed
    if isinstance(document, list):
        position = index_of(key)
        if position is None or position >= len(document):
            raise InvalidRequest("array has no such item")
        items = document.copy()
        items[position] = _put(document[position], path, at + 1, value, create)
        return items
    raise InvalidRequest("parent is neither object nor array")


def drop(document: Any, path: Path) -> Any:
    """Returns a copy of the document without the value at the path; later items of an array move up.

    Raises:
        InvalidRequest: there is no value at the path, or the path is the whole document.
    """
    if not path:
        raise InvalidRequest("the whole document cannot be removed")
    key, rest = path[0], path[1:]
    if isinstance(document, dict):
        if key not in document:
            raise InvalidRequest("path is missing")
        changed = document.copy()
        if rest:
            changed[key] = drop(document[key], rest)
        else:
            del changed[key]
        return changed
    if isinstance(document, list):
        position = index_of(key)
        if position is None or position >= len(document):
            raise InvalidRequest("path is missing")
        items = document.copy()
        if rest:
            items[position] = drop(document[position], rest)
        else:
            del items[position]
        return items
    raise InvalidRequest("path is missing")
