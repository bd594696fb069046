"""The routes of queues: claim, ack, nack, extend, and what a queue shows of itself."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from functions.access import parse
from functions.api.context import assemble
from functions.api.door import requests
from functions.metrics import ApiMetric, Meter
from headrace.memory import memory_stores
from headrace.settings import Settings
from tests.unit.api.asgi import JSON, Server
from tests.unit.api.topics import ROOT, T, append, ask, code, diff


@pytest.fixture
def server() -> Server:
    server = Server()
    ask(server, "PUT", T, {"type": "queue"})
    append(server, *range(5))
    return server


def post(server: Server, what: str, **body: Any) -> Any:
    answer = ask(server, "POST", f"{T}/{what}", body)
    assert answer.status == 200, answer.body
    return answer.json


def test_jobs_are_claimed_in_order_and_once(server: Server) -> None:
    ask(server, "POST", T, {"records": [{"data": 5, "tag": "t", "meta": {"m": 1}, "node": "n"}]})
    first = post(server, "claim", node="w1")  # the default is one
    assert (first["topic"], first["count"], first["ready"]) == ("jobs", 1, 5)
    assert first["performance"]["throttle_wait_ms"] == 0
    (job,) = first["claimed"]
    assert set(job) == {"$seq", "lease_id", "deadline", "$ts", "deliveries", "data"}
    assert (job["$seq"], job["deliveries"], job["data"]) == (1, 1, 0)
    assert job["lease_id"].startswith("lease_")
    rest = post(server, "claim", node="w2", max=5000)
    assert [one["$seq"] for one in rest["claimed"]] == [2, 3, 4, 5, 6]
    assert {**rest["claimed"][-1], "$ts": 0, "lease_id": "", "deadline": 0} == {
        "$seq": 6,
        "lease_id": "",
        "deadline": 0,
        "$ts": 0,
        "$tag": "t",
        "deliveries": 1,
        "data": 5,
        "meta": {"m": 1},
    }
    empty = post(server, "claim", node="w3", max=3)
    assert (empty["claimed"], empty["count"], empty["ready"]) == ([], 0, 0)


def test_a_job_is_given_out_as_it_came(server: Server) -> None:
    data, meta = b'{ "b":1.50,\n "a":[ ]}', b'{"z" : 1e2}'
    ask(server, "POST", T, b'{"records":[{"data":' + data + b',"meta":' + meta + b"}]}")
    answer = ask(server, "POST", f"{T}/claim", {"node": "w", "max": 9})
    assert b'"data":' + data + b',"meta":' + meta + b"}" in answer.body


def test_an_ack_removes_what_its_worker_holds(server: Server) -> None:
    answer = ask(server, "POST", f"{T}/claim", {"node": "w", "max": 3})
    claimed = answer.json["claimed"]
    assert answer.headers["server-timing"] == 'commit;desc="tries 1"'
    other = post(server, "ack", node="other", seqs=[1])
    assert (other["acked"], other["skipped"]) == (0, [1])
    tokens = [one["lease_id"] for one in claimed]
    done = post(server, "ack", node="w", seqs=[1, 2, 99], lease_ids=[tokens[0], "lease_00", "lease_00"])
    assert (done["acked"], done["skipped"], done["ready"], done["in_flight"]) == (1, [2, 99], 2, 2)
    again = ask(server, "POST", f"{T}/ack", {"node": "w", "seqs": [1]})
    assert again.json["skipped"] == [1] and "server-timing" not in again.headers, "nothing was written"
    assert post(server, "ack", node="w", seqs=[2, 3])["acked"] == 2
    assert [one["$seq"] for one in diff(server)["records"]] == [4, 5]
    assert ask(server, "GET", T).json["count"] == 2


def test_a_nacked_job_comes_again(server: Server) -> None:
    post(server, "claim", node="w", max=2)
    back = post(server, "nack", node="w", seqs=[1, 5])
    assert (back["nacked"], back["skipped"], back["ready"], back["in_flight"]) == (1, [5], 4, 1)
    (again,) = post(server, "claim", node="x")["claimed"]
    assert (again["$seq"], again["deliveries"]) == (1, 2)
    later = post(server, "nack", node="x", seqs=[1], delay_ms=60_000)
    assert (later["ready"], later["in_flight"]) == (3, 1)
    assert [one["$seq"] for one in post(server, "claim", node="x", max=9)["claimed"]] == [3, 4, 5]


def test_an_extended_lease_ends_later(server: Server) -> None:
    (job,) = post(server, "claim", node="w", lease_ms=1000)["claimed"]
    longer = post(server, "extend", node="w", seqs=[1, 2], lease_ms=3_600_000)
    assert (longer["extended"], longer["skipped"]) == (1, [2])
    assert set(longer["deadlines"]) == {"1"}
    assert 3_500_000 < longer["deadlines"]["1"] - job["deadline"] < 3_700_000
    shortest = post(server, "extend", node="w", seqs=[1], lease_ms=0)["deadlines"]["1"]
    assert shortest < job["deadline"]


def test_a_lease_is_clamped(server: Server) -> None:
    first = post(server, "claim", node="w", lease_ms=2**60)["claimed"][0]
    assert first["deadline"] - first["$ts"] < 86_400_000 + 60_000
    second = post(server, "claim", node="w", lease_ms=None)["claimed"][0]
    assert 29_000 <= second["deadline"] - second["$ts"] <= 60_000  # the topic's


def test_a_job_that_is_delivered_too_often_is_a_dead_letter() -> None:
    server = Server()
    ask(server, "PUT", T, {"type": "queue", "max_deliveries": 1, "dead_letter": "dead"})
    append(server, "poison")
    assert post(server, "claim", node="w")["count"] == 1
    post(server, "nack", node="w", seqs=[1])
    assert post(server, "claim", node="w")["count"] == 0
    assert ask(server, "GET", T).json["queue"] == {"ready": 0, "in_flight": 0, "dead_lettered": 1}
    (letter,) = diff(server, "dead")["records"]
    assert letter["data"] == "poison"
    assert letter["meta"]["$dead_letter_from"] == "jobs"


def test_a_queue_counts_its_jobs(server: Server) -> None:
    post(server, "claim", node="w", max=2)
    state = ask(server, "GET", T).json
    assert state["type"] == "queue"
    assert state["queue"] == {"ready": 3, "in_flight": 2, "dead_lettered": 0}
    lines = server("GET", "/v0/metrics").body.decode().splitlines()
    for line in (
        "topics_queue_topics 1",
        "topics_queue_leases_in_flight 2",
        'topics_topic_queue_ready{topic="jobs"} 3',
        'topics_topic_queue_in_flight{topic="jobs"} 2',
    ):
        assert line in lines


def test_only_durable_queues_tell_of_an_fsync(server: Server) -> None:
    ask(server, "PUT", f"{ROOT}/safe", {"type": "queue", "durable": True})
    append(server, 1, topic="safe")
    ask(server, "POST", f"{ROOT}/safe/claim", {"node": "w"})
    safe = ask(server, "POST", f"{ROOT}/safe/ack", {"node": "w", "seqs": [1]}).json["performance"]
    assert safe["fsync_ms"] == safe["wal_append_ms"] > 0
    post(server, "claim", node="w")
    assert post(server, "ack", node="w", seqs=[1])["performance"]["fsync_ms"] == 0


VALID: dict[str, dict[str, Any]] = {
    "claim": {"node": "w"},
    "ack": {"node": "w", "seqs": [1]},
    "nack": {"node": "w", "seqs": [1]},
    "extend": {"node": "w", "seqs": [1], "lease_ms": 1000},
}


@pytest.mark.parametrize("what", VALID)
def test_only_queues_have_jobs(server: Server, what: str) -> None:
    assert code(ask(server, "POST", f"{ROOT}/absent/{what}", VALID[what])) == (404, "topic_not_found")
    append(server, 1, topic="log")
    assert code(ask(server, "POST", f"{ROOT}/log/{what}", VALID[what])) == (409, "not_a_queue")
    assert code(ask(server, "GET", f"{T}/{what}")) == (405, "method_not_allowed")
    assert code(server("POST", f"{T}/{what}", {}, b"{}")) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("what", "members"),
    [
        *[(what, {"node": bad}) for what in VALID for bad in ("", None, 1, ["w"], "x" * 129, "é" * 65)],
        *[("claim", {"max": bad}) for bad in (0, -1, 1.5, "1", None, 2**63)],
        *[("claim", {"lease_ms": bad}) for bad in (-1, "1", 1.5, True)],
        *[(what, {"seqs": bad}) for what in ("ack", "nack", "extend") for bad in ([], None, 1, ["1"], [-1], [2**63])],
        *[("ack", {"lease_ids": bad}) for bad in ([], ["a", "b"], "a", [1])],
        *[("nack", {"delay_ms": bad}) for bad in (-1, None, "1")],
        *[("extend", {"lease_ms": bad}) for bad in (-1, None, "1")],
    ],
)
def test_a_malformed_request_is_refused(server: Server, what: str, members: dict[str, Any]) -> None:
    post(server, "claim", node="w")
    assert code(ask(server, "POST", f"{T}/{what}", {**VALID[what], **members})) == (400, "invalid_request")
    assert ask(server, "GET", T).json["queue"]["in_flight"] == 1


@pytest.mark.parametrize(
    ("what", "member"), [(what, member) for what, body in VALID.items() for member in body] + [("extend", "lease_ms")]
)
def test_a_missing_member_is_refused(server: Server, what: str, member: str) -> None:
    body = {name: value for name, value in VALID[what].items() if name != member}
    assert code(ask(server, "POST", f"{T}/{what}", body)) == (400, "invalid_request")
    assert code(server("POST", f"{T}/{what}", JSON, b"")) == (400, "invalid_request")


@pytest.mark.parametrize("what", ["ack", "nack", "extend"])
def test_too_many_seqs_are_refused(server: Server, what: str) -> None:
    answer = ask(server, "POST", f"{T}/{what}", {**VALID[what], "seqs": list(range(1, 1002))})
    assert code(answer) == (400, "batch_too_large")
    assert ask(server, "POST", f"{T}/{what}", {**VALID[what], "seqs": list(range(1, 1001))}).status == 200


def test_claims_that_wait_for_their_window_hold_no_thread(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(server, "PUT", T, {"type": "queue", "claim_jitter_ms": 3000})
    monkeypatch.setattr(requests, "_pool", ThreadPoolExecutor(1))
    order: list[str] = []

    async def run() -> None:
        async def asked(name: str, method: str, target: str, body: bytes) -> None:
            assert (await server.ask(method, target, JSON if body else {}, body)).status == 200
            order.append(name)

        before = server.dump()
        claiming = asyncio.ensure_future(asked("claimed", "POST", f"{T}/claim", b'{"node":"w"}'))
        while server.dump() == before:  # until it has joined
            await asyncio.sleep(0.01)
        await asked("shown", "GET", T, b"")
        await claiming

    asyncio.run(run())
    assert order == ["shown", "claimed"]


def test_claims_are_counted_by_what_workers_get_again_and_how_long_jobs_waited() -> None:
    written: list[str] = []
    stores = memory_stores(Settings(metrics_interval_ms=0))
    server = Server(parts=assemble(stores, parse("", "*"), Meter(ApiMetric, written.append)))
    ask(server, "PUT", T, {"type": "queue"})
    append(server, 1, 2)

    def counted(**body: Any) -> dict[str, Any]:
        written.clear()
        post(server, "claim", node="w", **body)
        return {name: values for line in written for name, values in json.loads(line).items()}

    assert "JobWaitMs" in "".join(written), "a write tells it too, if nobody claims"
    fresh = counted(max=1)
    assert (fresh["JobsClaimed"], fresh["JobsRedelivered"]) == ([1.0], [0.0])
    assert 0 <= fresh["JobWaitMs"][0] < 60_000
    post(server, "nack", node="w", seqs=[1])
    both = counted(max=2)
    assert (both["JobsClaimed"], both["JobsRedelivered"]) == ([2.0], [1.0])
    nothing = counted()
    assert "JobWaitMs" not in nothing and nothing["EmptyClaims"] == [1.0]
