"""PUT: a stream is created once, with its type and its end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.conformance.contract.client import JSON, TEXT, ZERO, Api, Stream, eventually, expect, refused


@pytest.mark.sensitive("a repeat may meet a process that has not seen the first")
def test_a_stream_is_created_once(api: Api) -> None:
    stream = api.unused()
    expect(stream.put(), 201)
    expect(stream.put(), 200)


def test_a_new_stream_is_empty_and_says_where_to_begin(api: Api) -> None:
    answer = expect(api.unused().put(), 201)
    assert answer.headers["stream-next-offset"] == ZERO
    assert answer.headers["content-type"].split(";")[0] == "application/json"
    assert answer.headers["location"]


def test_a_stream_is_known_by_one_encoded_path_segment(api: Api) -> None:
    stream = Stream(api, api.unused().name + " é/50%?#")
    expect(stream.put(), 201)
    expect(stream.append([1]), 204)
    assert stream.records() == [1]
    assert stream.registry().json()["schema"] == stream.name


@pytest.mark.sensitive("a repeat may meet a process that has not seen the first")
def test_a_repeated_create_keeps_what_was_there(stream: Stream) -> None:
    stream.append([1, 2])
    expect(stream.put(), 200)
    assert stream.records() == [1, 2]


@pytest.mark.parametrize("headers", [TEXT, {**JSON, "Stream-TTL": "60"}, {**JSON, "Stream-Closed": "true"}])
def test_a_create_that_contradicts_the_stream_is_a_conflict(stream: Stream, headers: dict[str, str]) -> None:
    assert stream.put(headers).status_code == 409


def test_a_stream_without_a_type_holds_bytes(api: Api) -> None:
    stream = api.unused()
    answer = expect(stream.put({}), 201)
    assert answer.headers["content-type"] == "application/octet-stream"


@pytest.mark.sensitive("a TTL is renewed by reads, which any process may answer")
@pytest.mark.parametrize(
    ("given", "seconds"), [("24h", 86400), ("30m", 1800), ("15s", 15), ("1h30m", 5400), ("3600", 3600)]
)
def test_a_ttl_is_a_duration(api: Api, given: str, seconds: int) -> None:
    stream = api.unused()
    before = datetime.now(UTC)
    expect(stream.put({**JSON, "Stream-TTL": given}), 201)
    headers = expect(stream.head(), 200).headers
    expires = datetime.fromisoformat(headers["stream-expires-at"])
    assert 0 < int(headers["stream-ttl"]) <= seconds
    assert abs((expires - before).total_seconds() - seconds) < 30


@pytest.mark.parametrize(
    "text", ["2099-01-02T03:04:05Z", "2099-01-02T03:04:05.123456789Z", "2099-01-02T04:04:05+01:00"]
)
def test_an_expiry_is_an_rfc_3339_time(api: Api, text: str) -> None:
    stream = api.unused()
    expect(stream.put({**JSON, "Stream-Expires-At": text}), 201)
    expires = datetime.fromisoformat(stream.head().headers["stream-expires-at"])
    assert abs(expires - datetime(2099, 1, 2, 3, 4, 5, tzinfo=UTC)) < timedelta(seconds=1)


def test_ttl_and_expiry_exclude_each_other(api: Api) -> None:
    stream = api.unused()
    both = {**JSON, "Stream-TTL": "60", "Stream-Expires-At": "2099-01-01T00:00:00Z"}
    refused(stream.put(both), 400)
    refused(stream.read(), 404)


@pytest.mark.parametrize(
    "header",
    [{"Stream-TTL": value} for value in ("", "-1", "1.5h", "soon", "500ms", "1d")]
    + [
        {"Stream-Expires-At": value} for value in ("", "tomorrow", "2099-01-01", "2099-13-01T00:00:00Z", "4070908800")
    ],
)
def test_a_malformed_end_creates_nothing(api: Api, header: dict[str, str]) -> None:
    stream = api.unused()
    refused(stream.put({**JSON, **header}), 400)
    refused(stream.read(), 404)


@pytest.mark.sensitive("a process must not answer from memory when time is over")
def test_an_expired_stream_can_be_neither_read_nor_appended_to(api: Api) -> None:
    stream = api.unused()
    expect(stream.put({**JSON, "Stream-TTL": "1"}), 201)
    expect(stream.append([1]), 204)
    eventually(lambda: stream.head().status_code, lambda status: status == 404, within_s=10)
    for answer in (stream.read(), stream.append([2]), stream.registry(), stream.profile(), stream.details()):
        refused(answer, 404)


@pytest.mark.sensitive("a process must not answer from memory when time is over")
def test_an_end_in_the_past_is_accepted_and_the_stream_is_gone_at_once(api: Api) -> None:
    stream = api.unused()
    assert stream.put({**JSON, "Stream-Expires-At": "2001-01-01T00:00:00Z"}).status_code == 201
    refused(stream.read(), 404)


def test_a_stream_without_a_declared_profile_is_generic(stream: Stream) -> None:
    assert expect(stream.profile(), 200).json()["profile"] == {"kind": "generic"}
