"""Times and durations as clients write them, to milliseconds and back. Strict: what is not of the form is refused."""

from __future__ import annotations

import re

from headrace import instants
from headrace.errors import InvalidRequest
from headrace.limits import MAX_TTL_MS

_NUMBER = r"(0|[1-9]\d{0,14})"  # no leading zeros, no sign; bounded before it becomes an integer
_SECONDS = re.compile(_NUMBER, re.ASCII)
_DURATION = re.compile(rf"(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?(?:{_NUMBER}ms)?", re.ASCII)
_NANOS = re.compile(r"\d{1,21}", re.ASCII)
_EARLIEST_MS = -62_135_596_800_000  # the start of year 1
_LATEST_MS = 253_402_300_799_999  # the end of year 9999: the last moment that RFC 3339 can say


def rfc3339_ms(text: str, what: str) -> int:
    """Returns an RFC 3339 time with zone and up to nine fraction digits, as ms since the epoch, rounded down.

    Raises:
        InvalidRequest: it is not one. `what` names the header or parameter.
    """
    millis = instants.parse_rfc3339_ms(text.upper())
    if millis is None or not _EARLIEST_MS <= millis <= _LATEST_MS:
        raise InvalidRequest(f"{what} is not an RFC 3339 time")
    return millis


def timestamp_ms(text: str, what: str) -> int:
    """RFC 3339, or unix nanoseconds in digits, as ms since the epoch.

    Raises:
        InvalidRequest: neither.
    """
    if not _NANOS.fullmatch(text):
        return rfc3339_ms(text, what)
    millis = int(text) // 1_000_000
    if millis > _LATEST_MS:
        raise InvalidRequest(f"{what} is beyond the year 9999")
    return millis


def ttl_ms(text: str, what: str) -> int:
    """Returns whole seconds (`3600`), or a duration (`24h`, `1h30m`, `15s`) of whole seconds.

    Raises:
        InvalidRequest: neither, or above the limit.
    """
    millis = int(text) * 1000 if _SECONDS.fullmatch(text) else _duration_ms(text)
    if millis is None or millis % 1000:
        raise InvalidRequest(f"{what} is neither whole seconds nor a duration such as 1h30m")
    if millis > MAX_TTL_MS:
        raise InvalidRequest(f"{what} is too long: limit_s={MAX_TTL_MS // 1000}")
    return millis


def timeout_ms(text: str, what: str) -> int:
    """Bare digits are ms; else a duration (`500ms`, `5s`, `2m`).

    Raises:
        InvalidRequest: neither.
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


def text_of(millis: int) -> str:
    """Returns a moment as RFC 3339 with milliseconds, in UTC."""
    return instants.render(min(millis, _LATEST_MS))
