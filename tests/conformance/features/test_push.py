"""What a push takes, what it answers, and that every read after it has the event."""

from __future__ import annotations

import gzip
import json
import time
from typing import Any

import pytest

from tests.conformance.features.client import REPLAY, Namespace, answered, refused, txn
from tests.conformance.topics.client import at_once
from tests.unit.features.pipeline.documents import count, derived, event, table, total, where

LAST = {"op": "last", "params": {"field": "amount"}}


def test_a_push_is_acknowledged_with_a_number_that_rises(space: Namespace) -> None:
    space.has(event(), table())
    lsns = []
    for _ in range(6):
        answer = space.push(txn())
        body = answered(answer)
        lsns.append(body["ack_lsn"])
        text = b'{"ack_lsn":%d,"idempotent_replay":false,"registry_version":1}' % lsns[-1]
        assert answer.content == text and REPLAY not in answer.headers
    assert lsns == sorted(set(lsns))


@pytest.mark.sensitive("sealed events, and rows of the folder")
def test_every_read_after_the_answer_has_the_event_in_every_table(space: Namespace) -> None:
    big = derived("Big", where("(amount > 1)"))
    space.has(
        event(), big, table(), table("V", keys=["n"]), table("G", keys=[]), table("W", upstream="Big", keys=["ok"])
    )
    requests = [("U", "a"), ("V", 1), ("G", ""), ("W", True)]
    for number in range(1, 13):  # more than are sealed together
        answered(space.push(txn(amount=number)))
        rows = answered(space.get_all(*requests))["results"]
        assert rows == [{"c": number}] * 3 + [{"c": number - 1} if number > 1 else {}]
        assert space.row("U", "a") == {"c": number}


@pytest.mark.sensitive("conditional writes of the table")
def test_pushes_at_one_moment_all_count_on_one_row(space: Namespace) -> None:
    space.has(event(), table(), table("G", keys=[], agg={"c": count(), "s": total()}))
    answers = at_once([lambda n=n: space.push(txn(amount=n)) for n in range(24)])
    assert len({answered(answer)["ack_lsn"] for answer in answers}) == 24
    assert (space.row(), space.row("G", "")) == ({"c": 24}, {"c": 24, "s": sum(range(24))})


def test_events_are_folded_in_the_order_of_their_acknowledgements(space: Namespace) -> None:
    space.has(event(), table(agg={"all": {"op": "last_n", "params": {"field": "amount", "n": 30}}}))
    acks = at_once([lambda n=n: (answered(space.push(txn(amount=n)))["ack_lsn"], n) for n in range(12)])
    assert space.row()["all"] == [number for _, number in sorted(acks)]


def test_an_event_has_the_time_of_its_arrival(space: Namespace) -> None:
    space.has(event(), table(agg={"at": {"op": "last_seen"}, "n": {"op": "first_seen"}}))
    before = time.time_ns() // 1_000_000
    space.filled(txn())
    after = time.time_ns() // 1_000_000
    assert before - 1 <= space.row()["at"] <= after + 1
    assert space.row()["n"] == space.row()["at"]


FIELDS = {"s": "str", "i": "i64", "f": "f64", "b": "bool", "t": "datetime", "j": "json"}
GOOD: dict[str, Any] = {"s": "x", "i": 1, "f": 1.5, "b": True, "t": "2026-01-01T00:00:00Z", "j": [1]}


def strict(space: Namespace, *optional: str) -> Namespace:
    """Returns the namespace with an event that has a field of each type."""
    return space.has(event("Ev", fields=FIELDS, optional=optional), table(upstream="Ev", keys=[], agg={"c": count()}))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"more": 1}, "unknown_field_v0"),
        ({"event_time": 1}, "unknown_field_event_time_v0"),
        ({"event_time_ms": 1}, "unknown_field_event_time_v0"),
        *[({name: None}, "invalid_event") for name in FIELDS],
        *[({"s": value}, "invalid_event") for value in (1, True, ["x"], {"a": "b"})],
        *[({"i": value}, "invalid_event") for value in ("1", True, 1.5, 2**63, 2**70, [1])],
        *[({"f": value}, "invalid_event") for value in ("1.5", False, [1.5], {})],
        *[({"b": value}, "invalid_event") for value in ("true", 1, 0.0)],
        *[({"t": value}, "invalid_event") for value in ("yesterday", 1767225600)],
        *[({"s": f"a{character}b"}, "control_character_in_string") for character in "\0\t\n\r\x1f\x7f\x85"],
        ({"t": "2026-01-01T00:00:00Z\n"}, "control_character_in_string"),
        ({"j": {"deep": ["a\tb"]}}, "control_character_in_string"),
        ({"j": {"a\nb": 1}}, "control_character_in_string"),
    ],
)  # fmt: skip
def test_an_event_must_match_its_schema(strictly: Namespace, changes: dict[str, Any], code: str) -> None:
    refused(strictly.push(GOOD | changes, "Ev"), 400, code)


@pytest.fixture(scope="module")
def strictly(shared: Namespace) -> Namespace:
    """Returns a namespace in which each test pushes what is refused."""
    return strict(shared).has(event())


def test_what_is_refused_is_in_no_table(strictly: Namespace) -> None:
    for name in FIELDS:
        data = {field: value for field, value in GOOD.items() if field != name}
        refused(strictly.push(data, "Ev"), 400, "invalid_event")
    for data in (None, [], "x", 5):
        refused(strictly.push(data, "Ev"), 400, "invalid_event")
    assert strictly.row("U", "") == {}


def test_numbers_are_taken_as_those_of_their_field(space: Namespace) -> None:
    kept = {name: {"op": "last", "params": {"field": name}} for name in "if"}
    space.has(event("Ev", fields=FIELDS), table(upstream="Ev", keys=[], agg=kept))
    for i, f, row in (
        (2.0, 3, '{"i":2,"f":3.0}'),
        (-(2**63), 2**62, '{"i":-9223372036854775808,"f":4.611686018427388e+18}'),
        (2**63 - 1, 1e308, '{"i":9223372036854775807,"f":1e+308}'),
        (0, -0.0, '{"i":0,"f":-0.0}'),
    ):
        answered(space.push(GOOD | {"i": i, "f": f}, "Ev"))
        assert space.get("U", "").text == row


def test_an_optional_field_may_be_left_out_or_null_and_else_has_its_type(space: Namespace) -> None:
    optional = event("Ev", fields={"u": "str", "x": "f64"}, optional=["x"])
    agg = {
        "c": count(),
        "s": total("x"),
        "m": count(where="isnull(x)"),
        "last": {"op": "last", "params": {"field": "x"}},
    }
    space.has(optional, table(upstream="Ev", keys=["u"], agg=agg))
    space.filled({"u": "a", "x": 2}, {"u": "a"}, {"u": "a", "x": None}, event="Ev")
    refused(space.push({"u": "a", "x": "2"}, "Ev"), 400, "invalid_event")
    refused(space.push({"x": 1}, "Ev"), 400, "invalid_event")
    assert space.row() == {"c": 3, "s": 2.0, "m": 2, "last": 2.0}


def test_a_null_key_is_in_no_row(space: Namespace) -> None:
    optional = event("Ev", fields={"u": "str", "x": "f64"}, optional=["u", "x"])
    space.has(optional, table(upstream="Ev", keys=["u"]), table("G", upstream="Ev", keys=[]))
    space.has(table("P", upstream="Ev", keys=["u", "x"]))
    space.filled({"u": None, "x": 1}, {"x": 1}, {"u": "", "x": 1}, {"u": ""}, event="Ev")
    assert space.row("G", "") == {"c": 4}
    assert space.row("U", "") == {"c": 2}
    assert space.row("P", ["", 1]) == {"c": 1}
    assert space.row("U", "null") == space.row("U", "None") == {}


def test_only_event_sources_are_pushed_to(space: Namespace) -> None:
    space.has(event(), derived("Big"), table())
    for name in ("Nope", "U", "Big", ".registry", "a/b", "txn"):
        refused(space.push(txn(), name), 404, "event_not_found")
    refused(space.push(txn(), ""), 400, "missing_event_name_in_body")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "invalid_json_body"),
        (b"", "invalid_json_body"),
        (b'{"event":"Txn","data":{"user":NaN}}', "invalid_json_body"),
        ({}, "missing_event_name_in_body"),
        ({"event": 5, "data": {}}, "missing_event_name_in_body"),
        ([txn()], "missing_event_name_in_body"),
        (5, "missing_event_name_in_body"),
        ({"event": "Txn"}, "invalid_event"),
        ({"event": "Txn", "data": []}, "invalid_event"),
        ({"event": "Txn", "fields": {}}, "invalid_event"),
    ],
)
def test_a_body_names_its_event(strictly: Namespace, body: Any, code: str) -> None:
    refused(strictly.post("/push", body), 400, code)


def test_the_content_type_of_a_push_does_not_matter(space: Namespace) -> None:
    space.has(event(), table())
    body = b'{"event":"Txn","data":{"user":"a","amount":1,"n":1,"ok":true,"extra":0}}'
    for kind in ("text/plain", "application/octet-stream", "nonsense"):
        answered(space.post("/push", body, {"Content-Type": kind}))
    assert space.row() == {"c": 3}


def test_legacy_paths_push_too(space: Namespace) -> None:
    space.has(event(), table())
    for path, body in (
        ("/push/Txn", txn()),
        ("/push-sync/Txn", txn()),
        ("/push-sync", {"event": "Txn", "data": txn()}),
    ):
        assert set(answered(space.post(path, body))) == {"ack_lsn", "idempotent_replay", "registry_version"}
    refused(space.post("/push/Nope", txn()), 404, "event_not_found")
    refused(space.post("/push/Txn", {"event": "Txn", "data": txn()}), 400, "unknown_field_v0")
    assert space.row() == {"c": 3}


def test_a_batch_is_pushed_as_a_whole_or_not_at_all(space: Namespace) -> None:
    space.has(event(), table(agg={"c": count(), "last": LAST, "gap": {"op": "inter_arrival_stats"}}))
    refused(space.post("/push/Txn/batch", [txn(), txn(amount="x")]), 400, "invalid_event")
    refused(space.post("/push/Txn/batch", []), 400, "invalid_request")
    refused(space.post("/push/Txn/batch", txn()), 400, "invalid_request")
    refused(space.post("/push/Txn/batch", [txn()] * 10_001), 413, "payload_too_large")
    assert space.row() == {}
    first = answered(space.post("/push/Txn/batch", [txn(amount=n) for n in range(1000)]))
    assert answered(space.push(txn(amount=7)))["ack_lsn"] > first["ack_lsn"]
    row = space.row()
    assert (row["c"], row["last"]) == (1001, 7.0)


def test_bodies_are_limited(space: Namespace) -> None:
    space.has(event("Ev", fields={"a": "str", "j": "json"}), table(upstream="Ev", keys=[]))
    body = b'{"event":"Ev","data":{"a":"x","j":"%s"}}'
    limit = 4 * 1024 * 1024
    refused(space.post("/push", body % (b"x" * limit)), 413, "payload_too_large")
    refused(space.post("/push", body % (b"x" * (1024 * 1024))), 413, "payload_too_large")
    answered(space.post("/push", body % (b"x" * (1024 * 1024 - 18))))
    assert space.row("U", "") == {"c": 1}


def test_a_text_that_features_keep_is_short(space: Namespace) -> None:
    fields = {"kept": "str", "free": "str"}
    agg = {"top": {"op": "top_k", "params": {"field": "kept"}}, "n": {"op": "n_unique", "params": {"field": "kept"}}}
    space.has(event("Ev", fields=fields), table(upstream="Ev", keys=[], agg=agg))
    answered(space.push({"kept": "é" * 512, "free": "x" * 5000}, "Ev"))
    refused(space.push({"kept": "é" * 512 + "x", "free": ""}, "Ev"), 400, "invalid_event")


def test_an_ack_says_the_version_that_a_client_may_know_already(space: Namespace) -> None:
    space.has(event(), table())
    for number in range(2, 5):
        space.has(event(f"E{number}"))
        assert answered(space.push(txn()))["registry_version"] in range(1, number + 1)
    space.has(event(fields={"user": "str"}), force=True)
    assert answered(space.push({"user": "a"}))["registry_version"] == 5


def test_there_are_no_other_calls_for_many(space: Namespace) -> None:
    space.has(event())
    for path in ("/push_many", "/push_batch", "/mget", "/upsert", "/batch_push"):
        refused(space.post(path, [txn()]), 404, "not_found")


def test_a_push_may_be_compressed(space: Namespace) -> None:
    space.has(event(), table())
    body = gzip.compress(json.dumps({"event": "Txn", "data": txn()}).encode())
    answered(space.post("/push", body, {"Content-Encoding": "gzip"}))
    refused(space.post("/push", body, {"Content-Encoding": "br"}), 415, "unsupported_media_type")
    assert space.row() == {"c": 1}
