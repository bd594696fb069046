"""Budgets: 5 s for a request, 3 s for an append and for a wait that names no timeout."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import httpx
import pytest

from tests.conformance.contract.client import JSON, Api, expect, given, shown
from tests.support.emulated_cloud import dev_server

TIMED_OUT = {"error": {"code": "request_timeout", "message": "request timed out"}}
UNKNOWN = {
    "error": {
        "code": "append_timeout",
        "message": "append timed out; append outcome is unknown, check Stream-Next-Offset before retrying",
    }
}


class Waited(NamedTuple):
    """An answer and how long it took."""

    answer: httpx.Response
    seconds: float


def timed(request: Callable[[], httpx.Response]) -> Waited:
    began = time.monotonic()
    answer = request()
    return Waited(answer, time.monotonic() - began)


@pytest.fixture(scope="session")
def waits(api: Api) -> dict[str, Waited]:
    """Long waits, all at once: each costs seconds."""
    stream = api.stream()
    subject = api.stream()
    given(subject.set_profile("state-protocol", touch={"enabled": True}))
    cursor = given(subject.touch_meta()).json()["cursor"]
    details, status = stream.quiet(stream.details), stream.quiet(stream.index_status)
    same = {"If-None-Match": details}
    key = "0123456789abcdef"
    requests: dict[str, Callable[[], httpx.Response]] = {
        "read": lambda: stream.read(offset="now", live="true", timeout="8s"),
        "read at five seconds": lambda: stream.read(offset="now", live="true", timeout="5s"),
        "read by default": lambda: stream.read(offset="now", live="true"),
        "details": lambda: stream.details(same, live="true", timeout="8s"),
        "details by default": lambda: stream.details(same, live="true"),
        "index status": lambda: stream.index_status({"If-None-Match": status}, live="true", timeout="8s"),
        "touch": lambda: subject.touch("wait", {"cursor": cursor, "keys": [key], "timeoutMs": 8000}),
    }
    with ThreadPoolExecutor(len(requests)) as pool:
        return dict(zip(requests, pool.map(timed, requests.values()), strict=True))


@pytest.mark.parametrize("wait", ["read", "details", "index status"])
def test_a_wait_above_five_seconds_answers_408_at_five(waits: dict[str, Waited], wait: str) -> None:
    answer, seconds = waits[wait]
    expect(answer, 408)
    assert answer.json() == TIMED_OUT
    assert 4.5 < seconds < 7.5, seconds


def test_a_touch_wait_ends_at_five_seconds_at_the_latest(waits: dict[str, Waited]) -> None:
    answer, seconds = waits["touch"]
    assert 4.5 < seconds < 7.5, seconds
    if answer.status_code == 408:
        assert answer.json() == TIMED_OUT
    else:
        assert expect(answer, 200).json()["touched"] is False


def test_a_wait_of_five_seconds_ends_as_a_wait(waits: dict[str, Waited]) -> None:
    answer, seconds = waits["read at five seconds"]
    expect(answer, 204)
    assert 4.5 < seconds < 7.5


def test_a_read_waits_three_seconds_by_default(waits: dict[str, Waited]) -> None:
    answer, seconds = waits["read by default"]
    expect(answer, 204)
    assert 2.5 < seconds < 5


def test_a_descriptor_waits_three_seconds_by_default(waits: dict[str, Waited]) -> None:
    answer, seconds = waits["details by default"]
    expect(answer, 304)
    assert 2.5 < seconds < 5


class Fragile(NamedTuple):
    """A server and the process of its store."""

    api: Api
    store_pid: int

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Stops the store for as long as the block lasts: it takes requests and answers none."""
        os.kill(self.store_pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.store_pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def server() -> Iterator[Fragile]:
    """Yields a server of its own on the emulated AWS, whose process can be stopped. A single machine has no such process:
    what it answers while a write is held up is in `tests/local/test_data.py`.
    """
    with dev_server() as running, Api(running.url) as api:
        yield Fragile(api, running.pids["aws"])


def test_an_append_that_gets_no_answer_from_the_store_is_of_unknown_outcome(server: Fragile) -> None:
    stream = server.api.stream()
    given(stream.append([1]))
    end = stream.end
    with server.stalled():
        answer, seconds = timed(lambda: stream.append([2]))
    assert expect(answer, 408).json() == UNKNOWN
    assert 2 < seconds < 6, seconds
    assert stream.head().headers["stream-next-offset"] >= end
    assert stream.records() in ([1], [1, 2])


def test_a_create_with_records_that_gets_no_answer_is_of_unknown_outcome(server: Fragile) -> None:
    stream = server.api.unused()
    with server.stalled():
        answer, seconds = timed(lambda: stream.put(JSON, [1]))
    assert answer.status_code in (408, 503), shown(answer)
    if answer.status_code == 408:
        assert answer.json() == UNKNOWN
    assert seconds < 6


def test_a_read_that_gets_no_answer_ends_in_time(server: Fragile) -> None:
    stream = server.api.stream()
    given(stream.append([1]))
    with server.stalled():
        answer, seconds = timed(stream.read)
    assert answer.status_code in (408, 503), shown(answer)
    if answer.status_code == 503:
        assert answer.json()["error"]["code"] == "unavailable"
        assert int(answer.headers["retry-after"]) >= 1
    assert seconds < 6.5
    assert stream.records() == [1]
