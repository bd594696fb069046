"""Search of topics over HTTP: by tag, node and time without any configuration, by fields of the data by choice; and never
a record that a reader would not get.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import index_runs
from tests.unit.api.asgi import Server
from tests.unit.api.topics import ROOT, T, append, ask, code, diff

SEARCH = T + "/search"
ORDERS = {
    "fields": {
        "customer": {
            "kind": "keyword",
            "bindings": [{"version": 1, "jsonPointer": "/customer"}],
            "exact": True,
            "sortable": True,
        },
        "amount": {
            "kind": "integer",
            "bindings": [{"version": 1, "jsonPointer": "/amount"}],
            "column": True,
            "exact": True,
            "sortable": True,
        },
    }
}


@pytest.fixture
def server() -> Server:
    return Server()


def search(server: Server, q: str, topic: str = "jobs", **asked: Any) -> Any:
    """Searches; the answer's JSON."""
    answer = ask(server, "POST", f"{ROOT}/{topic}/search", {"q": q, "sort": ["offset:asc"], "size": 100, **asked})
    assert answer.status == 200, answer.body
    return answer.json


def seqs(answer: Any) -> list[int]:
    """Returns the seqs of the hits."""
    return [hit["$seq"] for hit in answer["hits"]]


def stages(server: Server, topic: str = "jobs") -> Iterator[str]:
    """Moves the records of a topic on: from the tail to segments, and to runs."""
    topics = server.parts.topics()
    yield "tail"
    index_runs.sealed(server.stores, topics, topic)
    yield "segments"
    index_runs.index(server.stores, topics, topic)
    topics.forget()
    yield "runs"


def write(server: Server, topic: str = "jobs") -> None:
    """Writes five records of two writers."""
    body = {
        "node": "shop-1",
        "records": [
            {"tag": "order.new", "data": {"customer": "ann", "amount": 3}},
            {"tag": "order.paid", "data": {"customer": "bob", "amount": 12}, "node": "shop-2"},
            {"data": [1, 2]},
            {"tag": "order.new", "data": "text"},
            {"tag": "note", "data": {"customer": "ann", "amount": 40}},
        ],
    }
    assert ask(server, "POST", f"{ROOT}/{topic}", body).status in (200, 201)


def live(server: Server, topic: str = "jobs") -> set[int]:
    """Returns the seqs that a reader gets."""
    return {record["$seq"] for record in diff(server, topic, limit=1000)["records"]}


def test_tag_node_and_time_are_searched_without_any_configuration(server: Server) -> None:
    write(server)
    times = {record["$seq"]: record["$ts"] for record in diff(server)["records"]}
    for stage in stages(server):
        assert seqs(search(server, "tag:order.new")) == [1, 4], stage
        assert seqs(search(server, "tag:order.*")) == [1, 2, 4], stage
        assert seqs(search(server, "node:shop-2")) == [2], stage
        assert seqs(search(server, "-has:tag")) == [3], stage
        assert seqs(search(server, f"ts:>={times[1]}")) == [1, 2, 3, 4, 5], stage
        assert search(server, "tag:order.*")["total"] == {"value": 3, "relation": "eq"}, stage
        assert search(server, "tag:order.*")["coverage"]["complete"] is True, stage


def test_a_hit_is_the_record_as_a_reader_gets_it(server: Server) -> None:
    write(server)
    read = diff(server, include_tags=True)["records"]
    for stage in stages(server):
        answer = search(server, "has:ts")
        shown = [{name: hit[name] for name in hit if name not in ("score", "sort")} for hit in answer["hits"]]
        assert shown == read, stage
        assert (answer["topic"], answer["head_seq"]) == ("jobs", 5)
        assert answer["performance"]["server_total_ms"] > 0


def test_data_of_a_hit_keep_their_bytes(server: Server) -> None:
    for data in (b"12345678901234567890123456789", b'{ "b":1.50,\n\t"a" :[ ] }', b"[" * 100 + b"]" * 100):
        assert ask(server, "POST", T, b'{"records":[{"tag":"t","data":%b}]}' % data).status in (200, 201)
    for stage in stages(server):
        body = ask(server, "POST", SEARCH, {"q": "tag:t"}).body
        assert b'"data":12345678901234567890123456789}' in body, stage
        assert b'"data":{ "b":1.50,\n\t"a" :[ ] }}' in body, stage


def test_deleted_records_are_in_no_answer_and_no_total_wherever_they_are(server: Server) -> None:
    write(server)
    for stage in stages(server):
        if stage == "runs":
            write(server)  # more, in the tail
        erased = {"tail": "order.paid", "segments": "note", "runs": "order.new"}[stage]
        assert ask(server, "POST", T + "/delete", {"match": ["tag", "Eq", erased]}).status == 200
        answer = search(server, "has:ts")
        assert set(seqs(answer)) == live(server), stage
        assert answer["total"] == {"value": len(live(server)), "relation": "eq"}
        assert seqs(search(server, f"tag:{erased}")) == [], stage
        assert search(server, f"tag:{erased}")["total"]["value"] == 0, stage
    assert live(server) == {3, 7, 8, 10}


def test_many_deletes_that_stand_in_an_object_are_masked_too(server: Server) -> None:
    body = {"records": [{"tag": f"t{number}", "data": number} for number in range(600)]}
    assert ask(server, "POST", T, body).status == 201
    for number in range(0, 400, 2):
        assert ask(server, "POST", T + "/delete", {"match": ["tag", "Eq", f"t{number}"]}).json["deleted"] == 1
    for stage in stages(server):
        answer = search(server, "tag:t*", size=500)
        assert set(seqs(answer)) == live(server), stage
        assert answer["total"]["value"] == 400, stage


def test_records_lost_to_a_cap_or_below_the_floor_are_masked(server: Server) -> None:
    assert ask(server, "PUT", T, {"cap_records": 4}).status == 201
    for _ in range(3):
        write(server)
    for stage in stages(server):
        assert seqs(search(server, "has:ts")) == [12, 13, 14, 15], stage
        assert search(server, "tag:order.new")["total"]["value"] == 1, stage
    assert ask(server, "POST", T + "/delete", {"before_seq": 14}).status == 200
    assert seqs(search(server, "has:ts")) == [14, 15]


def test_expired_records_are_masked(server: Server) -> None:
    assert ask(server, "PUT", T, {"ttl_ms": 60_000}).status == 201
    write(server)
    for stage in stages(server):
        assert len(search(server, "has:ts")["hits"]) == 5, stage
    topics = server.parts.topics()
    head = topics.head("jobs")
    now_ms = server.stores.clock.now_ms()
    assert not topics.gone("jobs", head)
    object.__setattr__(server.stores.clock, "now_ms", lambda: now_ms + 61_000)
    assert search(server, "has:ts")["hits"] == []
    assert search(server, "has:ts")["total"]["value"] == 0


def test_jobs_that_are_done_are_masked_and_those_in_work_are_not(server: Server) -> None:
    assert ask(server, "PUT", T, {"type": "queue"}).status == 201
    write(server)
    for stage in stages(server):
        claimed = ask(server, "POST", T + "/claim", {"node": "w", "max": 1}).json["claimed"]
        (seq,) = [job["$seq"] for job in claimed]
        assert seq in seqs(search(server, "has:ts")), stage
        assert ask(server, "POST", T + "/ack", {"node": "w", "seqs": [seq]}).json["acked"] == 1
        expected = list(range(seq + 1, 6))
        answer = search(server, "has:ts")
        assert (seqs(answer), answer["total"]["value"]) == (expected, len(expected)), stage


def test_fields_of_data_are_searched_by_choice(server: Server) -> None:
    write(server)
    assert code(ask(server, "POST", SEARCH, {"q": "customer:ann"})) == (400, "invalid_request")
    answer = ask(server, "PUT", SEARCH, ORDERS)
    assert answer.status == 200
    assert set(answer.json["search"]["fields"]) == {"tag", "node", "ts", "customer", "amount"}
    assert answer.json["search"]["primaryTimestampField"] == "ts"
    assert ask(server, "GET", SEARCH).json["search"] == answer.json["search"]
    for stage in stages(server):
        assert seqs(search(server, "customer:ann")) == [1, 5], stage
        assert seqs(search(server, "customer:ann tag:note")) == [5], stage
        assert seqs(search(server, "amount:>=12", sort=["amount:desc"])) == [5, 2], stage
        assert seqs(search(server, "tag:order.new", sort=["ts:asc", "offset:asc"])) == [1, 4], stage
    assert ask(server, "PUT", SEARCH, {}).status == 200
    assert code(ask(server, "POST", SEARCH, {"q": "customer:ann"})) == (400, "invalid_request")
    assert seqs(search(server, "tag:note")) == [5]


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ([], "object"),
        ({"fields": []}, "object"),
        ({"fields": {"tag": ORDERS["fields"]["customer"]}}, "/search/fields/tag"),
        (
            {"fields": {"a": {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "@key"}]}}},
            "/search/fields/a",
        ),
        (
            {"fields": {"a": {"kind": "keyword", "bindings": [{"version": 2, "jsonPointer": "/a"}]}}},
            "/search/fields/a",
        ),
        ({"primaryTimestampField": "nothing"}, "/search/primaryTimestampField"),
        ({"surprise": 1}, "/search"),
    ],
)
def test_what_is_no_search_configuration_is_refused(server: Server, body: Any, where: str) -> None:
    write(server)
    answer = ask(server, "PUT", SEARCH, json.dumps(body).encode())
    assert code(answer) == (400, "invalid_request")
    assert where in answer.json["error"]["message"]


def test_pages_go_through_everything_once(server: Server) -> None:
    for _ in range(3):
        write(server)
    for stage in stages(server):
        found: list[int] = []
        after = None
        while True:
            asked: dict[str, Any] = {"size": 4} if after is None else {"size": 4, "search_after": after}
            answer = search(server, "has:tag", sort=["ts:desc"], **asked)
            found += seqs(answer)
            after = answer["next_search_after"]
            if after is None:
                break
        assert sorted(found) == [seq for seq in range(1, 16) if seq % 5 != 3], stage
        assert len(set(found)) == len(found), stage


def test_a_topic_that_is_created_again_has_its_own_records_and_configuration(server: Server) -> None:
    write(server)
    ask(server, "PUT", SEARCH, ORDERS)
    assert ask(server, "DELETE", T).status == 200
    assert code(ask(server, "POST", SEARCH, {"q": "has:ts"})) == (404, "topic_not_found")
    append(server, "new")
    assert seqs(search(server, "has:ts")) == [1]
    assert set(ask(server, "GET", SEARCH).json["search"]["fields"]) == {"tag", "node", "ts"}


def test_a_search_needs_the_scope_read_and_a_configuration_admin() -> None:
    server = Server("reader:read,writer:write,admin:admin")
    assert ask(server, "PUT", T, {}, key="admin").status == 201
    assert ask(server, "POST", SEARCH, {"q": "has:ts"}, key="reader").status == 200
    assert ask(server, "POST", SEARCH, {"q": "has:ts"}, key="writer").status == 403
    assert ask(server, "PUT", SEARCH, {}, key="reader").status == 403
    assert ask(server, "PUT", SEARCH, {}, key="writer").status == 403
    assert ask(server, "PUT", SEARCH, {}, key="admin").status == 200
    assert ask(server, "GET", SEARCH, key="reader").status == 200


def test_streams_can_bind_nothing_to_columns_and_have_no_such_fields(server: Server) -> None:
    server("PUT", "/v1/stream/s", {"content-type": "application/json"})
    field = {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "@key"}], "exact": True}
    at = {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}]}
    body = {"schema": {}, "search": {"primaryTimestampField": "at", "fields": {"tag": field, "at": at}}}
    answer = server("POST", "/v1/stream/s/_schema", {"content-type": "application/json"}, json.dumps(body).encode())
    assert answer.status == 400
    assert b"/search/fields/tag/bindings/0/jsonPointer" in answer.body


def test_a_search_whose_time_is_over_is_a_success_with_what_was_found(server: Server) -> None:
    write(server)
    answer = search(server, "tag:order.new", timeout_ms=0)
    assert (answer["timed_out"], answer["timeout_ms"]) == (True, 0)
    assert "error" not in answer
