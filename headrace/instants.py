"""Reads and writes instants and durations as text. Values are milliseconds since 1970, without the bounds of the
standard library's `datetime`.

There are three readers of instants, from lenient to strict: `parse_ms` reads what `Date.parse` must read (ECMA-262 §
21.4.1.32) and a bit more; `parse_rfc3339_ms` reads RFC 3339 in capital letters; `is_date_time` only checks the latter.
`render` writes what `Date.prototype.toISOString` writes.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache

from headrace.errors import InvalidRequest
from headrace.limits import MAX_TTL_MS

DAY_MS = 86_400_000

_INSTANT = re.compile(
    r"(\d{4}(?:-\d\d(?:-\d\d)?)?|[+-]\d{6}(?:-\d\d(?:-\d\d)?)?)"
    r"(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?(?:[Zz]|([+-])(\d\d):?(\d\d))?)?",
    re.ASCII,
)
_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)T([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?(?:Z|([+-])([01]\d|2[0-3]):([0-5]\d))",
    re.ASCII,
)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_CYCLE_YEARS = 400  # the calendar repeats
_CYCLE_DAYS = 146_097
_MAX_MS = 8_640_000_000_000_000  # ECMA-262 § 21.4.1.1: a hundred million days each way


def parse_ms(text: str) -> int | None:
    """Parses an instant and returns milliseconds, with further digits cut off; None if the text is no instant, or one more
    than 100 million days from 1970.

    Accepts a year, a month or a day alone, a time with or without seconds, fractions of any length, and years beyond
    9999 with a sign and six digits. In addition to ECMA-262, it accepts a space or a small `t` for the `T`, a small
    `z`, and a zone without its colon, which common programs write. One thing is different: a time without a zone is in
    UTC, not in the zone of the machine that reads it.
    """
    match = _INSTANT.fullmatch(text)
    if match is None:
        return None
    day, hours, minutes, seconds, fraction, sign, zone_hours, zone_minutes = match.groups("0")
    hour, minute, second = int(hours), int(minutes), int(seconds)
    # 24:00 is the end of a day.
    is_end_of_day = (hour, minute, second) == (24, 0, 0) and not int(fraction[:3])
    if minute > 59 or second > 59 or (hour > 23 and not is_end_of_day):
        return None
    if sign != "0" and (zone_hours > "23" or zone_minutes > "59"):
        return None
    instant = _instant_ms(day, hour, minute, second, fraction, sign, zone_hours, zone_minutes)
    return instant if instant is not None and -_MAX_MS <= instant <= _MAX_MS else None


def parse_rfc3339_ms(text: str) -> int | None:
    """Parses an RFC 3339 date-time in capital letters and returns milliseconds, with further digits cut off; None if
    the text is none.

    It must have seconds from 0 to 59, a zone, and a fraction of at most 9 digits.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    day, hours, minutes, seconds, fraction, sign, zone_hours, zone_minutes = match.groups("0")
    return _instant_ms(day, int(hours), int(minutes), int(seconds), fraction, sign, zone_hours, zone_minutes)


def is_date_time(text: str) -> bool:
    """Returns whether `parse_rfc3339_ms` accepts a text; faster than parsing. It is the format `date-time` of JSON
    schemas.
    """
    match = _RFC3339.fullmatch(text)
    return match is not None and _count_days(match[1]) is not None


def render(ms: int) -> str:
    """Formats an instant in UTC: `2026-02-25T12:00:00.000Z`. Years beyond 0 to 9999 have a sign and 6 digits or
    more.
    """
    days, within = divmod(ms, DAY_MS)
    seconds, milli = divmod(within, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{_render_day(days)}T{hour:02d}:{minute:02d}:{second:02d}.{milli:03d}Z"


def text_of(ms: int) -> str:
    """Formats an instant as `render` does; an instant after the year 9999 becomes the last one that RFC 3339 can
    express.
    """
    return render(min(ms, _LATEST_MS))


# What clients write in headers and queries. Strict: what is not of the form is refused.

_NUMBER = r"(0|[1-9]\d{0,14})"  # no leading zeros, no sign; bounded before it becomes an integer
_SECONDS = re.compile(_NUMBER, re.ASCII)
_DURATION = re.compile(rf"(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?(?:{_NUMBER}ms)?", re.ASCII)
_NANOS = re.compile(r"\d{1,21}", re.ASCII)
_EARLIEST_MS = -62_135_596_800_000  # the start of year 1
_LATEST_MS = 253_402_300_799_999  # the end of year 9999: the last moment that RFC 3339 can say


def rfc3339_ms(text: str, what: str) -> int:
    """Parses an RFC 3339 time from a request, in capital or small letters, with a zone and up to nine fraction digits, and
    returns epoch milliseconds, rounded down.

    Raises:
        InvalidRequest: the text is no such time; the message names the header or parameter `what`.
    """
    millis = parse_rfc3339_ms(text.upper())
    if millis is None or not _EARLIEST_MS <= millis <= _LATEST_MS:
        raise InvalidRequest(f"{what} is not an RFC 3339 time")
    return millis


def timestamp_ms(text: str, what: str) -> int:
    """Parses a timestamp from a request, RFC 3339 or nanoseconds since 1970 in digits, and returns epoch milliseconds.

    Raises:
        InvalidRequest: the text is neither; the message names `what`.
    """
    if not _NANOS.fullmatch(text):
        return rfc3339_ms(text, what)
    millis = int(text) // 1_000_000
    if millis > _LATEST_MS:
        raise InvalidRequest(f"{what} is beyond the year 9999")
    return millis


def ttl_ms(text: str, what: str) -> int:
    """Parses a TTL, in whole seconds (`3600`) or as a duration of whole seconds (`24h`, `1h30m`, `15s`), and returns
    milliseconds.

    Raises:
        InvalidRequest: the text is neither, or above the limit; the message names `what`.
    """
    millis = int(text) * 1000 if _SECONDS.fullmatch(text) else _duration_ms(text)
    if millis is None or millis % 1000:
        raise InvalidRequest(f"{what} is neither whole seconds nor a duration such as 1h30m")
    if millis > MAX_TTL_MS:
        raise InvalidRequest(f"{what} is too long: limit_s={MAX_TTL_MS // 1000}")
    return millis


def timeout_ms(text: str, what: str) -> int:
    """Parses a timeout, in digits (milliseconds) or as a duration (`500ms`, `5s`, `2m`), and returns milliseconds.

    Raises:
        InvalidRequest: the text is neither; the message names `what`.
    """
    millis = int(text) if _SECONDS.fullmatch(text) else _duration_ms(text)
    if millis is None:
        raise InvalidRequest(f"{what} is neither milliseconds nor a duration such as 500ms or 5s")
    return millis


def _duration_ms(text: str) -> int | None:
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        return None
    units = (3_600_000, 60_000, 1000, 1)
    return sum(int(number) * unit for number, unit in zip(match.groups("0"), units, strict=True))


def _instant_ms(
    day: str, hour: int, minute: int, second: int, fraction: str, sign: str, zone_hours: str, zone_minutes: str
) -> int | None:
    """Converts the parts of an instant to milliseconds; None if the calendar has no such day. `sign` is "0" in UTC."""
    days = _count_days(day)
    if days is None:
        return None
    instant = days * DAY_MS + ((hour * 60 + minute) * 60 + second) * 1000 + int(fraction.ljust(3, "0")[:3])
    if sign != "0":
        zone_ms = (int(zone_hours) * 60 + int(zone_minutes)) * 60_000
        instant += zone_ms if sign == "-" else -zone_ms
    return instant


@lru_cache(maxsize=1024)  # records of one time share their day
def _count_days(text: str) -> int | None:
    """Returns the number of days from 1970 to a date as `_INSTANT` matches it; None if the calendar has no such day."""
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


@lru_cache(maxsize=1024)  # buckets of one answer share their days
def _render_day(days: int) -> str:
    cycles, rest = divmod(days, _CYCLE_DAYS)
    day = date.fromordinal(_EPOCH_DAY + rest)
    year = day.year + cycles * _CYCLE_YEARS
    printed = f"{year:04d}" if 0 <= year <= 9999 else f"{'-' if year < 0 else '+'}{abs(year):06d}"
    return f"{printed}-{day.month:02d}-{day.day:02d}"
