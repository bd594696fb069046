"""How small values are stored in objects: JSON or MessagePack in one zstd frame that knows its size and carries a checksum;
and publishing one by creating it if it is absent: the caller that creates it has published, every other has not.

Equal values give equal bytes, so that a writer can recognise its own object after a lost answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import zstandard

from headrace.errors import Damaged, StoreThrottled, StoreTimeout
from headrace.objects import ObjectMissing, Objects

_LEVEL = 3
_MAX_BYTES = 512 * 1024 * 1024  # bound on what a reader allocates: a key page of 100,000 keys of 4 KB fits

T = TypeVar("T")


def encode(value: object) -> bytes:
    """Returns the bytes of an object that holds `value` as JSON."""
    return frame(msgspec.json.encode(value))


def encode_msgpack(value: object) -> bytes:
    """Returns the bytes of an object that holds `value` as MessagePack: for values with bytes in them."""
    return frame(msgspec.msgpack.encode(value))


def decode(data: bytes, type_: type[T], source: str, dec_hook: Callable[[type, Any], Any] | None = None) -> T:
    """Returns the value in an object.

    Args:
        data: what `encode` made.
        type_: what it must be.
        source: the object's key, for the error.
        dec_hook: as of msgspec.

    Raises:
        Damaged: truncated, altered, or not such a value.
    """
    raw = unframe(data, source)
    try:
        return msgspec.json.decode(raw, type=type_, dec_hook=dec_hook)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise Damaged(f"object is not what it should be: object={source} reason={exc}") from exc


def decode_msgpack(data: bytes, type_: type[T], source: str) -> T:
    """Decodes as `decode` does what `encode_msgpack` made."""
    raw = unframe(data, source)
    try:
        return msgspec.msgpack.decode(raw, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise Damaged(f"object is not what it should be: object={source} reason={exc}") from exc


def frame(raw: bytes) -> bytes:
    """Returns the object that holds these bytes."""
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(raw)


def unframe(data: bytes, source: str) -> bytes:
    """Returns the bytes in an object.

    Raises:
        Damaged: truncated, or altered.
    """
    try:
        frame = zstandard.get_frame_parameters(data)
        size = frame.content_size
        if not 0 < size <= _MAX_BYTES:
            raise Damaged(f"object has no sane size: object={source} size={size}")
        if not frame.has_checksum:  # one flipped bit says so, and nothing would notice a second one
            raise Damaged(f"object has no checksum: object={source}")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as exc:
        raise Damaged(f"object does not decompress: object={source}") from exc


_TRIES = 4


def publish(objects: Objects, key: str, data: bytes) -> bool:
    """Creates an object: True if `data` is under `key`, False if something else is.

    A lost answer is cleared up by reading what is there; equal bytes are one's own, no matter which call wrote them.

    Raises:
        StoreTimeout: it is unknown whether it was published; look again later.
        StoreThrottled: it was not published.
    """
    doubt: StoreTimeout | None = None
    for _ in range(_TRIES):
        try:
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
    """Returns what is under `key` after a lost answer. Throttled is unclear too: it may have been written."""
    try:
        return objects.get(key)
    except ObjectMissing:
        return None
    except StoreThrottled as exc:
        raise StoreTimeout(f"publication is unclear: object={key}") from exc
