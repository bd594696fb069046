"""Bad input through the proxy and three processes: a 4xx in the envelope, and not a byte of any store changes."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.support.emulated_cloud import DevServer, dev_server
from tests.support.pipeline import NO_METRICS, Pipeline

JSON = {"Content-Type": "application/json"}
S = "/v1/stream/bad-input"
CLOSED = "/v1/stream/bad-input-closed"


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    with dev_server("--api-processes", "3", "--seal-age", "1h", environment=NO_METRICS) as running:
        request(running, "PUT", S, JSON, b"[1,2,3]")
        request(running, "PUT", CLOSED, {**JSON, "Stream-Closed": "true"}, b"[1]")
        yield running


def request(
    server: DevServer, method: str, path: str, headers: dict[str, str] | None = None, body: bytes | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Sends one request with the path as it is: no client may tidy it."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=30)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


BAD: list[tuple[str, str, dict[str, str], bytes | None]] = [
    ("POST", S, JSON, b""),
    ("POST", S, JSON, b"[]"),
    ("POST", S, JSON, b'{"a":'),
    ("POST", S, JSON, b"[NaN]"),
    ("POST", S, JSON, b'["\xff"]'),
    ("POST", S, JSON, b"1 2"),
    ("POST", S, {}, b"[1]"),
    ("POST", S, {"Content-Type": "text/plain"}, b"[1]"),
    ("POST", S, {**JSON, "Content-Length": "99999999999"}, None),
    ("POST", S, {**JSON, "Stream-Timestamp": "yesterday"}, b"[1]"),
    ("POST", S, {**JSON, "Stream-Seq": ""}, b"[1]"),
    ("POST", S, {**JSON, "Producer-Id": "p"}, b"[1]"),
    ("POST", S, {**JSON, "Producer-Id": "", "Producer-Epoch": "0", "Producer-Seq": "0"}, b"[1]"),
    ("POST", S, {**JSON, "Producer-Id": "p", "Producer-Epoch": "1e3", "Producer-Seq": "0"}, b"[1]"),
    ("POST", S, {**JSON, "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "9007199254740992"}, b"[1]"),
    ("POST", S, {**JSON, "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "5"}, b"[1]"),
    ("POST", S, {**JSON, "Stream-Key": "k" * 5000}, b"[1]"),
    ("POST", CLOSED, JSON, b"[2]"),
    ("POST", "/v1/stream/unknown", JSON, b"[1]"),
    ("PUT", S, {"Content-Type": "text/plain"}, None),
    ("PUT", S, {**JSON, "Stream-Closed": "true"}, None),
    ("PUT", "/v1/stream/new", {**JSON, "Stream-TTL": "007"}, None),
    ("PUT", "/v1/stream/new", {**JSON, "Stream-TTL": "10", "Stream-Expires-At": "2099-01-01T00:00:00Z"}, None),
    ("PUT", "/v1/stream/new", {**JSON, "Stream-Expires-At": "2099-13-01T00:00:00Z"}, None),
    ("PUT", "/v1/stream/new", {"Stream-Forked-From": "/v1/stream/unknown"}, None),
    ("PUT", "/v1/stream/new", {"Stream-Forked-From": S, "Stream-Fork-Offset": "zzz"}, None),
    ("PUT", "/v1/stream/new", {"Stream-Forked-From": S, "Content-Type": "text/plain"}, None),
    ("PUT", "/v1/stream/new", {"Stream-Fork-Sub-Offset": "0"}, None),
    ("PUT", "/v1/stream/new", JSON, b"[1,"),
    ("PUT", "/v1/stream/" + "n" * 2000, JSON, None),
    ("PUT", "/v1/stream/%FF%FE", JSON, None),
    ("PUT", "/v1/stream/a%00b", JSON, None),
    ("PUT", "/v1/stream/", JSON, None),
    ("PUT", "/v1/stream/x/_schema", JSON, None),
    ("GET", S + "?offset=", {}, None),
    ("GET", S + "?offset=12", {}, None),
    ("GET", S + "?offset=-1&offset=-1", {}, None),
    ("GET", S + "?offset=" + "U" * 26, {}, None),
    ("GET", S + "?offset=" + "Z" * 26, {}, None),
    ("GET", S + "?live=sse", {}, None),
    ("GET", S + "?live=maybe&offset=-1", {}, None),
    ("GET", S + "?format=xml", {}, None),
    ("GET", S + "?since=never", {}, None),
    ("GET", S + "?offset=-1&live=long-poll&timeout=soon", {}, None),
    ("GET", "/v1/stream/unknown", {}, None),
    ("GET", "/v1/streams?limit=0", {}, None),
    ("GET", "/v2/anything", {}, None),
    ("HEAD", "/v1/stream/unknown", {}, None),
    ("DELETE", "/v1/stream/unknown", {}, None),
    ("PATCH", S, JSON, b"[1]"),
    ("BREW", S, {}, None),
    ("DELETE", "/v1/streams", {}, None),
]


def test_bad_requests_are_refused_in_the_envelope_and_change_nothing(server: DevServer) -> None:
    pipeline = Pipeline(server)
    before = pipeline.dump()
    for method, path, headers, body in BAD:
        status, answered, text = request(server, method, path, headers, body)
        case = (method, path[:80], headers, body, status, text[:200])
        assert 400 <= status < 500, case
        assert answered["x-content-type-options"] == "nosniff", case
        if method != "HEAD" and "stream-closed" not in answered:
            error = json.loads(text)["error"]
            assert set(error) == {"code", "message"}, case
            assert answered["content-type"] == "application/json; charset=utf-8", case
        if status == 405:
            assert "allow" in answered, case
    assert pipeline.dump() == before


@pytest.mark.parametrize(
    "name",
    ["a%2Fb", "a/b/c", "50%25", "%E6%B0%B4%F0%9F%8C%8A", "with%20space", "q%3Fx", "hash%23", "_schemas", "..", "-1"],
)
def test_odd_names_are_names(server: DevServer, name: str) -> None:
    path = f"/v1/stream/odd-{name}"
    assert request(server, "PUT", path, JSON, b'["x"]')[0] == 201
    assert request(server, "POST", path, JSON, b'["y"]')[0] == 204
    status, _, text = request(server, "GET", path)
    assert (status, json.loads(text)) == (200, ["x", "y"])
    assert request(server, "DELETE", path)[0] == 204
