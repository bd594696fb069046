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
from tests.conformance.contract.stages import PLANS, Stage, stages

EXTERNAL_URL = os.environ.get("HEADRACE_CONTRACT_URL")


def given_server() -> Api:
    """The server that is there already."""
    return Api((EXTERNAL_URL or "").rstrip("/"), key=os.environ.get("HEADRACE_CONTRACT_KEY"))


@pytest.fixture(scope="session", params=["given-server"] if EXTERNAL_URL else CONFIGURATIONS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """A running server; tests share it and keep to names of their own."""
    if EXTERNAL_URL:
        with given_server() as given:
            yield given
        return
    configuration = CONFIGURATIONS[request.param]
    soon = {"HEADRACE_METRICS_INTERVAL_MS": "1000", "HEADRACE_INDEX_JOBS": "0"}  # indexing is for `every_stage`
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


@pytest.fixture(scope="session")
def every_stage() -> Iterator[dict[str, Stage]]:
    """Streams that hold their records in the tail, in segments, in index runs, ...; on a server of their own."""
    with stages() as made:
        yield made


@pytest.fixture(scope="session")
def roomy(request: pytest.FixtureRequest) -> Iterator[Api]:
    """The server of the stages, which leaves fewer than 1,600 records of a stream in its tail; or the given server."""
    if EXTERNAL_URL:
        with given_server() as given:
            yield given
        return
    made: dict[str, Stage] = request.getfixturevalue("every_stage")
    yield made["tail"].stream.api


@pytest.fixture(scope="session", params=PLANS)
def stage(request: pytest.FixtureRequest, every_stage: dict[str, Stage]) -> Stage:
    """Each of them in turn."""
    return every_stage[request.param].settle()
