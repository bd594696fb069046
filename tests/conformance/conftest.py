"""The servers of topics and of feature tables: one shared by every test, and one with keys and small limits.

Set HEADRACE_CONTRACT_URL to run against a server that is already there instead; HEADRACE_CONTRACT_KEY is its key. Tests of
keys and limits (`-m guarded`) ask the server at HEADRACE_CONTRACT_GUARDED_URL, which must have those of
`configurations.GUARDED`, or start one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.conformance import memory
from tests.conformance.coverage import FEATURES, TOPICS
from tests.conformance.memory import MEMORY
from tests.conformance.topics.client import Server
from tests.conformance.topics.configurations import CONFIGURATIONS, GUARDED, STREAMED, STREAMING, STRICTEST
from tests.conftest import is_full
from tests.support.emulated_cloud import dev_server
from tests.support.pipeline import NO_METRICS

EXTERNAL_URL = os.environ.get("HEADRACE_CONTRACT_URL")
EXTERNAL_GUARDED_URL = os.environ.get("HEADRACE_CONTRACT_GUARDED_URL")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Asks each test in the configurations that are for it."""
    path = metafunc.definition.path
    if path.parent not in (TOPICS, FEATURES):
        return
    names = [name for name in CONFIGURATIONS if name != STREAMING or path.name in STREAMED]
    of_each_push = {STRICTEST}
    if path.parent == FEATURES:
        names.insert(0, MEMORY)
        of_each_push = {MEMORY, STRICTEST} if metafunc.definition.get_closest_marker("sensitive") else {MEMORY}
        if "limited" in metafunc.fixturenames and not EXTERNAL_GUARDED_URL:
            metafunc.parametrize("limited", _params([MEMORY, STRICTEST], {MEMORY}), indirect=True, scope="session")
    if "server" in metafunc.fixturenames:
        found = ["given-server"] if EXTERNAL_URL else _params(names, of_each_push)
        metafunc.parametrize("server", found, indirect=True, scope="session")


def _params(names: list[str], of_each_push: set[str]) -> list[Any]:
    return [pytest.param(name, marks=() if name in of_each_push else pytest.mark.full, id=name) for name in names]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that ask the server with keys and limits, before `-m` chooses."""
    for item in items:
        if (
            item.path.parent in (TOPICS, FEATURES)
            and isinstance(item, pytest.Function)
            and "limited" in item.fixturenames
        ):
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
        if request.param == MEMORY:
            yield memory.serving({**NO_METRICS, "HEADRACE_ALLOW_RESET": "1"}, 3)
            return
        with dev_server(
            *CONFIGURATIONS[request.param], environment=NO_METRICS, on_data=not is_full(request.config)
        ) as running:
            yield Server(running.url, http)


@pytest.fixture(scope="session")
def limited(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Yields a server with keys and small limits, asked with the key that may do everything. One process: two of the
    limits hold for each process.
    """
    with connections() as http:
        if EXTERNAL_GUARDED_URL:
            yield Server(EXTERNAL_GUARDED_URL.rstrip("/"), http, "all")
            return
        if getattr(request, "param", None) == MEMORY:
            yield memory.serving({**NO_METRICS, **GUARDED}, 1, "all")
            return
        with dev_server(environment={**NO_METRICS, **GUARDED}, on_data=not is_full(request.config)) as running:
            yield Server(running.url, http, "all")
