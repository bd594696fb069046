"""Encodes small values as objects (JSON or MessagePack in one zstd frame with its size and a checksum), and publishes
an object by creating it only if it is absent: exactly one caller succeeds.

Equal values give equal bytes, so that a writer recognises its own object after a lost answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import zstandard

from headrace import decoding
from headrace.errors import Damaged, NewerFormat, StoreThrottled, StoreTimeout
from headrace.objects import ObjectMissing, Objects

VERSION = 1  # of every object that has a field `version`
_LEVEL = 3
_MAX_BYTES = 512 * 1024 * 1024  # bound on what a reader allocates: a key page of 100,000 keys of 4 KB fits

T = TypeVar("T")


def encode(value: object) -> bytes:
    """Encodes a value as JSON, compressed as by `frame`: the bytes of an object."""
    return frame(msgspec.json.encode(value))


def encode_msgpack(value: object) -> bytes:
    """Encodes a value as MessagePack, compressed as by `frame`: the bytes of an object; for values that contain bytes."""
    return frame(msgspec.msgpack.encode(value))


def decode(data: bytes, type_: type[T], source: str, dec_hook: Callable[[type, Any], Any] | None = None) -> T:
    """Decodes a value from the bytes of an object.

    Args:
        data: the bytes that `encode` returned.
        type_: the type of the value.
        source: the object's key, for the error.
        dec_hook: msgspec's hook for custom types.

    Raises:
        NewerFormat: a newer release wrote the object.
        Damaged: the object is truncated or altered, or is not a value of this type, or of a version that never was.
    """
    return parse(unframe(data, source), type_, source, dec_hook)


def parse(raw: bytes | str, type_: type[T], source: str, dec_hook: Callable[[type, Any], Any] | None = None) -> T:
    """Decodes a value from JSON that is not compressed; otherwise like `decode`."""
    return _parse(decoding.from_json, raw, type_, source, dec_hook)


def decode_msgpack(data: bytes, type_: type[T], source: str) -> T:
    """Decodes a value from the bytes that `encode_msgpack` returned; otherwise like `decode`."""
    return _parse(decoding.from_msgpack, unframe(data, source), type_, source)


def _parse(
    decode: Callable[..., Any],
    raw: bytes | str,
    type_: type[T],
    source: str,
    dec_hook: Callable[[type, Any], Any] | None = None,
) -> T:
    try:
        found: T = decode(raw, type_, dec_hook)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        _refuse_newer(decode, raw, source)
        raise Damaged(f"object is not what it should be: object={source} reason={exc}") from exc
    _check(getattr(found, "version", VERSION), source)
    return found


class _Versioned(msgspec.Struct):
    """What every format keeps, whatever else it changes."""

    version: int


def _refuse_newer(decode: Callable[..., Any], raw: bytes | str, source: str) -> None:
    """Raises NewerFormat if the reason why an object does not decode is that a newer release wrote it."""
    try:
        found: _Versioned = decode(raw, _Versioned)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    _check(found.version, source)


def _check(version: int, source: str) -> None:
    """Raises NewerFormat for a version above the known one, Damaged for one that never was."""
    if version > VERSION:
        raise NewerFormat(source, version, VERSION)
    if version < VERSION:
        raise Damaged(f"object is of an unknown version: object={source} version={version}")


def frame(raw: bytes) -> bytes:
    """Compresses bytes as one zstd frame with its size and a checksum."""
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(raw)


def unframe(data: bytes, source: str) -> bytes:
    """Decompresses a frame.

    Raises:
        Damaged: the frame is truncated or altered.
    """
    try:
        frame = zstandard.get_frame_parameters(data)
        size = frame.content_size
        if not 0 < size <= _MAX_BYTES:
            raise Damaged(f"object has no sane size: object={source} size={size}")
        if not frame.has_checksum:  # otherwise one flipped bit could turn the checksum off
            raise Damaged(f"object has no checksum: object={source}")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as exc:
        raise Damaged(f"object does not decompress: object={source}") from exc


_TRIES = 4


def publish(objects: Objects, key: str, data: bytes, check: Callable[[], None] | None = None) -> bool:
    """Creates an object if the key is free. Returns whether `data` is now under `key`; False if another object is.

    If the store does not answer, the object is read to find out. Equal bytes count as success, whichever call wrote
    them.

    Args:
        check: called right before each try to create the object; raises StoreThrottled if it is too late for that.

    Raises:
        StoreTimeout: it is unknown whether it was published; look again later.
        StoreThrottled: it was not published.
    """
    doubt: StoreTimeout | None = None
    for _ in range(_TRIES):
        try:
            if check is not None:
                check()
            if objects.create(key, data):
                return True
            existing: bytes | None = objects.get(key)
        except StoreTimeout as exc:
            doubt = exc
            existing = _look(objects, key)
        except StoreThrottled as exc:
            if doubt is None:
                raise
            raise StoreTimeout(f"publication is unclear: object={key}") from exc
        except ObjectMissing:
            existing = None
        if existing is not None:
            return existing == data
    raise StoreTimeout(f"publication is unclear: object={key}") from doubt


def _look(objects: Objects, key: str) -> bytes | None:
    """Reads the object after a lost answer; None if there is none. Raises StoreTimeout if the read is refused, too."""
    try:
        return objects.get(key)
    except ObjectMissing:
        return None
    except StoreThrottled as exc:
        raise StoreTimeout(f"publication is unclear: object={key}") from exc
