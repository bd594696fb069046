"""The WebSocket with clients that are not ours: a page in a browser, on a server without keys, and Node."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.browser import run_page
from tests.support.emulated_cloud import dev_server

CLIENT = Path(__file__).with_name("socket.mjs")


@pytest.fixture(scope="module")
def socket_url() -> Iterator[str]:
    with dev_server("--api-processes", "2") as server:
        yield server.url.replace("http://", "ws://") + "/v0/ws"


def check(seen: dict[str, Any]) -> None:
    assert seen["ack"]["last_seq"] == 2
    assert seen["ack"]["request_id"] == "p1"
    assert seen["data"] == ["über", {"n": 1}, 3]
    assert {"ack", "subscribed", "record", "caught_up"} <= set(seen["ops"])


def test_a_page_in_a_browser_subscribes_and_publishes(socket_url: str) -> None:
    check(run_page(CLIENT, socket_url, f"page-{uuid.uuid4().hex}"))


def test_node_subscribes_and_publishes(socket_url: str) -> None:
    command = ["node", "--experimental-websocket", str(CLIENT), socket_url, f"node-{uuid.uuid4().hex}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout))
