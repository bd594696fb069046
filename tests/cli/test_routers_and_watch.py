"""`headrace router …` and `headrace watch` against a fake server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Shell
from tests.cli.fake_relay import LOST, FakeRelay, event, record
from tests.cli.fake_server import answer_lost, status
from tests.cli.fake_topics import DEFAULTS, FakeTopics, Topic


def test_put_sends_every_setting(headrace: Shell, relay: FakeRelay) -> None:
    made = headrace("router", "put", "orders", "audit")
    assert (made.exit_code, made.stdout) == (
        0,
        "created orders->audit  http://127.0.0.1:8787/v0/routers/orders-%3Eaudit\n",
    )
    assert relay.routers["orders->audit"] == {
        "router": "orders->audit", "source": "orders", "dest": "audit", "preserve_node": True, "preserve_tag": True,
        "create_dest": True, "filter": None, "allow_cycle": False, "guarantee": "at_least_once",
    }  # fmt: skip
    answer = headrace(
        "router", "put", "a", "b", "--name", "n", "--tag-prefix", "public:", "--exactly-once", "--drop-node",
        "--drop-tag", "--no-create-dest", "--allow-cycle", "--json",
    )  # fmt: skip
    assert json.loads(answer.stdout)["created"] is True
    assert relay.routers["n"] == {
        "router": "n", "source": "a", "dest": "b", "preserve_node": False, "preserve_tag": False,
        "create_dest": False, "filter": ["tag", "Glob", "public:*"], "allow_cycle": True, "guarantee": "exactly_once",
    }  # fmt: skip
    headrace("router", "put", "a", "b", "--name", "n", "--tag", "x")
    assert relay.routers["n"]["filter"] == ["tag", "Eq", "x"]
    assert headrace("router", "put", "a", "b", "--tag", "x", "--tag-prefix", "").exit_code == 2


def test_the_life_of_a_router(headrace: Shell, relay: FakeRelay) -> None:
    assert headrace("router", "list").stderr.startswith("no routers")
    headrace("router", "put", "orders", "audit")
    assert headrace("router", "put", "orders", "audit").stdout.startswith("exists already")
    shown = headrace("router", "show", "orders->audit").stdout
    assert "forwarded total   7\n" in shown and "preserve node     yes\n" in shown and "performance" not in shown
    assert json.loads(headrace("router", "show", "orders->audit", "--json").stdout)["forwarded_total"] == 7
    assert headrace("router", "delete", "orders->audit").exit_code == 2
    assert headrace("router", "delete", "orders->audit", "--yes").stdout == "deleted orders->audit\n"
    assert headrace("router", "delete", "orders->audit", "--yes").stdout.startswith("there is no router")
    missing = headrace("router", "show", "orders->audit")
    assert missing.exit_code == 1 and "headrace router list" in missing.stderr
    headrace("router", "put", "orders", "audit")
    relay.faults = [answer_lost]
    assert headrace("router", "delete", "orders->audit", "--yes").stdout == "deleted orders->audit\n"


def test_lists_come_page_by_page(headrace: Shell, relay: FakeRelay) -> None:
    for number in range(1500):
        body = {"source": f"s{number % 2}", "dest": f"d{number}", "guarantee": "at_least_once"}
        relay.routers[f"r{number:04d}"] = body
    assert len(json.loads(headrace("router", "list", "--all", "--json").stdout)) == 1500
    assert len(json.loads(headrace("router", "list", "--source", "s1", "--limit", "800", "--json").stdout)) == 750
    few = headrace("router", "list", "--limit", "2")
    assert "r0001   s1      d1    at_least_once                7" in few.stdout and "there may be more" in few.stderr
    assert json.loads(headrace("router", "list", "--dest", "d7", "--json").stdout)[0]["router"] == "r0007"


@pytest.fixture
def watched(relay: FakeRelay, topics: FakeTopics) -> Callable[..., None]:
    """Makes the topics `a` and `b`, each with nine records, and says what the connections of a watch bring."""

    def script(*connections: str) -> None:
        relay.connections = list(connections)

    for name in "ab":
        topics.topics[name] = Topic(dict(DEFAULTS), head_seq=9)
    return script


def gone(topic: str) -> str:
    return event("topic-deleted", {}, f'{{"topic":"{topic}","head_seq":9,"reason":"deleted"}}')


ENDS = gone("a") + gone("b")


def sent(relay: FakeRelay, method: str) -> list[httpx.Request]:
    return [request for request in relay.requests if request.method == method]


def opened(relay: FakeRelay) -> list[dict[str, Any]]:
    return [json.loads(request.content)["topics"] for request in sent(relay, "POST")]


def test_each_record_is_a_line_with_its_topic(
    headrace: Shell, relay: FakeRelay, watched: Callable[..., None]
) -> None:
    caught_up = event("caught-up", {"a": 2}, '{"topic":"a","head_seq":9}')
    watched("retry: 2000\n\n" + record("a", 1, 2) + caught_up + ": hb 1\n\n" + record("b", 1, 1) + ENDS)
    result = headrace("watch", "a", "b", "--node", "n")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        '{"topic":"a","$seq":1,"$ts":1000,"data":1.0}',
        '{"topic":"a","$seq":2,"$ts":1000,"data":2.0}',
        '{"topic":"b","$seq":1,"$ts":1000,"data":1.0}',
    ]
    assert result.stderr.splitlines() == ["warning: a was deleted", "warning: b was deleted"]
    body = json.loads(sent(relay, "POST")[0].content)
    assert body == {
        "include_tags": True, "include_data": True, "node": "n", "topics": {"a": {"from_seq": 0}, "b": {"from_seq": 0}},
    }  # fmt: skip
    assert sent(relay, "GET")[0].headers["accept"] == "text/event-stream"


def test_a_lost_connection_goes_on_at_the_last_id(
    headrace: Shell, relay: FakeRelay, watched: Callable[..., None]
) -> None:
    watched(record("a", 1, 2) + LOST, LOST, "", record("a", 3, 3) + ENDS)
    result = headrace("watch", "a", "b")
    assert [json.loads(line)["$seq"] for line in result.stdout.splitlines()] == [1, 2, 3]
    ids = [request.headers.get("last-event-id") for request in sent(relay, "GET")]
    assert ids[0] is None and len(ids) == 4 and len(set(ids[1:])) == 1 and len(sent(relay, "POST")) == 1
    assert headrace.slept


@pytest.mark.parametrize("end", ["404", "error"])
def test_a_session_that_is_gone_is_made_again_where_it_was(
    headrace: Shell, relay: FakeRelay, watched: Callable[..., None], end: str
) -> None:
    gap = event("tombstone", {}, '{"topic":"b","reason":"cap","gap_from":1,"gap_to":5,"earliest_seq":6,"head_seq":9}')
    first = record("a", 1, 4) + gap
    if end == "404":
        watched(first + LOST, ENDS)
        relay.faults = [None, None, status(404)]
    else:
        watched(first + event("error", {}, '{"code":410,"error":"session gone"}'), ENDS)
    result = headrace("watch", "a", "b", "--tail")
    assert result.exit_code == 0
    assert "warning: b: records are gone: seqs 1 to 5 (over the cap)" in result.stderr
    assert opened(relay) == [{"a": {"tail": True}, "b": {"tail": True}}, {"a": {"from_seq": 4}, "b": {"from_seq": 5}}]
    assert "last-event-id" not in sent(relay, "GET")[-1].headers


def test_a_topic_that_is_gone_is_left_out_of_the_next_session(
    headrace: Shell, relay: FakeRelay, topics: FakeTopics, watched: Callable[..., None]
) -> None:
    watched(record("a", 1, 1) + gone("b") + event("error", {}, '{"code":410,"error":"x"}'), gone("a"))
    assert headrace("watch", "a", "b").exit_code == 0
    assert opened(relay)[1] == {"a": {"from_seq": 1}}
    assert headrace("watch", "a", "none").exit_code == 1
    watched(gone("a"))
    lenient = headrace("watch", "a", "none", "--lenient")
    assert lenient.exit_code == 0 and "there is no topic none" in lenient.stderr
    assert headrace("watch", "none", "--lenient").exit_code == 0


def test_frames_are_printed_as_they_are(headrace: Shell, watched: Callable[..., None]) -> None:
    watched(record("a", 1, 1) + event("caught-up", {"a": 1}, '{"topic":"a","head_seq":1}') + ENDS)
    frames = [json.loads(line) for line in headrace("watch", "a", "b", "--frames").stdout.splitlines()]
    assert [frame["event"] for frame in frames] == ["record", "caught-up", "topic-deleted", "topic-deleted"]
    assert frames[0]["data"]["records"][0]["$seq"] == 1 and frames[0]["id"]


def test_where_to_begin(headrace: Shell, relay: FakeRelay, watched: Callable[..., None]) -> None:
    watched(ENDS)
    assert headrace("watch", "a", "b", "--from", "a=7", "--no-data", "--no-tags").exit_code == 0
    assert opened(relay) == [{"a": {"from_seq": 7}, "b": {"from_seq": 0}}]
    for wrong in ("a", "a=", "=1", "c=1", "a=-1"):
        assert headrace("watch", "a", "--from", wrong).exit_code == 2


def test_a_server_that_is_busy_is_asked_later(
    headrace: Shell, relay: FakeRelay, watched: Callable[..., None]
) -> None:
    watched(ENDS)
    relay.faults = [None, status(429, retry_after="3")]
    assert headrace("watch", "a", "b").exit_code == 0
    assert headrace.slept[0] == 3.0
    watched(ENDS)
    relay.faults = [None, status(401)]
    assert headrace("watch", "a", "b").exit_code == 1


@pytest.mark.parametrize("data", ["[]", '{"topic":"a"}', '{"topic":"a","records":[1'])
def test_an_event_that_makes_no_sense_is_an_error(headrace: Shell, watched: Callable[..., None], data: str) -> None:
    watched(event("record", {}, data))
    result = headrace("watch", "a")
    assert result.exit_code == 1 and result.stderr.startswith("error: the server sent")
