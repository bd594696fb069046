"""The stream of a watch with clients that are not ours, which come back by themselves when it ends: the EventSource of a
page in a browser, and that of Node.
"""

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

CLIENT = Path(__file__).with_name("watch.mjs")
KEY = "key+with/signs"


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    environment = {"HEADRACE_API_KEYS": f"{KEY}:rw,other", "HEADRACE_SSE_SECONDS": "2"}
    with dev_server("--api-processes", "2", environment=environment) as server:
        yield server.url


def names() -> list[str]:
    return [f"{part}-{uuid.uuid4().hex}" for part in ("first", "second")]


def check(seen: dict[str, Any]) -> None:
    first, second = seen["data"]
    assert first[:2] == ["über", "open 1"]
    assert first == ["über", *(f"open {number}" for number in range(1, len(first)))], "nothing is lost or comes twice"
    assert second[0] == {"n": 1}
    assert second[1:] == [f"between {number}" for number in range(1, len(second))]
    assert seen["opened"] >= 3
    assert seen["caughtUp"] >= 4
    assert len(set(seen["ids"])) == len(seen["ids"])


@pytest.mark.timeout(120)
def test_a_page_in_a_browser_watches_over_several_streams(server_url: str) -> None:
    check(run_page(CLIENT, server_url, KEY, names()))


@pytest.mark.timeout(120)
def test_node_watches_over_several_streams(server_url: str) -> None:
    command = ["node", "--experimental-eventsource", str(CLIENT), server_url, KEY, *names()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout))
