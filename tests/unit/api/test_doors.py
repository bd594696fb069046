"""The same names through every door: bare ASGI, a real socket under uvicorn, API Gateway, a Function URL."""

from __future__ import annotations

import asyncio
import base64
import gzip
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote

import pytest
import uvicorn
from mangum import Mangum

from functions.api.door.answers import TEXT_TYPES
from functions.api.door.routes import TruePath
from tests.unit.api.asgi import JSON, TEXT, Server

NAMES = ["plain", "a/b", "100%", "%2F", "%25", "a b", "é€😀", "a+b&c=d", "a#b", "../x", "a//b/", "~!*'()"]


def gateway_event(
    method: str, target: str, headers: dict[str, str] | None = None, body: bytes = b"", *, function_url: bool = False
) -> dict[str, Any]:
    """Returns an event of payload format 2.0. An HTTP API decodes the path, a Function URL does not."""
    raw, _, query = target.partition("?")
    path = raw if function_url else unquote(raw)
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": {"host": "api.example", "x-forwarded-proto": "https", **(headers or {})},
        "requestContext": {
            "domainName": "x.lambda-url.eu-west-1.on.aws"
            if function_url
            else "x.execute-api.eu-west-1.amazonaws.com",
            "http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "1.2.3.4", "userAgent": "t"},
        },
        "body": base64.b64encode(body).decode(),
        "isBase64Encoded": True,
    }


class LambdaDoor:
    def __init__(self, server: Server, *, function_url: bool = False) -> None:
        self._app = TruePath(server.app)
        self._function_url = function_url

    def __call__(
        self, method: str, target: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> dict[str, Any]:
        event = gateway_event(method, target, headers, body, function_url=self._function_url)
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)  # as the Lambda runtime's process has one
        try:
            mangum = Mangum(self._app, lifespan="off", text_mime_types=list(TEXT_TYPES))  # type: ignore[arg-type]
            return mangum(event, None)  # type: ignore[arg-type]
        finally:
            asyncio.set_event_loop(None)
            loop.close()


@pytest.fixture(autouse=True)
def on_lambda(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "uvicorn" not in request.node.name:
        monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "api")


@pytest.mark.parametrize("function_url", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_means_the_same_on_lambda(name: str, function_url: bool) -> None:
    server = Server()
    lambda_door = LambdaDoor(server, function_url=function_url)
    target = "/v1/stream/" + quote(name, safe="")
    created = lambda_door("PUT", target, TEXT, name.encode())
    assert created["statusCode"] == 201
    assert [row["name"] for row in server("GET", "/v1/streams").json] == [name]
    assert server("GET", target).body == name.encode()
    location = created["headers"]["location"]
    assert location.startswith("https://api.example/v1/stream/")
    assert server("GET", location.removeprefix("https://api.example")).body == name.encode()


@pytest.fixture
def port() -> Iterator[int]:
    server = uvicorn.Server(uvicorn.Config(Server().app, log_level="error", http="httptools", lifespan="off"))
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join(10)
    listener.close()


def over_http(port: int, method: str, target: str, headers: dict[str, str], body: bytes = b"") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, target, body or None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_name_means_the_same_under_uvicorn(port: int) -> None:
    for name in NAMES:
        target = "/v1/stream/" + quote(name, safe="")
        assert over_http(port, "PUT", target, TEXT, name.encode())[0] == 201, name
        assert over_http(port, "GET", target, {}) == (200, name.encode())
    listed = json.loads(over_http(port, "GET", "/v1/streams", {})[1])
    assert [row["name"] for row in listed] == sorted(NAMES)
    for broken in ("%ff", "%zz", "%E2%82"):
        assert over_http(port, "GET", "/v1/stream/" + broken, {})[0] == 400


def test_bytes_and_text_pass_through_lambda() -> None:
    door = LambdaDoor(Server())
    door("PUT", "/v1/stream/b", {"content-type": "application/octet-stream"}, bytes(range(256)))
    answer = door("GET", "/v1/stream/b")
    assert answer["isBase64Encoded"]
    assert base64.b64decode(answer["body"]) == bytes(range(256))
    door("PUT", "/v1/stream/t", TEXT, b"\xff\xfe")
    assert base64.b64decode(door("GET", "/v1/stream/t")["body"]) == b"\xff\xfe"
    door("PUT", "/v1/stream/j", {**JSON, "stream-key": "clé"}, '["é"]'.encode())
    assert door("GET", "/v1/stream/j")["body"] == '["é"]'


def test_the_buffered_door_tells_what_is_there_and_ends() -> None:
    door = LambdaDoor(Server())
    door("PUT", "/v1/stream/s", JSON, b"[" + b",".join([b"1"] * 1500) + b"]")
    answer = door("GET", "/v1/stream/s?offset=-1&live=sse")
    assert answer["statusCode"] == 200
    assert answer["headers"]["content-type"] == "text/event-stream"
    assert answer["body"].count("event: data") == answer["body"].count("event: control") == 1
    assert '"upToDate":true' in answer["body"]


def test_a_poll_on_lambda_waits_and_ends() -> None:
    door = LambdaDoor(Server())
    door("PUT", "/v1/stream/s", TEXT)
    answer = door("GET", "/v1/stream/s?offset=now&live=1&timeout=100ms")
    assert answer["statusCode"] == 204


def import_handler(**environment: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import functions.api.handler as h\n"
        "from types import SimpleNamespace\n"
        "from tests.unit.api.test_doors import gateway_event\n"
        "context = SimpleNamespace(aws_request_id='r', get_remaining_time_in_millis=lambda: 29000)\n"
        "print(h.handler(gateway_event('GET', '/health'), context)['statusCode'])\n"
        "print(h.handler(gateway_event('GET', '/v1/streams'), context)['statusCode'])\n"
    )
    fixed = {
        "AWS_LAMBDA_FUNCTION_NAME": "api",
        "AWS_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "HEADRACE_BUCKET": "b",
    }
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], **fixed, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_function_starts_with_keys_and_refuses_without() -> None:
    started = import_handler(HEADRACE_API_KEYS="key:read")
    assert [line for line in started.stdout.splitlines() if line.isdigit()] == ["200", "401"], started.stderr
    refused = import_handler()
    assert refused.returncode != 0
    assert "no api keys are set" in refused.stderr
    malformed = import_handler(HEADRACE_API_KEYS="topsecret:reed")
    assert "unknown scope" in malformed.stderr
    assert "topsecret" not in malformed.stderr


@pytest.mark.parametrize("function_url", [False, True])
def test_the_console_passes_through_lambda(function_url: bool) -> None:
    door = LambdaDoor(Server("key"), function_url=function_url)
    page = door("GET", "/")
    assert page["statusCode"] == 200
    (script,) = re.findall(r'src="([^"]+)"', page["body"])
    packed = door("GET", script, {"accept-encoding": "gzip"})
    assert packed["isBase64Encoded"]
    assert gzip.decompress(base64.b64decode(packed["body"])) == door("GET", script)["body"].encode()
    renderer = door("GET", script.replace("console.js", "swagger-ui-bundle.js"))
    assert renderer["statusCode"] == 200
    assert len(renderer["body"]) > 1_000_000
