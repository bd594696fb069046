"""Retention of streams, an extension: old records go, by age and by bytes."""

from __future__ import annotations

import time

import pytest

from tests.conformance.contract.client import JSON, ZERO, Api, Stream, expect, refused


def kept(api: Api, **headers: str) -> Stream:
    return api.stream({**JSON, **{f"Stream-Retention-{name}": value for name, value in headers.items()}})


@pytest.mark.sensitive("each process caches the state")
def test_old_records_go_and_a_cursor_below_the_floor_is_410(api: Api) -> None:
    stream = kept(api, Age="1")
    expect(stream.append([1, 2]), 204)
    after = stream.head().headers["stream-next-offset"]
    time.sleep(1.2)  # the age is of real time
    expect(stream.append([3]), 204)
    assert stream.records() == [3]
    assert stream.head().headers["stream-earliest-offset"] == after
    answer = stream.read(offset="0000000000000000000G000000")
    refused(answer, 410)
    assert answer.headers["stream-earliest-offset"] == after
    assert expect(stream.read(offset=after), 200).json() == [3]
    refused(
        stream.api.unused().put(
            {"Stream-Forked-From": stream.path, "Stream-Fork-Offset": "0000000000000000000G000000"}
        ),
        410,
    )


def test_the_newest_bytes_are_kept(api: Api) -> None:
    stream = kept(api, Bytes="100")
    for number in range(60):
        expect(stream.append([1000 + number]), 204)
    records = stream.records()
    assert records == list(range(1060 - len(records), 1060))
    assert 25 <= len(records) < 40
    assert stream.read(offset=ZERO).status_code in (200, 410)


def test_a_put_changes_it(api: Api) -> None:
    stream = kept(api, Age="1h")
    assert stream.head().headers["stream-retention-age"] == "3600"
    expect(stream.put({**JSON, "Stream-Retention-Age": "2h"}), 200)
    expect(stream.put(), 200)
    assert stream.head().headers["stream-retention-age"] == "7200"
    refused(stream.put({"Content-Type": "text/plain", "Stream-Retention-Age": "1h"}), 409)
    refused(stream.put({**JSON, "Stream-Retention-Age": "soon"}), 400)
    expect(stream.put({**JSON, "Stream-Retention-Age": "none"}), 200)
    assert "stream-retention-age" not in stream.head().headers
