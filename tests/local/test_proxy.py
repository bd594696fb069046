"""Laws of the proxy in front of several API processes, over raw sockets where a client library would tidy up."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from local import http1
from tests.support.emulated_cloud import DevServer, dev_server


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    with dev_server("--app", "tests.local.fake_app:create_app", "--api-processes", "2") as server:
        yield server


def connect(server: DevServer) -> socket.socket:
    address = urlsplit(server.url)
    return socket.create_connection((address.hostname or "", address.port or 0), timeout=10)


def exchange(server: DevServer, request: bytes) -> bytes:
    """Sends a request; returns everything that the server sends until it closes."""
    with connect(server) as connection:
        connection.sendall(request)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


def body_of(answer: bytes) -> Any:
    return json.loads(answer.split(b"\r\n\r\n", 1)[1])


def test_several_processes_take_requests_in_turn_on_one_connection(server: DevServer) -> None:
    with httpx.Client(base_url=server.url) as client:
        pids = [client.get("/x").json()["pid"] for _ in range(6)]
    assert set(pids) == {server.pids["api-0"], server.pids["api-1"]}
    assert all(first != second for first, second in pairwise(pids))


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "PURGE"])
def test_methods_raw_paths_and_headers_pass_untouched(server: DevServer, method: str) -> None:
    request = f"{method} /a%2Fb//%25/%c3%a9/../x;y?q=%20&& HTTP/1.1\r\nHost: h\r\nX-Odd:  a, b \r\n"
    request += "Connection: close\r\n\r\n"
    seen = body_of(exchange(server, request.encode()))
    assert seen["method"] == method
    assert seen["raw_path"] == "/a%2Fb//%25/%c3%a9/../x;y"
    assert seen["query"] == "q=%20&&"
    assert ["x-odd", "a, b"] in seen["headers"]
    assert ["host", "h"] in seen["headers"]


def test_answers_keep_their_headers_and_values(server: DevServer) -> None:
    answer = httpx.get(f"{server.url}/x")
    assert answer.headers["ETag"] == '"A-b"'
    assert answer.headers["Stream-Next-Offset"] == "0Aa"
    direct = httpx.get(f"http://127.0.0.1:{server.state['api_ports'][0]}/x")
    assert [name for name, _ in answer.headers.raw] == [name for name, _ in direct.headers.raw]


def test_answers_without_a_body_leave_the_connection_usable(server: DevServer) -> None:
    with httpx.Client(base_url=server.url) as client:
        for _ in range(4):
            assert client.get("/empty").status_code == 204
            assert client.get("/not-modified").status_code == 304
            head = client.head("/x")
            assert head.status_code == 200
            assert int(head.headers["content-length"]) > 0
            assert client.get("/x").json()["method"] == "GET"


def test_large_bodies_pass_both_ways(server: DevServer) -> None:
    size = 64 * 1024 * 1024
    with httpx.Client(base_url=server.url, timeout=60) as client:
        assert client.post("/x", content=b"x" * size).json()["size"] == size

        def pieces() -> Iterator[bytes]:
            for _ in range(50):
                yield b"y" * 100_000

        assert client.post("/x", content=pieces()).json()["size"] == 5_000_000
        assert len(client.get("/chunks").content) == 3_100_004


def test_expect_100_continue_is_answered_before_the_body(server: DevServer) -> None:
    with connect(server) as connection:
        connection.sendall(b"PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(1024).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"hello")
        answer = b""
        while b'"size": 5' not in answer:  # head and body may come one after the other
            more = connection.recv(65536)
            assert more, answer
            answer += more


def test_a_refusal_overtakes_a_body_and_ends_the_connection(server: DevServer) -> None:
    request = b"PUT /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n"
    answer = exchange(server, request)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer.lower()


def test_events_stream_without_buffering(server: DevServer) -> None:
    started = time.monotonic()
    with httpx.stream("GET", f"{server.url}/sse") as answer:
        lines = answer.iter_lines()
        assert next(lines) == "data: 0"
        assert time.monotonic() - started < 2


def test_a_client_that_leaves_is_seen_leaving(server: DevServer) -> None:
    apis = [f"http://127.0.0.1:{port}/left" for port in server.state["api_ports"]]

    def departures() -> int:
        return sum(len(httpx.get(url).json()) for url in apis)

    before = departures()
    with connect(server) as connection:
        connection.sendall(b"GET /sse HTTP/1.1\r\nHost: h\r\n\r\n")
        connection.recv(1024)
    deadline = time.monotonic() + 5
    while departures() == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)  # polls: an api notices that its client left, and doesn't tell


def test_pipelined_requests_are_answered_in_order(server: DevServer) -> None:
    first, last = b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\n", b"GET /2 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    answer = exchange(server, first + last)
    assert answer.index(b'"raw_path": "/1"') < answer.index(b'"raw_path": "/2"')


@pytest.mark.parametrize(
    "request_head",
    [
        b"nonsense\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nBad Header : x\r\n\r\n",
    ],
)
def test_an_ambiguous_request_is_refused(server: DevServer, request_head: bytes) -> None:
    answer = exchange(server, request_head)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert body_of(answer)["error"]["code"] == "bad_request"


def test_the_end_of_a_message_is_found() -> None:
    def answer(head: bytes, method: bytes = b"GET") -> http1.Length:
        return http1.response_length(http1.parse_head(head + b"\r\n\r\n"), method)

    assert answer(b"HTTP/1.1 200 OK\r\ncontent-length: 3") == 3
    assert answer(b"HTTP/1.1 200 OK\r\nContent-Length: 3", b"HEAD") == 0
    assert answer(b"HTTP/1.1 304 Not Modified\r\ncontent-length: 3") == 0
    assert answer(b"HTTP/1.1 204") == 0
    assert answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked") == http1.CHUNKED
    assert answer(b"HTTP/1.1 200 OK") == http1.UNTIL_CLOSE
