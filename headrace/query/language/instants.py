"""Instants in print: milliseconds since 1970 as ECMAScript writes them (`Date.toISOString`)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MS = 86_400_000
_CYCLE_YEARS = 400  # the calendar repeats
_CYCLE_DAYS = 146_097


def text(ms: int) -> str:
    """The instant in UTC: `2026-02-25T12:00:00.000Z`; years outside of 0 to 9999 with a sign and six digits or more."""
    days, within = divmod(ms, _DAY_MS)
    seconds, milli = divmod(within, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{_date(days)}T{hour:02d}:{minute:02d}:{second:02d}.{milli:03d}Z"


@lru_cache(maxsize=1024)  # buckets of one answer share their days
def _date(days: int) -> str:
    cycles, rest = divmod(days, _CYCLE_DAYS)
    day = _EPOCH + timedelta(days=rest)
    year = day.year + cycles * _CYCLE_YEARS
    printed = f"{year:04d}" if 0 <= year <= 9999 else f"{'-' if year < 0 else '+'}{abs(year):06d}"
    return f"{printed}-{day.month:02d}-{day.day:02d}"
