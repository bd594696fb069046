"""What `POST /register` installs, and what it answers."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.conformance.contract.client import expect, shown
from tests.conformance.features.client import Namespace, answered, refused, rejected, txn
from tests.conformance.topics.client import at_once
from tests.unit.features.pipeline.documents import count, derived, event, table, total

TXN = {
    "kind": "event",
    "name": "Txn",
    "schema": {
        "fields": {"user_id": "str", "card_id": "str", "amount": "f64", "merchant": "str", "ip": "str"},
        "optional_fields": [],
    },
    "keep_events_for": "30d",
    "cold_after_ms": 86400000,
}
FEATURES = {
    "kind": "derivation",
    "name": "UserTxnFeatures",
    "output_kind": "table",
    "table_primary_key": ["user_id"],
    "upstreams": ["Txn"],
    "ops": [
        {
            "op": "group_by",
            "keys": ["user_id"],
            "agg": {
                "tx_count_1h": {"op": "count", "params": {"window": "1h"}},
                "tx_sum_1h": {"op": "sum", "params": {"field": "amount", "window": "1h"}},
                "tx_p99_1h": {"op": "quantile", "params": {"field": "amount", "q": 0.99, "window": "1h"}},
            },
        }
    ],
}
CLICK = {"kind": "event", "name": "Click", "schema": {"fields": {"page": "str"}}}
COUNTER = {
    "kind": "derivation",
    "name": "GlobalCounter",
    "output_kind": "table",
    "table_primary_key": [],
    "upstreams": ["Click"],
    "ops": [{"op": "group_by", "keys": [], "agg": {"click_count": {"op": "count", "params": {}}}}],
}
PROCESSES = 3


@pytest.mark.sensitive("all calls over HTTP")
def test_the_pages_nodes_are_installed_and_answer(space: Namespace) -> None:
    assert answered(space.register(TXN, FEATURES)) == {
        "status": "ok",
        "registry_version": 1,
        "added": ["Txn", "UserTxnFeatures"],
        "already_present": [],
        "registered_descriptors": ["Txn", "UserTxnFeatures"],
    }
    data = {"user_id": "alice", "card_id": "c", "merchant": "m", "ip": "::1"}
    space.filled(data | {"amount": 7.85}, data | {"amount": 42.15})
    row = space.row("UserTxnFeatures", "alice")
    assert row == {"tx_count_1h": 2, "tx_sum_1h": 50.0, "tx_p99_1h": pytest.approx(7.85 + 0.99 * 34.3)}
    assert list(row) == ["tx_count_1h", "tx_sum_1h", "tx_p99_1h"]


def test_a_global_table_has_one_row_under_the_empty_key(space: Namespace) -> None:
    space.has(CLICK, COUNTER)
    assert space.row("GlobalCounter", "") == {}
    space.filled({"page": "/"}, {"page": "/b"}, event="Click")
    assert space.row("GlobalCounter", "") == space.row("GlobalCounter", []) == {"click_count": 2}


def test_the_answer_says_what_this_call_did_and_what_is_registered_now(space: Namespace) -> None:
    space.has(event("B"), event("A"))
    assert answered(space.register(table("Z", upstream="A"), event("A"), event("C"))) == {
        "status": "ok",
        "registry_version": 2,
        "added": ["Z", "C"],
        "already_present": ["A"],
        "registered_descriptors": ["B", "A", "Z", "C"],
    }


def test_calls_that_change_nothing_do_not_raise_the_version(space: Namespace) -> None:
    nodes = [event(), table(), event("Other")]
    assert answered(space.register(*nodes))["registry_version"] == 1
    same = {"status": "ok", "registry_version": 1, "registered_descriptors": ["Txn", "U", "Other"]}
    assert answered(space.register()) == same | {"added": [], "already_present": []}
    for flags in ({}, {"force": True}):
        again = answered(space.register(*nodes, **flags))
        assert again == same | {"added": [], "already_present": ["Txn", "U", "Other"]}
    space.register(event("New"), dry_run=True)
    rejected(space.register(event("New"), {"kind": "what", "name": "x"}), "unsupported_node_kind")
    assert expect(space.register(event(fields={"a": "str"})), 409).json()["registry_version"] == 1
    assert space.version() == 1
    assert answered(space.register(event("New")))["registry_version"] == 2 == space.version()


def test_upstreams_may_be_of_this_call_or_of_an_earlier_one(space: Namespace) -> None:
    space.has(event()).has(derived("Big", {"op": "filter", "expr": "(amount > 5)"})).has(table("V", upstream="Big"))
    space.filled(txn(amount=1), txn(amount=9))
    assert space.row("V") == {"c": 1}
    late = [table("W", upstream="Late"), event("Late")]
    assert "'Late'" in rejected(space.register(*late), "invalid_registration", "nodes[0].upstreams[0]")
    assert space.version() == 3


@pytest.mark.sensitive("what other processes know")
def test_a_registration_is_in_force_for_every_process_once_it_is_answered(space: Namespace) -> None:
    space.has(event(fields={"user": "str"}), table())
    for number in range(PROCESSES):  # requests go to the processes in turn: each knows the first shape now
        answered(space.push({"user": "a"}))
        assert space.row()["c"] == number + 1
    for version, kind in enumerate(("i64", "f64", "bool", "str"), start=2):
        value: Any = {"i64": 1, "f64": 1.5, "bool": True, "str": "x"}[kind]
        space.has(event(fields={"user": "str", "x": kind}), force=True)
        for _ in range(PROCESSES):
            refused(space.push({"user": "a"}), 400, "invalid_event")
        for number in range(PROCESSES):
            assert answered(space.push({"user": "a", "x": value}))["registry_version"] == version
            assert space.version() == version
            assert space.row() == {"c": number + 1 + (PROCESSES if version == 2 else 0)}, "a new field keeps state"


def test_a_failed_registration_changes_nothing(space: Namespace) -> None:
    space.has(event())
    rejected(space.register(event("Good"), table("Bad", agg={"f": total("nope")})), "aggregation_unknown_field")
    refused(space.push({}, "Good"), 404, "event_not_found")
    assert answered(space.send("GET", "/registry"))["node_count"] == 1


def test_registrations_at_one_moment_each_have_a_version(space: Namespace) -> None:
    answers = at_once([lambda number=number: space.register(event(f"E{number}")) for number in range(4)])
    assert sorted(answered(answer)["registry_version"] for answer in answers) == [1, 2, 3, 4]
    assert all(answered(answer)["added"] == [f"E{number}"] for number, answer in enumerate(answers))
    registered = answered(space.register())["registered_descriptors"]
    assert sorted(registered) == [f"E{number}" for number in range(4)]


def test_the_same_registration_at_one_moment_takes_effect_once(space: Namespace) -> None:
    answers = [answered(answer) for answer in at_once([lambda: space.register(event(), table())] * 4)]
    assert {answer["registry_version"] for answer in answers} == {1}
    assert sorted(answer["added"] for answer in answers) == [[], [], [], ["Txn", "U"]]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""])
def test_another_content_type_is_refused(space: Namespace, kind: str) -> None:
    answer = space.send("POST", "/register", b'{"nodes":[]}', {"Content-Type": kind})
    expect(answer, 415)
    error = {"code": "unsupported_media_type", "path": f"/features/{space.name}/register"}
    assert answer.json() == {"error": {**error, "reason": "expected application/json"}, "registry_version": 0}


def test_the_415_of_the_default_namespace_is_that_of_the_page(space: Namespace) -> None:
    answer = space.server.send("POST", "/register", b"", {"Content-Type": "text/plain"})
    assert answer.content == (
        b'{"error":{"code":"unsupported_media_type","path":"/register","reason":"expected application/json"},'
        b'"registry_version":0}'
    )


def test_a_content_type_may_have_parameters(space: Namespace) -> None:
    for kind in ("application/json; charset=utf-8", "Application/JSON"):
        answered(space.post("/register", {"nodes": [event()]}, {"Content-Type": kind}))


@pytest.mark.parametrize("body", [{}, {"nodes": None}, {"nodes": {}}, {"descriptors": [event()]}, [], 5, b"{", b""])
def test_nodes_are_required(space: Namespace, body: Any) -> None:
    rejected(space.post("/register", body), "invalid_registration", "<body>")


def test_flags_must_be_flags(space: Namespace) -> None:
    rejected(space.register(force=1), "invalid_registration", "force")
    rejected(space.register(dry_run="yes"), "invalid_registration", "dry_run")


def test_what_is_not_known_is_ignored(space: Namespace) -> None:
    body = {"nodes": [event(colour="red"), table(owner={"a": 1})], "descriptors": 5, "more": None}
    assert answered(space.post("/register", body))["added"] == ["Txn", "U"]
    assert answered(space.register(event(), table()))["added"] == []


@pytest.mark.parametrize("kind", ["table", "view", "Event", None, 5])
def test_only_events_and_derivations_are_nodes(space: Namespace, kind: object) -> None:
    answer = space.register(event(), {"kind": kind, "name": "T"})
    assert "output_kind 'table'" in rejected(answer, "unsupported_node_kind", "nodes[1].T.kind")


def test_fields_have_wire_types_and_events_names_with_case(space: Namespace) -> None:
    kinds = ("str", "i64", "f64", "bool", "bytes", "datetime", "json")
    fields = {f"x_{kind}": kind for kind in kinds}
    features = {f"last_{kind}": {"op": "last", "params": {"field": f"x_{kind}"}} for kind in kinds if kind != "json"}
    space.has(
        event("Ev", fields=fields), event("ev", fields={"a": "str"}), table(agg=features, keys=[], upstream="Ev")
    )
    data = {"str": "é", "i64": 2, "f64": 2.5, "bool": False, "bytes": "AAE=", "datetime": "2026-01-01T00:00:00Z"}
    space.filled({f"x_{kind}": value for kind, value in data.items()} | {"x_json": {"a": [1]}}, event="Ev")
    space.filled({"a": "b"}, event="ev")
    refused(space.push({"a": "b"}, "EV"), 404, "event_not_found")
    assert space.row("U", "") == {f"last_{kind}": value for kind, value in data.items()}


def test_retention_has_two_spellings_and_settings_stay_if_they_are_not_mentioned(space: Namespace) -> None:
    def settings() -> dict[str, Any]:
        (node,) = answered(space.send("GET", "/registry"))["nodes"]
        return {name: value for name, value in node.items() if name not in ("kind", "name", "schema")}

    space.has(event(keep_events_for="30d", cold_after_ms=5000, dedupe_key="n", dedupe_window_ms=1000))
    given = {
        "keep_events_for_ms": 30 * 86_400_000,
        "cold_after_ms": 5000,
        "dedupe_key": "n",
        "dedupe_window_ms": 1000,
    }
    assert settings() == given
    assert answered(space.register(event(keep_events_for_ms=30 * 86_400_000)))["added"] == []
    assert answered(space.register(event()))["added"] == []  # clients such as the SDK never send them
    assert settings() == given
    space.has(event(keep_events_for=None, cold_after_ms=None, dedupe_key=None, dedupe_window_ms=None))
    assert settings() == {}


def test_a_derived_events_schema_is_required_and_its_types_are_inferred(space: Namespace) -> None:
    double = {"op": "with_columns", "exprs": {"twice": "(amount * 2)"}}
    rejected(space.register(event(), derived("D", double, schema=None)), "invalid_registration", "nodes[1].schema")
    wrong = derived("D", double, schema={"fields": {"twice": "str", "more": "bool"}})
    space.has(event(), wrong, table("V", upstream="D", agg={"s": total("twice")}))
    space.filled(txn(amount=4.5))
    assert space.row("V") == {"s": 9.0}


def test_a_table_needs_no_schema_and_takes_any(space: Namespace) -> None:
    space.has(event(), table(schema={"fields": {"c": "str"}}), table("V"))
    space.filled(txn())
    assert space.row() == space.row("V") == {"c": 1}


def test_parameters_may_be_beside_the_name_of_an_operator_or_in_params(space: Namespace) -> None:
    beside = {"op": "filter", "expr": "(n > 1)"}
    inside = {"op": "filter", "params": {"expr": "(n > 1)"}}
    grouped = {"op": "group_by", "params": {"keys": ["user"], "agg": {"c": count()}}}
    space.has(event(), table("A", beside), table("B", inside), table("C", ops=[beside, grouped]))
    space.filled(txn(n=1), txn(n=2))
    assert [space.row(name) for name in "ABC"] == [{"c": 1}] * 3


def test_a_large_body_is_refused(space: Namespace) -> None:
    answer: httpx.Response = space.post("/register", b'{"nodes":[' + b" " * (4 * 1024 * 1024) + b"]}")
    rejected(answer, "payload_too_large", status=413)
    answered(space.has(event()).post("/register", b'{"nodes":[' + b" " * (4 * 1024 * 1024 - 12) + b"]}"))


def test_an_old_shape_is_refused_while_the_registry_says_so(space: Namespace) -> None:
    space.has(event(fields={"a": "str", "b": "str"}, optional=["b"]), table(keys=["a"]))
    answered(space.push({"a": "x"}))
    answer = space.register(event(fields={"a": "str", "b": "str"}))
    assert expect(answer, 409).json()["error"]["code"] == "force_required", shown(answer)
    answered(space.push({"a": "x"}))
    assert space.row("U", "x") == {"c": 2}


def test_an_empty_registration_is_accepted_also_where_nothing_is_registered(space: Namespace) -> None:
    for body in ({"nodes": []}, {"nodes": [], "force": True}):
        assert answered(space.post("/register", body)) == {
            "status": "ok",
            "registry_version": 0,
            "added": [],
            "already_present": [],
            "registered_descriptors": [],
        }
    assert answered(space.register(dry_run=True))["diff"] == {
        "additive": [],
        "destructive": [],
        "already_present": [],
    }
