"""The API's own client of DynamoDB against a server that fails, and beside botocore's client."""

from __future__ import annotations

import ipaddress
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headrace.clock import SystemClock
from headrace.errors import SignatureExpired, StoreThrottled, StoreTimeout
from headrace.tables.dynamodb import Store
from headrace.tables.items import ConditionFailed, Guard, TransactionCancelled
from headrace.tables.watermarks import Unpublished
from headrace.wal import Committed, TooLate
from headrace.wal.dynamodb import DynamoWal
from tests.support.builders import first_entry
from tests.support.standin import in_place_of_aws

GET = {"TableName": "t", "Key": {"k": {"S": "a"}}}
ERROR = "com.amazonaws.dynamodb.v20120810#"
CANCELLED, NO_REASON = TransactionCancelled, '{"Code":"None","Item":null}'
LOST, CUT, SILENT = 0, 1, 2  # instead of a status: no word, half a body, nothing for a second


class _Server(ThreadingHTTPServer):
    """Answers each request with the next status and body of `script`, the last one for ever, and keeps the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: list[tuple[int, str]] = [(200, "{}")]
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.ahead_s = 0.0  # of this machine's clock


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), body))
        script = self.server.script
        status, text = script.pop(0) if len(script) > 1 else script[0]
        if status == SILENT:
            time.sleep(1)  # longer than its client waits
        if status in (LOST, SILENT):
            self.close_connection = True
            return
        self.send_response(200 if status == CUT else status)
        self.send_header("Content-Length", str(len(text) + 9 * (status == CUT)))
        self.send_header("Retry-After", "0")
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(text.encode())
        self.close_connection = status == CUT

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(time.time() + self.server.ahead_s if timestamp is None else timestamp)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Server]:
    with _Server() as serving, in_place_of_aws(serving, monkeypatch):
        yield serving


def opened(timeout_s: float = 2.0) -> Store:
    return Store("eu-west-1", timeout_s=timeout_s, fast=True)


@pytest.mark.parametrize(
    ("answer", "meaning"),
    [
        ((LOST, ""), StoreTimeout),
        ((SILENT, ""), StoreTimeout),
        ((CUT, "{}"), StoreTimeout),
        ((200, '{"Item":'), StoreTimeout),
        ((200, "[]"), StoreTimeout),
        ((503, "busy"), StoreTimeout),
        ((502, "<html>"), StoreTimeout),
        ((400, f'{{"__type":"{ERROR}ThrottlingException","message":null}}'), StoreThrottled),
        ((400, f'{{"__type":"{ERROR}ConditionalCheckFailedException","Item":null}}'), ConditionFailed),
        ((400, f'{{"__type":"{ERROR}TransactionCanceledException","CancellationReasons":[{NO_REASON}]}}'), CANCELLED),
    ],
)
def test_a_call_is_sent_once_whatever_becomes_of_it(
    server: _Server, answer: tuple[int, str], meaning: type[Exception]
) -> None:
    store = opened(timeout_s=0.3)
    store.call("GetItem", GET)  # the connection is kept, as it is in most requests
    server.script = [answer]
    with pytest.raises(meaning):
        store.call("PutItem", GET)
    assert len(server.requests) == 2


@pytest.mark.parametrize("status", [307, 400])
def test_an_answer_that_no_rule_knows_is_shown(server: _Server, status: int) -> None:
    server.script = [(status, "who is this?")]
    with pytest.raises(Exception, match=f"{status}.*who is this") as raised:
        opened().call("GetItem", GET)
    assert not isinstance(raised.value, StoreThrottled | StoreTimeout)
    assert len(server.requests) == 1


HOUR_S = 3600.0
EXPIRED = (
    400,
    f'{{"__type":"{ERROR}InvalidSignatureException","message":"Signature expired: 2 is now earlier than 3"}}',
)


def signed_at(request: tuple[str, dict[str, str], bytes]) -> float:
    """Returns the time with which a request was signed."""
    at = datetime.strptime(request[1]["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    return at.timestamp()


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("ahead_s", [300.0, -300.0, 0.0])
def test_a_clock_follows_the_time_that_answers_tell(server: _Server, fast: bool, ahead_s: float) -> None:
    server.ahead_s = ahead_s
    clock = SystemClock()
    store = Store("eu-west-1", fast=fast, clock=clock)
    for answer in ((200, "{}"), (400, f'{{"__type":"{ERROR}ThrottlingException"}}')):
        server.script = [answer]
        with suppress(StoreThrottled):
            store.call("GetItem", GET)
        assert abs(clock.now_ms() - time.time() * 1000 - ahead_s * 1000) < 2_000
    assert ahead_s or clock.now_ms() - clock.wall_ms() == 0
    if fast:
        assert abs(signed_at(server.requests[-1]) - time.time() - ahead_s) < 60


@pytest.mark.parametrize("fast", [True, False])
def test_an_hour_is_believed_only_if_it_is_why_a_call_was_refused(server: _Server, fast: bool) -> None:
    server.ahead_s, clock = HOUR_S, SystemClock()
    store = Store("eu-west-1", fast=fast, clock=clock)
    for answer in ((200, "{}"), (500, "{}"), (400, f'{{"__type":"{ERROR}ThrottlingException"}}')):
        server.script = [answer]
        with suppress(StoreThrottled, StoreTimeout):
            store.call("GetItem", GET)
        assert clock.now_ms() - clock.wall_ms() == 0
    server.script = [EXPIRED, EXPIRED]
    with pytest.raises(SignatureExpired):
        store.call("GetItem", GET)
    assert abs(clock.now_ms() - time.time() * 1000 - HOUR_S * 1000) < 2_000


def test_a_call_that_is_refused_because_of_a_wrong_clock_is_signed_again(server: _Server) -> None:
    server.ahead_s = HOUR_S
    server.script = [EXPIRED, (200, "{}")]
    assert opened().call("GetItem", GET) == {}
    refused, repeated = map(signed_at, server.requests)
    assert HOUR_S - 60 < repeated - refused < HOUR_S + 60


def test_a_call_that_is_refused_although_the_clock_is_right_is_not_repeated(server: _Server) -> None:
    server.script = [EXPIRED]
    with pytest.raises(SignatureExpired):
        opened().call("GetItem", GET)
    assert len(server.requests) == 1


@pytest.mark.parametrize("guards", [(), (Unpublished("x", 1),)], ids=["put", "transaction"])
def test_a_commit_is_signed_with_the_time_of_its_picture(server: _Server, guards: tuple[Guard, ...]) -> None:
    wal, entry, read_s = DynamoWal(opened(), {"wal": "w", "watermarks": "m"}), first_entry("x"), time.time() - 70
    assert wal.commit(entry, guards, round(read_s * 1000)) == Committed()
    server.ahead_s, server.script = HOUR_S, [EXPIRED]  # the host was suspended, and neither clock shows it
    assert wal.commit(entry, guards, round(read_s * 1000)) == TooLate()
    assert len(server.requests) == 2
    assert all(abs(signed_at(request) - read_s) <= 1 for request in server.requests)


def test_nobody_there_is_a_timeout(server: _Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # the discard port: nobody listens
    with pytest.raises(StoreTimeout):
        opened().call("GetItem", GET)


def test_a_connection_that_the_server_closed_is_opened_again(server: _Server) -> None:
    store = opened()
    server.script = [(LOST, ""), (200, "{}")]
    with pytest.raises(StoreTimeout):
        store.call("GetItem", GET)
    assert store.call("GetItem", GET) == {}


@pytest.mark.parametrize("token", [None, "", "to/ken=="])
@pytest.mark.parametrize("path", ["", "/below"])
def test_a_request_arrives_as_botocore_would_have_signed_it(
    server: _Server, monkeypatch: pytest.MonkeyPatch, token: str | None, path: str
) -> None:
    if token is not None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    url = f"http://127.0.0.1:{server.server_port}{path}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    opened().call("GetItem", GET)
    ((asked, headers, body),) = server.requests
    at = headers["X-Amz-Date"]
    age = datetime.now(UTC) - datetime.strptime(at, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert timedelta(seconds=-2) < age < timedelta(minutes=1)
    sent = {name: headers[name] for name in ("Content-Type", "X-Amz-Target")}
    request = AWSRequest("POST", url + ("" if path else "/"), sent, body)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: datetime.strptime(at, "%Y%m%dT%H%M%SZ"))
    SigV4Auth(Credentials("test", "test", token or None), "dynamodb", "eu-west-1").add_auth(request)
    assert headers["Authorization"] == request.headers["Authorization"]
    assert headers.get("X-Amz-Security-Token") == (token or None)
    assert asked == (path or "/")


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"AWS_USE_DUALSTACK_ENDPOINT": "true"},
        {"AWS_USE_FIPS_ENDPOINT": "true", "AWS_DEFAULT_REGION": "us-gov-west-1"},
        {"AWS_ACCOUNT_ID": "123456789012"},
    ],
)
def test_calls_go_where_a_client_sends_them(
    server: _Server, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    sent: list[Any] = []

    def stop(request: Any, **_: Any) -> None:
        sent.append(request)
        raise StoreTimeout("not sent")

    for fast in (False, True):
        store = Store(environment.get("AWS_DEFAULT_REGION", "eu-west-1"), fast=fast)
        store.connection.client.meta.events.register_first("before-send.*.*", stop)
        with pytest.raises(StoreTimeout):
            store.call("GetItem", GET)
    theirs, ours = sent
    assert ours.url == theirs.url

    def scope(request: Any) -> str:
        signed = request.headers["Authorization"]
        text = signed.decode() if isinstance(signed, bytes) else signed
        return str(text.partition("Credential=")[2].partition(",")[0])

    assert scope(ours) == scope(theirs)


def test_credentials_that_come_later_are_found(server: _Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    store = opened()
    with pytest.raises(StoreTimeout, match="credentials"):
        store.call("GetItem", GET)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    assert store.call("GetItem", GET) == {}


@pytest.fixture
def certificate(tmp_path: Path) -> Callable[[str], tuple[Path, Path]]:
    """Returns a maker of a self-signed certificate for an address, and its key."""

    def make(address: str) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False
            )
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        files = tmp_path / f"{address}.pem", tmp_path / f"{address}.key"
        files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return files

    return make


@pytest.mark.parametrize(
    ("address", "variable", "answers"),
    [
        ("127.0.0.1", "AWS_CA_BUNDLE", True),
        ("127.0.0.1", "UNSAID", False),  # nobody vouches for it
        ("127.0.0.2", "AWS_CA_BUNDLE", False),  # it is another's
    ],
)
def test_a_server_is_believed_if_a_client_would_believe_it(
    server: _Server,
    monkeypatch: pytest.MonkeyPatch,
    certificate: Callable[[str], tuple[Path, Path]],
    address: str,
    variable: str,
    answers: bool,
) -> None:
    file, key = certificate(address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://127.0.0.1:{server.server_port}")
    monkeypatch.setenv(variable, str(file))
    for fast in (False, True):
        store = Store("eu-west-1", fast=fast)
        if answers:
            assert "Item" not in store.call("GetItem", GET)
        else:
            with pytest.raises(StoreTimeout, match=r"certificate|doesn't match"):
                store.call("GetItem", GET)
