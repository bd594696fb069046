"""One server for each configuration, shared by every test of the contract.

Set HEADRACE_CONTRACT_URL to run against a server that is already there instead; HEADRACE_CONTRACT_KEY is its key.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from local.emulated_cloud import dev_server
from tests.conformance.contract.client import TEXT, Api, Stream
from tests.conformance.contract.configurations import CONFIGURATIONS

EXTERNAL_URL = os.environ.get("HEADRACE_CONTRACT_URL")


@pytest.fixture(scope="session", params=["given-server"] if EXTERNAL_URL else CONFIGURATIONS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """A running server; tests share it and keep to names of their own."""
    if EXTERNAL_URL:
        with Api(EXTERNAL_URL.rstrip("/"), key=os.environ.get("HEADRACE_CONTRACT_KEY")) as given:
            yield given
        return
    configuration = CONFIGURATIONS[request.param]
    soon = {"HEADRACE_METRICS_INTERVAL_MS": "1000"}
    with (
        dev_server(*configuration.arguments, environment=soon) as server,
        Api(server.url, seals=configuration.seals) as started,
    ):
        yield started


@pytest.fixture
def stream(api: Api) -> Stream:
    """A new, empty JSON stream."""
    return api.stream()


@pytest.fixture
def text(api: Api) -> Stream:
    """A new, empty text stream."""
    return api.stream(TEXT)
