"""Distributions: what is exact while it is small, and bounded whatever comes."""

from __future__ import annotations

import math
from typing import Any

from headrace.features.pipeline.sketches import (
    REGISTERS,
    SpaceSaving,
    add_to_bloom,
    add_to_registers,
    bin_of,
    bloom_shape,
    coarsen,
    estimate_distinct,
    hash_value,
    interpolate,
    quantile_of_bins,
)
from headrace.features.pipeline.windows import (
    COUNT_BYTES,
    LIST_BYTES,
    NUMBER_BYTES,
    Cell,
    Columns,
    Operator,
    Tally,
    View,
)

EXACT_DISTINCT = 1024
"""Values that n_unique, top_k and entropy tell apart before they estimate (contract § 6)."""
EXACT_VALUES = 256
"""Values of a bucket, or of a lifetime, that a quantile keeps as they are (contract § 6)."""
LIFETIME_BINS = 2048
WINDOW_BINS = 512
"""The most bins of one bucket of a window; a sketch with more goes to the next level, with half as many."""
TEXT_BUDGET = 256 * 1024
"""The most bytes of strings that top_k retains: it evicts earlier if they are longer than 256 bytes on average."""


class NUnique(Operator):
    """The number of distinct values: exact up to 1,024 live ones, then estimated by HyperLogLog.

    A cell is `[{hash: newest bucket}, {bucket: HLL}]`. One HLL for each bucket takes over when the dict is full; when
    the last of them is dead, the dict does again.
    """

    reads = "any"
    windowed = True
    result = "i64"

    __slots__ = ()

    def new(self) -> Cell:
        return [{}, {}]

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        exact, sketches = cell
        hashed = hash_value(value)
        bucket = stamp_ms // self.window.width_ms if self.window else 0
        if sketches:
            sketches[bucket] = add_to_registers(sketches.get(bucket, {}), hashed)
            return
        exact[hashed] = bucket
        if len(exact) > EXACT_DISTINCT:
            for key, newest in exact.items():
                sketches[newest] = add_to_registers(sketches.get(newest, {}), key)
            exact.clear()

    def prune(self, cell: Cell, dead: int, floor: int) -> None:
        exact, sketches = cell
        for key in [key for key, bucket in exact.items() if bucket < floor]:
            del exact[key]
        for bucket in [bucket for bucket in sketches if bucket < floor]:
            del sketches[bucket]

    def read(self, cell: Cell, view: View) -> Any:
        exact, sketches = cell
        live = [sketch for bucket, sketch in sketches.items() if bucket >= view.floor]
        if live:
            return estimate_distinct(live)
        return sum(bucket >= view.floor for bucket in exact.values())

    @property
    def max_bytes(self) -> int:
        sketches = self.buckets * (self.bucket_bytes + LIST_BYTES + REGISTERS)
        return 3 * LIST_BYTES + max(EXACT_DISTINCT * (NUMBER_BYTES + self.bucket_bytes), sketches)


class Quantile(Columns):
    """The value below which the share q lies: exact up to 256 values, then within 1 % of a value of that rank (DDSketch).

    A bucket is a list of values, or a dict of bins with its level beside it.
    """

    empty = (None, 0)

    __slots__ = ("most_bins", "q")

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(params)
        self.q: float = params["q"]
        self.most_bins = WINDOW_BINS if self.window else LIFETIME_BINS

    def open(self, cell: Cell) -> None:
        cell[0].append([])
        cell[1].append(0)

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        buckets, levels = cell
        values = buckets[-1]
        if values.__class__ is list:
            values.append(value)
            if len(values) > EXACT_VALUES:
                buckets[-1] = bins = _bins(values, 0)
                self._limit(bins, buckets, levels)
            return
        key = bin_of(value, levels[-1])
        values[key] = values.get(key, 0) + 1
        if len(values) > self.most_bins:
            self._limit(values, buckets, levels)

    def _limit(self, bins: dict[int, int], buckets: list[Any], levels: list[int]) -> None:
        while len(bins) > self.most_bins:
            bins = buckets[-1] = coarsen(bins, 1)
            levels[-1] += 1

    def read(self, cell: Cell, view: View) -> Any:
        buckets, levels = cell[0][view.start :], cell[1][view.start :]
        values = [value for bucket in buckets if bucket.__class__ is list for value in bucket]
        sketched = [index for index, bucket in enumerate(buckets) if bucket.__class__ is dict]
        if not sketched:
            values.sort()
            return interpolate(values, self.q) if values else None
        level = max(levels[index] for index in sketched)
        merged = _bins(values, level)
        for index in sketched:
            for key, count in coarsen(buckets[index], level - levels[index]).items():
                merged[key] = merged.get(key, 0) + count
        return quantile_of_bins(merged, level, self.q)

    @property
    def max_bytes(self) -> int:
        bucket = max(EXACT_VALUES * NUMBER_BYTES, self.most_bins * 2 * COUNT_BYTES)
        return 3 * LIST_BYTES + self.buckets * (bucket + LIST_BYTES + 1)


def _bins(values: list[float], level: int) -> dict[int, int]:
    bins: dict[int, int] = {}
    for value in values:
        key = bin_of(value, level)
        bins[key] = bins.get(key, 0) + 1
    return bins


class TopK(Operator):
    """The k most frequent values with their counts, exact up to 1,024 live values, then by SpaceSaving.

    A cell is `[tally by value, bytes of its strings]`. Counts are then too high by at most the live events / 1,024.
    """

    reads = "any"
    windowed = True
    result = "json"

    __slots__ = ("k",)

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(params)
        self.k: int = params["k"]

    def new(self) -> Cell:
        return [SpaceSaving({}), 0]

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        entry = cell[0].get(value)
        if entry is None:
            entry = self._admit(cell, value)
        Tally.add(entry, stamp_ms // self.window.width_ms if self.window else 0)

    def _admit(self, cell: Cell, value: Any) -> list[int]:
        entries = cell[0]
        if entries.__class__ is dict:  # as it was decoded
            entries = cell[0] = SpaceSaving(entries)
        cell[1] += _text_bytes(value)
        entry = None
        while len(entries) >= EXACT_DISTINCT or (entries and cell[1] > TEXT_BUDGET):
            evicted, entry = entries.evict()
            cell[1] -= _text_bytes(evicted)
        if entry is None:
            entry = [0]
        entries.victims = entries.victims if entry[0] else []  # a newcomer without a count may have less than they
        entries[value] = entry
        return entry

    def prune(self, cell: Cell, dead: int, floor: int) -> None:
        if cell[0].__class__ is dict:
            cell[0] = SpaceSaving(cell[0])
        cell[1] -= sum(map(_text_bytes, cell[0].prune(floor)))

    def read(self, cell: Cell, view: View) -> Any:
        counts = ((Tally.live(entry, view.floor), value) for value, entry in cell[0].items())
        top = sorted((-count, value) for count, value in counts if count)[: self.k]
        return [{"value": value, "count": -count} for count, value in top]

    @property
    def max_bytes(self) -> int:
        texts = 0 if self.value_bytes == NUMBER_BYTES else TEXT_BUDGET
        return 3 * LIST_BYTES + EXACT_DISTINCT * _entry_bytes(self) + texts


def _entry_bytes(operator: Operator) -> int:
    """Returns the most bytes of one entry of a tally: head, key, total, and a pair for each bucket."""
    pair = operator.bucket_bytes + COUNT_BYTES
    return LIST_BYTES + NUMBER_BYTES + COUNT_BYTES + operator.buckets * pair


def _text_bytes(value: Any) -> int:
    return len(value.encode("utf-8", "surrogatepass")) if value.__class__ is str else 0


class Entropy(Operator):
    """The entropy of the values in bits, over at most 1,024 live values; newcomers beyond are dropped. 0 without any.

    A cell is `[tally by hash]`.
    """

    reads = "any"
    windowed = True

    __slots__ = ()

    def new(self) -> Cell:
        return [{}]

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        entries = cell[0]
        hashed = hash_value(value)
        entry = entries.get(hashed)
        if entry is None:
            if len(entries) >= EXACT_DISTINCT:
                return
            entry = entries[hashed] = [0]
        Tally.add(entry, stamp_ms // self.window.width_ms if self.window else 0)

    def prune(self, cell: Cell, dead: int, floor: int) -> None:
        Tally.prune(cell[0], floor)

    def read(self, cell: Cell, view: View) -> Any:
        counts = sorted(count for entry in cell[0].values() if (count := Tally.live(entry, view.floor)))
        total = sum(counts)
        if not total:
            return 0.0
        return max(0.0, math.log2(total) - math.fsum(count * math.log2(count) for count in counts) / total)

    @property
    def max_bytes(self) -> int:
        return 2 * LIST_BYTES + EXACT_DISTINCT * _entry_bytes(self)


class BloomMember(Operator):
    """Whether the newest value was there before, by a Bloom filter: it is never wrong about a value that was.

    A cell is `[filter, answer]`.
    """

    reads = "any"
    result = "bool"

    __slots__ = ("hashes", "size")

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(params)
        self.size, self.hashes = bloom_shape(params["capacity"], params["fpr"])

    def new(self) -> Cell:
        return [None, False]

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        bits = cell[0]
        if bits.__class__ is not bytearray:  # before the first value, or as it was decoded
            bits = cell[0] = bytearray(bits or self.size)
        cell[1] = add_to_bloom(bits, hash_value(value), self.hashes)

    def read(self, cell: Cell, view: View) -> Any:
        return cell[1]

    @property
    def max_bytes(self) -> int:
        return 2 * LIST_BYTES + self.size + 1
