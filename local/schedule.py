"""EventBridge schedules: when does rate(…) or cron(…) fire next? Pure; times are UTC."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_CRON = re.compile(r"cron\((\S+) (\S+) (\S+) (\S+) (\S+) (\S+)\)")
_NAMES = {
    name: str(number)
    for names, first in (
        ("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC", 1),
        ("SUN MON TUE WED THU FRI SAT", 1),
    )
    for number, name in enumerate(names.split(), first)
}
_HORIZON = timedelta(days=366)


def next_time(expression: str, after: datetime) -> datetime:
    """The first time later than `after`. Raises ValueError for a schedule that is not understood or never comes."""
    if rate := _RATE.fullmatch(expression):
        return after + int(rate[1]) * timedelta(**{f"{rate[2]}s": 1})
    cron = _CRON.fullmatch(expression)
    if cron is None:
        raise ValueError(f"not a schedule: {expression!r}")
    minute, hour, day, month, weekday, year = cron.groups()
    time = after.replace(second=0, microsecond=0) + timedelta(minutes=1)
    end = time + _HORIZON
    while time < end:
        day_matches = (
            _matches(day, time.day, 1)
            and _matches(month, time.month, 1)
            and _matches(weekday, time.isoweekday() % 7 + 1, 1)
            and _matches(year, time.year, 1970)
        )
        if not day_matches:
            time = time.replace(hour=0, minute=0) + timedelta(days=1)
        elif not _matches(hour, time.hour, 0):
            time = time.replace(minute=0) + timedelta(hours=1)
        elif not _matches(minute, time.minute, 0):
            time += timedelta(minutes=1)
        else:
            return time
    raise ValueError(f"a schedule that does not come within a year: {expression!r}")


def _matches(field: str, value: int, first: int) -> bool:
    """Whether a cron field (`*`, `?`, `a`, `a-b`, `a/step`, lists of these) contains a value."""
    return any(_part_matches(part, value, first) for part in field.upper().split(","))


def _part_matches(part: str, value: int, first: int) -> bool:
    if part in ("*", "?"):
        return True
    span, _, step = part.partition("/")
    low, _, high = span.partition("-")
    start = first if low == "*" else _number(low)
    if step:
        return value >= start and (value - start) % int(step) == 0 and (not high or value <= _number(high))
    return start <= value <= (_number(high) if high else start)


def _number(text: str) -> int:
    try:
        return int(_NAMES.get(text, text))
    except ValueError:
        raise ValueError(f"not supported in a cron field: {text!r}") from None
