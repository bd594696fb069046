"""Keys, their scopes and their prefixes (§ 0.2)."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from tests.conformance.topics.client import SSE, Server, Topic, answered, expect, refused
from tests.conformance.topics.configurations import SCOPES

Route = Callable[[Topic], httpx.Response]
ROUTES: dict[str, tuple[set[str], Route]] = {
    "PUT": ({"admin"}, lambda topic: topic.put(type="queue")),
    "GET": ({"read"}, lambda topic: topic.state()),
    "POST": ({"write"}, lambda topic: topic.append("a")),
    "diff": ({"read"}, lambda topic: topic.diff()),
    "delete": ({"delete"}, lambda topic: topic.erase(before_seq=1)),
    "claim": ({"read", "write"}, lambda topic: topic.claim(lease_ms=100)),
    "ack": ({"write"}, lambda topic: topic.ack([99])),
    "nack": ({"write"}, lambda topic: topic.nack([99])),
    "extend": ({"write"}, lambda topic: topic.extend([99], lease_ms=100)),
    "leases": ({"read"}, lambda topic: topic.send("GET", "/leases")),
    "work": ({"read", "write"}, lambda topic: topic.send("GET", "/work", None, {"Accept": "text/html"}, node="w")),
    "list": ({"read"}, lambda topic: topic.server.get("/v0/topics")),
    "metrics": ({"read"}, lambda topic: topic.server.get("/v0/metrics")),
    "DELETE": ({"delete"}, lambda topic: topic.remove(if_empty=True)),
}


@pytest.fixture
def subject(limited: Server) -> Topic:
    """Returns a queue that has a job, whatever the tests before did to it."""
    queue = Topic(limited, "subject")
    if queue.put(type="queue").status_code == 201:
        queue.filled("job")
    return queue


@pytest.mark.parametrize("name", ROUTES)
def test_each_route_needs_its_scopes(subject: Topic, name: str) -> None:
    needed, send = ROUTES[name]
    for key, scopes in SCOPES.items():
        answer = send(subject.by(key))
        if needed <= scopes:
            assert answer.status_code in (200, 406, 409), (key, answer.text)
        else:
            refused(answer, 403, "forbidden")


@pytest.mark.parametrize("name", ROUTES)
def test_each_route_needs_a_key(subject: Topic, name: str) -> None:
    for key in (None, "unknown", "al", "all.", "reader:read"):
        refused(ROUTES[name][1](subject.by(key)), 401, "unauthorized")
    answer = subject.server.http.get(subject.server.url + subject.path, headers={"Authorization": "Basic all"})
    refused(answer, 401, "unauthorized")


def test_a_scope_is_asked_before_the_topic_is_looked_for(guarded: Server) -> None:
    absent = guarded.unused()
    refused(absent.by("writer").state(), 403, "forbidden")
    refused(absent.by("bound").state(), 403, "forbidden")
    refused(absent.by("reader").state(), 404, "topic_not_found")


PATHS = {name: route for name, (_, route) in ROUTES.items() if name not in ("list", "metrics")}


@pytest.mark.parametrize("name", PATHS)
def test_a_key_with_prefixes_reaches_no_other_name(subject: Topic, name: str) -> None:
    refused(PATHS[name](subject.by("bound")), 403, "forbidden")


def test_a_key_with_prefixes_does_what_its_scopes_allow_within_them(guarded: Server) -> None:
    for prefix in ("mine.", "ours:"):
        bound = guarded.with_key("bound").unused(prefix)
        answered(bound.put(), 201)
        answered(bound.append("a"))
        assert bound.data() == ["a"]
        answered(bound.by("reader-bound").state()) if prefix == "mine." else refused(
            bound.by("reader-bound").state(), 403, "forbidden"
        )
        refused(bound.by("reader-bound").append("b"), 403, "forbidden")


def test_a_prefix_is_compared_byte_by_byte(guarded: Server) -> None:
    for name in ("Mine.x", "mine", "xmine.", "mine-x"):
        refused(Topic(guarded.with_key("bound"), name).state(), 403, "forbidden")
    refused(Topic(guarded.with_key("bound"), "mine.x").state(), 404, "topic_not_found")


def test_a_list_shows_only_what_a_key_may_name(guarded: Server) -> None:
    inside, outside = guarded.topic("mine."), guarded.topic("other.")
    for key, names in (
        ("bound", {inside.name}),
        ("reader-bound", {inside.name}),
        ("all", {inside.name, outside.name}),
    ):
        listed = answered(guarded.with_key(key).get("/v0/topics"))["topics"]
        assert {topic["topic"] for topic in listed} == names, key
        listed = answered(guarded.with_key(key).get("/v0/topics", prefix="other."))["topics"]
        assert {topic["topic"] for topic in listed} == names - {inside.name}, key


def test_pages_of_a_filtered_list_hide_the_rest(guarded: Server) -> None:
    topics = [guarded.topic(prefix) for prefix in ("mine.", "other.", "ours:", "mine.")]
    bound, seen, cursor = guarded.with_key("bound"), [], ""
    for _ in range(4):
        page = answered(bound.get("/v0/topics", page_size=1, **({"cursor": cursor} if cursor else {})))
        seen += [topic["topic"] for topic in page["topics"]]
        if not (cursor := page.get("next_cursor", "")):
            break
    assert sorted(seen) == sorted(topic.name for topic in topics if not topic.name.startswith("other."))


def test_a_dead_letter_topic_is_a_name_of_the_body(guarded: Server) -> None:
    queue = guarded.with_key("bound").unused("mine.")
    refused(queue.put(type="queue", dead_letter="other.dead"), 403, "forbidden")
    answered(queue.put(type="queue", dead_letter="ours:dead"), 201)


def test_a_write_that_creates_with_a_configuration_needs_admin(guarded: Server) -> None:
    topic = guarded.unused()
    refused(topic.by("writer").append("a", config={"ttl_ms": 1000}), 403, "forbidden")
    assert not topic.exists()
    answered(topic.by("writer").append("a"), 201)
    answered(topic.by("writer").append("b", config={"ttl_ms": 1000}))
    answered(topic.remove())
    answered(topic.append("a", config={"ttl_ms": 60_000}), 201)


def test_a_key_in_the_query_opens_only_the_stream(subject: Topic) -> None:
    bare = subject.by(None)
    for answer in (
        bare.state(token="all"),
        bare.send("POST", "/claim", {"node": "w"}, None, token="all"),
        bare.send("POST", "", {"records": [{"data": 1}]}, None, token="all"),
        bare.server.get("/v0/topics", token="all"),
        bare.server.get("/v0/metrics", token="all"),
        bare.send("GET", "/work", None, SSE, node="w", token="unknown"),
    ):
        refused(answer, 401, "unauthorized")
    refused(bare.send("GET", "/work", None, SSE, node="w", token="reader"), 403, "forbidden")
    with bare.server.stream(subject.path + "/work?node=w&token=a%6Cl&token=unknown") as answer:
        assert answer.status_code == 200


def test_probes_need_no_key(guarded: Server) -> None:
    for path in ("/v0/health", "/healthz", "/v0/ready", "/readyz"):
        expect(guarded.with_key(None).get(path), 200)
