"""Instants in text, as milliseconds since 1970.

Reads what `Date.parse` must read (ECMA-262 § 21.4.1.32): a year, a month or a day alone, a time with or without
seconds, fractions of any length, years beyond 9999 with a sign and six digits. Beyond that a space or a small `t` for
the `T`, a small `z`, and a zone without its colon, all of which common programs write. The one difference: a time
without a zone is in UTC and not in the zone of whatever machine reads it.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache

_INSTANT = re.compile(
    r"(\d{4}(?:-\d\d(?:-\d\d)?)?|[+-]\d{6}(?:-\d\d(?:-\d\d)?)?)"
    r"(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?(?:[Zz]|([+-])(\d\d):?(\d\d))?)?",
    re.ASCII,
)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_CYCLE_YEARS = 400  # the calendar repeats
_CYCLE_DAYS = 146_097
_DAY_MS = 86_400_000
_MAX_MS = 8_640_000_000_000_000  # ECMA-262 § 21.4.1.1: a hundred million days each way


def parse_ms(text: str) -> int | None:
    """The instant, further digits cut off, or None if the text is not one or it is no day of the calendar."""
    match = _INSTANT.fullmatch(text)
    if match is None:
        return None
    day, hours, minutes, seconds, fraction, sign, zone_hours, zone_minutes = match.groups("0")
    days = _days(day)
    hour, minute, second, milli = int(hours), int(minutes), int(seconds), int(fraction.ljust(3, "0")[:3])
    # 24:00 is the end of a day.
    if days is None or minute > 59 or second > 59 or (hour > 23 and (hour, minute, second, milli) != (24, 0, 0, 0)):
        return None
    instant = days * _DAY_MS + ((hour * 60 + minute) * 60 + second) * 1000 + milli
    if sign != "0":
        if zone_hours > "23" or zone_minutes > "59":
            return None
        zone_ms = (int(zone_hours) * 60 + int(zone_minutes)) * 60_000
        instant += zone_ms if sign == "-" else -zone_ms
    return instant if -_MAX_MS <= instant <= _MAX_MS else None


@lru_cache(maxsize=1024)  # records of one time share their day
def _days(text: str) -> int | None:
    """Days from 1970 to a date as `_INSTANT` finds it; None if there is no such day."""
    if text.startswith("-000000"):
        return None
    year_chars = 7 if text[0] in "+-" else 4
    year, month, day = (
        int(text[:year_chars]),
        int(text[year_chars + 1 : year_chars + 3] or 1),
        int(text[year_chars + 4 :] or 1),
    )
    # The same day in the years 400 to 799, which `date` knows.
    cycle = year // _CYCLE_YEARS - 1
    try:
        days = date(year - cycle * _CYCLE_YEARS, month, day).toordinal()
    except ValueError:
        return None
    return days + cycle * _CYCLE_DAYS - _EPOCH_DAY
