"""POST /v0/topics/:topic: appends (§ 2), and what records are (§ 0.3, § 0.4)."""

from __future__ import annotations

import http.client
import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.conformance.topics.client import JSON, Server, Topic, answered, at_once, expect, refused

MIB = 1024 * 1024


def test_the_answer_to_a_write(topic: Topic) -> None:
    topic.filled("zero")
    answer = answered(topic.append("a", "b", "c"))
    assert set(answer) == {
        *("topic", "first_seq", "last_seq", "seqs", "head_seq", "count", "created", "deduped", "performance"),
    }
    del answer["performance"]
    assert answer == {
        "topic": topic.name,
        "first_seq": 2,
        "last_seq": 4,
        "seqs": [2, 3, 4],
        "head_seq": 4,
        "count": 3,
        "created": False,
        "deduped": False,
    }


def test_seqs_are_given_in_the_order_of_the_array(topic: Topic) -> None:
    answered(topic.append(*range(7)))
    answered(topic.append(*range(7, 10)))
    records = topic.page()["records"]
    assert [(record["$seq"], record["data"]) for record in records] == [(n + 1, n) for n in range(10)]


def test_seqs_can_be_left_out(topic: Topic) -> None:
    body = {"records": [{"data": 1}, {"data": 2}]}
    answer = answered(topic.send("POST", "", body, None, return_seqs=False))
    assert "seqs" not in answer
    assert (answer["first_seq"], answer["last_seq"], answer["count"]) == (1, 2, 2)
    assert answered(topic.send("POST", "", body, None, return_seqs=True))["seqs"] == [3, 4]
    refused(topic.send("POST", "", body, None, return_seqs="some"), 400, "invalid_request")


def test_a_write_creates_its_topic(server: Server) -> None:
    topic = server.unused()
    answer = answered(topic.append("a"), 201)
    assert (answer["created"], answer["seqs"]) == (True, [1])
    assert answered(topic.append("b"))["created"] is False
    assert topic.data() == ["a", "b"]


def test_one_of_many_writes_at_once_creates(server: Server) -> None:
    topic = server.unused()
    answers = at_once([lambda: topic.append("a")] * 6)
    assert sorted(answer.status_code for answer in answers) == [200] * 5 + [201]
    assert sorted(answer.json()["first_seq"] for answer in answers) == [1, 2, 3, 4, 5, 6]


def test_a_write_may_refuse_to_create(server: Server) -> None:
    topic = server.unused()
    refused(topic.append("a", create=False), 404, "topic_not_found")
    assert not topic.exists()
    answered(topic.append("a", create=True), 201)
    answered(topic.append("b", create=False))


def test_auto_create_of_the_inline_configuration_holds_unless_overridden(server: Server) -> None:
    topic = server.unused()
    refused(topic.append("a", config={"auto_create": False}), 404, "topic_not_found")
    assert not topic.exists()
    answered(topic.append("a", config={"auto_create": False}, create=True), 201)
    assert topic.now()["config"]["auto_create"] is False


def test_an_inline_configuration_holds_only_if_the_write_creates(server: Server) -> None:
    topic = server.unused()
    answered(topic.append("a", config={"type": "queue", "ttl_ms": 60_000, "lease_ms": 1}), 201)
    config = topic.now()["config"]
    assert (config["type"], config["ttl_ms"], config["lease_ms"]) == ("queue", 60_000, 100)
    answered(topic.append("b", config={"ttl_ms": 1, "type": "log"}))
    assert topic.now()["config"] == config


@pytest.mark.parametrize("config", [{"ttl_ms": -1}, {"type": "stack"}, 7, []], ids=repr)
def test_a_bad_inline_configuration_is_refused(server: Server, config: object) -> None:
    topic = server.unused()
    refused(topic.append("a", config=config), 400, "invalid_request")
    assert not topic.exists()


def test_server_members_have_a_sigil_and_others_none(topic: Topic) -> None:
    answered(topic.write([{"data": {"$seq": "mine"}, "tag": "t", "node": "n", "meta": {"$ts": 1}}]))
    [record] = topic.page(include_tags=True)["records"]
    assert set(record) == {"$seq", "$ts", "$node", "$tag", "data", "meta"}
    assert (record["$seq"], record["$node"], record["$tag"]) == (1, "n", "t")
    assert (record["data"], record["meta"]) == ({"$seq": "mine"}, {"$ts": 1})
    assert abs(record["$ts"] - time.time() * 1000) < 60_000


def test_what_a_record_has_not_is_absent(topic: Topic) -> None:
    answered(topic.append(None))
    [record] = topic.page(include_tags=True)["records"]
    assert set(record) == {"$seq", "$ts", "data"}
    assert record["data"] is None


def test_a_node_of_the_batch_holds_for_records_without_one(topic: Topic) -> None:
    answered(topic.write([{"data": 1}, {"data": 2, "node": "own"}], node="batch"))
    assert [record["$node"] for record in topic.page()["records"]] == ["batch", "own"]


def test_times_never_fall(topic: Topic) -> None:
    for n in range(12):
        answered(topic.append(n))
    times = [record["$ts"] for record in topic.page()["records"]]
    assert times == sorted(times)


TEXTS = [
    *(
        "null",
        "true",
        "false",
        "0",
        "-0.0",
        "1.0",
        "1e2",
        "1E-7",
        "12345678901234567890123456789",
        '""',
        "[]",
        "{}",
    ),
    *('{"b":1,"a":[1.50,{"c":null}]}', r'"\u00e9\/\ud83d\ude00"', '"é😀"', '{"a":1,"a":2}'),
    *('{ "spaced" : [ 1 , 2 ] }', '"aGVsbG8="', '{"$seq":9,"error":{}}'),
]


def test_data_is_returned_as_it_was_sent(topic: Topic) -> None:
    for number, text in enumerate(TEXTS):
        body = b'{"records":[{"data":%b,"meta":{"m":1.0}}]}' % text.encode()
        answered(topic.send("POST", "", body, JSON))
        answer = expect(topic.diff(number), 200)
        assert b'"data":' + text.encode() in answer.content.replace(b'"data": ', b'"data":')
        assert b'{"m":1.0}' in answer.content


def test_data_is_the_same_on_every_path(server: Server) -> None:
    text = '{"b":1.0,"a":"\\u00e9"}'
    queue = server.queue(max_deliveries=1, dead_letter=server.unused().name)
    answered(queue.send("POST", "", b'{"records":[{"data":%b}]}' % text.encode(), JSON))
    for answer in (queue.diff(), queue.claim()):
        assert text.encode() in expect(answer, 200).content
    answered(queue.nack([1]))
    assert queue.jobs() == []
    dead = Topic(server, queue.now()["config"]["dead_letter"])
    assert text.encode() in expect(dead.diff(), 200).content


def test_seqs_of_writers_at_once_are_contiguous(topic: Topic) -> None:
    answers = at_once([lambda: topic.append(1, 2, 3)] * 8)
    runs = sorted(answered(answer)["seqs"] for answer in answers)
    assert runs == [[n, n + 1, n + 2] for n in range(1, 25, 3)]
    assert topic.data() == [1, 2, 3] * 8


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"records": []},
        {"records": None},
        {"records": {"data": 1}},
        {"records": [1]},
        {"records": [{}]},
        {"records": [{"tag": "x"}]},
        {"records": [{"data": 1, "tag": 1}]},
        {"records": [{"data": 1, "node": ["n"]}]},
        {"records": [{"data": 1, "meta": "m"}]},
        {"records": [{"data": 1, "meta": [1]}]},
        {"records": [{"data": 1}], "node": 1},
        {"records": [{"data": 1}], "create": "yes"},
        {"records": [{"data": 1}], "idempotency_key": 1},
        {"records": [{"data": 1}], "disable_backpressure": "yes"},
    ],
    ids=repr,
)
def test_a_bad_write_is_refused_and_creates_nothing(server: Server, body: object) -> None:
    topic = server.unused()
    refused(topic.send("POST", "", body), 400, "invalid_request")
    assert not topic.exists()


BAD_RECORDS: list[tuple[str, dict[str, Any]]] = [
    ("invalid_request", {"tag": "x"}),
    ("invalid_request", {"data": 1, "tag": "t" * 257}),
    ("invalid_request", {"data": 1, "tag": "é" * 129}),
    ("invalid_request", {"data": 1, "node": "n" * 129}),
    ("invalid_request", {"data": 1, "node": "é" * 65}),
    ("invalid_request", {"data": 1, "meta": {str(n): 1 for n in range(65)}}),
    ("invalid_request", {"data": 1, "meta": {"m": "x" * 16 * 1024}}),
    ("record_too_large", {"data": "x" * MIB}),
    ("record_too_large", {"data": "x" * (MIB - 5000), "meta": {"m": "x" * 6000}}),
]


@pytest.mark.parametrize(("code", "record"), BAD_RECORDS, ids=lambda value: str(value)[:40])
def test_a_bad_record_keeps_the_whole_batch_out(topic: Topic, code: str, record: dict[str, Any]) -> None:
    refused(topic.write([{"data": "good"}, record, {"data": "good"}]), 400, code)
    state = topic.now()
    assert (state["head_seq"], state["count"], state["last_write_ts"]) == (0, 0, None)


@pytest.mark.parametrize(
    "record",
    [
        {"data": 1, "tag": "t" * 256},
        {"data": 1, "tag": "é" * 128},
        {"data": 1, "node": "n" * 128},
        {"data": 1, "meta": {str(n): 1 for n in range(64)}},
        {"data": 1, "meta": {"m": "x" * (16 * 1024 - 100)}},
        {"data": "x" * (MIB - 100)},
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_just_within_a_limit_is_kept(topic: Topic, record: dict[str, Any]) -> None:
    answered(topic.write([record]))
    [found] = topic.page(include_tags=True)["records"]
    assert {name.lstrip("$"): value for name, value in found.items() if name not in ("$seq", "$ts")} == record


def test_a_batch_has_at_most_ten_thousand_records(topic: Topic) -> None:
    refused(topic.append(*[0] * 10_001), 400, "batch_too_large")
    assert topic.now()["head_seq"] == 0
    answer = answered(topic.send("POST", "", {"records": [{"data": 0}] * 10_000}, None, return_seqs=False))
    assert (answer["first_seq"], answer["last_seq"], answer["count"]) == (1, 10_000, 10_000)
    state = topic.now()
    assert (state["head_seq"], state["count"]) == (10_000, 10_000)


def test_large_batches_are_kept(topic: Topic) -> None:
    texts = [chr(97 + n) * 300_000 for n in range(4)]
    answered(topic.append(*texts))
    assert topic.data(max_batch_bytes=8 * MIB) == texts


def test_a_body_beyond_the_hard_limit_is_refused_unread(topic: Topic) -> None:
    url = urlsplit(topic.server.url + topic.path)
    connection = http.client.HTTPConnection(url.netloc, timeout=30)
    try:
        connection.putrequest("POST", url.path)
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(64 * MIB + 1))
        connection.endheaders()
        answer = connection.getresponse()
        assert (answer.status, b"payload_too_large" in answer.read()) == (413, True)
    finally:
        connection.close()
    assert topic.now()["head_seq"] == 0


def test_backpressure_can_be_disabled(topic: Topic) -> None:
    for value in (True, False):
        answered(topic.append(1, disable_backpressure=value))


def test_unknown_members_are_ignored(topic: Topic) -> None:
    answered(topic.send("POST", "", {"records": [{"data": 1, "colour": "red"}], "shape": "round"}))
    [record] = topic.page()["records"]
    assert set(record) == {"$seq", "$ts", "data"}


def test_only_a_durable_topic_waits_for_a_sync(server: Server) -> None:
    for durability in ("ephemeral", "memory", "disk"):
        assert answered(server.topic(durability=durability).append(1))["performance"].get("fsync_ms", 0) == 0
    performance = answered(server.topic(durable=True).append(1))["performance"]
    assert performance["fsync_ms"] > 0


def test_a_write_of_any_class_is_read_at_once(server: Server) -> None:
    for durability in ("ephemeral", "memory", "disk", "fsync"):
        topic = server.topic(durability=durability)
        for n in range(3):
            answered(topic.append(n))
            assert topic.data() == list(range(n + 1))
            assert topic.now()["head_seq"] == n + 1
