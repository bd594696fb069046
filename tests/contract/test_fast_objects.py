"""Many ranges at once, and puts, against an S3 that answers and one that fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from headrace.clock import within_deadline
from headrace.errors import DeadlineExceeded, StoreThrottled, StoreTimeout
from headrace.objects import ObjectMissing, Range
from headrace.objects.fast import FastObjects
from headrace.objects.s3 import S3Objects, make_client
from tests.support.standin import in_place_of_aws, point_clients_at

BUCKET = "headrace-ranges"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def client(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    point_clients_at(monkeypatch, endpoint)
    client = make_client()
    client.create_bucket(Bucket=BUCKET)
    return client


def test_ranges_come_in_their_order_and_as_one_by_one(client: Any) -> None:
    alone = S3Objects(BUCKET, client)
    together = S3Objects(BUCKET, client, fast=FastObjects(BUCKET, client))
    body = bytes(range(256)) * 400
    alone.put("logs/a/index/one", body)
    alone.put("logs/a/index/empty", b"")
    wanted = [Range("logs/a/index/one", start, 1 + start % 777) for start in range(0, len(body) + 900, 1009)]
    wanted += [Range("logs/a/index/one", len(body) - 3, 10), Range("logs/a/index/one", len(body), 5)]
    wanted += [Range("logs/a/index/empty", 0, 1), wanted[3]]
    assert together.get_ranges(wanted) == alone.get_ranges(wanted)
    assert together.get_ranges([]) == alone.get_ranges([]) == []


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 30_000])
def test_what_is_put_is_got(client: Any, data: bytes) -> None:
    alone, fast = S3Objects(BUCKET, client), FastObjects(BUCKET, client)
    fast.put("logs/a b/é/one", data)
    assert alone.get("logs/a b/é/one") == data
    assert list(alone.list("logs/a b/")) == ["logs/a b/é/one"]


def test_a_missing_object_is_told_apart(client: Any) -> None:
    S3Objects(BUCKET, client).put("there", b"x")
    for fast in (FastObjects(BUCKET, client), None):
        with pytest.raises(ObjectMissing):
            S3Objects(BUCKET, client, fast=fast).get_ranges([Range("there", 0, 1), Range("none", 0, 1)])


@pytest.mark.parametrize("wanted", [(-1, 5), (0, 0)])
def test_a_range_that_is_none_is_refused(client: Any, wanted: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="range"):
        FastObjects(BUCKET, client).get_ranges([Range("k", *wanted)])


def test_nothing_is_read_when_the_time_is_over(client: Any) -> None:
    with within_deadline(0), pytest.raises(DeadlineExceeded):
        FastObjects(BUCKET, client).get_ranges([Range("k", 0, 1)])


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    answer: tuple[int, bytes] = (200, b"")
    served = 0


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.served += 1
        status, body = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) + (5 if status == 206 else 0)))
        if status == 206:
            self.send_header("Content-Range", "bytes 0-9/10")
        with contextlib.suppress(ConnectionError):  # another read has failed already, so this one was given up
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize("key", ["k", "404/416 InvalidRange/429 SlowDown"])
@pytest.mark.parametrize(
    ("answer", "tries", "error"),
    [
        ((503, b"<Error><Code>SlowDown</Code></Error>"), 2, StoreThrottled),
        ((500, b"<Error><Code>InternalError</Code></Error>"), 2, StoreTimeout),
        ((206, b"short"), 1, StoreTimeout),
    ],
)
def test_what_fails_is_told_as_the_port_promises(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[int, bytes], tries: int, error: type[Exception], key: str
) -> None:
    with _Server(("127.0.0.1", 0), _Handler) as server, in_place_of_aws(server, monkeypatch):
        server.answer = answer
        with pytest.raises(error):
            FastObjects(BUCKET, make_client()).get_ranges([Range(key, 0, 10), Range(key, 20, 10)])
    assert server.served >= tries


def test_a_server_that_is_not_there_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    point_clients_at(monkeypatch, "http://127.0.0.1:9")  # the discard port: nobody listens
    with pytest.raises(StoreTimeout):
        FastObjects(BUCKET, make_client()).get_ranges([Range("k", 0, 1)])
