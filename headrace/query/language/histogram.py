"""Histograms of rollups: the number of values in each bucket, by the bucket's name.

A bucket of `log2_v1` is named by its lower bound, the highest power of two that is not above max(1, |value|). Records
that bring their own histogram may name buckets freely; only buckets whose names are numbers count for percentiles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from headrace.query.language import canonical
from headrace.query.language.canonical import Binding, Field

Histogram = dict[str, float]

_number = canonical.reader(Field(kind="float", bindings=(Binding(version=1, json_pointer=""),)))
_LOG2_NAMES = tuple(canonical.text(2.0**exponent) for exponent in range(1024))  # every power that a double holds


def number(value: object) -> float | None:
    """Converts a number, or a number as text, to a finite float; None for anything else."""
    found = _number(value)
    return found if isinstance(found, float) else None


def log2_bucket(value: float) -> str:
    """Returns the name of the `log2_v1` bucket of a finite value: the highest power of two that is not above max(1,
    |value|), as text.
    """
    magnitude = abs(value)
    return _LOG2_NAMES[math.frexp(magnitude)[1] - 1] if magnitude > 1 else "1"


def parse(value: object) -> Histogram | None:
    """Reads the histogram in a record: an object, of which the members with numbers count; None if there is none."""
    if not isinstance(value, dict):
        return None
    return {name: count for name, raw in value.items() if (count := number(raw)) is not None} or None


def merge(target: Histogram, other: Mapping[str, float]) -> None:
    """Adds the counts of `other` to `target`."""
    for bucket, count in other.items():
        target[bucket] = target.get(bucket, 0) + count


@lru_cache(maxsize=4096)  # most histograms share their buckets
def _bound(name: str) -> float | None:
    return number(name)


def sort_buckets(histogram: Mapping[str, float]) -> list[tuple[float | None, str, float]]:
    """Returns bound, name and count of each bucket, sorted by bound, then by name. Buckets whose name is no number have
    bound None and come last.
    """
    return sorted(
        ((_bound(name), name, count) for name, count in histogram.items()),
        key=lambda bucket: (bucket[0] is None, bucket[0] or 0, bucket[1]),
    )


def percentiles(buckets: list[tuple[float | None, str, float]], shares: tuple[float, ...]) -> list[float | None]:
    """Returns for each share the bound of the bucket in which it is reached; None if no bucket whose name is a number has
    values.

    Args:
        buckets: as `sort_buckets` returns them.
        shares: the shares, ascending, from 0 to 1.
    """
    counted = [(bound, count) for bound, _, count in buckets if bound is not None and count > 0]
    if not counted:
        return [None] * len(shares)
    total = sum(count for _, count in counted)
    found: list[float | None] = []
    seen, at = 0.0, 0
    for share in shares:
        while at < len(counted) - 1 and seen + counted[at][1] < total * share:
            seen += counted[at][1]
            at += 1
        found.append(counted[at][0])
    return found
