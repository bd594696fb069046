"""Pull-wake subscriptions over the streams of a fake server, small enough to be read: claims with leases and tokens, acks,
and wakes in wake streams. `serve` of fake_topics puts it behind a port, where a long-poll waits for what is appended.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import httpx

from tests.cli.fake_server import FakeServer, Stream

ROOT = "/v1/stream/__ds/subscriptions/"
POLL_S = 0.3


@dataclass
class Wake:
    generation: int
    holder: str = ""
    ends_s: float = 0.0
    """When the lease of the holder ends."""

    def is_held(self, now_s: float) -> bool:
        return bool(self.holder) and now_s < self.ends_s


@dataclass
class Subscription:
    body: dict[str, Any]
    acked: dict[str, int]
    generation: int = 0
    wake: Wake | None = None


@dataclass
class FakeSubscriptions:
    """`faults` are taken one for each request to a subscription whose path ends with `faulty`."""

    server: FakeServer = field(default_factory=FakeServer)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    requests: list[httpx.Request] = field(default_factory=list)
    faults: list[Callable[[httpx.Request, Callable[[], httpx.Response]], httpx.Response] | None] = field(
        default_factory=list
    )
    faulty: str = ""
    closed: threading.Event = field(default_factory=threading.Event)
    claims: list[tuple[str, str]] = field(default_factory=list)
    """Who was given which subscription."""
    changed: threading.Condition = field(default_factory=threading.Condition)

    def append(self, name: str, *records: bytes) -> None:
        """Appends records to a JSON stream, which is created if there is none."""
        with self.changed:
            self.server.streams.setdefault(name, Stream("application/json")).records += records
            self.wake()

    def close(self, name: str) -> None:
        """Closes a stream."""
        with self.changed:
            self.server.streams[name].closed = True
            self.changed.notify_all()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        with self.changed:
            self.requests.append(request)
            path = request.url.raw_path.decode().partition("?")[0]
            if path.startswith(ROOT):
                fault = self.faults.pop(0) if self.faults and path.endswith(self.faulty) else None
                answer = fault(request, lambda: self.serve(request)) if fault else self.serve(request)
            else:
                self.wait(request, unquote(path.removeprefix("/v1/stream/")))
                answer = self.server(request)
            self.wake()
            return answer

    def wait(self, request: httpx.Request, name: str) -> None:
        """Holds a long-poll open until there is something for it."""
        offset = request.url.params.get("offset", "")
        if request.url.params.get("live") and offset.isdecimal():
            until = time.monotonic() + POLL_S
            while time.monotonic() < until and not self.closed.is_set():
                stream = self.server.streams.get(name)
                if stream is None or stream.closed or len(stream.records) > int(offset):
                    return
                self.changed.wait(until - time.monotonic())

    def serve(self, request: httpx.Request) -> httpx.Response:
        id_, _, action = request.url.raw_path.decode().partition("?")[0].removeprefix(ROOT).partition("/")
        subscription = self.subscriptions.get(unquote(id_))
        given = json.loads(request.content) if request.content else {}
        if request.method == "PUT":
            return self.put(unquote(id_), subscription, given)
        if request.method == "DELETE" and not action:
            self.subscriptions.pop(unquote(id_), None)
            return httpx.Response(204)
        if subscription is None:
            return refusal(404, "SUBSCRIPTION_NOT_FOUND")
        if action.startswith("streams"):
            for path in given.get("streams", []):
                subscription.acked.setdefault(path, self.tail(path))
            subscription.acked.pop(unquote(action.removeprefix("streams").removeprefix("/")), None)
            return httpx.Response(204)
        if request.method == "GET":
            return httpx.Response(200, json=self.shown(unquote(id_), subscription))
        if action == "claim":
            return self.claim(unquote(id_), subscription, given["worker"])
        return self.settle(subscription, action, request, given)

    def put(self, id_: str, subscription: Subscription | None, given: dict[str, Any]) -> httpx.Response:
        if subscription is None:
            starts = {
                path: 0 if given.get("start_offset") == "-1" else self.tail(path) for path in given.get("streams", [])
            }
            subscription = self.subscriptions[id_] = Subscription(given, starts)
            return httpx.Response(201, json=self.shown(id_, subscription))
        same = {**given, "start_offset": 0} == {**subscription.body, "start_offset": 0}
        return (
            httpx.Response(200, json=self.shown(id_, subscription))
            if same
            else refusal(409, "SUBSCRIPTION_ALREADY_EXISTS")
        )

    def shown(self, id_: str, subscription: Subscription) -> dict[str, Any]:
        body = subscription.body
        webhook = body.get("webhook")
        signing = {"alg": "ed25519", "kid": "ds_1", "jwks_url": "http://there/jwks.json"}
        return {
            "id": id_,
            "type": body["type"],
            "pattern": body.get("pattern"),
            "streams": self.links(subscription),
            "webhook": webhook and {**webhook, "signing": signing},
            "wake_stream": body.get("wake_stream"),
            "lease_ttl_ms": body.get("lease_ttl_ms", 30_000),
            "created_at": "2030-01-01T00:00:00.000Z",
            "status": "active",
            "description": body.get("description"),
        }

    def links(self, subscription: Subscription) -> list[dict[str, Any]]:
        return [
            {"path": path, "link_type": "explicit", "acked_offset": str(acked), "tail_offset": str(self.tail(path))}
            for path, acked in subscription.acked.items()
        ]

    def tail(self, path: str) -> int:
        return len(self.server.streams[path].records) if path in self.server.streams else 0

    def is_pending(self, subscription: Subscription) -> bool:
        return any(self.tail(path) > acked for path, acked in subscription.acked.items())

    def wake(self) -> None:
        """Ends leases that are over, and writes a record for each subscription with something new."""
        for id_, subscription in self.subscriptions.items():
            wake = subscription.wake
            if wake is not None and wake.holder and not wake.is_held(time.time()):
                subscription.wake = None
            wakes = self.server.streams.get(subscription.body.get("wake_stream") or "")
            if subscription.wake is None and self.is_pending(subscription):
                subscription.generation += 1
                subscription.wake = Wake(subscription.generation)
                if wakes is not None:
                    (path, *_) = subscription.acked
                    record = {
                        "type": "wake",
                        "subscription_id": id_,
                        "stream": path,
                        "generation": subscription.generation,
                    }
                    wakes.records.append(json.dumps(record).encode())
        self.changed.notify_all()

    def claim(self, id_: str, subscription: Subscription, worker: str) -> httpx.Response:
        self.wake()
        wake = subscription.wake
        if wake is None or not self.is_pending(subscription):
            return refusal(409, "NO_PENDING_WORK")
        if wake.is_held(time.time()):
            return httpx.Response(
                409,
                json={
                    "error": {"code": "ALREADY_CLAIMED", "current_holder": wake.holder, "generation": wake.generation}
                },
            )
        lease_ms = subscription.body.get("lease_ttl_ms", 30_000)
        wake.holder, wake.ends_s = worker, time.time() + lease_ms / 1000
        self.claims.append((id_, worker))
        given = {
            "wake_id": f"w_{wake.generation}",
            "generation": wake.generation,
            "token": f"t_{id_}_{wake.generation}",
        }
        return httpx.Response(200, json={**given, "lease_ttl_ms": lease_ms, "streams": self.links(subscription)})

    def settle(
        self, subscription: Subscription, action: str, request: httpx.Request, given: dict[str, Any]
    ) -> httpx.Response:
        wake = subscription.wake
        is_current = wake is not None and wake.is_held(time.time()) and given["wake_id"] == f"w_{wake.generation}"
        if wake is None or not is_current:
            return refusal(409, "FENCED")
        assert request.headers["authorization"].startswith("Bearer t_")
        for ack in given.get("acks", []):
            if not subscription.acked[ack["stream"]] <= int(ack["offset"]) <= self.tail(ack["stream"]):
                return refusal(409, "INVALID_OFFSET")
            subscription.acked[ack["stream"]] = int(ack["offset"])
        wake.ends_s = time.time() + subscription.body.get("lease_ttl_ms", 30_000) / 1000
        if action == "release" or given.get("done"):
            subscription.wake = None
        if action == "release":
            return httpx.Response(204)
        return httpx.Response(
            200, json={"ok": True, "next_wake": bool(given.get("done")) and self.is_pending(subscription)}
        )


def refusal(status: int, code: str) -> httpx.Response:
    return httpx.Response(status, json={"error": {"code": code, "message": code.lower().replace("_", " ")}})
