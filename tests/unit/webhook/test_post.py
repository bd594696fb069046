"""One request to a receiver, whatever the receiver, or who owns its name, does."""

from __future__ import annotations

import itertools
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from functions.webhook import post as module
from functions.webhook.handler import handler
from functions.webhook.post import MAX_ANSWER_BYTES, Resolve, addresses_of, post
from headrace.subscriptions.delivery import Delivered
from tests.unit.webhook.receivers import Behaviour, answering, certificate, receiver

BODY = b'{"subscription_id":"bill"}'
HEADERS = {"Content-Type": "application/json", "Webhook-Signature": "t=1,kid=ds_x,ed25519=y"}
DONE = b'{"done":true}'


def send(
    url: str,
    *,
    resolve: Resolve = addresses_of,
    context: ssl.SSLContext | None = None,
    allow_loopback: bool = True,
    seconds: float = 5,
) -> Delivered:
    return post(
        url,
        BODY,
        HEADERS,
        allow_loopback=allow_loopback,
        context=context or ssl.create_default_context(),
        resolve=resolve,
        seconds=seconds,
    )


def test_a_webhook_arrives_as_it_was_signed() -> None:
    with receiver(answering("200 OK", DONE)) as running:
        assert send(f"http://127.0.0.1:{running.port}/ds?team=a%20b") == Delivered(200, done=True)
    head, _, body = running.requests[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /ds?team=a%20b HTTP/1.1"
    assert f"Host: 127.0.0.1:{running.port}" in lines
    assert [line for line in lines if line.lower().startswith("host:")] == [f"Host: 127.0.0.1:{running.port}"]
    assert {f"{name}: {value}" for name, value in HEADERS.items()} <= set(lines)
    assert body == BODY


@pytest.mark.parametrize(
    ("answer", "is_done"),
    [
        (DONE, True),
        (b' {"done": true, "more": [1]}\n', True),
        (b"", False),
        (b"{}", False),
        (b'{"done":false}', False),
        (b'{"done":1}', False),
        (b'{"done":"true"}', False),
        (b'[{"done":true}]', False),
        (b"true", False),
        (b"done", False),
        (b"\xff\xfe\x00", False),
        (b"[" * 60_000, False),
        (b"9" * 10_000, False),
        (DONE + b" " * (MAX_ANSWER_BYTES - len(DONE)), True),
        (DONE + b" " * (MAX_ANSWER_BYTES - len(DONE) + 1), False),
    ],
)
def test_only_json_with_done_exactly_true_is_done(answer: bytes, is_done: bool) -> None:
    with receiver(answering("200 OK", answer)) as running:
        delivered = send(f"http://127.0.0.1:{running.port}/")
    assert delivered == Delivered(200, done=is_done)
    assert delivered.is_accepted


@pytest.mark.parametrize("status", [300, 400, 401, 404, 410, 429, 500, 503])
def test_another_status_than_2xx_is_a_failure_whatever_the_body_says(status: int) -> None:
    with receiver(answering(f"{status} Whatever", DONE)) as running:
        delivered = send(f"http://127.0.0.1:{running.port}/")
    assert delivered == Delivered(status)
    assert not delivered.is_accepted


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with receiver(answering("200 OK", DONE)) as goal:
        location = f"Location: http://127.0.0.1:{goal.port}/"
        with receiver(answering(f"{status} Elsewhere", b"", location)) as running:
            assert send(f"http://127.0.0.1:{running.port}/") == Delivered(status)
    assert goal.connections == 0


def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver(answering("200 OK", b"{}")) as proxy, receiver(answering("200 OK", DONE)) as running:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert send(f"http://127.0.0.1:{running.port}/") == Delivered(200, done=True)
    assert proxy.connections == 0


def endless(line: socket.socket) -> None:
    line.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in itertools.count():
        line.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")


def silent(line: socket.socket) -> None:
    line.recv(1)


def dripping_head(line: socket.socket) -> None:
    line.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    _drip(line)


def dripping_body(line: socket.socket) -> None:
    line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
    _drip(line)


def continuing(line: socket.socket) -> None:
    while True:
        line.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.01)


def _drip(line: socket.socket) -> None:
    while True:
        line.sendall(b"x")
        time.sleep(0.01)


@pytest.mark.parametrize("behaviour", [silent, dripping_head, dripping_body, continuing])
def test_a_slow_receiver_is_cut_off_in_time(behaviour: Behaviour) -> None:
    with receiver(behaviour) as running:
        began = time.monotonic()
        delivered = send(f"http://127.0.0.1:{running.port}/", seconds=0.5)
        taken = time.monotonic() - began
    assert delivered == Delivered(0, error="the answer took too long")
    assert 0.4 < taken < 3


def test_a_receiver_that_never_ends_its_handshake_is_cut_off_in_time() -> None:
    with receiver(silent) as running:  # it waits for a request, and gets the beginning of a handshake
        delivered = send(f"https://127.0.0.1:{running.port}/", seconds=0.5)
    assert delivered == Delivered(0, error="the answer took too long")


def test_a_receiver_is_late_also_if_the_socket_says_so_before_the_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._Line, "cut", lambda _: None)  # its thread gets no turn
    with receiver(silent) as running:
        delivered = send(f"http://127.0.0.1:{running.port}/", seconds=0.05)
    assert delivered == Delivered(0, error="the answer took too long")


def test_a_huge_answer_is_read_no_further() -> None:
    with receiver(endless) as running:
        assert send(f"http://127.0.0.1:{running.port}/") == Delivered(200)


@pytest.mark.parametrize(
    "answer",
    [b"", b"\x16\x03\x01", b"SSH-2.0-x\r\n", b"HTTP/1.1 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000],
)
def test_an_answer_that_is_no_http_is_none(answer: bytes) -> None:
    with receiver(lambda line: line.sendall(answer)) as running:
        delivered = send(f"http://127.0.0.1:{running.port}/")
    assert delivered.status == 0
    assert delivered.error.startswith("no answer: ")


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert send(f"http://127.0.0.1:{port}/") == Delivered(0, error="no answer: ConnectionRefusedError")


def test_a_name_is_resolved_once_and_that_very_address_is_dialled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The name's owner answers the check with an address of the internet, and anything later with this machine's."""
    asked: list[str] = []
    dialled: list[tuple[str, int]] = []

    def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["93.184.216.34"] if len(asked) == 1 else ["127.0.0.1"]

    with receiver(answering("200 OK", DONE), certificate(tmp_path, "hooks.acme.example")[0]) as running:
        connect = socket.create_connection

        def dial(address: tuple[str, int], timeout: float) -> socket.socket:
            dialled.append(address)
            return connect(("127.0.0.1", running.port), timeout)

        monkeypatch.setattr(module.socket, "create_connection", dial)
        trust = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
        delivered = send("https://hooks.acme.example/ds", resolve=rebinding, context=trust)
    assert delivered == Delivered(200, done=True)
    assert (asked, dialled) == (["hooks.acme.example"], [("93.184.216.34", 443)])
    assert b"Host: hooks.acme.example\r\n" in running.requests[0]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "169.254.169.254", "10.1.2.3", "64:ff9b::7f00:1"])
@pytest.mark.parametrize("allow_loopback", [True, False])
def test_a_name_that_resolves_to_no_address_of_the_internet_is_not_dialled(
    monkeypatch: pytest.MonkeyPatch, address: str, allow_loopback: bool
) -> None:
    monkeypatch.setattr(module.socket, "create_connection", lambda *_: pytest.fail("dialled"))
    delivered = send("https://hooks.acme.example/ds", resolve=lambda *_: [address], allow_loopback=allow_loopback)
    assert delivered.status == 0
    assert delivered.error.startswith("refused: ")


@pytest.mark.parametrize("url", ["http://127.0.0.1:{}/", "http://localhost:{}/", "https://10.0.0.1:{}/", "nonsense"])
def test_a_url_is_checked_again_before_anything_is_resolved(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr(module.socket, "create_connection", lambda *_: pytest.fail("dialled"))
    delivered = send(url.format(9), resolve=lambda *_: pytest.fail("resolved"), allow_loopback=False)
    assert delivered.error.startswith("refused: ")


def test_a_name_that_does_not_resolve_is_no_answer() -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    assert send("https://hooks.acme.example/", resolve=unknown) == Delivered(0, error="no answer: gaierror")


def test_a_resolver_that_takes_all_the_time_leaves_none_to_dial(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = threading.Event()
    monkeypatch.setattr(module.socket, "create_connection", lambda *_: pytest.fail("dialled"))
    monkeypatch.setattr(module._Line, "cut", lambda line: (setattr(line, "was_cut", True), cut.set()))

    def slow(host: str, port: int) -> list[str]:
        assert cut.wait(5)
        return ["93.184.216.34"]

    delivered = send("https://hooks.acme.example/", resolve=slow, seconds=0.05)
    assert delivered == Delivered(0, error="the answer took too long")


def test_tls_proves_the_name_that_the_url_has(tmp_path: Path) -> None:
    server, trust = certificate(tmp_path, "localhost")
    with receiver(answering("200 OK", DONE), server) as running:
        assert send(f"https://localhost:{running.port}/", context=trust, resolve=lambda *_: ["127.0.0.1"]).done
        other = send(f"https://127.0.0.1:{running.port}/", context=trust)
        untrusted = send(f"https://localhost:{running.port}/", resolve=lambda *_: ["127.0.0.1"])
    assert other == untrusted == Delivered(0, error="no answer: SSLCertVerificationError")
    assert len([request for request in running.requests if request]) == 1


def test_the_function_answers_with_what_became_of_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "webhook")
    url = "http://127.0.0.1:{}/hook?key=confidential"
    event = {"body": BODY.decode(), "headers": {"Authorization": "Bearer confidential"}}
    with receiver(answering("202 Accepted", DONE)) as running:
        event["url"] = url.format(running.port)
        refused = handler(event)
        monkeypatch.setattr("functions.webhook.handler._settings", lambda: _Loopback)
        assert handler(event) == {"status": 202, "done": True, "error": ""}
    assert (refused["status"], refused["done"]) == (0, False)
    assert refused["error"].startswith("refused: ")
    logged = [vars(record) for record in caplog.records if record.message == "posted"]
    assert [line["status"] for line in logged] == [0, 202]
    assert "confidential" not in repr(logged)


class _Loopback:
    webhook_loopback = True
