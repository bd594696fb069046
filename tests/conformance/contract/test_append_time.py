"""Stream-Timestamp and the append time, which never goes back; `since` shows it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.conformance.contract.client import Stream, expect, refused

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> str:
    """That long after the first record, as a header."""
    return (NOON + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def append(stream: Stream, *records: tuple[float, int]) -> None:
    """Appends each number with its time hint."""
    for seconds, number in records:
        expect(stream.append([number], {"Stream-Timestamp": at(seconds)}), 204)


@pytest.mark.parametrize(
    "text",
    [
        "2030-01-01T12:00:10Z",
        "2030-01-01T12:00:10.000Z",
        "2030-01-01T12:00:10.000000001Z",
        "2030-01-01T13:00:10+01:00",
    ],
)
def test_a_hint_is_an_rfc_3339_time(stream: Stream, text: str) -> None:
    append(stream, (0, 1))
    expect(stream.append([2], {"Stream-Timestamp": text}), 204)
    assert stream.records(since=at(9.999)) == [2]
    assert stream.records(since=at(10.001)) == []


def test_a_hint_may_be_unix_nanoseconds(stream: Stream) -> None:
    append(stream, (0, 1))
    nanos = (int(NOON.timestamp()) + 10) * 10**9
    expect(stream.append([2], {"Stream-Timestamp": str(nanos)}), 204)
    assert stream.records(since=at(9.999)) == [2]
    assert stream.records(since=at(10.001)) == []


@pytest.mark.sensitive("each process has a clock of its own")
def test_append_time_never_goes_back(stream: Stream) -> None:
    append(stream, (0, 1), (20, 2), (10, 3), (15, 4), (30, 5))
    assert stream.records(since=at(20)) == [2, 3, 4, 5]
    assert stream.records(since=at(25)) == [5]


def test_without_a_hint_the_server_says_when(stream: Stream) -> None:
    before = datetime.now(UTC) - timedelta(minutes=1)
    expect(stream.append([1]), 204)
    after = datetime.now(UTC) + timedelta(minutes=1)
    assert stream.records(since=before.isoformat()) == [1]
    assert stream.records(since=after.isoformat()) == []


@pytest.mark.parametrize("text", ["yesterday", "2030-01-01", "2030-01-01T12:00:00", "-5", ""])
def test_a_malformed_hint_is_refused(stream: Stream, text: str) -> None:
    refused(stream.append([1], {"Stream-Timestamp": text}), 400)
    assert stream.records() == []
