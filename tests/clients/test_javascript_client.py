"""npm `@durable-streams/client`, `@durable-streams/state` and `@durable-streams/y-durable-streams`, unmodified."""

from __future__ import annotations

import json
import subprocess
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.node import install_packages

HERE = Path(__file__).parent


def journey(*command: str) -> Any:
    """Runs a program of this folder; returns the JSON document that is the last line that it prints."""
    install_packages(HERE)
    done = subprocess.run(["node", *command], cwd=HERE, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(180)
@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_the_javascript_client_creates_appends_follows_resumes_and_sees_the_close(stream_url: str, live: str) -> None:
    seen = journey("journey.mjs", stream_url, live)
    everything = [{"n": n} for n in range(1, 53)]
    assert seen["first"] == everything[:2]
    assert seen["followed"] == everything
    assert seen["resumed"] == everything[2:]
    assert seen["problems"] == []
    assert seen["refusal"] == 409
    assert seen["streamClosed"] == {"followed": True, "resumed": True, "head": True}
    assert seen["closedAt"] == seen["end"]


LIVE = ["sse", pytest.param("long-poll", marks=pytest.mark.full)]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("live", LIVE)
def test_databases_of_tanstack_db_follow_each_other_over_a_stream(stream_url: str, live: str) -> None:
    httpx.put(stream_url, headers={"Content-Type": "application/json"}).raise_for_status()
    profile = {"profile": {"kind": "state-protocol"}}  # tests/docs runs the same without a profile
    httpx.post(f"{stream_url}/_profile", json=profile).raise_for_status()
    seen = journey("state.mjs", stream_url, live)
    assert seen["seen"] == [["bread", "milk", "tea"], ["bread", "tea"], ["bread"]]
    assert seen["replayed"] == [["bread", False], ["milk", True]]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("server_url", ["a server"], indirect=True)  # the other has too few processes
@pytest.mark.parametrize("live", LIVE)
def test_yjs_documents_follow_each_other_and_are_compacted(server_url: str, live: str) -> None:
    document = uuid.uuid4().hex
    seen = journey("yjs.mjs", server_url, document, live)
    assert seen["problems"] == []
    assert seen["start"] == "> Hello, world"
    assert seen["length"] == len("> Hello, world") + 40 * 60
    assert seen["present"] == ["ann", "bob"]
    snapshots = httpx.get(f"{server_url}/v1/streams", params={"limit": 1000}).json()
    assert any(f"{document}/.snapshots/" in stream["name"] for stream in snapshots)
