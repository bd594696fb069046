"""A watch through each door that streams: it stays open, and is sent what comes."""

from __future__ import annotations

from tests.conformance.conftest import connections
from tests.conformance.topics.client import Server
from tests.conformance.topics.events import data_of, watching


def test_a_watch_is_sent_what_is_there_and_then_what_comes(server_url: str) -> None:
    with connections() as http:
        server = Server(server_url, http)
        one, two = server.topic().filled("a", "b"), server.topic()
        with watching(one, two, heartbeat_ms=1000) as events:
            backlog = events.until("caught-up", 2)
            assert data_of(backlog, one) == ["a", "b"]
            two.filled("c")
            one.filled("d")
            live = events.take(2)
            assert (data_of(live, one), data_of(live, two)) == (["d"], ["c"])
            assert next(iter(events)).kind == "", "silence is filled"
