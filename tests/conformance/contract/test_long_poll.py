"""Live reads: data at once if there is any, else the first that comes, else nothing after the timeout."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.conformance.contract.client import Api, Stream, expect, refused
from tests.conformance.contract.shop import SCHEMA, SEARCH

pytestmark = pytest.mark.sensitive("a wait must see what another process appended, and what it has never read")


@contextmanager
def soon(action: object, *arguments: object, after_s: float = 0.3) -> Iterator[None]:
    """Does it a moment later, in another thread, while the block waits."""
    timer = threading.Timer(after_s, action, arguments)  # type: ignore[arg-type]
    timer.start()
    try:
        yield
    finally:
        timer.join()


@pytest.mark.parametrize("live", ["true", "long-poll", "1"])
def test_data_is_answered_at_once(stream: Stream, live: str) -> None:
    expect(stream.append([1, 2]), 204)
    began = time.monotonic()
    answer = expect(stream.read(offset="-1", live=live, timeout="4s"), 200)
    assert answer.json() == [1, 2]
    assert time.monotonic() - began < 2


def test_a_wait_ends_when_data_comes(stream: Stream) -> None:
    began = time.monotonic()
    with soon(stream.append, [7]):
        answer = expect(stream.read(offset=stream.end, live="true", timeout="4s"), 200)
    assert answer.json() == [7]
    assert time.monotonic() - began < 3
    assert answer.headers["stream-next-offset"] == stream.end


@pytest.mark.parametrize("timeout", [{"timeout": "300ms"}, {"timeout_ms": "300"}, {"timeout": "300"}])
def test_a_wait_that_meets_its_timeout_is_an_empty_batch(stream: Stream, timeout: dict[str, str]) -> None:
    expect(stream.append([1]), 204)
    end = stream.end
    began = time.monotonic()
    answer = expect(stream.read(offset=end, live="true", **timeout), 204)
    assert 0.25 < time.monotonic() - began < 2
    assert answer.content == b""
    assert answer.headers["stream-next-offset"] == end
    assert answer.headers["stream-end-offset"] == end
    assert answer.headers["stream-up-to-date"] == "true"


def test_live_answers_are_not_stored(stream: Stream) -> None:
    expect(stream.append([1]), 204)
    for offset in ("-1", "now"):
        answer = stream.read(offset=offset, live="long-poll", timeout="50ms")
        assert "no-store" in answer.headers["cache-control"]
        assert answer.headers["stream-cursor"]


@pytest.mark.parametrize("live", ["false", "0"])
def test_live_can_be_declined(stream: Stream, live: str) -> None:
    assert expect(stream.read(offset="-1", live=live), 200).json() == []


@pytest.mark.parametrize("live", ["yes", "", "longpoll", "2"])
def test_other_values_of_live_are_refused(stream: Stream, live: str) -> None:
    refused(stream.read(offset="-1", live=live), 400)


def test_a_live_read_needs_an_offset(stream: Stream) -> None:
    refused(stream.read(live="true", timeout="1ms"), 400)
    refused(stream.read(live="sse"), 400)


def test_a_timeout_without_live_changes_nothing(stream: Stream) -> None:
    began = time.monotonic()
    assert expect(stream.read(offset="now", timeout="4s"), 200).json() == []
    assert time.monotonic() - began < 2


def test_a_wait_for_a_key_passes_other_keys(stream: Stream) -> None:
    end = stream.end

    def append() -> None:
        stream.append([1], {"Stream-Key": "other"})
        time.sleep(0.3)  # the wait meets the other key alone
        stream.append([2], {"Stream-Key": "mine"})

    with soon(append, after_s=0.2):
        answer = expect(stream.read(offset=end, key="mine", live="true", timeout="4s"), 200)
    assert answer.json() == [2]
    assert stream.records(offset=answer.headers["stream-next-offset"], key="mine") == []


def test_a_wait_with_a_filter_passes_what_does_not_match(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA, search=SEARCH)
    end = stream.end

    def append() -> None:
        stream.append([{"id": "r0", "status": 1}])
        time.sleep(0.3)  # the wait meets alone what does not match
        stream.append([{"id": "r1", "status": 2}])

    with soon(append, after_s=0.2):
        answer = expect(stream.read(offset=end, filter="status:2", live="true", timeout="4s"), 200)
    assert answer.json() == [{"id": "r1", "status": 2}]


def test_a_wait_ends_when_the_stream_is_deleted(stream: Stream) -> None:
    with soon(stream.delete):
        refused(stream.read(offset=stream.end, live="true", timeout="4s"), 404)


def test_a_wait_on_a_text_stream_answers_bytes(text: Stream) -> None:
    with soon(text.append_bytes, b"late"):
        answer = expect(text.read(offset=text.end, live="true", timeout="4s"), 200)
    assert answer.content == b"late"


def test_a_wait_by_the_path_of_a_key(stream: Stream) -> None:
    expect(stream.append([1], {"Stream-Key": "k"}), 204)
    answer = stream.api.get(stream.path + "/pk/k", offset="-1", live="true", timeout="1s")
    assert expect(answer, 200).json() == [1]
