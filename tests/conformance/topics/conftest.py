"""The servers of the topics' contract: one shared by every test, and one with keys and small limits.

Set HEADRACE_CONTRACT_URL to run against a server that is already there instead; HEADRACE_CONTRACT_KEY is its key. Tests of
keys and limits (`-m guarded`) ask the server at HEADRACE_CONTRACT_GUARDED_URL, which must have those of
`configurations.GUARDED`, or start one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conformance.topics.client import Server, Topic, answered
from tests.conformance.topics.configurations import CONFIGURATIONS, GUARDED, STREAMED, STREAMING, STRICTEST
from tests.support.emulated_cloud import dev_server
from tests.support.pipeline import NO_METRICS

HERE = Path(__file__).parent
EXTERNAL_URL = os.environ.get("HEADRACE_CONTRACT_URL")
EXTERNAL_GUARDED_URL = os.environ.get("HEADRACE_CONTRACT_GUARDED_URL")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Asks each test in the configurations that are for it."""
    if "server" not in metafunc.fixturenames:
        return
    names = [name for name in CONFIGURATIONS if name != STREAMING or metafunc.definition.path.name in STREAMED]
    found = [pytest.param(name, marks=() if name == STRICTEST else pytest.mark.full, id=name) for name in names]
    metafunc.parametrize("server", ["given-server"] if EXTERNAL_URL else found, indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that ask the server with keys and limits, before `-m` chooses."""
    for item in items:
        if item.path.parent == HERE and isinstance(item, pytest.Function) and "limited" in item.fixturenames:
            item.add_marker(pytest.mark.guarded)


def connections() -> httpx.Client:
    """Returns a client that sends what it is told to, to as many processes at once as a test asks."""
    return httpx.Client(timeout=40, trust_env=False, limits=httpx.Limits(max_connections=None))


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Yields a running server without keys; tests share it and keep to names of their own."""
    with connections() as http:
        if EXTERNAL_URL:
            yield Server(EXTERNAL_URL.rstrip("/"), http, os.environ.get("HEADRACE_CONTRACT_KEY"))
            return
        with dev_server(*CONFIGURATIONS[request.param], environment=NO_METRICS) as running:
            yield Server(running.url, http)


@pytest.fixture(scope="session")
def limited() -> Iterator[Server]:
    """Yields a server with keys and small limits, asked with the key that may do everything. One process: two of the
    limits hold for each process.
    """
    with connections() as http:
        if EXTERNAL_GUARDED_URL:
            yield Server(EXTERNAL_GUARDED_URL.rstrip("/"), http, "all")
            return
        with dev_server(environment={**NO_METRICS, **GUARDED}) as running:
            yield Server(running.url, http, "all")


@pytest.fixture
def guarded(limited: Server) -> Server:
    """Returns the server with keys and limits, without any topic."""
    # In small pages: a deployment has hundreds, and its emulator takes some milliseconds for each of a page.
    while topics := answered(limited.get("/v0/topics", page_size=50))["topics"]:
        for topic in topics:
            answered(Topic(limited, topic["topic"]).remove())
    return limited


@pytest.fixture
def topic(server: Server) -> Topic:
    """Returns a new topic of the default configuration."""
    return server.topic()


@pytest.fixture
def queue(server: Server) -> Topic:
    """Returns a new queue of the default configuration with five jobs, 1 to 5."""
    return server.queue(1, 2, 3, 4, 5)
