"""The relay in the emulator, from the stream to a follower: a router's destination gets what its source gets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.support.emulated_cloud import DevServer, dev_server
from tests.support.pipeline import NO_METRICS


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    with dev_server("--api-processes", "2", "--seal-age", "1h", environment=NO_METRICS) as running:
        yield running


@pytest.fixture
def http(server: DevServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url + "/v0", timeout=30) as client:
        yield client


def told(server: DevServer, metric: str = "StreamEvents") -> int:
    """Returns the sum of a metric of the relay so far; by default, how many entries it was told of."""
    lines = (json.loads(line) for line in server.metric_lines())
    return sum(sum(line.get(metric, ())) for line in lines if line.get("service") == "relay")


def eventually(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)  # polls: other processes work


def append(http: httpx.Client, topic: str, *data: Any) -> None:
    answer = http.post(f"topics/{topic}", json={"records": [{"data": one} for one in data]})
    assert answer.is_success, answer.text


def read(http: httpx.Client, topic: str) -> list[Any]:
    answer = http.post(f"topics/{topic}/diff", json={"from_seq": 0})
    assert answer.is_success, answer.text
    return [record["data"] for record in answer.json()["records"]]


def test_an_append_reaches_the_follower_and_the_relay_hears_of_no_other(
    server: DevServer, http: httpx.Client
) -> None:
    for topic in ("followed", "unfollowed", "copy"):
        assert http.put(f"topics/{topic}", json={}).status_code == 201
    assert http.put("routers/r", json={"source": "followed", "dest": "copy"}).status_code == 201
    append(http, "followed", 0)
    eventually(lambda: read(http, "copy") == [0], "the first record is not forwarded")
    for number in range(20):
        append(http, "unfollowed", number)
    append(http, "followed", 1)
    eventually(lambda: read(http, "copy") == [0, 1], "the record is not forwarded")
    append(http, "followed", 2)
    eventually(lambda: read(http, "copy") == [0, 1, 2], "the last record is not forwarded")
    # All that it is told of in its life. A difference would not do: metrics are written after what they count is seen.
    creates, follows, appends = 3, 1, 3
    eventually(lambda: told(server) >= creates + follows + appends, "the relay wrote no metrics")
    assert told(server) == creates + follows + appends
    assert told(server, "VisitFailures") == told(server, "VerbFailures") == 0
