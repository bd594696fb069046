"""Webhooks of `headrace dev`: signed, repeated until they are accepted, whatever dies in between."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.support.emulated_cloud import DevServer, dev_server
from tests.unit.webhook.receivers import Receiver, receiver

SUBSCRIPTIONS = "/v1/stream/__ds/subscriptions"
LONG_S = 200  # a sweep finds the visit of the relay that died; and the machine may do other things


def answer(line: socket.socket, status: str, body: bytes) -> None:
    line.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


def sent(running: Receiver) -> list[dict[str, Any]]:
    """Returns the bodies that came."""
    return [json.loads(request.partition(b"\r\n\r\n")[2]) for request in running.requests]


def eventually(holds: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + LONG_S
    while not (found := holds()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)  # what is awaited happens in other processes
    return found


def subscribe(http: httpx.Client, name: str, port: int) -> None:
    made = http.put(
        f"{SUBSCRIPTIONS}/{name}",
        json={"type": "webhook", "pattern": f"{name}/*", "webhook": {"url": f"http://127.0.0.1:{port}/hook"}},
    )
    assert made.status_code == 201, made.text


def verify(http: httpx.Client, request: bytes) -> None:
    head, _, body = request.partition(b"\r\n\r\n")
    found = re.search(rb"Webhook-Signature: t=(\d+),kid=(\S+),ed25519=(\S+)", head)
    assert found is not None
    keys = http.get("/v1/stream/__ds/jwks.json").json()["keys"]
    (key,) = (key for key in keys if key["kid"] == found[2].decode())
    public = Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(key["x"] + "="))
    public.verify(base64.urlsafe_b64decode(found[3] + b"=="), found[1] + b"." + body)


def relays(server: DevServer) -> list[int]:
    return [pid for name, pid in server.state_now()["functions"].items() if name.startswith("Relay")]


def test_a_webhook_is_repeated_after_its_relay_was_killed_while_it_waited() -> None:
    calls = threading.Semaphore(0)
    let_go = threading.Event()

    def failing_at_first(line: socket.socket) -> None:
        calls.release()
        if len(broken.requests) == 1:
            let_go.wait(LONG_S)  # until the relay that waits for this answer is dead
            answer(line, "503 Unavailable", b"")
        else:
            answer(line, "200 OK", b'{"done":true}')

    with (
        dev_server("--sweep-every", "1s") as server,
        httpx.Client(base_url=server.url, timeout=LONG_S, trust_env=False) as http,
        receiver(failing_at_first) as broken,
        receiver(lambda line: answer(line, "200 OK", b'{"done":true}')) as good,
    ):
        subscribe(http, "broken", broken.port)
        subscribe(http, "good", good.port)
        json_ = {"Content-Type": "application/json"}
        assert http.put("/v1/stream/broken/1", content=b"[1]", headers=json_).status_code == 201
        assert calls.acquire(timeout=LONG_S)
        for pid in eventually(lambda: relays(server), "a relay runs"):
            os.kill(pid, signal.SIGKILL)
        let_go.set()

        def acked() -> bool:
            links = http.get(f"{SUBSCRIPTIONS}/broken").json()["streams"]
            tail = http.head("/v1/stream/broken/1").headers["Stream-Next-Offset"]
            return [link["acked_offset"] for link in links] == [tail]

        eventually(acked, "the wake is accepted")
        first, *_, last = sent(broken)
        assert first["wake_id"] == last["wake_id"], "the same wake is repeated"
        assert (first["generation"], first["streams"]) == (last["generation"], last["streams"])
        for request in broken.requests:
            verify(http, request)
        assert http.put("/v1/stream/good/1", content=b"[1]", headers=json_).status_code == 201
        eventually(lambda: good.requests, "another subscription is called")
        verify(http, good.requests[0])
        (told,) = sent(good)
        assert told["callback_url"] == f"{server.url}{SUBSCRIPTIONS}/good/callback"
        assert [(one["path"], one["has_pending"]) for one in told["streams"]] == [("good/1", True)]
