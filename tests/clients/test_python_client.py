"""PyPI `durable-streams`, unmodified. Version 0.1.0 has no word for closing: it is asked for and seen by the header."""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx
import pytest
from durable_streams import DurableStream, SeqConflictError, stream

JSON_TYPE = "application/json"
CLOSED = "stream-closed"


def batches(url: str, offset: str, live: Any) -> list[tuple[list[Any], str]]:
    """Returns what a follower gets, with the offset after each batch, until it is told that the stream is closed."""
    seen: list[tuple[list[Any], str]] = []
    with stream(url, offset=offset, live=live) as response:
        for event in response.iter_events("json_batches"):
            seen.append((event.data, event.next_offset))
            if response.headers.get(CLOSED) == "true":  # long-poll; an SSE connection ends by itself
                break
    return seen


def items(seen: list[tuple[list[Any], str]]) -> list[Any]:
    return [item for data, _ in seen for item in data]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_the_python_client_creates_appends_follows_resumes_and_sees_the_close(stream_url: str, live: str) -> None:
    everything = [{"n": n} for n in range(1, 13)]
    with DurableStream.create(stream_url, content_type=JSON_TYPE) as handle:
        handle.append(everything[0])
        saved = handle.append(everything[1]).next_offset
        assert saved == handle.head().offset

        followed: list[Any] = []
        follower = threading.Thread(target=lambda: followed.extend(items(batches(stream_url, "-1", live))))
        follower.start()
        time.sleep(0.3)  # the follower has read what is there, and waits
        for item in everything[2:-1]:
            handle.append(item)
        time.sleep(0.3)  # the last append meets a waiting reader
    with DurableStream(stream_url, content_type=JSON_TYPE, headers={"Stream-Closed": "true"}) as closing:
        closing.append(everything[-1])
    follower.join(30)
    assert not follower.is_alive()
    assert followed == everything

    resumed = batches(stream_url, saved, live)
    assert items(resumed) == everything[2:]
    with DurableStream(stream_url, content_type=JSON_TYPE) as handle:
        assert resumed[-1][1] == handle.head().offset
        with pytest.raises(SeqConflictError):  # the client's name for any 409
            handle.append({"n": 13})


def test_the_python_client_reads_bytes_and_stops_at_the_end(stream_url: str) -> None:
    with DurableStream.create(stream_url, content_type="application/octet-stream") as handle:
        handle.append(b"\x00\xff")
        handle.append(b"\n\xfe")
        with handle.stream(live=False) as response:
            assert response.read_bytes() == b"\x00\xff\n\xfe"
        handle.delete()
    assert httpx.head(stream_url).status_code in (404, 410)
