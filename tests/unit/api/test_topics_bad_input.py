"""Bad input to `/v0` gets a 4xx in the envelope and changes nothing, whatever is wrong: form, type, range, name, query."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.settings import Settings
from tests.support.examples import examples
from tests.unit.api import wrong
from tests.unit.api.asgi import JSON, Answer, Server
from tests.unit.api.wrong import SHARED, is_object, lists, texts, values, words

LOG, QUEUE = "/v0/topics/log", "/v0/topics/queue"
FAST = Settings(live_timeout_ms=10, request_timeout_ms=20, sse_seconds=0, metrics_interval_ms=0)

# The members of each body, by kind. `clamped` are numbers of which too large ones are made smaller.
CONFIG = {
    **dict.fromkeys(("type", "discard", "durability"), "word"),
    **dict.fromkeys(("ttl_ms", "cap_records", "cap_bytes", "idempotency_window_ms", "max_deliveries"), "number"),
    **dict.fromkeys(("lease_ms", "claim_jitter_ms"), "clamped"),
    **dict.fromkeys(("durable", "auto_priority", "auto_create", "dedupe_node", "leases_durable"), "switch"),
    "dead_letter": "text",
}
SEQS = {"node": "text", "seqs": "list", "lease_ids": "list"}
BODIES: dict[tuple[str, str], tuple[dict[str, Any], dict[str, str]]] = {
    ("PUT", LOG): ({}, CONFIG),
    ("PUT", "/v0/topics/new"): ({}, CONFIG),
    ("POST", LOG): (
        {"records": [{"data": 1}]},
        {"records": "list", "node": "text", "idempotency_key": "text", "create": "switch"},
    ),
    ("POST", "/v0/topics/new"): ({"records": [{"data": 1}]}, {"records": "list", "config": "object"}),
    ("POST", LOG + "/diff"): (
        {},
        {
            "from_seq": "number",
            **dict.fromkeys(("limit", "wait_ms", "max_batch_bytes"), "clamped"),
            **dict.fromkeys(("include_tags", "include_meta"), "switch"),
        },
    ),
    ("POST", LOG + "/delete"): ({"before_seq": 1}, {"before_seq": "number", "match": "object"}),
    ("POST", QUEUE + "/claim"): ({"node": "w"}, {"node": "text", "max": "clamped", "lease_ms": "clamped"}),
    ("POST", QUEUE + "/ack"): ({"node": "w", "seqs": [1]}, SEQS),
    ("POST", QUEUE + "/nack"): ({"node": "w", "seqs": [1]}, {**SEQS, "delay_ms": "clamped"}),
    ("POST", QUEUE + "/extend"): ({"node": "w", "seqs": [1], "lease_ms": 100}, {**SEQS, "lease_ms": "clamped"}),
}
KNOWN = ("log", "queue", "old", "reject", "disk", "fsync", "memory", "ephemeral")
WRONG = {**wrong.WRONG, "word": words(*KNOWN)}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server(settings=FAST)
    for path, config in ((LOG, {}), (QUEUE, {"type": "queue"})):
        assert server("PUT", path, JSON, orjson.dumps(config)).status == 201
        body = orjson.dumps({"records": [{"data": n, "tag": "t"} for n in range(3)]})
        assert server("POST", path, JSON, body).status == 200
    assert server("POST", QUEUE + "/claim", JSON, b'{"node":"w","lease_ms":86400000}').status == 200
    yield server


def check_refused(answer: Answer) -> None:
    assert 400 <= answer.status < 500, answer
    error = answer.json["error"]
    assert {"code", "message"} <= set(error) <= {"code", "message", "detail"}, answer
    assert re.fullmatch("[a-z_]+", error["code"]), answer
    assert answer.headers["content-type"].startswith("application/json"), answer


def refuses(server: Server, method: str, path: str, body: bytes, headers: dict[str, str] | None = None) -> None:
    """Sends a request, which must be refused and change nothing that is stored."""
    before = server.dump()
    check_refused(server(method, path, JSON if headers is None else headers, body))
    assert server.dump() == before


ROUTES = st.sampled_from(sorted(BODIES))


@given(route=ROUTES, body=st.binary(min_size=1, max_size=60))
@examples(200, suppress_health_check=SHARED)
def test_bodies_that_are_no_object(server: Server, route: tuple[str, str], body: bytes) -> None:
    assume(not is_object(body))
    refuses(server, *route, body)


@given(route=ROUTES, body=values)
@examples(100, suppress_health_check=SHARED)
def test_json_that_is_no_object(server: Server, route: tuple[str, str], body: Any) -> None:
    refuses(server, *route, json.dumps(body).encode())


@given(route=ROUTES, encoding=st.sampled_from(["utf-16", "utf-32", "utf-8-sig", "cp037"]))
@examples(60, suppress_health_check=SHARED)
def test_other_encodings(server: Server, route: tuple[str, str], encoding: str) -> None:
    refuses(server, *route, json.dumps(BODIES[route][0]).encode(encoding))


@given(route=ROUTES, kind=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30))
@examples(60, suppress_health_check=SHARED)
def test_other_content_types(server: Server, route: tuple[str, str], kind: str) -> None:
    assume(kind.lower().partition(";")[0] != "application/json")
    refuses(server, *route, orjson.dumps(BODIES[route][0]), {"content-type": kind})


@given(data=st.data(), route=ROUTES)
@examples(600, suppress_health_check=SHARED)
def test_members_of_another_type_or_out_of_range(server: Server, data: st.DataObject, route: tuple[str, str]) -> None:
    body, kinds = BODIES[route]
    member = data.draw(st.sampled_from(sorted(kinds)))
    value = data.draw(WRONG[kinds[member]])
    refuses(server, *route, json.dumps({**body, member: value}).encode())


RECORD = {"tag": "text", "node": "text", "meta": "object"}


@given(data=st.data(), member=st.sampled_from(sorted(RECORD)))
@examples(100, suppress_health_check=SHARED)
def test_records_of_another_form(server: Server, data: st.DataObject, member: str) -> None:
    record = {"data": 1, member: data.draw(WRONG[RECORD[member]])}
    refuses(server, "POST", LOG, json.dumps({"records": [{"data": 1}, record]}).encode())


@given(
    node=st.integers(129, 300).map("n".__mul__) | st.integers(65, 100).map("é".__mul__),
    tag=st.integers(257, 400).map("t".__mul__) | st.integers(129, 200).map("é".__mul__),
    key=st.integers(257, 300).map("k".__mul__),
    where=st.sampled_from(["node", "tag", "idempotency_key", "record"]),
)
@examples(60, suppress_health_check=SHARED)
def test_texts_that_are_too_long(server: Server, node: str, tag: str, key: str, where: str) -> None:
    record: dict[str, Any] = {"data": 1}
    body: dict[str, Any] = {"records": [record]}
    if where == "record":
        record["node"] = node
    elif where == "tag":
        record["tag"] = tag
    else:
        body[where] = node if where == "node" else key
    refuses(server, "POST", LOG, orjson.dumps(body))


@given(
    selector=st.recursive(texts | st.integers() | st.none(), st.lists, max_leaves=5).filter(
        lambda s: isinstance(s, list)
    )
)
@examples(150, suppress_health_check=SHARED)
def test_selectors_of_another_form(server: Server, selector: list[Any]) -> None:
    is_known = len(selector) == 3 and selector[0] == "tag" and selector[1] in ("Eq", "Glob")
    assume(not is_known)
    refuses(server, "POST", LOG + "/delete", json.dumps({"match": selector}).encode())


@given(
    name=st.text(min_size=1, max_size=20) | st.integers(256, 400).map("x".__mul__),
    route=st.sampled_from(["", "/diff", "/delete", "/claim", "/ack", "/nack", "/extend"]),
)
@examples(200, suppress_health_check=SHARED)
def test_names_of_another_form(server: Server, name: str, route: str) -> None:
    assume(not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}", name))
    assume(not any("\ud800" <= letter <= "\udfff" for letter in name))
    path = f"/v0/topics/{quote(name, safe='')}{route}"
    body = b'{"records":[{"data":1}],"node":"w","seqs":[1],"lease_ms":100,"before_seq":9}'
    refuses(server, "POST", path, body)
    refuses(server, "PUT", path, b"{}")


@given(
    question=st.sampled_from(["page_size", "touch", "cursor"]),
    value=texts.filter(
        lambda text: not re.fullmatch(r"\s*[+-]?[\d_]*\s*|true|false|on|off|yes|no|t|f|y|n", text, re.I)
    ),
)
@examples(150, suppress_health_check=SHARED)
def test_queries_of_another_form(server: Server, question: str, value: str) -> None:
    refuses(server, "GET", f"/v0/topics?{question}={quote(value, safe='')}", b"")


@given(data=st.data(), route=ROUTES.filter(lambda route: route[1] in (LOG, LOG + "/diff", QUEUE + "/ack")))
@examples(50, suppress_health_check=SHARED)
def test_unknown_members_are_no_error(server: Server, data: st.DataObject, route: tuple[str, str]) -> None:
    body, _ = BODIES[route]
    member = "x-" + data.draw(texts)
    assert server(*route, JSON, json.dumps({**body, member: data.draw(lists)}).encode()).status == 200


@given(path=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30))
@examples(100, suppress_health_check=SHARED)
def test_paths_of_nothing(server: Server, path: str) -> None:
    assume(path.split("?")[0].strip("/") not in ("topics", "health", "ready", "metrics"))
    refuses(server, "POST", "/v0/" + quote(path), b"{}")
