"""Decodes values of a type from JSON, MessagePack or builtin objects, with one decoder for each type.

Decoders are made one at a time. Two threads that meet a struct for the first time at once crash msgspec 0.22: while one of
them looks for the types of its fields, the other uses what has been found so far.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
Hook = Callable[[type, Any], Any]

_one_at_a_time = threading.RLock()
_decoders: dict[tuple[Any, ...], Any] = {}


def from_json(data: bytes | str, type_: type[T], dec_hook: Hook | None = None) -> T:
    """Decodes a value from JSON; otherwise like `msgspec.json.decode`."""
    found: T = _decoder(msgspec.json.Decoder, type_, dec_hook).decode(data)
    return found


def from_msgpack(data: bytes, type_: type[T], dec_hook: Hook | None = None) -> T:
    """Decodes a value from MessagePack; otherwise like `msgspec.msgpack.decode`."""
    found: T = _decoder(msgspec.msgpack.Decoder, type_, dec_hook).decode(data)
    return found


def from_builtins(value: Any, type_: type[T], *, strict: bool = True) -> T:
    """Converts a value from builtin objects; otherwise like `msgspec.convert`."""
    _decoder(msgspec.json.Decoder, type_, None)  # all that it needs to know of the type, too
    return msgspec.convert(value, type_, strict=strict)


def _decoder(make: Any, type_: Any, dec_hook: Hook | None) -> Any:
    key = (make, type_, dec_hook)
    found = _decoders.get(key)
    if found is None:
        with _one_at_a_time:
            found = _decoders.setdefault(key, make(type_, dec_hook=dec_hook))
    return found
