"""429 and 503: what was refused for load was not written, and the answer says when to come again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.conformance.contract.client import JSON, Api, Stream, given, refused
from tests.conformance.contract.configurations import SWITCH
from tests.support.emulated_cloud import dev_server

TEMPLATE = {"templates": [{"entity": "todos", "fields": [{"name": "id", "encoding": "string"}]}]}


class Store(NamedTuple):
    """A server and the switch that makes its store refuse."""

    api: Api
    switch: Path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Yields a server of its own on a store that can be told to throttle."""
    switch = tmp_path_factory.mktemp("throttle") / "on"
    environment = {SWITCH: str(switch), "HEADRACE_APPEND_TIMEOUT_MS": "500"}
    application = f"{__package__}.throttled:create_app"
    with dev_server("--app", application, environment=environment) as server, Api(server.url) as api:
        yield Store(api, switch)


@pytest.fixture
def throttled(store: Store) -> Iterator[Stream]:
    """Yields a stream; every write to it is throttled until the test ends."""
    stream = store.api.stream()
    given(stream.set_profile("state-protocol", touch={"enabled": True}))
    store.switch.touch()
    try:
        yield stream
    finally:
        store.switch.unlink()


WRITES: dict[str, Callable[[Stream], httpx.Response]] = {
    "create": lambda stream: stream.api.unused().put(),
    "create with records": lambda stream: stream.api.unused().put(JSON, [1]),
    "append": lambda stream: stream.append([{"headers": {"control": "reset"}}]),
    "close": lambda stream: stream.at("POST", "", {"Stream-Closed": "true"}),
    "delete": lambda stream: stream.delete(),
    "schema": lambda stream: stream.define(schema={"type": "object"}),
    "profile": lambda stream: stream.set_profile("generic"),
    "templates": lambda stream: stream.touch("templates/activate", TEMPLATE),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_throttled_write_answers_429_and_says_when_to_repeat(throttled: Stream, write: str) -> None:
    answer = WRITES[write](throttled)
    refused(answer, 429)
    assert int(answer.headers["retry-after"]) >= 1


def test_a_throttled_append_was_not_written(store: Store) -> None:
    stream = store.api.stream()
    store.switch.touch()
    try:
        refused(stream.append([1]), 429)
    finally:
        store.switch.unlink()
    assert stream.records() == []
    given(stream.append([2]))
    assert stream.records() == [2]
