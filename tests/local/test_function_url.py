"""The emulated Function URL: the events that it makes, and the instances that it keeps."""

from __future__ import annotations

import base64
import http.client
import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from local.function_url import event_of
from tests.conformance.contract.client import eventually
from tests.support.emulated_cloud import DevServer, DevServerFailed, dev_server

AT = datetime(2026, 11, 21, 13, 14, 15, tzinfo=UTC)
TEXT = {"content-type": "text/plain"}


def event(headers: list[tuple[bytes, bytes]] | None = None, body: bytes = b"") -> dict[str, Any]:
    scope = {
        "method": "POST",
        "path": "/a/b",
        "raw_path": b"/a%2Fb",
        "query_string": b"x=%20",
        "headers": headers or [],
        "http_version": "1.1",
        "scheme": "http",
        "client": ("1.2.3.4", 5),
    }
    return event_of(scope, body, request_id="id", at=AT)


def test_an_event_has_the_path_as_it_came_joined_headers_and_cookies_apart() -> None:
    found = event([(b"X-A", b"1"), (b"x-a", b"2"), (b"cookie", b"c=1; d=2"), (b"user-agent", b"me")])
    assert found["rawPath"] == "/a%2Fb"
    assert found["rawQueryString"] == "x=%20"
    assert found["headers"] == {"x-a": "1,2", "user-agent": "me", "x-forwarded-proto": "http"}
    assert found["cookies"] == ["c=1", "d=2"]
    assert ".lambda-url." in found["requestContext"]["domainName"]
    assert found["requestContext"]["http"]["sourceIp"] == "1.2.3.4"
    assert found["requestContext"]["time"] == "21/Nov/2026:13:14:15 +0000"
    assert "body" not in found


@pytest.mark.parametrize(
    ("content_type", "body", "as_text"),
    [
        (b"application/json", b"{}", True),
        (b"text/plain; charset=utf-8", "é".encode(), True),
        (b"text/plain", b"\xff", False),
        (b"application/octet-stream", b"abc", False),
    ],
)
def test_a_body_goes_as_text_where_its_type_says_so(content_type: bytes, body: bytes, as_text: bool) -> None:
    found = event([(b"content-type", content_type)], body)
    assert found["isBase64Encoded"] is not as_text
    assert found["body"] == (body.decode() if as_text else base64.b64encode(body).decode())


def ask(server: DevServer, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
    try:
        connection.request(method, path, body, TEXT)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def instances(server: DevServer) -> list[int]:
    """Returns the ids of the processes that the Function URL started."""
    pid = server.pids["api"]
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks /proc for the instances")
def test_an_instance_that_is_killed_breaks_its_answer_off_and_is_replaced() -> None:
    with dev_server("--function-url", "--api-processes", "2") as server:
        assert ask(server, "PUT", "/v1/stream/s")[0] == 201
        assert ask(server, "POST", "/v1/stream/s", b"one")[0] == 204
        # An instance runs without keys here, as if it were open; it still obeys no page of elsewhere.
        page = {"origin": "https://evil.example", "content-type": "text/plain"}
        assert httpx.post(f"{server.url}/v1/stream/s", headers=page, content=b"two").status_code == 403
        follower = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
        follower.request("GET", "/v1/stream/s?offset=-1&live=sse")
        answer = follower.getresponse()
        assert [answer.readline() for _ in range(2)] == [b"event: data\n", b"data:one\n"]
        first = instances(server)
        assert len(first) == 2
        for pid in first:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            answer.read()  # half an answer must not look like a whole one
        follower.close()
        eventually(lambda: instances(server), lambda now: not set(first) & set(now))
        assert ask(server, "GET", "/v1/stream/s") == (200, b"one")


def test_a_function_that_cannot_start_ends_the_server_and_says_why() -> None:
    with (
        pytest.raises(DevServerFailed, match="api key has an unknown scope"),
        dev_server("--function-url", environment={"HEADRACE_API_KEYS": "key:typo"}),
    ):
        pass
