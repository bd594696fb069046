"""The key page of a segment: which rows a key has, and when records were appended. Version 1.

An object beside the segment, so that a read by key or by time costs one small GET before any index exists. It
is one zstd frame (with content size and checksum) of this JSON:

    {"version": 1,
     "keys": [["a", [0, 3, 1]], …],     sorted by the key's UTF-8 bytes; the first row, then differences
     "times": [[count, time_ms], …]}    append times of all rows, as runs of equal times, in row order

Row r of a segment is the record at offset `first_offset + r`. Records without a key appear in `times` only.
The manifest holds the object's SHA-256.
"""

from __future__ import annotations

import bisect
import hashlib
from itertools import accumulate, groupby, pairwise

import msgspec

from headrace.batch import Batch
from headrace.errors import Damaged
from headrace.objects import packed
from headrace.wal.state import TimeRun

VERSION = 1


class KeyPage(msgspec.Struct, frozen=True):
    """The value; the module's text says what the fields mean."""

    version: int
    keys: tuple[tuple[str, tuple[int, ...]], ...]
    times: tuple[TimeRun, ...]

    def rows(self, key: str) -> list[int]:
        """Rows of the records with this key, ascending."""
        at = bisect.bisect_left(self.keys, key, key=lambda pair: pair[0])
        if at == len(self.keys) or self.keys[at][0] != key:
            return []
        return list(accumulate(self.keys[at][1]))

    def row_at(self, time_ms: int) -> int:
        """The first row appended at `time_ms` or later; the number of rows if there is none."""
        row = 0
        for run in self.times:
            if run.time_ms >= time_ms:
                break
            row += run.count
        return row


def encode(records: Batch) -> bytes:
    """Returns the key page of a segment that holds `records`."""
    rows: dict[str, list[int]] = {}
    for row, key in enumerate(records.keys):
        if key is not None:
            rows.setdefault(key, []).append(row)
    in_order = sorted(rows)  # code point order is UTF-8 byte order
    runs = groupby(records.time_ms if isinstance(records.time_ms, list) else [records.time_ms] * len(records))
    keys = tuple((key, _differences(rows[key])) for key in in_order)
    times = tuple(TimeRun(sum(1 for _ in run), time_ms) for time_ms, run in runs)
    return packed.encode(KeyPage(version=VERSION, keys=keys, times=times))


def _differences(rows: list[int]) -> tuple[int, ...]:
    return (rows[0], *(after - before for before, after in pairwise(rows)))


def decode(data: bytes, *, sha256: str, count: int, source: str) -> KeyPage:
    """The key page in an object.

    Args:
        data: the object.
        sha256: what the manifest says of it.
        count: records in the segment.
        source: the object's key, for the error.

    Raises:
        Damaged: it is not the object that was published, or contradicts the segment.
    """
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise Damaged(f"key page is not the one published: object={source} expected={sha256} found={found}")
    page = packed.decode(data, KeyPage, source)
    if page.version != VERSION:
        raise Damaged(f"key page is of an unknown version: object={source} version={page.version}")
    rows = sum(run.count for run in page.times)
    if rows != count:
        raise Damaged(f"key page has another number of rows: object={source} expected={count} found={rows}")
    return page
