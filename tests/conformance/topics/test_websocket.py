"""The WebSocket (§ 7.9)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.conformance.topics.client import Server, Topic, answered, eventually, refused
from tests.conformance.topics.configurations import LIMITS
from tests.conformance.topics.sockets import Socket, data_in, opened


@pytest.fixture
def socket(server: Server) -> Iterator[Socket]:
    """Yields an open socket of the server without keys."""
    with opened(server) as found:
        yield found


def test_a_ping_is_answered(socket: Socket) -> None:
    for request_id in ("ping-1", 7, {"any": ["value"]}, None):
        socket.send({"op": "ping", "request_id": request_id})
        assert socket.receive() == {"op": "pong", "request_id": request_id}


def test_what_is_published_is_acked_and_read_like_any_record(socket: Socket, topic: Topic) -> None:
    ack = socket.ask(
        "publish",
        topic=topic.name,
        node="u017",
        records=[{"data": {"packet": 1.50}, "tag": "t", "meta": {"m": 1}}, {"data": 2, "node": "u018"}],
    )
    assert ack.pop("performance")["server_total_ms"] >= 0
    assert ack.pop("request_id") == "publish-1"
    assert ack == {
        "op": "ack",
        "topic": topic.name,
        "first_seq": 1,
        "last_seq": 2,
        "seqs": [1, 2],
        "head_seq": 2,
        "count": 2,
        "created": False,
        "deduped": False,
    }
    records = topic.page(include_tags=True)["records"]
    assert [(record["$seq"], record["$node"], record["data"]) for record in records] == [
        (1, "u017", {"packet": 1.5}),
        (2, "u018", 2),
    ]
    assert (records[0]["$tag"], records[0]["meta"]) == ("t", {"m": 1})


def test_a_publish_may_leave_out_the_seqs(socket: Socket, topic: Topic) -> None:
    ack = socket.publish(topic.name, 1, return_seqs=False)
    assert "seqs" not in ack
    assert ack["last_seq"] == 1


def test_a_publish_creates_a_topic_as_a_write_does(socket: Socket, server: Server) -> None:
    first, second, third = server.unused(), server.unused(), server.unused()
    assert socket.publish(first.name, 1)["created"] is True
    assert socket.publish(second.name, 1, config={"cap_records": 7})["created"] is True
    assert second.now()["config"]["cap_records"] == 7
    refusal = socket.publish(third.name, 1, create=False)
    assert (refusal["op"], refusal["code"]) == ("error", "topic_not_found")
    assert not third.exists()


def test_a_publish_with_a_key_is_applied_once(socket: Socket, topic: Topic) -> None:
    acks = [socket.publish(topic.name, 1, idempotency_key="k") for _ in range(2)]
    assert [ack["deduped"] for ack in acks] == [False, True]
    assert acks[0]["seqs"] == acks[1]["seqs"]
    assert topic.data() == [1]


def test_a_publish_is_refused_as_a_write_is(socket: Socket, server: Server) -> None:
    full = server.topic(cap_records=1, discard="reject")
    assert socket.publish(full.name, 1, 2)["code"] == "topic_full"
    assert socket.publish(full.name)["code"] == "invalid_request"
    assert socket.publish("no name", 1)["code"] == "invalid_request"
    assert socket.ask("publish", topic=full.name)["code"] == "invalid_request"
    assert full.now()["count"] == 0


def test_a_subscriber_gets_the_backlog_and_what_comes_after_it(socket: Socket, topic: Topic) -> None:
    topic.filled("a", "b")
    told = socket.subscribe(topic.name)
    assert told == {
        "op": "subscribed",
        "request_id": "subscribe-1",
        "topics": {topic.name: {"from_seq": 0, "head_seq": 2, "earliest_seq": 1}},
    }
    backlog = socket.caught_up()
    assert data_in(backlog) == ["a", "b"]
    assert backlog[-1] == {"op": "caught_up", "topic": topic.name, "head_seq": 2}
    [record] = backlog[:-1]
    assert (record["topic"], record["from_seq"], record["to_seq"], record["head_seq"]) == (topic.name, 0, 2, 2)
    for number in range(3):
        topic.filled(number)
        live = socket.receive()
        assert (live["op"], live["from_seq"], live["to_seq"]) == ("record", 2 + number, 3 + number)
        assert data_in([live]) == [number]


def test_a_subscriber_gets_each_record_in_order(socket: Socket, topic: Topic) -> None:
    topic.filled(*range(10))
    socket.subscribe(topic.name)
    for number in range(10, 40):
        assert socket.publish(topic.name, number)["op"] == "ack"
    found: list[object] = []
    cursor = 0
    while cursor < 40:
        message = socket.receive()
        if message["op"] == "record":
            found += data_in([message])
            cursor = message["to_seq"]
    assert found == list(range(40))


def test_a_tail_gets_only_what_is_new(socket: Socket, topic: Topic) -> None:
    topic.filled("old")
    assert socket.subscribe(topic.name, tail=True, from_seq=0)["topics"][topic.name]["from_seq"] == 1
    assert data_in(socket.caught_up()) == []
    topic.filled("new")
    assert data_in([socket.receive()]) == ["new"]


def test_a_cursor_is_where_a_subscription_goes_on(socket: Socket, topic: Topic) -> None:
    topic.filled(1, 2, 3)
    socket.subscribe(topic.name, from_seq=2)
    assert data_in(socket.caught_up()) == [3]


def test_several_topics_may_be_subscribed_to_at_once(socket: Socket, server: Server) -> None:
    first, second = server.topic().filled("a"), server.topic().filled("b")
    told = socket.ask("subscribe", topics={first.name: {"tail": True}, second.name: {"from_seq": 0}})
    assert {name: one["from_seq"] for name, one in told["topics"].items()} == {first.name: 1, second.name: 0}
    messages = socket.caught_up() + socket.caught_up()
    assert {message["topic"] for message in messages if message["op"] == "caught_up"} == {first.name, second.name}
    assert data_in(messages) == ["b"]


def test_options_say_what_records_are_shown_with(socket: Socket, topic: Topic) -> None:
    topic.filled(1, tag="t", node="u1", meta={"m": 1})
    topic.filled(2, tag="t", node="u2", meta={"m": 2})
    socket.subscribe(topic.name, node="u1", include_data=False, include_tags=True, include_meta=False)
    [message, _] = socket.caught_up()
    [record] = message["records"]
    assert record.pop("$ts") > 0
    assert record == {"$seq": 2, "$node": "u2", "$tag": "t"}


def test_by_default_meta_is_shown_and_tags_are_not(socket: Socket, topic: Topic) -> None:
    topic.filled(1, tag="t", meta={"m": 1})
    socket.subscribe(topic.name)
    [record] = socket.caught_up()[0]["records"]
    assert record["meta"] == {"m": 1}
    assert "$tag" not in record


def test_a_limit_bounds_each_message(socket: Socket, topic: Topic) -> None:
    topic.filled(*range(5))
    socket.subscribe(topic.name, limit=2)
    messages = socket.caught_up()[:-1]
    assert [len(message["records"]) for message in messages] == [2, 2, 1]
    assert [message["from_seq"] for message in messages] == [0, 2, 4]


def test_bytes_bound_each_message(socket: Socket, topic: Topic) -> None:
    topic.filled("x" * 1000, "y" * 1000, "z")
    socket.subscribe(topic.name, max_batch_bytes=900)
    assert [len(message["records"]) for message in socket.caught_up()[:-1]] == [1, 1, 1]


def test_records_that_are_lost_are_told(socket: Socket, server: Server) -> None:
    topic = server.topic(cap_records=2).filled(*range(5))
    socket.subscribe(topic.name)
    tombstone, record, _ = socket.caught_up()
    assert {name: tombstone[name] for name in ("op", "topic", "gap_to", "earliest_seq", "head_seq")} == {
        "op": "tombstone",
        "topic": topic.name,
        "gap_to": 3,
        "earliest_seq": 4,
        "head_seq": 5,
    }
    assert tombstone["reason"] == "from_seq_too_old"
    assert data_in([record]) == [3, 4]


def test_a_topic_that_is_deleted_is_told(socket: Socket, topic: Topic) -> None:
    topic.filled("a")
    socket.subscribe(topic.name)
    socket.caught_up()
    answered(topic.remove())
    told = socket.receive()
    assert (told["op"], told["topic"], told["reason"]) == ("topic_deleted", topic.name, "deleted")
    assert told["head_seq"] >= 0
    assert socket.ask("ping")["op"] == "pong"


def test_what_is_unsubscribed_from_is_pushed_no_more(socket: Socket, server: Server) -> None:
    first, second = server.topic(), server.topic()
    socket.subscribe(first.name, second.name)
    socket.caught_up()
    socket.caught_up()
    told = socket.ask("unsubscribe", topic=first.name)
    assert (told["op"], told["topics"]) == ("unsubscribed", [first.name])
    first.filled("not for us")
    second.filled("for us")
    assert data_in([socket.receive()]) == ["for us"]


def test_a_second_subscription_replaces_the_first(socket: Socket, topic: Topic) -> None:
    topic.filled("a", "b")
    socket.subscribe(topic.name)
    assert data_in(socket.caught_up()) == ["a", "b"]
    socket.subscribe(topic.name, from_seq=1)
    assert data_in(socket.caught_up()) == ["b"]


def test_sockets_hear_each_other_and_not_themselves(server: Server, topic: Topic) -> None:
    with opened(server) as first, opened(server) as second:
        first.subscribe(topic.name, node="u1", tail=True)
        second.subscribe(topic.name, node="u2", tail=True)
        first.caught_up()
        second.caught_up()
        first.publish(topic.name, "from 1", node="u1")
        assert data_in([second.receive()]) == ["from 1"]
        second.publish(topic.name, "from 2", node="u2")
        assert data_in([first.receive()]) == ["from 2"]


def test_a_socket_that_leaves_disturbs_nobody(server: Server, topic: Topic) -> None:
    with opened(server) as stays:
        stays.subscribe(topic.name)
        stays.caught_up()
        with opened(server) as leaves:
            leaves.subscribe(topic.name)
            leaves.caught_up()
        topic.filled("after")
        assert data_in([stays.receive()]) == ["after"]


def test_a_large_record_is_told_and_the_next_one_comes(socket: Socket, topic: Topic) -> None:
    topic.filled("x" * 200_000)
    topic.filled("small")
    socket.subscribe(topic.name)
    error, record, _ = socket.caught_up()
    assert (error["op"], error["code"], error["topic"], error["seq"]) == ("error", "record_too_large", topic.name, 1)
    assert data_in([record]) == ["small"]


@pytest.mark.parametrize("text", ["", "{", "nonsense", '{"op":"ping"} more', '{"op": NaN}', "[" * 5000])
def test_what_is_no_json_is_told_and_the_socket_stays(socket: Socket, text: str) -> None:
    socket.send(text)
    told = socket.receive()
    assert (told["op"], told["code"]) == ("error", "invalid_json")
    assert told["message"]
    assert socket.ask("ping")["op"] == "pong"


@pytest.mark.parametrize(
    "command",
    [
        {},
        [],
        {"op": "dance"},
        {"op": "subscribe"},
        {"op": "subscribe", "topics": {}},
        {"op": "subscribe", "topic": "no name"},
        {"op": "subscribe", "topic": "t", "from_seq": -1},
        {"op": "subscribe", "topic": "t", "node": "n" * 500},
        {"op": "subscribe", "topics": {f"t{number}": {} for number in range(257)}},
        {"op": "unsubscribe"},
        {"op": "publish", "records": [{"data": 1}]},
    ],
)
def test_what_is_no_command_is_told_and_the_socket_stays(socket: Socket, command: object) -> None:
    socket.send(command)
    told = socket.receive()
    assert (told["op"], told["code"]) == ("error", "invalid_request"), told
    assert socket.ask("ping")["op"] == "pong"


def test_a_binary_message_is_refused(socket: Socket) -> None:
    socket.send(b'{"op":"ping"}')
    assert socket.receive()["code"] == "unsupported_message"


def test_a_message_has_at_most_128_kib(server: Server, topic: Topic) -> None:
    with opened(server) as socket:
        assert socket.publish(topic.name, "x" * 120_000)["op"] == "ack"
        socket.send({"op": "publish", "topic": topic.name, "records": [{"data": "x" * 132_000}]})
        with pytest.raises(ConnectionClosed):
            socket.receive()
    assert topic.now()["count"] == 1


def test_a_missing_topic_is_refused_or_left_out(socket: Socket, server: Server, topic: Topic) -> None:
    absent = server.unused()
    assert socket.subscribe(absent.name)["code"] == "topic_not_found"
    assert socket.subscribe(topic.name, absent.name)["code"] == "topic_not_found"
    assert list(socket.subscribe(topic.name, absent.name, lenient=True)["topics"]) == [topic.name]
    assert not absent.exists()


def test_a_request_that_is_no_handshake_is_told(server: Server) -> None:
    answer = server.get("/v0/ws")
    refused(answer, 426, "upgrade_required")
    assert answer.headers["upgrade"] == "websocket"


def rejected(server: Server, **headers: str) -> int:
    """Tries to open a socket; returns the status of the refusal."""
    with pytest.raises(InvalidStatus) as refusal, opened(server, **headers):
        pass
    return refusal.value.response.status_code


def test_a_page_of_another_site_opens_no_socket_without_keys(server: Server) -> None:
    assert rejected(server, Origin="https://evil.example") == 403
    with opened(server, Origin="http://localhost:5173") as socket:
        assert socket.ask("ping")["op"] == "pong"


def test_a_socket_needs_a_key_where_there_are_keys(guarded: Server) -> None:
    assert rejected(guarded.with_key(None)) == 401
    assert rejected(guarded.with_key("unknown")) == 401


def test_each_command_needs_its_scope(guarded: Server) -> None:
    topic = guarded.topic()
    with opened(guarded.with_key("reader")) as reader:
        assert reader.ask("ping")["op"] == "pong"
        assert reader.publish(topic.name, 1)["code"] == "forbidden"
        assert reader.subscribe(topic.name)["op"] == "subscribed"
        assert reader.caught_up()
    with opened(guarded.with_key("writer")) as writer:
        assert writer.subscribe(topic.name)["code"] == "forbidden"
        assert writer.publish(topic.name, 1)["op"] == "ack"
        assert writer.publish(topic.name, 1, config={})["code"] == "forbidden", "which needs admin"
    with opened(guarded.with_key("admin")) as admin:
        refusal = admin.publish(topic.name, 1)
        assert (refusal["op"], refusal["request_id"], refusal["code"]) == ("error", "publish-1", "forbidden")
        assert json.dumps(refusal["message"])


def test_each_name_is_within_the_prefixes_of_a_key(guarded: Server) -> None:
    mine, other = guarded.topic("mine."), guarded.topic()
    with opened(guarded.with_key("bound")) as socket:
        assert socket.publish(mine.name, 1)["op"] == "ack"
        assert socket.publish(other.name, 1)["code"] == "forbidden"
        assert socket.subscribe(other.name)["code"] == "forbidden"
        assert socket.subscribe(mine.name, other.name)["code"] == "forbidden"
        letters = {"type": "queue", "dead_letter": other.name}
        assert socket.publish("mine.queue", 1, config=letters)["code"] == "forbidden"
        socket.subscribe(mine.name)
        assert data_in(socket.caught_up()) == [1]
    assert other.now()["count"] == 0


def test_sockets_count_as_streams(guarded: Server) -> None:
    assert (LIMITS["max_sse_connections"], LIMITS["max_sse_connections_per_key"]) == (3, 2)
    worker = guarded.with_key("worker")
    with opened(guarded), opened(worker):
        with opened(guarded):
            assert rejected(worker) == 429, "all streams together"

        def outcome() -> int:
            try:
                with opened(guarded), opened(guarded):
                    return 200
            except InvalidStatus as refusal:
                return refusal.response.status_code

        eventually(outcome, lambda status: status == 429)

    def again() -> bool:
        try:
            with opened(guarded) as socket:
                return socket.ask("ping")["op"] == "pong"
        except InvalidStatus:
            return False

    eventually(again, bool)
