"""One server for each configuration, shared by every test of the contract.

Set HEADRACE_CONTRACT_URL to run against a server that is already there instead; HEADRACE_CONTRACT_KEY is its key.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import memory
from tests.conformance.contract.client import TEXT, Api, Stream
from tests.conformance.contract.configurations import CONFIGURATIONS, STRICTEST
from tests.conformance.contract.stages import ASKED_FULLY, PLANS, Stage, leave_to_full, stages
from tests.conformance.memory import MEMORY
from tests.conftest import is_full
from tests.support.emulated_cloud import dev_server

EXTERNAL_URL = os.environ.get("HEADRACE_CONTRACT_URL")

HERE = Path(__file__).parent
FOLLOWED = {"test_subscriptions.py"}  # what it asks for is done by the relay


@pytest.hookimpl(tryfirst=True)  # so that an id begins with the configuration
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Asks each test in the configurations that are for it."""
    if "api" not in metafunc.fixturenames or metafunc.definition.path.parent != HERE:
        return
    if EXTERNAL_URL:
        metafunc.parametrize("api", ["given-server"], indirect=True, scope="session")
        return
    sensitive = metafunc.definition.get_closest_marker("sensitive")
    if sensitive is not None and not sensitive.args:
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: `sensitive` needs a reason")
    names, of_each_push = [MEMORY, *CONFIGURATIONS], {MEMORY}
    if metafunc.definition.path.name in FOLLOWED:
        names, of_each_push = [*CONFIGURATIONS], {STRICTEST}
    if sensitive is not None:
        of_each_push = of_each_push | {STRICTEST}
    params = [pytest.param(name, marks=() if name in of_each_push else pytest.mark.full, id=name) for name in names]
    metafunc.parametrize("api", params, indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks `full` the questions that a push need not ask on a stage."""
    leave_to_full((item for item in items if item.path.parent == HERE), ASKED_FULLY)


def given_server() -> Api:
    """Returns the server that `HEADRACE_CONTRACT_URL` names."""
    return Api((EXTERNAL_URL or "").rstrip("/"), key=os.environ.get("HEADRACE_CONTRACT_KEY"))


@pytest.fixture(scope="session")
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """Yields a running server; tests share it and keep to names of their own."""
    if EXTERNAL_URL:
        with given_server() as given:
            yield given
        return
    # Often enough that a test of the server's own metrics need not wait for long. Each interval of each process is a batch,
    # which is sealed, too.
    soon = {"HEADRACE_METRICS_INTERVAL_MS": "5000"}
    if request.param == MEMORY:
        with Api(memory.URL, http=memory.client(soon, 3)) as started:
            yield started
        return
    configuration = CONFIGURATIONS[request.param]
    with (
        dev_server(*configuration.arguments, environment=soon, on_data=not is_full(request.config)) as server,
        Api(server.url, seals=configuration.seals) as started,
    ):
        yield started


@pytest.fixture
def stream(api: Api) -> Stream:
    """Returns a new, empty JSON stream."""
    return api.stream()


@pytest.fixture
def text(api: Api) -> Stream:
    """Returns a new, empty text stream."""
    return api.stream(TEXT)


@pytest.fixture(scope="session")
def every_stage(request: pytest.FixtureRequest) -> Iterator[dict[str, Stage]]:
    """Streams that hold their records in the tail, in segments, in index runs, ...; on a server of their own."""
    with stages(on_data=not is_full(request.config)) as made:
        yield made


@pytest.fixture(scope="session")
def roomy(request: pytest.FixtureRequest) -> Iterator[Api]:
    """Yields the server of the stages, which leaves fewer than 1,200 records of a stream in its tail; or the given
    server.
    """
    if EXTERNAL_URL:
        with given_server() as given:
            yield given
        return
    made: dict[str, Stage] = request.getfixturevalue("every_stage")
    yield made["tail"].stream.api


@pytest.fixture(scope="session", params=PLANS)
def stage(request: pytest.FixtureRequest, every_stage: dict[str, Stage]) -> Stage:
    """Returns each stage in turn, settled."""
    return every_stage[request.param].settle()
