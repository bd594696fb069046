"""The relay and subscriptions: what it hears wakes them, and what is due is sent, signed, by a message of its own."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from functions.access import Keyring, parse
from functions.queue import MemoryQueue, Message
from functions.relay.context import assemble
from functions.relay.followers import Hint
from functions.relay.wakes import Wakes, open_subscriptions, tell_of_new
from functions.relay.webhooks import WebhookFunction
from headrace.batch import Batch
from headrace.memory import memory_stores
from headrace.settings import Settings
from headrace.streams.values import AppendRequest, CreateRequest
from headrace.streams.verbs import Streams
from headrace.subscriptions.delivery import Delivered
from headrace.subscriptions.desk import timer_log
from headrace.subscriptions.links import JOINED
from headrace.subscriptions.signing import SigningKeys
from headrace.subscriptions.values import KIND, Config
from headrace.tables.follows import Follow
from tests.support.clocks import ManualClock

SECRET = "a" * 43
HOOK = Config("webhook", "orders/*", url="https://hooks.example/x")
JSON = "application/json"


@dataclass
class Poster:
    """Remembers what was posted, and says that it was done."""

    posted: list[tuple[str, bytes, Mapping[str, str]]] = field(default_factory=list)
    answer: Delivered = field(default_factory=lambda: Delivered(200, done=True))

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Delivered:
        self.posted.append((url, body, headers))
        return self.answer


class World:
    """Tables, a queue and the follower of subscriptions."""

    def __init__(self, signing_keys: str = SECRET) -> None:
        self.clock, self.queue, self.poster = ManualClock(), MemoryQueue(), Poster()
        settings = Settings(signing_keys=signing_keys, base_url="https://api.example")
        self.stores = memory_stores(settings, self.clock)
        self.parts = assemble(self.stores, self.queue, deliver=self.poster)
        self.wakes = Wakes(self.parts)
        self.streams = Streams(self.stores)
        open_subscriptions(self.parts).put("s/1", HOOK, lambda *_: None)

    def appended(self) -> Follow:
        """Creates a stream with a record, of which the relay is told; returns the subscription's timer."""
        created = self.streams.create("orders/1", CreateRequest(content_type=JSON, records=Batch.of([b"1"])))
        tell_of_new(self.parts, Message("created", created.head.log_id))
        return self.timer()

    def timer(self) -> Follow:
        """Returns the subscription's timer."""
        timer = self.stores.follows.get(timer_log("s/1"), KIND, "s/1")
        assert timer is not None
        return timer


def test_a_new_stream_wakes_and_the_timer_calls_with_a_signature() -> None:
    world = World()
    timer = world.appended()
    assert world.poster.posted == [], "strangers are called by a message of their own"
    assert timer.due_ms == world.clock.now_ms()
    world.wakes.visit(timer, Hint())
    ((url, body, headers),) = world.poster.posted
    told: dict[str, Any] = json.loads(body)
    assert url == HOOK.url
    assert told["callback_url"] == "https://api.example/v1/stream/__ds/subscriptions/s%2F1/callback"
    assert (told["subscription_id"], told["generation"]) == ("s/1", 1)
    assert [stream["path"] for stream in told["streams"]] == ["orders/1"]
    parts = dict(part.split("=", 1) for part in headers["Webhook-Signature"].split(","))
    (key,) = SigningKeys.parse(SECRET).jwks(0)["keys"]
    assert parts["kid"] == key["kid"]
    public, signature = (base64.urlsafe_b64decode(text + "==") for text in (key["x"], parts["ed25519"]))
    Ed25519PublicKey.from_public_bytes(public).verify(signature, parts["t"].encode() + b"." + body)


def test_of_a_new_stream_some_subscriptions_hear_at_once_and_the_others_by_messages() -> None:
    world = World()
    ids = [f"many/{number:02}" for number in range(JOINED + 4)]
    for id_ in ids:
        open_subscriptions(world.parts).put(id_, HOOK, lambda *_: None)
    log_id = world.streams.create("orders/1", CreateRequest(content_type=JSON)).head.log_id

    def followers() -> int:
        return len(world.stores.follows.of(log_id, KIND, limit=100))

    tell_of_new(world.parts, Message("created", log_id))
    assert followers() == JOINED
    (more,) = [message for message in world.queue.waiting if message.verb == "created"]
    tell_of_new(world.parts, more)
    assert followers() == len(ids) + 1
    assert [message for message in world.queue.waiting if message.verb == "created"] == [more]


def test_a_followed_stream_wakes_and_calls_nobody_itself() -> None:
    world = World()
    world.wakes.visit(world.appended(), Hint())
    head = world.streams.head("orders/1")
    world.streams.append("orders/1", AppendRequest(content_type=JSON, records=Batch.of([b"2"])))
    follow = world.stores.follows.get(head.log_id, KIND, "s/1")
    assert follow is not None
    assert world.wakes.visit(follow, Hint("data", 2)) is None
    assert len(world.poster.posted) == 1
    row = open_subscriptions(world.parts).links
    assert row.created(head.log_id) == (["s/1"], ""), "hearing of it once more finds the same"


def test_a_refused_call_is_due_again_and_so_is_one_that_can_not_be_signed() -> None:
    world = World()
    world.poster.answer = Delivered(500)
    pause_s = world.wakes.visit(world.appended(), Hint())
    assert pause_s is not None and 0.8 <= pause_s <= 1.2
    unsigned = World(signing_keys="")
    pause_s = unsigned.wakes.visit(unsigned.appended(), Hint())
    assert pause_s is not None and 0.8 <= pause_s <= 1.2
    assert unsigned.poster.posted == []


def test_a_webhook_is_called_as_long_as_the_key_of_its_subscription_allows_it() -> None:
    world = World()
    secret = "old:read"
    world.parts = replace(world.parts, access=Keyring(lambda: secret, world.clock, age_ms=60_000))
    world.wakes = Wakes(world.parts)
    subs = open_subscriptions(world.parts)
    (old,), (new,) = (parse(key).grants.values() for key in (secret, "new:read:orders/"))
    subs.put("s/1", HOOK, lambda *_: None, old.key_id)
    world.wakes.visit(world.appended(), Hint())
    assert len(world.poster.posted) == 1

    def tell(number: int) -> float | None:
        world.streams.append("orders/1", AppendRequest(content_type=JSON, records=Batch.of([b"%d" % number])))
        log_id = world.streams.head("orders/1").log_id
        follow, timer = world.stores.follows.get(log_id, KIND, "s/1"), world.timer()
        assert follow is not None
        assert world.wakes.visit(follow, Hint("append", number)) is None
        return world.wakes.visit(timer, Hint())

    secret = "old:read:other/,new:read:orders/"
    tell(2)
    assert len(world.poster.posted) == 2, "changed keys are read after a while"
    world.clock.advance(61)
    pause_s = tell(3)
    assert pause_s is not None and 0.8 <= pause_s <= 1.2
    assert len(world.poster.posted) == 2
    sub = subs.get("s/1", lambda *_: None).subscription
    assert sub.wake is not None and sub.wake.refused == ("forbidden", "this key may not touch this name")
    secret = "new:read:orders/"
    world.clock.advance(61)
    world.wakes.visit(world.timer(), Hint())
    sub = subs.get("s/1", lambda *_: None).subscription
    assert sub.wake is not None and sub.wake.refused == ("unauthorized", "the key was revoked")
    subs.put("s/1", HOOK, lambda *_: None, new.key_id)
    world.wakes.visit(world.timer(), Hint())
    assert len(world.poster.posted) == 3


def test_a_webhook_is_not_called_while_keys_can_not_be_read() -> None:
    world = World()

    def fail() -> str:
        raise OSError("secrets are away")

    world.parts = replace(world.parts, access=Keyring(fail, world.clock, age_ms=60_000))
    world.wakes = Wakes(world.parts)
    assert world.wakes.visit(world.appended(), Hint()) is not None
    assert world.poster.posted == []


@dataclass
class Lambda:
    """A client of Lambda whose function returns `result`."""

    result: dict[str, Any]
    asked: list[dict[str, Any]] = field(default_factory=list)

    def invoke(self, *, FunctionName: str, Payload: bytes) -> Any:  # noqa: N803
        self.asked.append({"name": FunctionName, **json.loads(Payload)})
        return self.result


class Payload:
    """The body of a result."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self) -> bytes:
        return self._data


def test_the_function_that_posts_is_asked_and_believed() -> None:
    client = Lambda({"Payload": Payload(b'{"status":202,"done":false,"error":""}')})
    assert WebhookFunction(client, "f").post("https://x", b'{"a":1}', {"h": "v"}) == Delivered(202)
    assert client.asked == [{"name": "f", "url": "https://x", "body": '{"a":1}', "headers": {"h": "v"}}]


@pytest.mark.parametrize(
    "result", [{"Payload": Payload(b"{}"), "FunctionError": "Unhandled"}, {"Payload": Payload(b"")}, {}]
)
def test_a_function_that_fails_is_no_answer(result: dict[str, Any]) -> None:
    delivered = WebhookFunction(Lambda(result), "f").post("https://x", b"{}", {})
    assert (delivered.status, delivered.is_accepted) == (0, False)
