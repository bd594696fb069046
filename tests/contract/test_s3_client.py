"""The real S3 client against a server that fails: what its own repeat hides, the adapter must not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headrace.errors import StoreTimeout
from headrace.objects.s3 import S3Objects, make_client


class _Server(ThreadingHTTPServer):
    """Answers each request with the next status of `script`; 0 closes the connection without a word."""

    daemon_threads = True
    script: tuple[int, ...] = ()
    served = 0


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"  # answers "Expect: 100-continue", for which the client would wait a second

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        status = self.server.script[self.server.served]
        self.server.served += 1
        self.close_connection = True
        if status:
            self.send_response(status)
            self.send_header("Content-Length", "10")
            self.end_headers()
            self.wfile.write(b"short" if status == 200 and self.command == "GET" else b"<Error/>  ")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Server]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with _Server(("127.0.0.1", 0), _Handler) as serving:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{serving.server_port}")
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


@pytest.mark.parametrize("first", [500, 0])
def test_create_does_not_take_its_own_lost_try_for_another_writer(server: _Server, first: int) -> None:
    server.script = (first, 412)
    with pytest.raises(StoreTimeout):
        S3Objects("bucket", make_client()).create("k", b"data")
    assert server.served == 2


def test_create_that_is_refused_at_once_was_another_writers(server: _Server) -> None:
    server.script = (412,)
    assert not S3Objects("bucket", make_client()).create("k", b"data")


def test_no_answer_and_half_an_answer_are_timeouts(server: _Server) -> None:
    server.script = (0, 0, 200)
    objects = S3Objects("bucket", make_client())
    with pytest.raises(StoreTimeout):
        objects.get("k")
    with pytest.raises(StoreTimeout):
        objects.get("k")
    assert server.served == 3


def test_a_server_that_is_not_there_is_a_timeout(server: _Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # the discard port: nobody listens
    with pytest.raises(StoreTimeout):
        S3Objects("bucket", make_client()).put("k", b"data")
