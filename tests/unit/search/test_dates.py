"""Instants in text are those of Date.parse."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import instants


@pytest.mark.parametrize(
    ("text", "expected"),  # as V8 prints them, in UTC
    [
        ("2026", 1767225600000),
        ("2026-02", 1769904000000),
        ("2026-02-25", 1771977600000),
        ("2026-02-25T12:00", 1772020800000),
        ("2026-02-25T12:00Z", 1772020800000),
        ("2026-02-25T12:00:00+01:00", 1772017200000),
        ("2026-02-25T12:00:00+0100", 1772017200000),
        ("2026-02-25T12:00:00.123456789Z", 1772020800123),
        ("2026-02-25T12:00:00.5-00:30", 1772022600500),
        ("2026-02-25 12:00:00", 1772020800000),
        ("2026-02-25t12:00:00z", 1772020800000),
        ("2026-02-25T24:00:00Z", 1772064000000),
        ("2024-02-29", 1709164800000),
        ("0000", -62167219200000),
        ("+002026-02-25", 1771977600000),
        ("-000001-01-01T00:00:00Z", -62198755200000),
        ("1969-12-31T23:59:59.9999Z", -1),
        ("+275760-09-13T00:00:00.000Z", 8_640_000_000_000_000),
        ("-271821-04-20", -8_640_000_000_000_000),
    ],
)
def test_an_instant(text: str, expected: int) -> None:
    assert instants.parse_ms(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "26-02-25",
        "2026-2",
        "2026-13-01",
        "2026-00-01",
        "2026-02-30",
        "2025-02-29",
        "2026-02-25T12",
        "2026-02-25T12Z",
        "2026-02-25T12:00:00,5Z",
        "2026-02-25T12:00:60Z",
        "2026-02-25T12:60Z",
        "2026-02-25T24:00:01Z",
        "2026-02-25T25:00Z",
        "2026-02-25T12:00:00+24:00",
        "2026-02-25T12:00:00+01:60",
        "2026-02-25T12:00:00.Z",
        "-000000-01-01",
        "+2026-02-25",
        "+275760-09-13T00:00:00.001Z",
        "-271821-04-19T23:59:59.999Z",
        "２０２６-02-25",
        "2026-02-25T12:00:00Z\n",
    ],
)
def test_no_instant(text: str) -> None:
    assert instants.parse_ms(text) is None


@given(
    st.datetimes(timezones=st.builds(lambda m: timezone(timedelta(minutes=m)), st.integers(-1439, 1439))),
    st.sampled_from(["T", " "]),
)
def test_what_python_prints_is_the_same_instant(moment: datetime, separator: str) -> None:
    elapsed = moment - datetime(1970, 1, 1, tzinfo=UTC)
    assert instants.parse_ms(moment.isoformat(separator)) == elapsed // timedelta(milliseconds=1)
