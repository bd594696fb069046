"""npm `@durable-streams/client`, unmodified."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.node import install_packages

HERE = Path(__file__).parent


@pytest.mark.timeout(180)
@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_the_javascript_client_creates_appends_follows_resumes_and_sees_the_close(stream_url: str, live: str) -> None:
    install_packages(HERE)
    done = subprocess.run(
        ["node", "journey.mjs", stream_url, live], cwd=HERE, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout)
    everything = [{"n": n} for n in range(1, 53)]
    assert seen["first"] == everything[:2]
    assert seen["followed"] == everything
    assert seen["resumed"] == everything[2:]
    assert seen["problems"] == []
    assert seen["refusal"] == 409
    assert seen["streamClosed"] == {"followed": True, "resumed": True, "head": True}
    assert seen["closedAt"] == seen["end"]
