"""The key page of a segment: facts about its records that are needed without their data. Version 1.

It is an object beside the segment with the rows of each key (or tag), and each row's node, sizes, hops and append time.
With it, a read by key or by time costs one small GET even before an index exists. It is one zstd frame (with content
size and checksum) of columns, numbers little endian; `docs/formats.md` has every byte. All of it can be computed from
the segment. Row r of a segment is the record at offset `first_offset + r`. The manifest holds the object's SHA-256.
"""

from __future__ import annotations

import bisect
import hashlib
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import accumulate, groupby, pairwise, starmap

from headrace.batch import Batch
from headrace.errors import Damaged, NewerFormat
from headrace.objects import packed
from headrace.wal.state import TimeRun

VERSION = 1
MAX_BYTES = 64 * 1024 * 1024  # of the object; one with 100,000 keys of 64 characters takes 5 MB


@dataclass(frozen=True, slots=True)
class KeyPage:
    """A decoded key page: facts about the records of a segment that are needed without their data.

    Attributes:
        sizes: size of each row's data in bytes.
        times: append times in row order, as runs of equal times.
        hops: the hops of each row, or one number for all rows.
        nodes: names of nodes, in order of first use; empty if no row has one.
        node_codes: for each row, 0 for no node, else the node's position in `nodes` counted from 1. Empty if there are
            no nodes.
        keys: the distinct keys, sorted by their UTF-8 bytes.
        key_rows: for each key, the first row that has it, then differences to the next ones. Rows without a key do not
            appear.
        meta_sizes: size of each row's meta in bytes, 0 for none; empty if no row has meta.
    """

    sizes: array[int]
    times: tuple[TimeRun, ...]
    hops: int | list[int]
    nodes: tuple[str, ...]
    node_codes: array[int]
    keys: list[str]
    key_rows: list[array[int]]
    meta_sizes: array[int]

    def rows(self, key: str) -> list[int]:
        """Returns the rows of the records with this key, ascending; an empty list if no record has it."""
        at = bisect.bisect_left(self.keys, key)
        if at == len(self.keys) or self.keys[at] != key:
            return []
        return list(accumulate(self.key_rows[at]))

    def key_by_row(self) -> list[str | None]:
        """Returns the key of each row; None if it has none."""
        found: list[str | None] = [None] * len(self.sizes)
        for key, differences in zip(self.keys, self.key_rows, strict=True):
            for row in accumulate(differences):
                found[row] = key
        return found

    def row_at(self, time_ms: int) -> int:
        """Returns the first row appended at `time_ms` or later; the number of rows if there is no such row."""
        row = 0
        for run in self.times:
            if run.time_ms >= time_ms:
                break
            row += run.count
        return row


def of(records: Batch) -> KeyPage:
    """Returns the key page of a segment that would hold these records."""
    times = records.time_ms if isinstance(records.time_ms, list) else [records.time_ms] * len(records)
    runs = tuple(TimeRun(sum(1 for _ in run), time_ms) for time_ms, run in groupby(times))
    keys, rows = _key_rows(records)
    return KeyPage(records.sizes, runs, records.hops, *_node_codes(records), keys, rows, _meta_sizes(records))


def encode(records: Batch) -> bytes:
    """Encodes the key page of a segment that holds these records."""
    page = of(records)
    hops = array("B", page.hops if isinstance(page.hops, list) else [page.hops])
    nodes, keys = ([name.encode() for name in names] for names in (page.nodes, page.keys))
    parts: list[bytes | array[int]] = [
        struct.pack("<BIIIII", VERSION, len(records), len(page.times), len(hops), len(nodes), len(keys)),
        page.sizes,
        array("I", [run.count for run in page.times]),
        array("Q", [run.time_ms for run in page.times]),
        hops,
        array("I", map(len, nodes)),
        *nodes,
        page.node_codes,
        array("I", map(len, keys)),
        *keys,
        array("I", map(len, page.key_rows)),
        *page.key_rows,
        page.meta_sizes,
    ]
    return packed.frame(b"".join(parts))


def _node_codes(records: Batch) -> tuple[tuple[str, ...], array[int]]:
    if records.node is None:
        return (), array("I")
    if isinstance(records.node, str):
        return (records.node,), array("I", [1]) * len(records)
    codes: dict[str | None, int] = {None: 0}
    by_row = array("I", [codes.setdefault(node, len(codes)) for node in records.node])
    return tuple(node for node in codes if node is not None), by_row


def _meta_sizes(records: Batch) -> array[int]:
    if records.meta is None:
        return array("I")
    return array("I", [len(meta or b"") for meta in records.metas])


def _key_rows(records: Batch) -> tuple[list[str], list[array[int]]]:
    if records.key is None:
        return [], []
    rows: dict[str, list[int]] = {}
    for row, key in enumerate(records.keys):
        if key is not None:
            rows.setdefault(key, []).append(row)
    in_order = sorted(rows)  # code point order is UTF-8 byte order
    return in_order, [_differences(rows[key]) for key in in_order]


def _differences(rows: Sequence[int]) -> array[int]:
    return array("I", [rows[0], *(after - before for before, after in pairwise(rows))])


def decode(data: bytes, *, sha256: str, count: int, source: str) -> KeyPage:
    """Decodes a key page from the bytes of its object.

    Args:
        data: the bytes of the object.
        sha256: the hash that the manifest states.
        count: number of records in the segment.
        source: the object's key, for the error.

    Raises:
        Damaged: the object is not the one that was published, or contradicts the segment.
    """
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise Damaged(f"key page is not the one published: object={source} expected={sha256} found={found}")
    raw = packed.unframe(data, source)
    if raw and raw[0] > VERSION:
        raise NewerFormat(source, raw[0], VERSION)
    try:
        return _parsed(raw, count)
    except (struct.error, ValueError) as exc:  # UnicodeDecodeError is one
        raise Damaged(f"key page contradicts itself: object={source} reason={exc}") from exc


def _parsed(raw: bytes, expected: int) -> KeyPage:
    head = struct.Struct("<BIIIII")
    version, count, run_count, hop_count, node_count, key_count = head.unpack_from(raw)
    if version != VERSION:
        raise ValueError(f"unknown version {version}")
    if count != expected:
        raise ValueError(f"{count} rows, not {expected}")
    read = BytesIO(raw)
    read.seek(head.size)
    sizes = _numbers(read, "I", count)
    run_counts, run_times = _numbers(read, "I", run_count), _numbers(read, "Q", run_count)
    if sum(run_counts) != count or 0 in run_counts or list(run_times) != sorted(set(run_times)):
        raise ValueError("append times are not those of the rows, or fall")
    hops = _numbers(read, "B", hop_count)
    if hop_count not in (1, count):
        raise ValueError(f"hops of {hop_count} rows")
    nodes = _texts(read, node_count)
    codes = _numbers(read, "I", count if nodes else 0)
    if nodes and max(codes) != len(nodes):
        raise ValueError("a row's node is none, or a node has no row")
    keys = _texts(read, key_count)
    if any(after <= before for before, after in pairwise(keys)):
        raise ValueError("keys are not in order")
    rows = [_numbers(read, "I", size) for size in _numbers(read, "I", key_count)]
    if any(not one or sum(one) >= count or 0 in one[1:] for one in rows):
        raise ValueError("a key has no rows, or rows that are none")
    meta_sizes = _numbers(read, "I", count if read.tell() < len(raw) else 0)
    if read.read(1):
        raise ValueError("bytes behind the end")
    times = tuple(starmap(TimeRun, zip(run_counts, run_times, strict=True)))
    one_or_list = list(hops) if hop_count > 1 else hops[0]
    return KeyPage(sizes, times, one_or_list, tuple(nodes), codes, keys, rows, meta_sizes)


def _numbers(read: BytesIO, kind: str, count: int) -> array[int]:
    numbers: array[int] = array(kind)
    raw = read.read(numbers.itemsize * count)
    if len(raw) < numbers.itemsize * count:
        raise ValueError("truncated")
    numbers.frombytes(raw)
    return numbers


def _texts(read: BytesIO, count: int) -> list[str]:
    lengths = _numbers(read, "I", count)
    texts = list(map(read.read, lengths))
    if sum(map(len, texts)) != sum(lengths):
        raise ValueError("truncated")
    return [text.decode() for text in texts]
