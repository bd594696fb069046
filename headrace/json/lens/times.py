"""RFC 3339 date-times as milliseconds since 1970, without the bounds of the standard library's `datetime`.

Years 0000 to 9999 are written as RFC 3339 asks; others as ISO 8601's expanded years, six digits or more with a sign,
which is what the peer's runtime writes. So every millisecond has a text.
"""

from __future__ import annotations

import re
from typing import Final

from headrace.errors import InvalidRequest

_DATE_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
DAY_MS: Final = 86_400_000
_ERA_DAYS: Final = 146_097  # 400 years of the Gregorian calendar
_EPOCH_DAYS: Final = 719_468  # from 0000-03-01 to 1970-01-01


def to_millis(text: str) -> int:
    """Milliseconds since 1970 of a date-time with seconds and a zone; digits below a millisecond are cut off.

    Raises:
        InvalidRequest: the text is something else, or names a day or an hour that does not exist.
    """
    parts = _DATE_TIME.fullmatch(text)
    if parts is None:
        raise InvalidRequest("not an rfc 3339 date-time")
    year, month, day, hour, minute, second = (int(part) for part in parts.groups()[:6])
    fraction, sign, zone_hour, zone_minute = parts.groups()[6:]
    offset_min = int(zone_hour) * 60 + int(zone_minute) if sign else 0
    is_date = 1 <= month <= 12 and 1 <= day <= _days_in(year, month)
    is_time = hour < 24 and minute < 60 and second < 60
    is_zone = not sign or (int(zone_hour) < 24 and int(zone_minute) < 60)
    if not (is_date and is_time and is_zone):
        raise InvalidRequest("no such date-time")
    seconds = (hour * 60 + minute - (-offset_min if sign == "-" else offset_min)) * 60 + second
    return _days(year, month, day) * DAY_MS + seconds * 1000 + int(((fraction or "") + "00")[:3].ljust(3, "0"))


def from_millis(millis: float) -> str:
    """The date-time in UTC with three digits below the second. A fraction of a millisecond is cut off."""
    days, rest = divmod(int(millis), DAY_MS)
    year, month, day = _date(days)
    minutes, milliseconds = divmod(rest, 60_000)
    year_text = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+07d}"
    clock = f"{minutes // 60:02d}:{minutes % 60:02d}:{milliseconds // 1000:02d}.{milliseconds % 1000:03d}"
    return f"{year_text}-{month:02d}-{day:02d}T{clock}Z"


def _days_in(year: int, month: int) -> int:
    following = (year, month + 1) if month < 12 else (year + 1, 1)
    return _days(*following, 1) - _days(year, month, 1)


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01. Years begin in March here, so that the leap day is the last.

    From Howard Hinnant, "chrono-compatible low-level date algorithms" (days_from_civil).
    """
    era, year_of_era = divmod(year - (month <= 2), 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * _ERA_DAYS + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - _EPOCH_DAYS


def _date(days: int) -> tuple[int, int, int]:
    """Year, month and day; the inverse of `_days` (civil_from_days)."""
    era, day_of_era = divmod(days + _EPOCH_DAYS, _ERA_DAYS)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return era * 400 + year_of_era + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1
