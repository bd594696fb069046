"""Who may do what to topics: keys, scopes, prefixes, the key as a parameter, senders of a server without keys, CORS."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.settings import Settings
from tests.unit.api.asgi import JSON, Server, http_scope
from tests.unit.api.topics import ROOT, T, ask, code

KEYS = "all,r:read,w:write,rw:rw,d:delete,a:admin,mine:read+write+admin:mine.|jobs"
RECORD = {"records": [{"data": 1}]}

# Each route with a body that is in order, and the keys that it answers.
ROUTES: list[tuple[str, str, Any, set[str]]] = [
    ("GET", ROOT, None, {"r", "rw"}),
    ("GET", T, None, {"r", "rw"}),
    ("PUT", T, {"type": "queue"}, {"a"}),
    ("POST", T, RECORD, {"w", "rw"}),
    ("DELETE", T, None, {"d"}),
    ("POST", f"{T}/diff", {}, {"r", "rw"}),
    ("POST", f"{T}/delete", {"before_seq": 1}, {"d"}),
    ("POST", f"{T}/claim", {"node": "n"}, {"rw"}),
    ("POST", f"{T}/ack", {"node": "n", "seqs": [1]}, {"w", "rw"}),
    ("POST", f"{T}/nack", {"node": "n", "seqs": [1]}, {"w", "rw"}),
    ("POST", f"{T}/extend", {"node": "n", "seqs": [1], "lease_ms": 1000}, {"w", "rw"}),
    ("GET", f"{T}/work?node=n", None, {"rw"}),
    ("POST", f"{T}/search", {"q": "has:tag"}, {"r", "rw"}),
    ("GET", f"{T}/search", None, {"r", "rw"}),
    ("PUT", f"{T}/search", {}, {"a"}),
    ("GET", "/v0/metrics", None, {"r", "rw"}),
]


@pytest.fixture
def server() -> Server:
    return Server(KEYS, Settings(metrics_interval_ms=0, sse_seconds=0))


@pytest.mark.parametrize(("method", "target", "body", "allowed"), ROUTES)
def test_each_route_wants_its_scopes(server: Server, method: str, target: str, body: Any, allowed: set[str]) -> None:
    assert code(ask(server, method, target, body)) == (401, "unauthorized")
    assert code(ask(server, method, target, body, "wrong")) == (401, "unauthorized")
    for key in {"r", "w", "rw", "d", "a"} - allowed:
        assert code(ask(server, method, target, body, key)) == (403, "forbidden")  # also if there is no such topic
    for key in ("all", *allowed):
        ask(server, "PUT", T, {"type": "queue"}, "all")
        assert ask(server, method, target, body, key).status in (200, 201)


def test_a_refusal_names_no_topic_that_is_there(server: Server) -> None:
    ask(server, "PUT", f"{ROOT}/theirs", {}, "all")
    there = ask(server, "GET", f"{ROOT}/theirs", key="mine")
    absent = ask(server, "GET", f"{ROOT}/nobodys", key="mine")
    assert code(there) == code(absent) == (403, "forbidden")
    assert there.body == absent.body


def test_every_route_of_a_topic_is_kept_from_keys_of_other_names(server: Server) -> None:
    for method, target, body, _ in ROUTES:
        if target.startswith(T):
            there = target.replace(T, f"{ROOT}/theirs")
            assert code(ask(server, method, there, body, "mine")) == (403, "forbidden"), there


def test_a_key_sees_the_names_that_it_may_touch(server: Server) -> None:
    for name in ("mine.1", "mine.2", "jobs", "theirs", "min"):
        ask(server, "PUT", f"{ROOT}/{name}", {}, "all")
    listed = ask(server, "GET", ROOT, key="mine").json["topics"]
    assert [one["topic"] for one in listed] == ["jobs", "mine.1", "mine.2"]
    assert ask(server, "GET", f"{ROOT}?prefix=t", key="mine").json["topics"] == []
    shown = server("GET", "/v0/metrics", {"accept": "application/json"}, key="mine").json
    assert [one["topic"] for one in shown["per_topic"]] == ["jobs", "mine.1", "mine.2"]
    assert shown["topics"] == 3


def test_names_in_a_configuration_are_checked_too(server: Server) -> None:
    config = {"type": "queue", "max_deliveries": 1, "dead_letter": "theirs"}
    assert code(ask(server, "PUT", T, config, "mine")) == (403, "forbidden")
    assert code(ask(server, "POST", T, {**RECORD, "config": config}, "mine")) == (403, "forbidden")
    assert ask(server, "PUT", T, {**config, "dead_letter": "mine.dead"}, "mine").status == 201


def test_a_write_with_a_configuration_needs_admin_only_to_create(server: Server) -> None:
    body = {**RECORD, "config": {"ttl_ms": 1000}}
    assert code(ask(server, "POST", T, body, "w")) == (403, "forbidden")
    assert code(ask(server, "POST", T, {**body, "create": False}, "w")) == (404, "topic_not_found")
    assert code(ask(server, "POST", T, {**RECORD, "config": {"auto_create": False}}, "w")) == (404, "topic_not_found")
    assert ask(server, "POST", T, RECORD, "w").status == 201
    assert ask(server, "POST", T, body, "w").status == 200


def test_probes_need_no_key_but_metrics_do(server: Server) -> None:
    for path in ("/v0/health", "/healthz", "/v0/ready", "/readyz"):
        assert server("GET", path).status == 200
    assert code(server("GET", "/v0/metrics")) == (401, "unauthorized")


def test_only_the_stream_of_jobs_takes_its_key_as_a_parameter(server: Server) -> None:
    ask(server, "PUT", T, {"type": "queue"}, "all")
    assert server("GET", f"{T}/work?node=n&token=rw").status == 200
    assert server("GET", f"{T}/work?to%6Ben=r%77&node=n").status == 200
    assert code(server("GET", f"{T}/work?node=n&token=no")) == (401, "unauthorized")
    assert code(server("GET", f"{T}/work?node=n&token=r")) == (403, "forbidden")
    assert code(server("GET", f"{T}/work?node=n&token=rw", key="no")) == (401, "unauthorized")  # the header counts
    for method, target in [("GET", T), ("GET", ROOT), ("POST", f"{T}/claim"), ("GET", "/v0/metrics")]:
        assert code(server(method, f"{target}?token=rw", JSON)) == (401, "unauthorized")
    assert code(ask(server, "GET", f"{ROOT}/work?token=rw")) == (401, "unauthorized")  # a topic named work


def test_a_key_in_a_parameter_is_gone_before_anything_logs_the_request(server: Server) -> None:
    scope = http_scope("GET", f"{T}/work?a=1&token=rw&node=n&token=x", {})

    async def ask_once() -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            assert message
            assert scope["query_string"] == b"a=1&node=n"

        await server.app(scope, receive, send)

    asyncio.run(ask_once())
    assert scope["query_string"] == b"a=1&node=n"


def test_a_server_without_keys_obeys_this_machine_only() -> None:
    server = Server(hosts=())
    assert ask(server, "PUT", T, {}).status == 201
    assert code(ask(server, "GET", T, host="evil.example")) == (403, "forbidden")
    assert code(ask(server, "POST", T, RECORD, origin="https://evil.example")) == (403, "forbidden")
    assert server("GET", "/healthz", {"host": "probe.internal"}).status == 200


def test_pages_of_other_origins_may_send_what_topics_need(server: Server) -> None:
    answer = server("OPTIONS", f"{T}/diff", {"origin": "https://app.example"})
    assert answer.status == 204
    allowed = answer.headers["access-control-allow-headers"]
    assert "Idempotency-Key" in allowed
    assert "Stream-Seq" not in allowed
    assert answer.headers["access-control-allow-origin"] == "*"
    of_streams = server("OPTIONS", "/v1/stream/s").headers["access-control-allow-headers"]
    assert "Idempotency-Key" not in of_streams
    assert "Stream-Seq" in of_streams


def test_one_key_may_have_so_many_requests_at_once() -> None:
    server = Server("one,two", Settings(metrics_interval_ms=0, max_inflight_per_key=1))
    ask(server, "PUT", T, {}, "one")

    async def meet() -> list[int]:
        body = b'{"wait_ms":300}'
        async with server.exchange("POST", f"{T}/diff", JSON, body, "one") as waiting:
            await asyncio.sleep(0.05)
            refused = await server.ask("GET", T, key="one")
            other = await server.ask("GET", T, key="two")
            assert refused.headers["retry-after"]
            assert refused.json["error"]["code"] == "throttled"
            assert refused.json["error"]["detail"] == {"limit": "max_inflight_per_key", "max": 1}
            return [refused.status, other.status, (await waiting.answer()).status]

    assert asyncio.run(meet()) == [429, 200, 200]
