"""A record, as it is written and as it is read, and the frames that carry records inside an entry's payload.

Frames, version 1: one byte 0x01, then per record a little-endian u32 length of the data, a u16 length of the key
(0xFFFF: no key), the key in UTF-8, the data. The whole is compressed with zstd as one frame that knows its size and has
a checksum. Offsets and times are not in it, so that a payload keeps its bytes when its entry moves to another slot.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from typing import NamedTuple

import zstandard

from headrace.errors import Damaged

_HEAD = struct.Struct("<IH")
_VERSION = b"\x01"
_NO_KEY = 0xFFFF
MAX_KEY_BYTES = 4096
MAX_PAYLOAD_BYTES = 128 * 1024 * 1024  # bound on what a reader allocates for one payload
_LEVEL = 1  # the request path pays for it; segments are compressed again

_local = threading.local()


class NewRecord(NamedTuple):
    """A record before it has an offset."""

    data: bytes
    key: str | None = None


class Record(NamedTuple):
    """A committed record: its offset in the log, its append time (ms), its key and its data."""

    offset: int
    time_ms: int
    key: str | None
    data: bytes


def encode_frames(records: Sequence[NewRecord]) -> bytes:
    """The payload of an entry that holds `records`."""
    parts = [_VERSION]
    for data, key in records:
        if key is None:
            parts.append(_HEAD.pack(len(data), _NO_KEY))
        else:
            raw = key.encode()
            parts.append(_HEAD.pack(len(data), len(raw)))
            parts.append(raw)
        parts.append(data)
    compressor: zstandard.ZstdCompressor | None = getattr(_local, "compressor", None)
    if compressor is None:
        compressor = _local.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    return compressor.compress(b"".join(parts))


def decode_frames(payload: bytes, source: str) -> list[NewRecord]:
    """The records in a payload.

    Args:
        payload: what `encode_frames` made.
        source: the name of where it was found, for the error.

    Raises:
        Damaged: it is truncated, altered or of another version.
    """
    try:
        frame = zstandard.get_frame_parameters(payload)
        size = frame.content_size
        if not 0 < size <= MAX_PAYLOAD_BYTES:
            raise Damaged(f"payload has no sane size: source={source} size={size}")
        if not frame.has_checksum:  # one flipped bit says so, and nothing would notice a second one
            raise Damaged(f"payload has no checksum: source={source}")
        raw = zstandard.ZstdDecompressor().decompress(payload, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as exc:
        raise Damaged(f"payload does not decompress: source={source}") from exc
    if raw[:1] != _VERSION:
        raise Damaged(f"payload is of an unknown version: source={source}")
    records: list[NewRecord] = []
    at, end = 1, len(raw)
    while at < end:
        if at + _HEAD.size > end:
            raise Damaged(f"payload is truncated: source={source}")
        data_size, key_size = _HEAD.unpack_from(raw, at)
        at += _HEAD.size
        key = None
        if key_size != _NO_KEY:
            try:
                key = raw[at : at + key_size].decode()
            except UnicodeDecodeError as exc:
                raise Damaged(f"payload holds a key that is not text: source={source}") from exc
            at += key_size
        if at + data_size > end:
            raise Damaged(f"payload is truncated: source={source}")
        records.append(NewRecord(raw[at : at + data_size], key))
        at += data_size
    return records
