"""PyPI `beava`, unmodified, in embed mode and over TCP, on `headrace-beava`."""

import http.client
import socket
import struct
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import beava as bv
import msgspec
import orjson
import pytest
from beava import _embed
from beava._errors import RegistrationError

from tests.clients.test_beava_client import NODES

URLS = {"http": ""}
BINARY = Path(sysconfig.get_path("scripts")) / "headrace-beava"


@pytest.fixture(scope="module")
def app() -> Iterator[bv.App]:
    """An application that starts its own server, which it speaks TCP with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BEAVA_BINARY", str(BINARY))
        spawn = _embed.spawn_embedded_server

        def spawn_and_note(**options: Any) -> Any:
            spawned = spawn(**options)
            patch.setitem(URLS, "http", spawned[1])  # which the client forgets
            return spawned

        patch.setattr(_embed, "spawn_embedded_server", spawn_and_note)
        with bv.App(test_mode=True) as client:
            yield client
            transport: Any = client._transport
        transport._proc.stdout.close()  # which the client leaves open


@pytest.mark.timeout(60)
def test_an_application_without_an_address_has_a_server_of_its_own(app: bv.App) -> None:
    assert app.register(*NODES)["registry_version"] == 1
    for amount in (5.0, 20.0, 11.5):
        app.push("Txn", {"user_id": "alice", "amount": amount, "n": int(amount)})
    row = {"count": 3, "total": 36.5, "large": 2, "last": 11}
    assert app.get("Spending", "alice") == row
    assert app.batch_get([("Spending", "alice"), ("Spending", "nobody")]) == [row, {}]
    assert app.ping()["registry_version"] == 1
    with pytest.raises(RegistrationError, match="invalid_event"):
        app.push("Txn", {"user_id": "a", "amount": "much", "n": 1})
    app.reset()
    assert app.ping()["registry_version"] == 2


def ask(line: socket.socket, operation: int, kind: int, body: bytes) -> tuple[int, int, bytes]:
    """Sends a frame; returns operation, content type and body of the answer."""
    line.sendall(struct.pack(">IHB", len(body) + 3, operation, kind) + body)
    head = line.recv(7, socket.MSG_WAITALL)
    length, answer, found = struct.unpack(">IHB", head)
    return answer, found, line.recv(length - 3, socket.MSG_WAITALL)


@pytest.mark.timeout(60)
def test_frames_that_no_client_sends_are_answered_or_end_the_connection(app: bv.App) -> None:
    transport: Any = app._transport
    with socket.create_connection((transport._tcp.host, transport._tcp.port), timeout=10) as line:
        packed = msgspec.msgpack.encode({"table": "No", "key": "a"})
        answer, kind, body = ask(line, 0x0020, 2, packed)
        assert (answer, kind) == (0xFFFF, 2)
        assert msgspec.msgpack.decode(body)["error"]["code"] == "unknown_table"
        for operation, kind, body in (
            (0x0099, 1, b"{}"),
            (0x0000, 7, b"{}"),
            (0x0020, 1, b"{"),
            (0x0020, 2, b"\xc1"),
        ):
            answer, _, said = ask(line, operation, kind, body)
            assert answer == 0xFFFF
            assert orjson.loads(said)["error"]["code"] in ("unknown_op", "invalid_json_body")
        line.sendall(struct.pack(">IHB", 5_000_000, 0x0020, 1))
        answer = struct.unpack(">IHB", line.recv(7, socket.MSG_WAITALL))[1]
        assert answer == 0xFFFF
        while line.recv(4096):
            pass


@pytest.mark.usefixtures("app")
def test_an_answer_over_http_waits_for_no_acknowledgement_of_its_head() -> None:
    """A kernel acknowledges the first packets of a connection at once, later ones only after 40 ms."""
    taken = []
    with closing(http.client.HTTPConnection(URLS["http"].removeprefix("http://"), timeout=10)) as connection:
        for _ in range(40):
            began = time.perf_counter()
            connection.request("POST", "/ping", b"{}")
            connection.getresponse().read()
            taken.append(time.perf_counter() - began)
    assert min(taken[20:]) < 0.03


@pytest.mark.parametrize(
    ("arguments", "environment", "told"),
    [
        (["--data-dir", "x"], {}, "nothing is stored here"),
        ([], {"BEAVA_LISTEN_ADDR": "0.0.0.0:0"}, "must be of loopback"),
        ([], {"BEAVA_LISTEN_ADDR": "127.0.0.1:x"}, "can't listen"),
    ],
)
def test_what_it_can_not_do_is_refused(arguments: list[str], environment: dict[str, str], told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "local.beava", *arguments], env=environment, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 2
    assert told in done.stderr
