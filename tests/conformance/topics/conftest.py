"""The topics that tests ask for; their servers are in `tests/conformance/conftest.py`."""

from __future__ import annotations

import pytest

from tests.conformance.topics.client import Server, Topic, answered


@pytest.fixture
def guarded(limited: Server) -> Server:
    """Returns the server with keys and limits, without any topic."""
    # In small pages: a deployment has hundreds, and its emulator takes some milliseconds for each of a page.
    while topics := answered(limited.get("/v0/topics", page_size=50))["topics"]:
        for topic in topics:
            answered(Topic(limited, topic["topic"]).remove())
    return limited


@pytest.fixture
def topic(server: Server) -> Topic:
    """Returns a new topic of the default configuration."""
    return server.topic()


@pytest.fixture
def queue(server: Server) -> Topic:
    """Returns a new queue of the default configuration with five jobs, 1 to 5."""
    return server.queue(1, 2, 3, 4, 5)
