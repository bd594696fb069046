from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import pytest
from click.testing import CliRunner, Result

from cli import options
from cli.client import Client, open_client
from cli.main import main
from tests.cli.fake_server import FakeServer


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
def headrace(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Shell:
    shell = Shell(server)

    def open_fake(url: str, key: str | None) -> Client:
        client = open_client(url, key, transport=httpx.MockTransport(server))
        client.sleep = shell.slept.append
        return client

    monkeypatch.setattr(options, "open_client", open_fake)
    monkeypatch.delenv("HEADRACE_URL", raising=False)
    monkeypatch.delenv("HEADRACE_API_KEY", raising=False)
    return shell


Headrace = Callable[..., Result]
