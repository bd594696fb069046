"""Groups and buckets of an aggregate in print. One definition: what jobs render ahead is what requests render.

Numbers are printed as JavaScript does where that is JSON: whole numbers without a point; what no double holds is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from headrace import instants
from headrace.query.language import histogram
from headrace.query.language.canonical import Count, Measure
from headrace.query.language.rollup import CompiledRollup, Part, Row, key_text

_WHOLE = 10**21  # ECMA-262 § 6.1.6.1.20: from here on, numbers are printed with an exponent
_SHARES = (0.5, 0.95, 0.99)
_text = msgspec.json.Encoder().encode


def number(value: float | None) -> str:
    """Returns a number in print; null if it is none, or not finite."""
    if value is None:
        return "null"
    try:
        whole = int(value)
    except (OverflowError, ValueError):
        return "null"
    return str(whole) if whole == value and -_WHOLE < whole < _WHOLE else repr(value)


def fragment(rollup: CompiledRollup, row: Row) -> str:
    """Returns a whole group in print: every dimension in its key, every measure."""
    return group(
        key_text(rollup.dimensions, row.dimensions),
        {name: (rollup.rollup.measures[name], part) for name, part in zip(rollup.measures, row.parts, strict=True)},
    )


def group(key: str, measures: Mapping[str, tuple[Measure, Part]]) -> str:
    """Returns a group in print.

    Args:
        key: its key in print.
        measures: in order.
    """
    shown = ",".join(f'"{name}":{measure(kind, part)}' for name, (kind, part) in measures.items())
    return f'{{"key":{key},"measures":{{{shown}}}}}'


def measure(kind: Measure, part: Part) -> str:
    """Returns what a measure says of a group, in print."""
    if isinstance(kind, Count):
        return f'{{"count":{number(part.count)}}}'
    average = part.sum / part.count if part.sum is not None and part.count > 0 else None
    head = (
        f'{{"count":{number(part.count)},"sum":{number(part.sum)},'
        f'"min":{number(part.min)},"max":{number(part.max)},"avg":{number(average)}'
    )
    if not part.histogram:
        return head + ',"p50":null,"p95":null,"p99":null}'
    buckets = histogram.sort_buckets(part.histogram)
    p50, p95, p99 = histogram.percentiles(buckets, _SHARES)
    counts = ",".join(f"{_name(name)}:{number(count)}" for _, name, count in buckets)
    return head + f',"p50":{number(p50)},"p95":{number(p95)},"p99":{number(p99)},"histogram":{{{counts}}}}}'


def bucket(start_ms: int, interval_ms: int, groups: Iterable[str]) -> str:
    """Returns the groups of an interval, in print and in order."""
    start, end = instants.render(start_ms), instants.render(start_ms + interval_ms)
    return f'{{"start":"{start}","end":"{end}","groups":[{",".join(groups)}]}}'


def _name(name: str) -> str:
    return f'"{name}"' if name.isascii() and name.isalnum() else _text(name).decode()


def names(rollup: CompiledRollup, wanted: Sequence[str]) -> dict[str, tuple[int, Measure]]:
    """Returns by name the place of a measure among the parts of a row, and the measure."""
    return {name: (rollup.measures.index(name), rollup.rollup.measures[name]) for name in wanted}
