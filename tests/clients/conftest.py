"""The server that the official clients talk to: `headrace dev`, or the one at HEADRACE_CONFORMANCE_URL."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

DOORS = {"a server": (), "the streaming door": ("--function-url", "--api-processes", "4")}


@pytest.fixture(scope="session", params=DOORS)
def server_url(request: pytest.FixtureRequest) -> Iterator[str]:
    external = os.environ.get("HEADRACE_CONFORMANCE_URL")
    if external:
        yield external
        return
    from tests.support.emulated_cloud import dev_server

    with dev_server("--seal-records", "20", "--seal-age", "1s", *DOORS[request.param]) as server:
        yield server.url


@pytest.fixture
def stream_url(server_url: str) -> str:
    return f"{server_url}/v1/stream/client-{uuid.uuid4().hex}"
