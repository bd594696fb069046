"""The real clients of S3 against a server that fails: what their own repeats hide, the adapters must not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headrace.clock import within_deadline
from headrace.errors import DeadlineExceeded, StoreThrottled, StoreTimeout
from headrace.objects.fast import FastObjects
from headrace.objects.s3 import S3Objects, make_client
from tests.support.standin import in_place_of_aws


class _Server(ThreadingHTTPServer):
    """Answers each request with the next status and error code of `script`; status 0 closes the connection without a
    word.
    """

    daemon_threads = True
    script: tuple[tuple[int, str], ...] = ()
    served = 0


OK, LOST = (200, ""), (0, "")
SLOW, FAILED, TAKEN = (503, "SlowDown"), (500, "InternalError"), (412, "PreconditionFailed")


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"  # answers "Expect: 100-continue", for which the client would wait a second

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        status, code = self.server.script[self.server.served]
        self.server.served += 1
        self.close_connection = True
        if status:
            body = b"" if status == 200 else f"<Error><Code>{code}</Code></Error>".encode()
            is_cut = status == 200 and self.command == "GET"
            self.send_response(status)
            self.send_header("Content-Length", str(len(body) + 5 * is_cut))
            self.send_header("ETag", '"1"')
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Server]:
    with _Server(("127.0.0.1", 0), _Handler) as serving, in_place_of_aws(serving, monkeypatch):
        yield serving


@pytest.mark.parametrize("first", [FAILED, LOST])
def test_create_does_not_take_its_own_lost_try_for_another_writer(server: _Server, first: tuple[int, str]) -> None:
    server.script = (first, TAKEN)
    with pytest.raises(StoreTimeout):
        S3Objects("bucket", make_client()).create("k", b"data")
    assert server.served == 2


def test_create_that_is_refused_at_once_was_another_writers(server: _Server) -> None:
    server.script = (TAKEN,)
    assert not S3Objects("bucket", make_client()).create("k", b"data")


def test_a_create_that_was_signed_long_ago_has_written_nothing(server: _Server) -> None:
    server.script = ((403, "RequestTimeTooSkewed"),)
    with pytest.raises(StoreThrottled):
        S3Objects("bucket", make_client()).create("k", b"data")
    assert server.served == 1


def test_no_answer_and_half_an_answer_are_timeouts(server: _Server) -> None:
    server.script = (LOST, LOST, OK)
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


def fast_objects(sleep: Callable[[float], None] = time.sleep) -> S3Objects:
    client = make_client()
    return S3Objects("bucket", client, fast=FastObjects("bucket", client, sleep=sleep))


@pytest.mark.parametrize("script", [(OK,), (FAILED, OK), (SLOW, OK), (LOST, OK)])
def test_a_fast_put_is_tried_twice(server: _Server, script: tuple[tuple[int, str], ...]) -> None:
    server.script = script
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        time.sleep(seconds)  # else the second try would take the connection that the first one broke

    fast_objects(sleep).put("k", b"data")
    assert server.served == len(script)
    assert pauses == [0.05] * (len(script) - 1)


@pytest.mark.parametrize(
    ("script", "meaning"),
    [
        ((SLOW, SLOW), StoreThrottled),
        (((429, "TooManyRequestsException"), (400, "KMS.ThrottlingException")), StoreThrottled),
        (((409, "OperationAborted"), (409, "ConditionalRequestConflict")), StoreThrottled),
        (((403, "RequestTimeTooSkewed"), (403, "RequestTimeTooSkewed")), StoreThrottled),
        ((FAILED, FAILED), StoreTimeout),
        ((FAILED, SLOW), StoreTimeout),  # the first try may have written
        ((SLOW, LOST), StoreTimeout),
        ((LOST, SLOW), StoreTimeout),
        ((SLOW, (503, "ServiceUnavailable")), StoreTimeout),
        ((TAKEN, (400, "RequestTimeout")), StoreTimeout),
    ],
)
def test_a_fast_put_is_refused_only_if_both_tries_were(
    server: _Server, script: tuple[tuple[int, str], ...], meaning: type[Exception]
) -> None:
    server.script = script
    with pytest.raises(meaning) as raised:
        fast_objects().put("logs/a/k", b"data")
    assert server.served == 2
    assert "object=logs/a/k" in str(raised.value)
    assert ("code=" in str(raised.value)) == (
        raised.value.__cause__ is not None and "<Code>" in str(raised.value.__cause__)
    )


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (403, "AccessDenied"),
        (404, "NoSuchBucket"),
        (400, "KMS.DisabledException"),
        (400, "ExpiredToken"),
    ],
)
def test_a_wrong_setting_is_not_taken_for_a_slow_store(server: _Server, status: int, code: str) -> None:
    server.script = ((status, code),)
    with pytest.raises(Exception, match=code) as raised:
        fast_objects().put("k", b"data")
    assert not isinstance(raised.value, StoreThrottled | StoreTimeout)
    assert server.served == 1


def test_a_fast_put_that_is_out_of_time_is_not_sent(server: _Server) -> None:
    with within_deadline(0), pytest.raises(DeadlineExceeded):
        fast_objects().put("k", b"data")
    assert server.served == 0
