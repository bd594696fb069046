"""Sketches of bounded size over plain values: HyperLogLog, DDSketch, SpaceSaving and a Bloom filter.

Hashes are xxh64 over an encoding in which different values never share bytes. A number is one value however it is
written: 1 and 1.0 are equal, as JSON has it, and `true` is neither.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import xxhash

from headrace.features.pipeline.windows import Tally

# HyperLogLog
PRECISION = 12
REGISTERS = 1 << PRECISION
"""Registers of one sketch: the standard error is 1.04 / √4096 = 1.6 %."""
TAIL = 64 - PRECISION
SPARSE_REGISTERS = 1024
"""Above so many registers that are set, a dict takes more bytes than all of them."""

# DDSketch
ALPHA = 0.01
LOG_GAMMA = math.log((1 + ALPHA) / (1 - ALPHA))
ORIGIN = 40_000
"""What separates the keys of positive and negative bins; |log_gamma x| is below 37,300 for every float."""
MAX_EXPONENT = 709.78  # exp() overflows above


def hash_value(value: Any) -> int:
    """Returns the 64-bit hash of a string, number or bool."""
    kind = value.__class__
    if kind is str:
        return xxhash.xxh64_intdigest(("s" + value).encode("utf-8", "surrogatepass"))
    if kind is bool:
        return xxhash.xxh64_intdigest(b"b1" if value else b"b0")
    if kind is float and not value.is_integer():
        return xxhash.xxh64_intdigest(b"f" + repr(value).encode())
    return xxhash.xxh64_intdigest(b"n%d" % int(value))


def add_to_registers(sketch: Any, hashed: int) -> Any:
    """Adds a hash to an HLL; returns it, since it changes its form as it fills: dict, then bytearray."""
    register = hashed >> TAIL
    rank = TAIL + 1 - (hashed & ((1 << TAIL) - 1)).bit_length()
    if sketch.__class__ is dict:
        if rank > sketch.get(register, 0):
            sketch[register] = rank
        if len(sketch) <= SPARSE_REGISTERS:
            return sketch
        dense = bytearray(REGISTERS)
        for key, value in sketch.items():
            dense[key] = value
        return dense
    if sketch.__class__ is bytes:  # as it was decoded
        sketch = bytearray(sketch)
    if rank > sketch[register]:
        sketch[register] = rank
    return sketch


def estimate_distinct(sketches: Iterable[Any]) -> int:
    """Returns how many different hashes the union of these HLLs has seen.

    The estimator is Ertl's (arXiv 1702.01284, algorithm 6): unbiased from 0 on, without tables or a second formula.
    """
    sketches = list(sketches)
    dense = [sketch for sketch in sketches if sketch.__class__ is not dict]
    registers = bytearray(map(max, *dense) if len(dense) > 1 else dense[0] if dense else REGISTERS)
    for sketch in sketches:
        if sketch.__class__ is dict:
            for register, rank in sketch.items():
                if rank > registers[register]:
                    registers[register] = rank
    counts = [registers.count(rank) for rank in range(TAIL + 2)]
    if counts[0] == REGISTERS:
        return 0
    z = REGISTERS * _tau(1 - counts[TAIL + 1] / REGISTERS)
    for rank in range(TAIL, 0, -1):
        z = 0.5 * (z + counts[rank])
    z += REGISTERS * _sigma(counts[0] / REGISTERS)
    return round(REGISTERS * REGISTERS / (2 * math.log(2)) / z)


def _sigma(x: float) -> float:
    y, z, last = 1.0, x, -1.0
    while z != last:
        x *= x
        last = z
        z += x * y
        y += y
    return z


def _tau(x: float) -> float:
    if x in (0.0, 1.0):
        return 0.0
    y, z, last = 1.0, 1 - x, -1.0
    while z != last:
        x = math.sqrt(x)
        last = z
        y *= 0.5
        z -= (1 - x) ** 2 * y
    return z / 3


def bin_of(value: float, level: int) -> int:
    """Returns the key of a value's bin; keys ascend as values do. Each level halves the number of bins."""
    if not value:
        return 0
    exponent = math.ceil(math.log(abs(value)) / LOG_GAMMA)
    key = ORIGIN - (-exponent >> level)  # rounded up
    return key if value > 0 else -key


def value_of(key: int, level: int) -> float:
    """Returns the value that differs from each value of a bin by at most `ALPHA` of it (on level 0)."""
    if not key:
        return 0.0
    log_gamma = LOG_GAMMA * (1 << level)
    exponent = (abs(key) - ORIGIN) * log_gamma + math.log(2) - math.log1p(math.exp(min(log_gamma, MAX_EXPONENT)))
    return math.copysign(math.exp(min(exponent, MAX_EXPONENT)), key)


def coarsen(bins: dict[int, int], levels: int) -> dict[int, int]:
    """Returns the bins on a level higher by `levels`."""
    if not levels:
        return bins
    coarse: dict[int, int] = {}
    for key, count in bins.items():
        index = ORIGIN - (ORIGIN - abs(key) >> levels)
        into = 0 if not key else index if key > 0 else -index
        coarse[into] = coarse.get(into, 0) + count
    return coarse


def quantile_of_bins(bins: dict[int, int], level: int, q: float) -> float:
    """Returns the value at rank q(n - 1), rounded down."""
    rank, seen, keys = int(q * (sum(bins.values()) - 1)), 0, sorted(bins)
    for key in keys:
        seen += bins[key]
        if seen > rank:
            return value_of(key, level)
    return value_of(keys[-1], level)


def interpolate(values: Sequence[float], q: float) -> float:
    """Returns the quantile of sorted values by linear interpolation at q(n - 1)."""
    rank = q * (len(values) - 1)
    below = int(rank)
    share = rank - below
    if not share:
        return float(values[below])
    return values[below] * (1 - share) + values[below + 1] * share


class SpaceSaving(dict[Any, list[int]]):
    """A tally whose newcomers, once it is full, inherit the counts of the key that has the least.

    Among equal ones the key that came first is evicted. So the counts are too high by at most the evicted ones: by
    less than n / capacity. `victims` is derived: the keys that had the least when they were last looked for; a
    decoded one has none.
    """

    __slots__ = ("least", "victims")

    def __init__(self, entries: dict[Any, list[int]]) -> None:
        super().__init__(entries)
        self.victims: list[Any] = []
        self.least = 0

    def evict(self) -> tuple[Any, list[int]]:
        """Removes the key with the least count; returns it and its entry."""
        while True:
            while self.victims:
                key = self.victims.pop()
                entry = self.get(key)
                if entry is not None and entry[0] == self.least:
                    return key, self.pop(key)
            self.least = min(entry[0] for entry in self.values())
            self.victims = [key for key, entry in self.items() if entry[0] == self.least][::-1]

    def prune(self, floor: int) -> list[Any]:
        """Removes the buckets before `floor`; returns the keys that are gone."""
        self.victims = []
        return Tally.prune(self, floor)


def bloom_shape(capacity: int, fpr: float) -> tuple[int, int]:
    """Returns how many bytes and how many hash functions a filter of so many values needs."""
    bits = math.ceil(-capacity * math.log(fpr) / math.log(2) ** 2)
    size = max(8, -(-bits // 8))
    return size, max(1, round(size * 8 / capacity * math.log(2)))


def add_to_bloom(bits: bytearray, hashed: int, hashes: int) -> bool:
    """Adds a hash to a filter; returns whether it seems to have been there (double hashing of Kirsch and Mitzenmacher)."""
    size = len(bits) * 8
    step = (hashed >> 32) | 1
    seen = True
    for _ in range(hashes):
        place = hashed % size
        mask = 1 << (place & 7)
        if not bits[place >> 3] & mask:
            seen = False
            bits[place >> 3] |= mask
        hashed += step
    return seen
