"""The routes of topics: what each of them answers."""

from __future__ import annotations

import asyncio
import base64
import json
import time

import pytest

from tests.conformance.topics.test_config import DEFAULTS
from tests.unit.api.asgi import JSON, Server
from tests.unit.api.topics import ROOT, T, append, ask, code, diff


@pytest.fixture
def server() -> Server:
    return Server()


def test_a_topic_is_created_once_with_all_defaults(server: Server) -> None:
    first = ask(server, "PUT", T, {})
    assert (first.status, first.json["created"], first.json["config"]) == (201, True, DEFAULTS)
    assert first.json["topic"] == "jobs"
    assert first.json["performance"]["server_total_ms"] >= 0
    assert first.headers["content-type"] == "application/json"
    again = ask(server, "PUT", T)  # without a body
    assert (again.status, again.json["created"], again.json["config"]) == (200, False, DEFAULTS)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"durable": True}, {"durable": True, "durability": "fsync"}),
        ({"durable": True, "durability": "memory"}, {"durable": False, "durability": "memory"}),
        ({"durability": "fsync"}, {"durable": True, "durability": "fsync"}),
        ({"durability": None}, {"durable": False, "durability": "disk"}),
        ({"priority": 5000}, {"priority": 1000}),
        ({"priority": -5000}, {"priority": -1000}),
        ({"priority": 7}, {"priority": 7}),
        ({"lease_ms": 1}, {"lease_ms": 100}),
        ({"lease_ms": 2**62}, {"lease_ms": 86_400_000}),
        ({"claim_jitter_ms": 9999}, {"claim_jitter_ms": 5000}),
        ({"type": "queue", "dead_letter": "jobs.dlq"}, {"type": "queue", "dead_letter": "jobs.dlq"}),
        ({"cap_bytes": 2**63 - 1, "later": {"unknown": 1}}, {"cap_bytes": 2**63 - 1}),
    ],
)
def test_a_configuration_is_completed_and_clamped(
    server: Server, given: dict[str, object], shown: dict[str, object]
) -> None:
    answer = ask(server, "PUT", T, given)
    assert answer.status == 201, answer.body
    assert answer.json["config"] == DEFAULTS | shown


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b'{"ttl_ms":-1}',
        b'{"ttl_ms":1.5}',
        b'{"ttl_ms":"1"}',
        b'{"ttl_ms":true}',
        b'{"ttl_ms":null}',
        b'{"ttl_ms":9223372036854775808}',
        b'{"type":"stack"}',
        b'{"discard":"new"}',
        b'{"durability":"ram"}',
        b'{"durable":1}',
        b'{"dead_letter":"jobs"}',
        b'{"dead_letter":"-x"}',
        b'{"priority":"1"}',
        b'{"ttl_ms":1}x',
        b'{"ttl_ms":NaN}',
        b"\xff",
    ],
)
def test_a_malformed_configuration_is_refused(server: Server, body: bytes) -> None:
    assert code(ask(server, "PUT", T, body)) == (400, "invalid_request")
    assert code(ask(server, "GET", T)) == (404, "topic_not_found")  # nothing happened


def test_a_state_says_where_the_topic_is(server: Server) -> None:
    ask(server, "PUT", T, {"priority": 3})
    empty = ask(server, "GET", T).json
    assert (empty["head_seq"], empty["earliest_seq"], empty["next_seq"], empty["count"]) == (0, 1, 1, 0)
    assert (empty["type"], empty["config"]) == ("log", DEFAULTS | {"priority": 3})
    assert empty["last_write_ts"] is None
    assert "queue" not in empty
    append(server, 1, "two")
    state = ask(server, "GET", f"{T}?touch=false").json
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"], state["count"]) == (2, 1, 3, 2)
    assert state["bytes"] == len(b"1") + len(b'"two"')


def test_a_listing_has_pages(server: Server) -> None:
    for name in ("a1", "a2", "a3", "b1"):
        ask(server, "PUT", f"{ROOT}/{name}", {"durable": name == "a2"})
    first = ask(server, "GET", f"{ROOT}?prefix=a&page_size=2").json
    assert [(one["topic"], one["durable"], one["head_seq"]) for one in first["topics"]] == [
        ("a1", False, 0),
        ("a2", True, 0),
    ]
    second = ask(server, "GET", f"{ROOT}?prefix=a&page_size=2&cursor={first['next_cursor']}").json
    assert [one["topic"] for one in second["topics"]] == ["a3"]
    assert "next_cursor" not in second
    everything = ask(server, "GET", f"{ROOT}?page_size=5000").json["topics"]
    assert len(everything) == 4
    assert len(ask(server, "GET", f"{ROOT}?page_size=0").json["topics"]) == 1


@pytest.mark.parametrize(
    "query",
    [
        "cursor=%",
        "cursor=abc",
        "cursor=" + base64.urlsafe_b64encode(b'{"after":1}').decode(),
        "cursor=" + base64.urlsafe_b64encode(b'{"before":"x"}').decode(),
        "cursor=%C3%A9",
        "page_size=-1",
        "page_size=x",
        "page_size=1.0",
        "touch=yes",
        "prefix=a&prefix=b",
    ],
)
def test_a_malformed_listing_is_refused(server: Server, query: str) -> None:
    assert code(ask(server, "GET", f"{ROOT}?{query}")) == (400, "invalid_request")


def test_a_topic_is_deleted_once(server: Server) -> None:
    append(server, 1)
    assert code(ask(server, "DELETE", f"{T}?if_empty=true")) == (409, "topic_not_empty")
    gone = ask(server, "DELETE", T)
    assert (gone.status, gone.json["deleted"], gone.json["routers_removed"]) == (200, True, [])
    assert ask(server, "DELETE", T).json["deleted"] is False
    assert append(server, 1).json["first_seq"] == 1  # a new topic


def test_an_append_says_which_seqs_its_records_got(server: Server) -> None:
    first = append(server, 1, 2)
    assert first.status == 201
    assert {name: value for name, value in first.json.items() if name != "performance"} == {
        "topic": "jobs",
        "first_seq": 1,
        "last_seq": 2,
        "seqs": [1, 2],
        "head_seq": 2,
        "count": 2,
        "created": True,
        "deduped": False,
    }
    second = ask(server, "POST", f"{T}?return_seqs=false", {"records": [{"data": None}]})
    assert (second.status, second.json["created"], second.json["first_seq"]) == (200, False, 3)
    assert "seqs" not in second.json


def test_only_the_class_fsync_tells_of_an_fsync(server: Server) -> None:
    ask(server, "PUT", T, {"durability": "fsync"})
    performance = append(server, 1).json["performance"]
    assert performance["fsync_ms"] == performance["wal_append_ms"] > 0
    performance = append(server, 1, topic="plain").json["performance"]
    assert performance["fsync_ms"] == 0 < performance["wal_append_ms"]


def test_a_repeat_is_answered_with_the_first_seqs(server: Server) -> None:
    first = append(server, 1, 2, idempotency_key="k").json
    again = append(server, 3, idempotency_key="k")
    assert (again.status, again.json["deduped"], again.json["created"]) == (200, True, False)
    assert again.json["seqs"] == first["seqs"]
    by_header = server("POST", T, {**JSON, "idempotency-key": "h"}, b'{"records":[{"data":1}]}').json
    assert by_header["seqs"] == [3]
    body = b'{"records":[{"data":1}],"idempotency_key":"k"}'
    assert server("POST", T, {**JSON, "idempotency-key": "h"}, body).json["seqs"] == [1, 2]  # the body wins
    assert server("POST", T, {**JSON, "idempotency-key": "h"}, b'{"records":[{"data":1}]}').json["seqs"] == [3]


def test_a_write_creates_a_topic_unless_it_may_not(server: Server) -> None:
    assert code(append(server, 1, create=False)) == (404, "topic_not_found")
    assert code(append(server, 1, config={"auto_create": False})) == (404, "topic_not_found")
    made = append(server, 1, config={"ttl_ms": 5000, "auto_create": False}, create=True)
    assert (made.status, made.json["created"]) == (201, True)
    append(server, 1, config={"ttl_ms": 7})  # it exists: ignored
    assert ask(server, "GET", T).json["config"]["ttl_ms"] == 5000


def test_a_full_topic_refuses(server: Server) -> None:
    ask(server, "PUT", T, {"discard": "reject", "cap_records": 2})
    assert append(server, 1).status == 200
    full = append(server, 1, 2)
    assert code(full) == (422, "topic_full")
    assert full.json["error"]["detail"]["topic"] == "jobs"
    assert ask(server, "GET", T).json["head_seq"] == 1


def test_a_reader_follows_with_a_cursor(server: Server) -> None:
    append(server, *range(5))
    page = diff(server, limit=2)
    assert [(one["$seq"], one["data"]) for one in page["records"]] == [(1, 0), (2, 1)]
    assert (page["next_from_seq"], page["head_seq"], page["earliest_seq"], page["lag"]) == (2, 5, 1, 3)
    assert (page["caught_up"], page["tombstone"]) == (False, None)
    assert page["performance"]["records_scanned"] >= 2
    rest = diff(server, from_seq=2, limit=5000)
    assert [one["$seq"] for one in rest["records"]] == [3, 4, 5]
    assert (rest["caught_up"], rest["lag"]) == (True, 0)
    assert diff(server, limit=0, wait_ms=0)["caught_up"]  # the default of the limit


def test_a_reader_is_shown_what_it_asked_for(server: Server) -> None:
    records = [{"data": 1, "tag": "t", "node": "n", "meta": {"m": 1}}, {"data": None}]
    ask(server, "POST", T, {"records": records, "node": "batch"})
    first, second = diff(server, include_tags=True)["records"]
    assert {**first, "$ts": 0} == {"$seq": 1, "$ts": 0, "$node": "n", "$tag": "t", "data": 1, "meta": {"m": 1}}
    assert {**second, "$ts": 0} == {"$seq": 2, "$ts": 0, "$node": "batch", "data": None}
    first, _ = diff(server, include_meta=False)["records"]
    assert set(first) == {"$seq", "$ts", "$node", "data"}
    assert [one["$seq"] for one in diff(server, node="n")["records"]] == [2]
    own = diff(server, node=["n", "batch"])
    assert (own["records"], own["next_from_seq"], own["caught_up"]) == ([], 2, True)


def test_a_long_poll_ends_with_the_first_record(server: Server) -> None:
    append(server, 1)

    async def follow() -> tuple[object, float]:
        body = json.dumps({"from_seq": 1, "wait_ms": 10_000}).encode()
        async with server.exchange("POST", f"{T}/diff", JSON, body) as waiting:
            await asyncio.sleep(0.05)
            began = time.monotonic()
            await server.ask("POST", T, JSON, b'{"records":[{"data":"new"}]}')
            return (await waiting.answer()).json, time.monotonic() - began

    page, took_s = asyncio.run(follow())
    assert [one["data"] for one in page["records"]] == ["new"]  # type: ignore[index]
    assert took_s < 1


def test_a_long_poll_that_gets_nothing_is_answered_with_an_empty_page(server: Server) -> None:
    append(server, 1)
    ask(server, "POST", T, {"records": [{"data": 2, "node": "own"}]})
    began = time.monotonic()
    page = diff(server, from_seq=1, wait_ms=80, node="own")
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 2, True)
    assert time.monotonic() - began >= 0.08


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ({"before_seq": 3}, [3, 4]),
        ({"match": "x1"}, [2, 3, 4]),
        ({"match": ["tag", "Eq", "x2"]}, [1, 3, 4]),
        ({"match": ["tag", "Glob", "x*"]}, [3, 4]),
        ({"match": ["tag", "Glob", "*"]}, [4]),
        ({"match": "x*"}, [1, 2, 3, 4]),
        ({"match": ["tag", "Glob", "x*"], "before_seq": 2}, [2, 3, 4]),
    ],
)
def test_records_are_deleted_by_seq_and_tag(server: Server, body: dict[str, object], left: list[int]) -> None:
    tags = ("x1", "x2", "y", None)
    ask(server, "POST", T, {"records": [{"data": 0, **({"tag": tag} if tag else {})} for tag in tags]})
    answer = ask(server, "POST", f"{T}/delete", body)
    assert answer.status == 200, answer.body
    assert answer.json["deleted"] == 4 - len(left)
    assert (answer.json["count"], answer.json["head_seq"], answer.json["earliest_seq"]) == (len(left), 4, left[0])
    assert answer.json["bytes"] == len(left)
    assert [one["$seq"] for one in diff(server)["records"]] == left


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"before_seq": -1},
        {"before_seq": "1"},
        {"before_seq": 2**63},
        {"match": 1},
        {"match": []},
        {"match": ["tag", "Eq"]},
        {"match": ["node", "Eq", "x"]},
        {"match": ["tag", "Like", "x"]},
        {"match": ["tag", "Glob", "x"]},
        {"match": ["tag", "Glob", "*x*"]},
        {"match": ["tag", "Eq", 1]},
    ],
)
def test_a_malformed_delete_is_refused(server: Server, body: dict[str, object]) -> None:
    append(server, 1)
    assert code(ask(server, "POST", f"{T}/delete", body)) == (400, "invalid_request")
    assert ask(server, "GET", T).json["count"] == 1


def test_what_is_absent_is_not_found(server: Server) -> None:
    for method, target, body in [
        ("GET", T, None),
        ("POST", f"{T}/diff", {}),
        ("POST", f"{T}/delete", {"before_seq": 1}),
        ("POST", T, {"records": [{"data": 1}], "create": False}),
    ]:
        answer = ask(server, method, target, body)
        assert code(answer) == (404, "topic_not_found")
        assert answer.json["error"]["detail"] == {"topic": "jobs"}
    assert ask(server, "GET", ROOT).json["topics"] == []


def test_health_needs_no_store(server: Server) -> None:
    for path in ("/v0/health", "/healthz"):
        answer = server("GET", path)
        assert answer.status == 200
        assert answer.json["status"] == "ok"
        assert answer.json["version"]
        assert answer.json["uptime_ms"] >= 0


def test_readiness_counts_topics(server: Server) -> None:
    append(server, 1)
    for path in ("/v0/ready", "/readyz"):
        answer = server("GET", path)
        assert answer.status == 200
        assert answer.json == {"status": "ready", "wal_replay_complete": True, "topics": 1}


def test_metrics_are_text_or_json(server: Server) -> None:
    append(server, 1, 2)
    append(server, 1, topic="q", config={"type": "queue", "durability": "fsync"})
    answer = server("GET", "/v0/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4"
    lines = answer.body.decode().splitlines()
    for line in (
        "# TYPE topics_topics gauge",
        "topics_topics 2",
        'topics_topics_by_class{class="fsync"} 1',
        "topics_records_live 3",
        "topics_queue_topics 1",
        'topics_topic_head_seq{topic="jobs"} 2',
        'topics_topic_queue_ready{topic="q"} 1',
        "topics_topic_metrics_truncated 0",
        "topics_wal_frames_total 3",
        "topics_wal_batches_total 2",
        "topics_wal_fsyncs_total 1",
        'topics_wal_fsync_latency_us_bucket{le="+Inf"} 1',
        "topics_wal_fsync_latency_us_count 1",
    ):
        assert line in lines
    document = server("GET", "/v0/metrics", {"accept": "application/json"}).json
    assert (document["topics"], document["records_live"], document["ready"]) == (2, 3, 1)
    assert [one["topic"] for one in document["per_topic"]] == ["jobs", "q"]
