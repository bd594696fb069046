"""A batch: many records as one value with columns, and the frames that encode it in an entry's payload.

A batch holds the bytes of all data end to end, the size of each record's data, and a column for each of key, node,
meta, time and hops. A column is absent or constant (one value, None or 0 included) or a list with one value per record.
Code that does not look into records handles a batch as a whole, with a handful of calls whatever the count.

Frames, version 1: a header of 6 bytes, then columns, sizes and data, all numbers little endian. `docs/formats.md` has
every byte. All of it is compressed with zstd as one frame that has its size and a checksum. Offsets and times are not
included, so that a payload keeps its bytes when its entry moves to another slot.
"""

from __future__ import annotations

import struct
import sys
import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from itertools import accumulate, chain, repeat
from typing import NamedTuple, TypeVar

import zstandard

from headrace.errors import Damaged, NewerFormat

MAX_KEY_BYTES = 4096
MAX_PAYLOAD_BYTES = 128 * 1024 * 1024  # bound on what a reader allocates for one payload
_VERSION = 1
_HEAD = struct.Struct("<BBI")  # version, columns, count
_LENGTH = struct.Struct("<I")
_NONE = 0xFFFFFFFF  # a length: no value
_ABSENT, _CONSTANT, _LISTED = range(3)
_LEVEL = 1  # the request path pays for it; segments are compressed again

if sys.byteorder != "little" or array("I").itemsize != 4 or array("Q").itemsize != 8:  # pragma: no cover
    raise ImportError("formats are read and written with the numbers of a little-endian machine")

V = TypeVar("V")
_local = threading.local()


class Record(NamedTuple):
    """One committed record, for code that looks into records: its offset in the log, its append time (epoch ms), and its
    routing key, data, node, meta and hops (as in `Batch`).
    """

    offset: int
    time_ms: int
    key: str | None
    data: bytes
    node: str | None = None
    meta: bytes | None = None
    hops: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive records, stored as columns. Immutable: nothing may change its array or its lists.

    Two batches are equal if they hold equal records, since a column is a list only if its values differ.

    Attributes:
        data: the data of all records, end to end.
        sizes: size of each record's data in bytes.
        key: routing key (or tag).
        node: the writer of the record.
        meta: JSON text beside the data, never empty.
        time_ms: append time in epoch milliseconds; 0 before the commit.
        hops: how often a router copied the record.
    """

    data: bytes = b""
    sizes: array[int] = field(default_factory=lambda: array("I"))
    key: str | list[str | None] | None = None
    node: str | list[str | None] | None = None
    meta: bytes | list[bytes | None] | None = None
    time_ms: int | list[int] = 0
    hops: int | list[int] = 0

    @staticmethod
    def of(
        data: Iterable[bytes],
        *,
        key: str | Sequence[str | None] | None = None,
        node: str | Sequence[str | None] | None = None,
        meta: bytes | Sequence[bytes | None] | None = None,
        time_ms: int | Sequence[int] = 0,
        hops: int | Sequence[int] = 0,
    ) -> Batch:
        """Builds a batch from the data of its records, buffers of any kind. A column is one value for all records, or one
        for each; that the numbers agree is not checked.
        """
        parts = data if isinstance(data, list | tuple) else list(data)
        return Batch(
            b"".join(parts),
            array("I", map(len, parts)),
            key if isinstance(key, str) else _column(key, None),
            node if isinstance(node, str) else _column(node, None),
            meta if isinstance(meta, bytes) else _column(meta, None),
            time_ms if isinstance(time_ms, int) else _column(time_ms, 0),
            hops if isinstance(hops, int) else _column(hops, 0),
        )

    def __len__(self) -> int:
        """Returns the number of records."""
        return len(self.sizes)

    @property
    def keys(self) -> Iterable[str | None]:
        """The key of each record; None if it has none."""
        return self.key if isinstance(self.key, list) else repeat(self.key, len(self))

    @property
    def metas(self) -> Iterable[bytes | None]:
        """The meta of each record; None if it has none."""
        return self._each(self.meta)

    @property
    def size(self) -> int:
        """The size of all data in bytes, plus the number of characters of all keys."""
        if isinstance(self.key, list):
            return len(self.data) + sum(map(len, filter(None, self.key)))
        return len(self.data) + len(self.key or "") * len(self)

    def slices(self) -> list[bytes]:
        """Returns the data of each record."""
        return list(map(BytesIO(self.data).read, self.sizes))

    def part(self, first: int, end: int) -> Batch:
        """Returns the records with indexes `[first, end)`; indexes beyond the batch are ignored."""
        first, end, _ = slice(first, end).indices(len(self))
        if first >= end:
            return EMPTY
        if end - first == len(self):
            return self
        start = sum(self.sizes[:first])
        sizes = self.sizes[first:end]
        return Batch(
            self.data[start : start + sum(sizes)],
            sizes,
            _column(self.key[first:end], None) if isinstance(self.key, list) else self.key,
            _column(self.node[first:end], None) if isinstance(self.node, list) else self.node,
            _column(self.meta[first:end], None) if isinstance(self.meta, list) else self.meta,
            _column(self.time_ms[first:end], 0) if isinstance(self.time_ms, list) else self.time_ms,
            _column(self.hops[first:end], 0) if isinstance(self.hops, list) else self.hops,
        )

    def room_for(self, limit_bytes: int) -> int:
        """Returns the number of records, from the first on, after which their data reaches `limit_bytes`; all if it
        never does.
        """
        if len(self.data) < limit_bytes:
            return len(self)
        return min(bisect_left(list(accumulate(self.sizes)), limit_bytes) + 1, len(self))

    def records(self, first_offset: int) -> Iterator[Record]:
        """Yields the records one by one, the first one at `first_offset`."""
        return map(
            Record._make,
            zip(
                range(first_offset, first_offset + len(self)),
                self._each(self.time_ms),
                self._each(self.key),
                self.slices(),
                self._each(self.node),
                self._each(self.meta),
                self._each(self.hops),
                strict=True,
            ),
        )

    def at(self, time_ms: int | Sequence[int]) -> Batch:
        """Returns the same records with append times: one time for all, or one per record."""
        return replace(self, time_ms=time_ms if isinstance(time_ms, int) else _column(time_ms, 0))

    def _each(self, column: V | list[V]) -> Iterable[V]:
        return column if isinstance(column, list) else repeat(column, len(self))


EMPTY = Batch()


def concat(batches: Sequence[Batch]) -> Batch:
    """Returns one batch with the records of all batches, in order; `EMPTY` if there are none."""
    filled = [batch for batch in batches if batch]
    if len(filled) < 2:
        return filled[0] if filled else EMPTY
    return Batch(
        b"".join([batch.data for batch in filled]),
        array("I", b"".join([batch.sizes for batch in filled])),
        _chained(filled, [batch.key for batch in filled]),
        _chained(filled, [batch.node for batch in filled]),
        _chained(filled, [batch.meta for batch in filled]),
        _chained(filled, [batch.time_ms for batch in filled]),
        _chained(filled, [batch.hops for batch in filled]),
    )


def _column(values: Sequence[V] | None, empty: V) -> V | list[V]:
    """Returns these values as a column: one value if all are equal, else a list; `empty` if there are none."""
    if not values:
        return empty
    listed = values if isinstance(values, list) else list(values)
    return listed[0] if listed.count(listed[0]) == len(listed) else listed


def _chained(batches: Sequence[Batch], columns: Sequence[V | list[V]]) -> V | list[V]:
    first = columns[0]
    if not isinstance(first, list) and all(column == first for column in columns):
        return first
    return list(chain.from_iterable(batch._each(column) for batch, column in zip(batches, columns, strict=True)))


def encode_frames(batch: Batch) -> bytes:
    """Encodes a batch, without its times, as the payload of an entry."""
    kinds = 0
    parts: list[bytes | array[int]] = [b""]
    for place, column in enumerate((batch.key, batch.node, batch.meta)):
        if isinstance(column, list):
            kinds |= _LISTED << 2 * place
            raws = [raw.encode() if isinstance(raw, str) else raw for raw in column]
            parts.append(array("I", [_NONE if raw is None else len(raw) for raw in raws]))
            parts += filter(None, raws)
        elif column is not None:
            kinds |= _CONSTANT << 2 * place
            raw = column.encode() if isinstance(column, str) else column
            parts += (_LENGTH.pack(len(raw)), raw)
    if batch.hops:
        kinds |= (_LISTED if isinstance(batch.hops, list) else _CONSTANT) << 6
        parts.append(bytes(batch.hops) if isinstance(batch.hops, list) else bytes((batch.hops,)))
    parts[0] = _HEAD.pack(_VERSION, kinds, len(batch))
    parts += (batch.sizes, batch.data)
    compressor: zstandard.ZstdCompressor | None = getattr(_local, "compressor", None)
    if compressor is None:
        compressor = _local.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    return compressor.compress(b"".join(parts))


def decode_frames(payload: bytes, source: str) -> Batch:
    """Decodes the batch in a payload; its records have no times.

    Args:
        payload: the bytes that `encode_frames` returned.
        source: names where the payload was read from, for the error message.

    Raises:
        NewerFormat: a newer release wrote the payload.
        Damaged: the payload is truncated, altered or of another version.
    """
    try:
        frame = zstandard.get_frame_parameters(payload)
        size = frame.content_size
        if not 0 < size <= MAX_PAYLOAD_BYTES:
            raise Damaged(f"payload has no sane size: source={source} size={size}")
        if not frame.has_checksum:  # otherwise one flipped bit could turn the checksum off
            raise Damaged(f"payload has no checksum: source={source}")
        raw = _decompressor().decompress(payload, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as exc:
        raise Damaged(f"payload does not decompress: source={source}") from exc
    try:
        return _Frames(raw, source).batch()
    except (struct.error, ValueError) as exc:  # UnicodeDecodeError is one
        raise Damaged(f"payload contradicts itself: source={source} reason={exc}") from exc


class _Frames:
    """A parser of decompressed frames."""

    def __init__(self, raw: bytes, source: str) -> None:
        self._raw = raw
        if raw and raw[0] > _VERSION:
            raise NewerFormat(source, raw[0], _VERSION)
        version, kinds, count = _HEAD.unpack_from(raw)
        self._kinds: int = kinds
        self._count: int = count
        if version != _VERSION:
            raise ValueError(f"unknown version {version}")
        self._at = _HEAD.size
        if (
            not 0 < self._count <= (len(raw) - self._at) // 4
        ):  # each record has a size: allocates nothing beyond `raw`
            raise ValueError(f"{self._count} records in {len(raw)} bytes")

    def batch(self) -> Batch:
        """Returns the batch that the frames hold. Raises ValueError if they are malformed."""
        keys, nodes, meta = self._texts(0), self._texts(2), self._texts(4)
        hops = self._hops()
        sizes = array("I", self._take(4 * self._count))
        data = self._raw[self._at :]
        if sum(sizes) != len(data):
            raise ValueError(f"records of {sum(sizes)} bytes in {len(data)}")
        return Batch(data, sizes, _decoded(keys), _decoded(nodes), meta, 0, hops)

    def _take(self, size: int) -> bytes:
        taken = self._raw[self._at : self._at + size]
        if len(taken) < size:
            raise ValueError("truncated")
        self._at += size
        return taken

    def _kind(self, shift: int) -> int:
        kind = self._kinds >> shift & 3
        if kind > _LISTED:
            raise ValueError(f"column of kind {kind}")
        return kind

    def _texts(self, shift: int) -> bytes | list[bytes | None] | None:
        kind = self._kind(shift)
        if kind == _ABSENT:
            return None
        if kind == _CONSTANT:
            return self._take(int.from_bytes(self._take(_LENGTH.size), "little"))
        lengths = array("I", self._take(4 * self._count))
        sizes = [0 if length == _NONE else length for length in lengths] if _NONE in lengths else lengths
        raws: list[bytes | None] = list(map(BytesIO(self._take(sum(sizes))).read, sizes))
        if sizes is not lengths:
            raws = [None if length == _NONE else raw for length, raw in zip(lengths, raws, strict=True)]
        return _column(raws, None)

    def _hops(self) -> int | list[int]:
        kind = self._kind(6)
        if kind == _LISTED:
            return _column(list(self._take(self._count)), 0)
        return self._take(1)[0] if kind == _CONSTANT else 0


def _decoded(column: bytes | list[bytes | None] | None) -> str | list[str | None] | None:
    if isinstance(column, list):
        return [None if raw is None else raw.decode() for raw in column]
    return None if column is None else column.decode()


def _decompressor() -> zstandard.ZstdDecompressor:
    """Returns this thread's decompressor, because decompressors can't be shared by threads."""
    found: zstandard.ZstdDecompressor | None = getattr(_local, "decompressor", None)
    if found is None:
        found = _local.decompressor = zstandard.ZstdDecompressor()
    return found
