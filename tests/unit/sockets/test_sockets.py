"""Laws of sockets: what each message is answered, what may be done with which key, and what is pushed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from functions.access import Access, parse
from functions.api.context import Context, assemble
from functions.api.sockets.commands import MAX_ID_BYTES, MAX_NODES, MAX_TOPICS
from functions.api.sockets.sockets import Sockets
from functions.queue import MemoryQueue
from functions.relay import context as relay
from functions.relay.followers import Hint
from functions.relay.sockets import STEP_BYTES, STEP_PAGES
from functions.relay.sockets import Sockets as Pusher
from headrace.errors import StoreError, StoreThrottled
from headrace.log.stores import Stores
from headrace.memory import memory_stores
from headrace.queues.verbs import Queues
from headrace.settings import Settings
from headrace.sockets.channel import MAX_MESSAGE_BYTES, decode
from headrace.sockets.connections import ApiGatewayConnections, MemoryConnections
from headrace.sockets.session import LIFE_MS
from headrace.tables.follows import Follow
from headrace.topics.values import MAX_RECORDS
from tests.support.clocks import ManualClock

C = "connection="
KEYS = "all,reader:read,writer:write,mine:read+write:mine."


class Wire:
    """The port of connections: keeps what is posted, until the socket is closed."""

    def __init__(self) -> None:
        self.posted: list[dict[str, Any]] = []
        self.sizes: list[int] = []
        self.is_open = True
        self.error: Exception | None = None

    def post(self, connection_id: str, data: bytes) -> bool:
        if self.error is not None:
            raise self.error
        if self.is_open:
            self.posted.append(json.loads(data))
            self.sizes.append(len(data))
        return self.is_open

    def take(self) -> list[dict[str, Any]]:
        taken, self.posted = self.posted, []
        return taken


class World:
    """A server of sockets and the relay behind it, in memory."""

    def __init__(self, keys: str = "", settings: Settings | None = None) -> None:
        self.clock = ManualClock()
        self.queue = MemoryQueue()
        self.stores: Stores = memory_stores(settings or Settings(metrics_interval_ms=0), self.clock)
        self.context: Context = assemble(self.stores, parse(keys, "*"), relay=self.queue)
        self.sockets = Sockets(self.context)
        self.wire = Wire()
        self.topics = Queues(self.stores)

    def using(self, keys: str) -> None:
        """Changes the keys."""
        self.context = replace(self.context, access=parse(keys, "*"))
        self.sockets = Sockets(self.context)

    def connect(self, key: str = "", connection: str = C, **headers: str) -> int:
        given = {"authorization": f"Bearer {key}"} if key else {}
        return self.sockets.connect(connection, {"host": "localhost", **given, **headers})

    def ask(self, op: str, /, connection: str = C, **members: Any) -> dict[str, Any]:
        return self.say(json.dumps({"op": op, **members}).encode(), connection)

    def say(self, text: bytes | None, connection: str = C) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.sockets.receive(connection, text))
        return answer

    def publish(self, *data: Any, topic: str = "room", **members: Any) -> dict[str, Any]:
        return self.ask("publish", topic=topic, records=[{"data": one} for one in data], **members)

    def rows(self) -> list[Follow]:
        return sorted(self.stores.follows.due(2**62), key=lambda row: row.log_id) or self._quiet()

    def _quiet(self) -> list[Follow]:
        rows: dict[Any, Follow] = self.stores.follows.rows  # type: ignore[attr-defined]
        return list(rows.values())

    def visit(self) -> list[float | None]:
        access: Access = self.context.access
        context = replace(relay.assemble(self.stores, self.queue), access=access, connections=self.wire)
        pusher = Pusher(context)
        return [pusher.visit(row, Hint()) for row in self.rows()]

    def pushed(self) -> list[dict[str, Any]]:
        """Returns what is pushed until nothing is left."""
        while any(again is not None for again in self.visit()):
            pass
        return self.wire.take()


@pytest.fixture
def world() -> World:
    world = World()
    assert world.connect() == 200
    return world


def ops(messages: list[dict[str, Any]]) -> list[str]:
    return [one["op"] for one in messages]


def test_a_publish_is_acked_with_its_seqs(world: World) -> None:
    world.publish(0)
    ack = world.publish({"n": 1}, {"n": 2}, request_id="p1")
    assert ack.pop("performance")["fsync_ms"] == 0
    assert ack == {
        "op": "ack",
        "request_id": "p1",
        "topic": "room",
        "first_seq": 2,
        "last_seq": 3,
        "seqs": [2, 3],
        "head_seq": 3,
        "count": 2,
        "created": False,
        "deduped": False,
    }
    assert "seqs" not in world.publish(1, return_seqs=False)
    many = world.publish(*[1] * 6000)
    assert (many["count"], "seqs" in many) == (6000, False), "the answer is a message, too"


def test_a_publish_is_checked_like_a_write(world: World) -> None:
    assert world.publish(1, topic="no name")["code"] == "invalid_request"
    assert world.publish()["code"] == "invalid_request"
    assert world.publish(*[1] * (MAX_RECORDS + 1))["code"] == "batch_too_large"
    assert world.publish(1, create=False)["code"] == "topic_not_found"
    assert world.publish(1, idempotency_key="k")["deduped"] is False
    assert world.publish(1, idempotency_key="k")["deduped"] is True
    full = world.publish(1, 2, topic="full", config={"cap_records": 1, "discard": "reject"})
    assert (full["op"], full["code"]) == ("error", "topic_full")


def test_a_subscription_pushes_the_backlog_then_what_is_new(world: World) -> None:
    world.publish("a", "b")
    told = world.ask("subscribe", topic="room", request_id=["any", 1])
    assert told == {
        "op": "subscribed",
        "request_id": ["any", 1],
        "topics": {"room": {"from_seq": 0, "head_seq": 2, "earliest_seq": 1}},
    }
    assert (
        [json.loads(one)["verb"] for one in world.queue.bodies] == ["visit"] if hasattr(world.queue, "bodies") else 1
    )
    first = world.pushed()
    assert ops(first) == ["record", "caught_up"]
    assert [one["data"] for one in first[0]["records"]] == ["a", "b"]
    world.publish("c")
    [second] = world.pushed()
    assert (second["op"], second["from_seq"], second["to_seq"], second["head_seq"]) == ("record", 2, 3, 3)
    assert world.pushed() == []


def test_a_tail_begins_at_the_end(world: World) -> None:
    world.publish("a")
    assert world.ask("subscribe", topic="room", tail=True)["topics"]["room"]["from_seq"] == 1
    world.publish("b")
    assert [one["data"] for one in world.pushed()[0]["records"]] == ["b"]


def test_options_hold_for_what_is_pushed(world: World) -> None:
    world.ask("publish", topic="room", node="u1", records=[{"data": 1, "tag": "t", "meta": {"m": 1}}, {"data": 2}])
    world.ask("publish", topic="room", node="u2", records=[{"data": 3, "tag": "t", "meta": {"m": 1}}])
    world.ask("subscribe", topic="room", node="u1", include_data=False, include_tags=True, include_meta=False)
    [record, _] = world.pushed()
    [shown] = record["records"]
    shown.pop("$ts")
    assert shown == {"$seq": 3, "$node": "u2", "$tag": "t"}
    assert (record["from_seq"], record["to_seq"]) == (0, 3)


def test_nodes_are_bounded_because_they_are_stored_with_each_topic(world: World) -> None:
    world.publish(1)
    nodes = [f"n{number}" for number in range(MAX_NODES + 1)]
    assert world.ask("subscribe", topic="room", node=nodes)["code"] == "invalid_request"
    assert world.rows() == []
    assert world.ask("subscribe", topic="room", node=nodes[1:])["op"] == "subscribed"


def test_a_limit_bounds_a_message(world: World) -> None:
    world.publish(*range(5))
    world.ask("subscribe", topic="room", limit=2)
    assert [len(one["records"]) for one in world.pushed()[:-1]] == [2, 2, 1]


def test_many_topics_are_subscribed_to_at_once(world: World) -> None:
    for name in ("a", "b"):
        world.publish(name, topic=name)
    told = world.ask("subscribe", topics={"a": {"tail": True}, "b": {"from_seq": 0}}, topic="b", from_seq=7)
    assert {name: one["from_seq"] for name, one in told["topics"].items()} == {"a": 1, "b": 0}
    assert sorted((one["op"], one["topic"]) for one in world.pushed()) == [
        ("caught_up", "a"),
        ("caught_up", "b"),
        ("record", "b"),
    ]


def test_a_missing_topic_is_refused_or_left_out(world: World) -> None:
    world.publish(1)
    both = {"room": {}, "none": {}}
    assert world.ask("subscribe", topics=both)["code"] == "topic_not_found"
    assert world.rows() == [], "nothing was done"
    assert list(world.ask("subscribe", topics=both, lenient=True)["topics"]) == ["room"]


def test_a_subscription_can_be_replaced_and_ended(world: World) -> None:
    world.publish("a", "b")
    world.ask("subscribe", topic="room", tail=True)
    world.pushed()
    world.ask("subscribe", topic="room", from_seq=1)
    assert [one["data"] for one in world.pushed()[0]["records"]] == ["b"]
    assert world.ask("unsubscribe", topic="room", topics=["none"])["topics"] == ["none", "room"]
    world.publish("c")
    assert world.pushed() == []
    assert world.ask("unsubscribe", topic="room")["op"] == "unsubscribed", "again"


def test_lost_records_are_told(world: World) -> None:
    world.publish(*range(5), config={"cap_records": 2})
    world.publish("next")
    world.ask("subscribe", topic="room")
    tombstone, record, _ = world.pushed()
    assert (tombstone["op"], tombstone["reason"]) == ("tombstone", "from_seq_too_old")
    assert (tombstone["gap_to"], tombstone["earliest_seq"]) == (4, 5)
    assert record["from_seq"] == 4


def test_a_deleted_topic_is_told_once_also_if_its_name_is_used_again(world: World) -> None:
    world.publish("a")
    world.ask("subscribe", topic="room")
    world.pushed()
    world.topics.remove("room")
    world.publish("other")
    [told] = world.pushed()
    assert told == {"op": "topic_deleted", "topic": "room", "head_seq": 1, "reason": "deleted"}
    assert world.rows() == []


def test_a_large_record_is_told_and_passed(world: World) -> None:
    large = ["x" * 1000] * 95
    for data in ("s" * 4000, large, "next"):
        world.topics.append("room", _write(data))
    world.ask("subscribe", topic="room", include_meta=False)
    pushed = world.pushed()
    assert ops(pushed) == ["record", "record", "caught_up"]
    world.topics.append("room", _write("y" * MAX_MESSAGE_BYTES))
    world.topics.append("room", _write("last"))
    error, last = world.pushed()
    assert (error["code"], error["seq"], error["topic"]) == ("record_too_large", 4, "room")
    assert (last["from_seq"], last["to_seq"]) == (4, 5)
    assert max(world.wire.sizes) <= MAX_MESSAGE_BYTES


def _write(data: Any) -> Any:
    from headrace.batch import Batch
    from headrace.topics.values import WriteRequest

    return WriteRequest(records=Batch.of([json.dumps(data).encode()]))


def test_a_visit_ends_after_a_step_and_goes_on(world: World) -> None:
    for _ in range(16):
        world.topics.append("room", _write("x" * 90_000))
    world.ask("subscribe", topic="room")
    assert world.visit() == [0.0]
    sent = sum(world.wire.sizes)
    assert STEP_BYTES <= sent < STEP_BYTES + 300_000
    rest = world.pushed()
    seqs = [one["$seq"] for message in rest if message["op"] == "record" for one in message["records"]]
    assert seqs == list(range(1, 17))


def test_a_visit_reads_so_many_pages_also_if_it_sends_little(world: World) -> None:
    world.connect()
    world.publish(*range(STEP_PAGES + 1))
    world.ask("subscribe", topic="room", limit=1)
    assert world.visit() == [0.0]
    assert len(world.wire.take()) == STEP_PAGES
    assert ops(world.pushed()) == ["record", "caught_up"]


def test_a_socket_that_is_gone_is_forgotten(world: World) -> None:
    world.publish(1)
    world.ask("subscribe", topic="room")
    world.wire.is_open = False
    assert world.pushed() == []
    assert world.rows() == []
    assert world.ask("ping")["code"] == "not_found"


def test_a_closed_socket_is_pushed_nothing(world: World) -> None:
    world.publish(1)
    world.ask("subscribe", topic="room")
    world.sockets.disconnect(C)
    world.sockets.disconnect(C)
    assert world.pushed() == []
    assert world.rows() == []


def test_a_push_that_fails_moves_no_cursor(world: World) -> None:
    world.publish("a")
    world.ask("subscribe", topic="room")
    world.wire.error = StoreThrottled("busy")
    assert world.visit() == [1.0]
    world.wire.error = StoreError("away")
    with pytest.raises(StoreError):
        world.visit()
    world.wire.error = None
    assert ops(world.pushed()) == ["record", "caught_up"]


def test_a_pusher_that_was_overtaken_leaves_the_rest(world: World) -> None:
    world.publish("a")
    world.ask("subscribe", topic="room")
    post = world.wire.post

    def overtaken(connection_id: str, data: bytes) -> bool:
        world.wire.post = post  # type: ignore[method-assign]
        world.ask("subscribe", topic="room")
        return post(connection_id, data)

    world.wire.post = overtaken  # type: ignore[method-assign]
    world.visit()
    [row] = world.rows()
    assert decode(row).position.seq == 0, "the new subscription is kept"
    assert ops(world.pushed())[-2:] == ["record", "caught_up"]


@pytest.mark.parametrize("text", [b"", b"{", b"nonsense", b'{"op":"ping"} x', b'{"op":NaN}', b"\xff", b"[" * 100_000])
def test_a_message_that_is_no_json_is_told(world: World, text: bytes) -> None:
    told = world.say(text)
    assert (told["op"], told["code"], told["request_id"]) == ("error", "invalid_json", None)
    assert world.ask("ping", request_id=1) == {"op": "pong", "request_id": 1}


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"op": "nothing"},
        {"op": 1},
        {"op": "subscribe"},
        {"op": "subscribe", "topic": 5},
        {"op": "subscribe", "topic": "room", "from_seq": -1},
        {"op": "subscribe", "topic": "bad name"},
        {"op": "subscribe", "topic": "room", "node": "n" * 129},
        {"op": "subscribe", "topics": {str(number): {} for number in range(MAX_TOPICS + 1)}},
        {"op": "unsubscribe"},
        {"op": "unsubscribe", "topic": "bad name"},
        {"op": "publish", "topic": "room"},
        {"op": "publish", "records": []},
    ],
)
def test_a_message_that_is_no_command_is_told_with_its_id(world: World, members: dict[str, Any]) -> None:
    told = world.say(json.dumps({"request_id": "r", **members}).encode())
    assert (told["op"], told["code"], told["request_id"]) == ("error", "invalid_request", "r"), told


def test_an_id_may_be_long_but_not_endless(world: World) -> None:
    fits = "i" * (MAX_ID_BYTES - 2)
    assert world.ask("ping", request_id=fits)["request_id"] == fits
    assert world.ask("ping", request_id=fits + "i")["request_id"] is None


def test_a_binary_message_is_refused(world: World) -> None:
    assert world.say(None)["code"] == "unsupported_message"


def test_each_command_needs_its_scope() -> None:
    world = World(KEYS)
    for key in ("all", "reader", "writer", "mine"):
        assert world.connect(key, key) == 200
    world.publish(1, connection="all")
    world.publish(1, topic="mine.a", connection="all")
    assert world.ask("subscribe", "reader", topic="room")["op"] == "subscribed"
    assert world.ask("subscribe", "writer", topic="room")["code"] == "forbidden"
    assert world.publish(1, connection="writer")["op"] == "ack"
    assert world.publish(1, connection="reader")["code"] == "forbidden"
    assert world.publish(1, connection="writer", config={})["code"] == "forbidden", "also of a topic that exists"
    assert world.publish(1, connection="mine", topic="mine.a")["op"] == "ack"
    assert world.publish(1, connection="mine")["code"] == "forbidden"
    assert world.ask("subscribe", "mine", topics={"mine.a": {}, "room": {}})["code"] == "forbidden"
    assert world.ask("ping", "reader")["op"] == "pong"


def test_a_socket_needs_a_key_if_there_are_keys() -> None:
    world = World(KEYS)
    assert world.connect() == 401
    assert world.connect("wrong") == 401
    assert World().connect() == 200


def test_without_keys_a_page_of_another_site_opens_no_socket() -> None:
    world = World()
    world.context = replace(world.context, access=parse(""))
    world.sockets = Sockets(world.context)
    assert world.connect(origin="http://localhost:5173") == 200
    assert world.connect(connection="2", origin="https://evil.example") == 403
    assert world.connect(connection="3", host="evil.example") == 403


def test_a_revoked_key_ends_at_the_next_command_and_push() -> None:
    world = World(KEYS)
    world.connect("mine")
    world.publish(1, topic="mine.a")
    assert world.ask("subscribe", topic="mine.a")["op"] == "subscribed"
    world.pushed()
    world.publish(2, topic="mine.a")
    world.using("all")
    assert world.ask("ping")["code"] == "unauthorized"
    [told] = world.pushed()
    assert (told["op"], told["code"], told["topic"]) == ("error", "unauthorized", "mine.a")
    assert world.rows() == []


def test_a_key_that_may_read_no_more_is_pushed_no_more() -> None:
    world = World(KEYS)
    world.connect("mine")
    world.publish(1, topic="mine.a")
    world.ask("subscribe", topic="mine.a")
    world.using("mine:write:mine.")
    [told] = world.pushed()
    assert (told["op"], told["code"]) == ("error", "forbidden")


def test_sockets_count_as_streams() -> None:
    limits = Settings(metrics_interval_ms=0, max_sse_connections=3, max_sse_connections_per_key=2)
    world = World(KEYS, limits)
    assert [world.connect("all", name) for name in "123"] == [200, 200, 429]
    assert [world.connect("reader", name) for name in "45"] == [200, 429]
    world.sockets.disconnect("1")
    assert world.connect("reader", "6") == 200


def test_a_socket_ends_with_its_time(world: World) -> None:
    world.publish(1)
    world.ask("subscribe", topic="room")
    world.clock.advance(LIFE_MS / 1000 + 120)
    assert world.ask("ping")["code"] == "not_found"
    assert world.pushed() == []


def test_answers_of_api_gateway_are_told_apart() -> None:
    from botocore.exceptions import ClientError, EndpointConnectionError

    class Client:
        def __init__(self, error: Exception | None) -> None:
            self.error = error

        def post_to_connection(self, **_: Any) -> None:
            if self.error is not None:
                raise self.error

    def post(error: Exception | None) -> bool:
        return ApiGatewayConnections(Client(error)).post(C, b"x")

    def refusal(code: str) -> ClientError:
        return ClientError({"Error": {"Code": code}}, "PostToConnection")

    assert post(None)
    assert not post(refusal("GoneException"))
    with pytest.raises(StoreThrottled):
        post(refusal("LimitExceededException"))
    with pytest.raises(StoreError):
        post(refusal("ForbiddenException"))
    with pytest.raises(StoreError):
        post(EndpointConnectionError(endpoint_url="x"))


def test_connections_in_memory_are_those_that_were_opened() -> None:
    connections = MemoryConnections()
    assert not connections.post(C, b"x")
    connections.posted[C] = []
    assert connections.post(C, b"x")
    assert connections.posted == {C: [b"x"]}
