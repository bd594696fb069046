"""The row of an entity, as stored: its state as bytes, when it may go, and what a reader sees of it. Pure, and used by all
who fold or read: the folder, the api, and the jobs on Spark.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import xxhash
import zstandard

from headrace.errors import Damaged, InvalidRequest
from headrace.features.pipeline import keys
from headrace.features.pipeline.features import FeatureSet, State
from headrace.features.pipeline.tables import MAX_ROW_BYTES, Table

_SMALL_BYTES = 256  # below, a zstd frame saves nothing
_LEVEL = 1
_FRAME = b"\x28\xb5\x2f\xfd"  # zstd's magic number; an encoded state begins with 0x94, a MessagePack array of 4
_EXPIRY_SLACK_S = 86_400  # DynamoDB removes a row some time after its expiry; readers decide by themselves
_local = threading.local()


def encode_row(features: FeatureSet, state: State) -> bytes:
    """Returns a state as it is stored: compressed if it is not small. Equal states give equal bytes."""
    data = features.encode(state)
    if len(data) < _SMALL_BYTES:
        return data
    compressor = getattr(_local, "compressor", None)  # compressors can't be shared by threads
    if compressor is None:
        compressor = _local.compressor = zstandard.ZstdCompressor(level=_LEVEL)
    packed: bytes = compressor.compress(data)
    return packed


def decode_row(features: FeatureSet, data: bytes) -> State:
    """Returns a stored state; features that it does not have start empty.

    Raises:
        Damaged: it is not what `encode_row` returned.
        NewerFormat: a newer release wrote it.
    """
    if data[:4] == _FRAME:
        decompressor = getattr(_local, "decompressor", None)
        if decompressor is None:
            decompressor = _local.decompressor = zstandard.ZstdDecompressor()
        try:
            data = decompressor.decompress(data, max_output_size=2 * MAX_ROW_BYTES, allow_extra_data=False)
        except zstandard.ZstdError as exc:
            raise Damaged(f"row of a feature table does not decompress: bytes={len(data)}") from exc
    try:
        return features.decode(data)
    except (msgspec.DecodeError, ValueError, TypeError, LookupError) as exc:
        raise Damaged(f"row of a feature table does not parse: {exc}") from exc


def read_row(table: Table, state: State | None, now_ms: int, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns what a reader sees of a row at `now_ms`: the values of its features, of those with these names. Nothing, if
    the entity has no row, or a cold one (`is_cold`).
    """
    if state is None or is_cold(table, state.stamp_ms, now_ms):
        return {}
    return table.features.read(state, now_ms, names)


def is_cold(table: Table, stamp_ms: int, now_ms: int) -> bool:
    """Returns whether a row whose newest event has this stamp counts as absent: the table forgets idle rows, no window of
    it reaches back to the event, and since then the idle time of the table has passed.
    """
    cold_ms = _cold_from_ms(table, stamp_ms)
    return cold_ms is not None and now_ms >= cold_ms


def expires_at(table: Table, stamp_ms: int) -> int:
    """Returns from when on a row may be removed, in Unix seconds: a day after it is cold. 0: never."""
    cold_ms = _cold_from_ms(table, stamp_ms)
    return 0 if cold_ms is None else -(-cold_ms // 1000) + _EXPIRY_SLACK_S


def _cold_from_ms(table: Table, stamp_ms: int) -> int | None:
    if table.cold_after_ms is None or table.features.longest_window_ms is None:
        return None  # features without a window are kept: they are about all events
    return stamp_ms + table.features.longest_window_ms + table.cold_after_ms


def lane_for(value: Any, lanes: int) -> int:
    """Returns the lane of events whose lane key has this value (not null)."""
    return xxhash.xxh64_intdigest(keys.encode((value,)).encode()) % lanes


class AsOf(NamedTuple):
    """Which events an answer includes: of each lane those below an offset, in a text as `Headrace-As-Of` has it.

    Attributes:
        now_ms: the time for which the answer was computed, in epoch milliseconds.
        lanes: the offsets, by event and number of the lane.
    """

    now_ms: int
    lanes: dict[tuple[str, int], int]


_LANE = re.compile(r"([A-Za-z_]\w{0,127})(?:\.(\d{1,2}))?=(\d{1,19})", re.ASCII)
_MAX_LANES = 10_000


def lane_text(event: str, lane: int) -> str:
    """Returns a lane as it is in that text."""
    return f"{event}.{lane}" if lane else event


def write_as_of(as_of: AsOf) -> str:
    """Returns the text, such as `1700000000000;Tx=42;Login.3=7`: the time, then each lane with its offset. Lane 0 is
    written without its number.
    """
    lanes = [f"{lane_text(event, lane)}={offset}" for (event, lane), offset in as_of.lanes.items()]
    return ";".join([str(as_of.now_ms), *lanes])


def parse_as_of(text: str) -> AsOf:
    """Parses the text that `write_as_of` returned. Raises InvalidRequest if it is none."""
    now, *lanes = text.split(";", _MAX_LANES)
    found = [_LANE.fullmatch(lane) for lane in lanes]
    if not (now.isascii() and now.isdecimal() and len(now) <= 15) or None in found:
        raise InvalidRequest(f"not a text of the header Headrace-As-Of: {text[:100]!r}")
    return AsOf(int(now), {(match[1], int(match[2] or 0)): int(match[3]) for match in found if match})
