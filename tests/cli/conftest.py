from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from cli import options
from cli.client import Client, open_client
from cli.main import main
from tests.cli.fake_features import FakeFeatures
from tests.cli.fake_relay import FakeRelay
from tests.cli.fake_server import FakeServer
from tests.cli.fake_subscriptions import FakeSubscriptions
from tests.cli.fake_topics import DEFAULTS, FakeTopics, Topic, serve


@dataclass
class Shell:
    """Runs `headrace` against the fake server, and keeps how long it would have slept."""

    server: FakeServer
    slept: list[float] = field(default_factory=list)

    def __call__(self, *args: str) -> Result:
        result = CliRunner().invoke(main, args)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def topics() -> FakeTopics:
    """The part of the server below `/v0/`."""
    return FakeTopics()


@pytest.fixture
def relay(topics: FakeTopics) -> FakeRelay:
    """Routers and watches of these topics."""
    return FakeRelay(topics)


@pytest.fixture
def subscriptions(server: FakeServer) -> FakeSubscriptions:
    """Subscriptions to the streams of the server."""
    return FakeSubscriptions(server)


@pytest.fixture
def features() -> FakeFeatures:
    """Feature tables of the server."""
    return FakeFeatures()


@pytest.fixture
def headrace(
    server: FakeServer,
    topics: FakeTopics,
    relay: FakeRelay,
    subscriptions: FakeSubscriptions,
    features: FakeFeatures,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Shell:
    shell = Shell(server)

    def handle(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if features.owns(request):
            return features(request)
        if path.startswith(("/v0/routers", "/v0/watch")):
            return relay(request)
        if path.startswith("/v1/stream/__ds/"):
            return subscriptions(request)
        return topics(request) if path.startswith("/v0/") else server(request)

    def open_fake(url: str, key: str | None) -> Client:
        client = open_client(url, key, transport=httpx.MockTransport(handle))
        client.sleep = shell.slept.append
        return client

    monkeypatch.setattr(options, "open_client", open_fake)
    for name in ("HEADRACE_URL", "HEADRACE_API_KEY", "HEADRACE_CONTEXT", "HEADRACE_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return shell


@pytest.fixture
def fake() -> FakeTopics:
    """A server with an empty queue `jobs`."""
    fake = FakeTopics()
    fake.topics["jobs"] = Topic({**DEFAULTS, "type": "queue"})
    return fake


@pytest.fixture
def url(fake: FakeTopics) -> Iterator[str]:
    with serve(fake) as url:
        yield url
