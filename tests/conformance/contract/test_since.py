"""`since`: begin at a time, also within a key."""

from __future__ import annotations

import pytest

from tests.conformance.contract.client import Api, Stream, expect, refused


def minute(number: int, fraction: str = "") -> str:
    return f"2031-05-06T10:{number:02d}:00{fraction}Z"


NANOS = 1936087200 * 10**9  # 2031-05-09T10:00:00Z, beyond every record


@pytest.fixture(scope="session")
def hourly(api: Api) -> Stream:
    """Returns a stream with a record a minute for an hour, every other one with the key `even`."""
    stream = api.stream()
    for number in range(60):
        headers = {"Stream-Timestamp": minute(number), **({"Stream-Key": "even"} if number % 2 == 0 else {})}
        expect(stream.append([number], headers), 204)
        if number == 40:
            stream.settle()
    return stream


@pytest.mark.sensitive("records are in the tail or in segments")
@pytest.mark.parametrize(
    ("since", "first"),
    [
        (minute(0), 0),
        (minute(17), 17),
        (minute(17, ".000"), 17),
        (minute(17, ".000000000"), 17),
        (minute(17, ".001"), 18),
        (minute(59), 59),
        ("2031-05-06T12:30:00+02:00", 30),
        ("2001-01-01T00:00:00Z", 0),
        ("1936000800000000000", 60),
    ],
)
def test_since_begins_at_the_first_record_of_that_time(hourly: Stream, since: str, first: int) -> None:
    assert hourly.records(since=since) == list(range(first, 60))


def test_digits_are_unix_nanoseconds(hourly: Stream) -> None:
    at_17 = 1936087200 - 3 * 86400 + 17 * 60
    assert hourly.records(since=f"{at_17}000000000") == list(range(17, 60))
    assert hourly.records(since=str(NANOS)) == []


def test_an_offset_wins_over_since(hourly: Stream) -> None:
    assert hourly.records(offset="-1", since=minute(30)) == list(range(60))
    assert expect(hourly.read(offset="now", since=minute(30)), 200).json() == []


def test_since_seeks_within_a_key(hourly: Stream) -> None:
    assert hourly.records(since=minute(17), key="even") == list(range(18, 60, 2))
    assert hourly.records(since=minute(18), key="even") == list(range(18, 60, 2))
    answer = hourly.api.get(hourly.path + "/pk/even", since=minute(50))
    assert expect(answer, 200).json() == [50, 52, 54, 56, 58]


def test_since_beyond_the_end_reads_nothing(hourly: Stream) -> None:
    answer = expect(hourly.read(since="2040-01-01T00:00:00Z"), 200)
    assert answer.json() == []
    assert answer.headers["stream-next-offset"] == hourly.end


@pytest.mark.parametrize("since", ["", "yesterday", "2031-05-06", "2031-05-06T10:00:00", "1.5", "-1"])
def test_a_malformed_time_is_refused(hourly: Stream, since: str) -> None:
    refused(hourly.read(since=since), 400)
