"""What the operations of topics, queues and feature tables spend, and what follows an append: routers, watches, sockets,
webhooks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from unittest.mock import patch

import orjson
from aws_lambda_powertools import Logger
from msgspec import structs

from functions.access import Access
from functions.api import context as api
from functions.api.sockets.sockets import Sockets
from functions.queue import MemoryQueue, Message
from functions.relay import context as relay
from functions.relay.handler import Relay
from functions.relay.kinds import FOLLOWERS
from functions.relay.wakes import open_subscriptions
from headrace.features.fold import Folder
from headrace.features.register import Registrations
from headrace.features.values import GetRequest, lane
from headrace.features.verbs import Features
from headrace.log.requests import JSON
from headrace.queues.values import ClaimRequest, SettleRequest
from headrace.queues.verbs import Queues
from headrace.routers.values import RouterRequest
from headrace.routers.verbs import Routers
from headrace.sockets.connections import MemoryConnections
from headrace.streams.values import AppendRequest, CreateRequest
from headrace.subscriptions.delivery import Delivered
from headrace.subscriptions.desk import timer_log
from headrace.subscriptions.signing import SigningKeyring
from headrace.subscriptions.values import KIND, Config
from headrace.subscriptions.verbs import Ack, Subscriptions
from headrace.topics.values import DiffRequest, Match, Routing, TopicConfig, WriteRequest
from headrace.wal.entry import entry_item
from headrace.watch.values import FEW, Options, Start
from headrace.watch.verbs import Watches
from tests.cost.deployment import Deployment, deployed
from tests.unit.features.world import event, table

RECORD_BYTES = 500
Spent = dict[str, float]
Write = Callable[[int], WriteRequest]


class Accepts:
    """The port of webhooks: each receiver says that it is done."""

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Delivered:
        """Returns that the receiver is done."""
        return Delivered(200, done=True)


class Following:
    """A relay with its followers, which is told of appends as the WAL's stream does."""

    def __init__(self, here: Deployment) -> None:
        self.here = here
        self.queue = MemoryQueue()
        signing = SigningKeyring(lambda: "a" * 43, here.clock, age_ms=3_600_000)
        context = relay.assemble(here.stores, self.queue, deliver=Accepts(), signing=signing)
        self.connections = MemoryConnections()
        self.context = replace(context, connections=self.connections)
        followers = {kind: create(self.context) for kind, create in FOLLOWERS.items()}
        self.relay = Relay(self.context, Logger(service="cost"), followers)

    def hear(self, log_id: str) -> Spent:
        """Tells the relay of a log's newest entry; returns what it spends."""
        entry = self.here.stores.wal.newest(log_id)
        assert entry is not None and entry.state.is_followed(entry.committed_ms)
        keys = {"log_id": {"S": log_id}}
        events = [{"dynamodb": {"Keys": keys, "NewImage": entry_item(entry)}}]
        return self.here.meters.of(lambda: self.relay.on_stream(events))

    def visit(self, message: Message) -> Spent:
        """Delivers a message to the relay; returns what it spends."""
        return self.here.meters.of(lambda: self.relay.run(message))


def operations(write: Write) -> dict[str, Spent]:
    """Returns what each operation spends in a process that knows the log.

    Args:
        write: returns a request with one record of `RECORD_BYTES`, another for each number.
    """
    with deployed() as here:
        topics = Queues(here.stores)
        following = Following(here)
        return {
            **_topics(here, topics, write),
            **_queues(here, topics, write),
            **_routers(here, topics, following, write),
            **_watches(here, topics, following, write),
            **_sockets(here, topics, following, write),
            **_subscriptions(here, following, write),
            **_features(here, following),
        }


def _topics(here: Deployment, topics: Queues, write: Write) -> dict[str, Spent]:
    topics.put("topic", TopicConfig())
    topics.append("topic", write(0))
    of, keyed = here.meters.of, structs.replace(write(2), key="k")
    found = {
        "append to a topic": of(lambda: topics.append("topic", write(1))),
        "append with an idempotency key": of(lambda: topics.append("topic", keyed)),
    }
    end = topics.head("topic").state.next_offset
    topics.diff("topic", DiffRequest(end))  # notes when the topic was read, as one read in 15 s does
    found["diff at the tail"] = of(lambda: topics.diff("topic", DiffRequest(end)))
    return found


def _queues(here: Deployment, topics: Queues, write: Write) -> dict[str, Spent]:
    of, seqs = here.meters.of, list[int]()

    def claim() -> None:
        seqs[:] = [job.record.offset + 1 for job in topics.claim("queue", ClaimRequest("w")).jobs]

    topics.put("queue", TopicConfig(type="queue"))
    for number in range(3):
        topics.append("queue", write(number))
    claim()  # this process knows the other two from now on
    found = {"enqueue": of(lambda: topics.append("queue", write(3))), "claim": of(claim)}
    assert len(seqs) == 1
    found["ack"] = of(lambda: topics.ack("queue", SettleRequest("w", tuple(seqs))))
    claim()
    claim()
    assert seqs
    claim()
    found["claim that finds nothing"] = of(claim)
    assert not seqs
    return found


def _routers(here: Deployment, topics: Queues, following: Following, write: Write) -> dict[str, Spent]:
    routers, found = Routers(here.stores, topics), dict[str, Spent]()
    for what, dest, routing in (
        ("append copied by a router", "all", Routing()),
        ("append that a router's filter drops", "none", Routing(filter=Match("tag"))),
    ):
        source = f"to:{dest}"
        routers.put(RouterRequest(source, source, dest, routing))
        for number in range(2):
            topics.append(source, write(number))
            found[what] = following.hear(topics.head(source).log_id)
    assert [topics.head(dest).state.next_offset for dest in ("all", "none")] == [2, 0]
    return found


def _watches(here: Deployment, topics: Queues, following: Following, write: Write) -> dict[str, Spent]:
    of, ids = here.meters.of, iter(["wid_1", "wid_2"])
    names = [f"watched:{number}" for number in range(FEW + 1)]
    for name in names:
        topics.put(name, TopicConfig())
    watches = Watches(here.stores, topics, lambda: next(ids))
    wid, found = "wid_1", {"watch session": of(lambda: watches.create({names[0]: Start()}, Options(), ""))}
    ends_ms = here.clock.now_ms() + 3_600_000
    found["watch stream opened"] = of(lambda: watches.open(wid, "", ends_ms))
    few = watches.open(wid, "", ends_ms)
    few.read([0])
    found["watch looks at a topic"] = of(lambda: few.read([0]))
    found["watch looks for a newer stream"] = of(few.check)
    watches.create(dict.fromkeys(names, Start()), Options(), "")
    many = watches.open("wid_2", "", ends_ms)
    many.read(range(len(names)))
    topics.append(names[0], write(0))
    found["bell rung for an append"] = following.hear(topics.head(names[0]).log_id)
    assert list(many.hear()) == [0]
    found["watch looks at its bell"] = of(many.hear)
    return found


def _sockets(here: Deployment, topics: Queues, following: Following, write: Write) -> dict[str, Spent]:
    of = here.meters.of
    topics.put("pushed", TopicConfig())
    with patch.dict(os.environ, {"AWS_LAMBDA_FUNCTION_NAME": "sockets"}):
        sockets = Sockets(api.assemble(here.stores, Access({}), relay=following.queue))
    following.connections.posted["c="] = []
    found = {
        "socket opened": of(lambda: sockets.connect("c=", {"host": "localhost"})),
        "socket command": of(lambda: sockets.receive("c=", b'{"op":"ping"}')),
        "socket subscribed to a topic": of(lambda: sockets.receive("c=", b'{"op":"subscribe","topic":"pushed"}')),
    }
    for message in following.queue.receive(here.clock.now_ms()):
        following.visit(message)
    for number in range(2):
        topics.append("pushed", write(number))
        found["message pushed to a socket"] = following.hear(topics.head("pushed").log_id)
    assert len(following.connections.posted["c="]) == 2 + 1, "where it begins, and two appends"
    return found


def _subscriptions(here: Deployment, following: Following, write: Write) -> dict[str, Spent]:
    subscriptions = open_subscriptions(following.context)
    hook = Config("webhook", "hooked/*", url="https://hooks.example/x")
    pull = Config("pull-wake", "pulled/*", wake_stream="pool")
    here.logs.create("pool", CreateRequest(content_type=JSON))
    found: dict[str, Spent] = {}
    for id_, config, stream in (("hook", hook, "hooked/1"), ("pull", pull, "pulled/1")):
        here.logs.create(stream, CreateRequest(content_type=JSON))
        subscriptions.put(id_, config, lambda *_: None)
        log_id = here.logs.head(stream).log_id
        for number in range(2):
            here.logs.append(stream, AppendRequest(content_type=JSON, records=write(number).records))
            woken = following.hear(log_id)
            timer = here.stores.follows.get(timer_log(id_), KIND, id_)
            assert timer is not None
            due = Message("visit", timer.log_id, followers=(timer.key,), due_ms=timer.due_ms)
            if id_ == "hook":
                found |= {"subscription woken": woken, "webhook delivered": following.visit(due)}
            else:
                found |= {"wake announced": following.visit(due), **_pulled(here, subscriptions, stream)}
    return found


def _pulled(here: Deployment, subscriptions: Subscriptions, stream: str) -> dict[str, Spent]:
    """Returns what a worker spends that claims a wake, and acknowledges all of its stream."""
    with here.meters.during() as claiming:
        claimed = subscriptions.claim("pull", "worker", lambda *_: None)
    (found,) = claimed.streams
    ack = Ack(claimed.wake_id, claimed.subscription.generation, ((stream, found.tail_offset),), done=True)
    acking = here.meters.of(lambda: subscriptions.ack("pull", "pull-wake", claimed.token, ack))
    return {"wake claimed": claiming, "wake acknowledged": acking}


def _features(here: Deployment, following: Following) -> dict[str, Spent]:
    of, features, space = here.meters.of, Features(here.stores), "cost"
    fields = {"user": "str", "id": "str", "text": "str"}

    def data(number: int) -> dict[str, str]:
        known = {"user": f"u{number}", "id": f"{number}", "text": ""}
        return {**known, "text": "x" * (RECORD_BYTES - len(orjson.dumps(known)))}

    def push(first: int, count: int = 1, name: str = "Tx") -> None:
        features.push(space, name, [data(number) for number in range(first, first + count)])

    def fold() -> None:  # in a process that knows the lane, and no row
        done = Folder(registrations).fold(lane(space, "Tx", 0), here.clock.monotonic() + 60)
        assert done.is_done

    def read(first: int, count: int = 1, *, stale: bool = False) -> None:
        asked = [GetRequest("U", f"u{number}") for number in range(first, first + count)]
        assert all(row == {"c": 1} for row in features.get(space, asked, stale=stale).rows)

    nodes = [event(fields=fields), table(c="count"), event("Once", fields=fields, dedupe_key="id")]
    found = {"registration of two events and a table": of(lambda: features.register(space, {"nodes": nodes}))}
    found["registration that changes nothing"] = of(lambda: features.register(space, {"nodes": nodes}))
    registrations = Registrations(here.stores)
    push(0)
    push(0, name="Once")
    found["event pushed"] = of(lambda: push(0))
    found["event pushed with a dedupe value"] = of(lambda: push(1, name="Once"))
    log_id = features.head(f"{space}/Tx").log_id
    following.hear(log_id)
    found["event heard by the relay"] = following.hear(log_id)
    fold()
    push(0)
    found["fold of 1 row"] = of(fold)
    push(0, 11)
    fold()  # now there are 11 rows
    push(0, 11)
    found["fold of 11 rows"] = of(fold)
    push(11, 10)
    fold()
    read(11)
    found["row read"] = of(lambda: read(11))
    found["row read, stale"] = of(lambda: read(11, stale=True))
    found["10 rows read"] = of(lambda: read(11, 10))
    return found
