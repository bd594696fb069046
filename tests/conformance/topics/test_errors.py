"""Conventions of every route: envelope, statuses, types, encodings, `performance` (§ 0.1, § 0.3, § 0.5, § 0.6, § 0.9)."""

from __future__ import annotations

import gzip
import json

import pytest

from tests.conformance.topics.client import JSON, Server, Topic, answered, expect, refused, shown

ROUTES = {
    "": ("DELETE", "GET", "POST", "PUT"),
    "/diff": ("POST",),
    "/delete": ("POST",),
    "/claim": ("POST",),
    "/ack": ("POST",),
    "/nack": ("POST",),
    "/extend": ("POST",),
    "/work": ("GET",),
}
BODIES = [("PUT", ""), *(("POST", sub) for sub in ROUTES if sub != "/work")]


@pytest.mark.parametrize("sub", ROUTES)
def test_another_method_is_refused(topic: Topic, sub: str) -> None:
    for method in {"DELETE", "GET", "POST", "PUT", "PATCH"} - set(ROUTES[sub]):
        answer = topic.send(method, sub, {})
        refused(answer, 405, "method_not_allowed")
        assert set(ROUTES[sub]) <= {name.strip() for name in answer.headers["allow"].split(",")}, shown(answer)
    assert topic.now()["head_seq"] == 0


@pytest.mark.parametrize("path", ["/v0/topics", "/v0/health", "/v0/ready", "/v0/metrics"])
def test_what_is_only_read_refuses_writes(server: Server, path: str) -> None:
    for method in ("POST", "PUT", "DELETE"):
        refused(server.send(method, path, {}), 405, "method_not_allowed")


@pytest.mark.parametrize("path", ["/v0", "/v0/", "/v0/nothing", "/v0/topics/a/b", "/v0/topics/a/diff/c"])
def test_an_unknown_path_is_refused_in_the_envelope(server: Server, path: str) -> None:
    answer = server.send("GET", path)
    assert answer.status_code in (404, 405), shown(answer)
    error = answer.json()["error"]
    assert {"code", "message"} <= set(error), shown(answer)


@pytest.mark.parametrize(("method", "sub"), BODIES)
def test_a_body_needs_its_content_type(queue: Topic, method: str, sub: str) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/octet-stream", ""):
        answer = queue.send(method, sub, b"{}", {"Content-Type": kind})
        refused(answer, 415, "unsupported_media_type")
    assert (queue.now()["head_seq"], queue.now()["count"]) == (5, 5)


def test_a_content_type_may_have_a_charset(topic: Topic) -> None:
    body = b'{"records":[{"data":1}]}'
    for kind in ("application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8"):
        answered(topic.send("POST", "", body, {"Content-Type": kind}))


@pytest.mark.parametrize(("method", "sub"), BODIES)
def test_a_body_is_one_json_object(queue: Topic, method: str, sub: str) -> None:
    for body in (b"{", b"[1,2]", b"null", b"NaN", b'{"a":\xff}', b"{} {}", b'{"node":"\\ud800"}'):
        refused(queue.send(method, sub, body, JSON), 400, "invalid_request")
    assert (queue.now()["count"], queue.counters()["in_flight"]) == (5, 0)


def test_deep_nesting_is_refused_or_kept(topic: Topic) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    answer = topic.send("POST", "", b'{"records":[{"data":%b}]}' % deep, JSON)
    assert answer.status_code in (200, 400), shown(answer)
    assert topic.now()["count"] == (answer.status_code == 200)


def test_bodies_may_be_compressed(topic: Topic) -> None:
    text = "x" * 50_000
    body = gzip.compress(json.dumps({"records": [{"data": text}]}).encode())
    answered(topic.send("POST", "", body, {**JSON, "Content-Encoding": "gzip"}))
    assert topic.data() == [text]
    refused(topic.send("POST", "", body[:-20], {**JSON, "Content-Encoding": "gzip"}), 400, "invalid_request")
    refused(topic.send("POST", "", b"not gzip", {**JSON, "Content-Encoding": "gzip"}), 400, "invalid_request")
    assert topic.now()["count"] == 1


def test_an_unknown_encoding_of_a_body_is_refused(topic: Topic) -> None:
    answer = topic.send("POST", "", b"xyz", {**JSON, "Content-Encoding": "zstd"})
    assert answer.status_code in (400, 415), shown(answer)
    assert topic.now()["count"] == 0


def test_a_small_body_may_not_become_a_huge_one(topic: Topic) -> None:
    bomb = gzip.compress(b'{"records":[{"data":"' + b"x" * (65 * 1024 * 1024) + b'"}]}', 1)
    refused(topic.send("POST", "", bomb, {**JSON, "Content-Encoding": "gzip"}), 413, "payload_too_large")
    assert topic.now()["count"] == 0


def test_answers_are_compressed_if_asked(topic: Topic) -> None:
    topic.filled("x" * 50_000)
    packed = expect(topic.send("POST", "/diff", {}, {"Accept-Encoding": "gzip"}), 200)
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers.get("content-length", "0")) < 10_000
    plain = expect(topic.send("POST", "/diff", {}, {"Accept-Encoding": "identity"}), 200)
    assert "content-encoding" not in plain.headers
    assert packed.json()["records"] == plain.json()["records"]


def test_every_success_says_what_it_cost(queue: Topic) -> None:
    queue.jobs(max=3)
    for answer in (
        queue.put(type="queue"),
        queue.state(),
        queue.append(6),
        queue.diff(),
        queue.claim(),
        queue.ack([1]),
        queue.nack([2]),
        queue.extend([3], lease_ms=1000),
        queue.erase(before_seq=1),
        queue.server.get("/v0/topics", prefix=queue.name),
        queue.remove(),
    ):
        performance = answered(answer)["performance"]
        assert all(isinstance(value, int | float) and value >= 0 for value in performance.values()), performance


def test_a_failure_has_a_code_a_message_and_perhaps_a_detail(server: Server) -> None:
    topic = server.unused()
    error = refused(topic.state(), 404, "topic_not_found")
    assert (error["message"], error["detail"]) == (f'topic "{topic.name}" does not exist', {"topic": topic.name})
    refused(server.topic().claim(), 409, "not_a_queue")


def test_keys_are_ignored_where_there_are_none(server: Server) -> None:
    topic = server.topic().by("whatever" if server.key is None else server.key)
    answered(topic.state())
    answered(topic.append(1))


def test_times_are_integers_of_milliseconds(queue: Topic) -> None:
    [job] = queue.jobs()
    state = queue.state().json()
    for value in (job["$ts"], job["deadline"], state["last_write_ts"], queue.page()["records"][0]["$ts"]):
        assert type(value) is int
        assert value > 1_500_000_000_000
