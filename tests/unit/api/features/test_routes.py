"""The routes of feature tables: what each answers, byte for byte where the contract says it."""

from __future__ import annotations

import gzip
import json

import pytest

from functions.access import Access
from functions.api.context import assemble
from functions.api.features.registrations import document_of, in_order
from headrace.features.pipeline.nodes import parse_list
from headrace.features.rows import parse_as_of
from headrace.settings import Settings
from tests.unit.api.asgi import JSON, Server
from tests.unit.api.features.wire import SETTINGS, ask, code, get, register, serving
from tests.unit.features.world import event, table, tx

BIG = {"kind": "derivation", "name": "Big", "output_kind": "event", "upstreams": ["Tx"], "schema": {"fields": {}}}
BIG["ops"] = [{"op": "filter", "expr": "(amount > 5)"}]


def test_a_registration_is_answered_as_the_contract_says() -> None:
    server = Server(settings=SETTINGS)
    answer = register(server, event(), table())
    assert answer.headers["content-type"] == "application/json"
    assert answer.body == (
        b'{"status":"ok","registry_version":1,"added":["Tx","U"],"already_present":[],"registered_descriptors":["Tx","U"]}'
    )
    assert register(server, event("Other"), event(), event("Another")).body == (
        b'{"status":"ok","registry_version":2,"added":["Other","Another"],"already_present":["Tx"],'
        b'"registered_descriptors":["Tx","U","Other","Another"]}'
    )
    for nodes in ([], [event(), table()]):
        again = register(server, *nodes, force=True).json
        assert (again["registry_version"], again["added"]) == (2, [])
        assert again["registered_descriptors"] == ["Tx", "U", "Other", "Another"]


def test_a_dry_run_changes_nothing_even_if_it_is_forced() -> None:
    server = serving()
    other = event(fields={"user": "str", "amount": "i64", "n": "i64"})
    before = server.dump()
    for flags in ({"dry_run": True}, {"dry_run": True, "force": True}):
        answer = register(server, other, event("New"), **flags)
        assert answer.status == 200
        assert list(answer.json) == ["diff", "would_apply"]
        assert answer.json["would_apply"] is False
        assert [entry["name"] for entry in answer.json["diff"]["additive"]] == ["New"]
        (change,) = answer.json["diff"]["destructive"]
        assert change == {"kind": "type_change", "field": "Tx.amount", "from": "f64", "to": "i64"}
    assert server.dump() == before
    assert ask(server, "POST", "/ping").body == b'{"pong":true,"registry_version":1}'


def test_what_drops_state_must_be_forced() -> None:
    server = serving()
    ask(server, "POST", "/push", {"event": "Tx", "data": tx()})
    narrow = event(fields={"user": "str", "amount": "i64", "n": "i64"})
    refused = register(server, narrow)
    assert refused.status == 409
    assert list(refused.json) == ["error", "registry_version"]
    assert list(refused.json["error"]) == ["code", "reason", "diff"]
    assert refused.json["error"]["code"] == "force_required"
    assert refused.json["registry_version"] == 1
    assert get(server) == {"c": 1, "s": 1.0}
    assert register(server, narrow, force=True).json["registry_version"] == 2
    assert get(server) == {}


def test_a_push_is_answered_as_the_contract_says_and_every_read_shows_it() -> None:
    server = serving()
    answer = ask(server, "POST", "/push", {"event": "Tx", "data": tx(amount=2)})
    lsn = answer.json["ack_lsn"]
    assert answer.body == b'{"ack_lsn":%d,"idempotent_replay":false,"registry_version":1}' % lsn
    assert "x-beava-idempotent-replay" not in answer.headers
    pushed = [("/push/Tx", tx()), ("/push-sync/Tx", tx()), ("/push-sync", {"event": "Tx", "data": tx()})]
    for number, (target, body) in enumerate(pushed, start=2):
        acked = ask(server, "POST", target, body).json
        assert acked["ack_lsn"] > lsn
        lsn = acked["ack_lsn"]
        assert get(server) == {"c": number, "s": number + 1.0}


def test_a_replay_has_the_body_of_the_first_answer_and_a_header() -> None:
    server = serving(event(dedupe_key="n"), table())
    body = {"event": "Tx", "data": tx(n=7)}
    first = ask(server, "POST", "/push", body)
    register(server, event("Later"))
    again = ask(server, "POST", "/push", {"event": "Tx", "data": tx(n=7, amount=99)})
    assert again.body == first.body
    assert again.headers["x-beava-idempotent-replay"] == "1"
    assert "X-Beava-Idempotent-Replay" in again.headers["access-control-expose-headers"]
    assert get(server) == {"c": 1, "s": 1.0}


def test_a_batch_is_pushed_as_a_whole_or_not_at_all() -> None:
    server = serving()
    before = server.dump()
    answer = ask(server, "POST", "/push/Tx/batch", [tx(), {**tx(), "user": 5}, tx()])
    assert code(answer) == (400, "invalid_event")
    assert code(ask(server, "POST", "/push/Tx/batch", [])) == (400, "invalid_request")
    assert server.dump() == before
    answer = ask(server, "POST", "/push/Tx/batch", [tx("a", 1), tx("b", 2), tx("a", 3)])
    assert list(answer.json) == ["ack_lsn", "idempotent_replay", "registry_version"]
    assert (get(server, "a"), get(server, "b")) == ({"c": 2, "s": 4.0}, {"c": 1, "s": 2.0})


@pytest.mark.parametrize("name", ["get", "batch_get", "ping", "batch", "register", "push"])
def test_an_event_may_have_the_name_of_a_resource(name: str) -> None:
    server = serving(event(name), table("of_events", name))
    assert ask(server, "POST", f"/push/{name}", tx()).status == 200
    assert ask(server, "POST", f"/push/{name}/batch", [tx()]).status == 200
    assert get(server, table="of_events") == {"c": 2, "s": 2.0}


def test_reads_take_keys_as_texts_or_lists_and_some_features() -> None:
    pair = table("Pair", keys=["user", "n"], c="count")
    server = serving(event(), table(), pair, table("All", keys=[], total="count"))
    ask(server, "POST", "/push", {"event": "Tx", "data": tx("x|y", n=3)})
    for key in ("x%7Cy|3", ["x|y", 3], ["x|y", "3"]):
        assert get(server, key, "Pair") == {"c": 1}
    assert get(server, "", "All") == get(server, [], "All") == {"total": 1}
    assert ask(server, "POST", "/get", {"table": "U", "key": ["x|y"], "features": ["s"]}).body == b'{"s":1.0}'
    assert ask(server, "POST", "/get", {"table": "U", "key": ["x|y"], "features": []}).body == b"{}"
    assert ask(server, "POST", "/get", {"table": "U", "key": "cold", "features": None}).body == b"{}"


def test_a_batch_of_reads_has_one_time_and_the_errors_of_its_entries() -> None:
    server = serving()
    ask(server, "POST", "/push/Tx/batch", [tx("a"), tx("b")])
    requests = [{"table": "U", "key": key} for key in ("a", "cold", ["b"], "a", "a|b")]
    requests += [{"table": "No", "key": "a"}, {"table": "U", "key": "b", "features": ["c"]}]
    answer = ask(server, "POST", "/batch_get", {"requests": requests})
    assert answer.status == 200
    *rows, arity, unknown, narrow = answer.json["results"]
    assert rows == [{"c": 1, "s": 1.0}, {}, {"c": 1, "s": 1.0}, {"c": 1, "s": 1.0}]
    assert narrow == {"c": 1}
    assert (arity["error"]["code"], unknown["error"]["code"]) == ("key_parse_failure", "unknown_table")
    assert all(one["error"].keys() == {"code", "message"} for one in (arity, unknown))
    assert parse_as_of(answer.headers["headrace-as-of"]).lanes == {("Tx", 0): 2}
    assert ask(server, "POST", "/batch_get", {"requests": []}).body == b'{"results":[]}'
    missing = {"requests": [*requests, {"table": "U", "key": "a", "features": ["zz"]}]}
    assert code(ask(server, "POST", "/batch_get", missing)) == (404, "feature_not_found")


def test_an_answer_says_which_events_it_includes() -> None:
    server = serving()
    for count in range(3):
        answer = ask(server, "POST", "/get", {"table": "U", "key": "a"})
        as_of = parse_as_of(answer.headers["headrace-as-of"])
        assert as_of.lanes == {("Tx", 0): count}
        assert abs(as_of.now_ms - server.parts.clock.now_ms()) < 60_000
        ask(server, "POST", "/push/Tx", tx())
    assert "Headrace-As-Of" in answer.headers["access-control-expose-headers"]


def test_a_header_that_proxies_would_refuse_is_left_out() -> None:
    names = [f"E{number}_{'x' * 100}" for number in range(45)]
    nodes = [node for name in names for node in (event(name), table(f"T{name}", name))]
    server = serving(*nodes)
    few, many = names[:5], names
    for asked in (few, many):
        answer = ask(server, "POST", "/batch_get", {"requests": [{"table": f"T{n}", "key": "a"} for n in asked]})
        assert answer.json == {"results": [{}] * len(asked)}
        assert ("headrace-as-of" in answer.headers) == (asked is few)


def test_a_stale_read_is_answered_from_the_row_alone() -> None:
    server = serving()
    ask(server, "POST", "/push/Tx", tx())
    stale = {"table": "U", "key": "a", "consistency": "stale"}
    assert ask(server, "POST", "/get", stale).json == {}  # it is not folded yet
    assert ask(server, "POST", "/get", {**stale, "consistency": "strong"}).json == {"c": 1, "s": 1.0}
    batch = {"requests": [{"table": "U", "key": "a"}], "consistency": "stale"}
    assert ask(server, "POST", "/batch_get", batch).json == {"results": [{}]}


def test_legacy_reads_name_a_table_or_a_feature() -> None:
    server = serving(event(), table(), table("V", c2="count"))
    ask(server, "POST", "/push/Tx", tx("a/b c"))
    assert ask(server, "GET", "/get/U/a%2Fb%20c").json == {"c": 1, "s": 1.0}
    assert ask(server, "GET", "/get/U/a/b%20c").json == {"c": 1, "s": 1.0}
    assert ask(server, "GET", "/get/s/a%2Fb%20c").body == b'{"value":1.0}'
    assert ask(server, "GET", "/get/c2/a%2Fb%20c").body == b'{"value":1}'
    assert code(ask(server, "GET", "/get/c2/cold")) == (404, "key_not_found")
    assert code(ask(server, "GET", "/get/U/cold")) == (404, "key_not_found")
    assert code(ask(server, "GET", "/get/nothing/a")) == (404, "feature_not_found")
    assert code(ask(server, "GET", "/get/U/a%7Cb")) == (404, "key_parse_failure")


def test_a_legacy_read_finds_what_another_process_has_registered() -> None:
    server = serving()
    assert code(ask(server, "GET", "/get/V/a")) == (404, "feature_not_found")
    register(Server(parts=assemble(server.stores, Access({}, "*"))), table("V", d="count"))
    ask(server, "POST", "/push/Tx", tx())
    assert ask(server, "GET", "/get/V/a").json == {"d": 1}
    assert ask(server, "GET", "/get/d/a").json == {"value": 1}


def test_a_legacy_read_finds_a_feature_where_another_process_has_moved_it() -> None:
    server = serving(event(), table(c="count"), table("V", d="count"))
    ask(server, "POST", "/push/Tx", tx())
    assert ask(server, "GET", "/get/c/a").json == {"value": 1}
    other = Server(parts=assemble(server.stores, Access({}, "*")))
    moved = {"nodes": [table(e="count"), table("V", c="count")], "force": True}
    assert ask(other, "POST", "/register", moved).status == 200
    ask(server, "POST", "/push/Tx", tx())
    assert ask(server, "GET", "/get/c/a").json == {"value": 1}
    assert code(ask(server, "GET", "/get/d/a")) == (404, "feature_not_found")


def test_namespaces_have_nothing_in_common() -> None:
    server = serving()
    there = "/features/other.ns-1"
    assert register(server, event(), table(), under=there).json["registry_version"] == 1
    assert register(server, event("More"), under=there).json["registry_version"] == 2
    ask(server, "POST", f"{there}/push", {"event": "Tx", "data": tx()})
    ask(server, "POST", f"{there}/push/Tx/batch", [tx(), tx()])
    assert get(server, under=there) == {"c": 3, "s": 3.0}
    assert get(server) == {}
    assert ask(server, "GET", f"{there}/get/c/a").json == {"value": 3}
    assert ask(server, "POST", f"{there}/ping").json["registry_version"] == 2
    assert ask(server, "POST", "/ping").json["registry_version"] == 1
    ask(server, "POST", "/push/Tx", tx())
    assert get(server, under="/features/default") == get(server) == {"c": 1, "s": 1.0}
    assert ask(server, "POST", f"{there}/reset").json == {"reset": True, "registry_version": 3}
    assert get(server) == {"c": 1, "s": 1.0}


def test_the_registry_can_be_registered_elsewhere() -> None:
    settings = {"keep_events_for_ms": 1000, "cold_after_ms": 5, "dedupe_key": "n", "dedupe_window_ms": 60_000}
    wide = event("Wide", optional=["n"], **settings, lanes=2, lane_key="user", search=True)
    nodes = [wide, table("W", "Wide"), event(), BIG, table("B", "Big", keys=[]), table()]
    server = serving(*nodes)
    register(server, event("Late"), {**BIG, "name": "Later", "upstreams": ["Late"]})
    shown = ask(server, "GET", "/registry").json
    assert (shown["node_count"], shown["version"]) == (8, 2)
    assert shown["tables"] == {name: {"generation": "1"} for name in ("W", "B", "U")}
    assert shown["nodes"][0] == wide
    copied = register(server, *shown["nodes"], under="/features/copy")
    assert copied.status == 200, copied.body
    assert ask(server, "GET", "/features/copy/registry").json["nodes"] == shown["nodes"]


def test_the_registry_is_shown_upstreams_first() -> None:
    nodes = parse_list([event("A"), BIG | {"upstreams": ["A"]}, table("T", "Big"), event("Tx")], {})
    a, big, t, late = nodes
    assert in_order((t, big, late, a)) == [a, big, t, late]
    assert [document_of(node)["name"] for node in in_order(tuple(nodes))] == ["A", "Big", "T", "Tx"]


def test_a_namespace_is_reset_where_it_is_allowed() -> None:
    server = serving()
    ask(server, "POST", "/push/Tx", tx())
    assert ask(server, "POST", "/reset", {}).body == b'{"reset":true,"registry_version":2}'
    assert code(ask(server, "POST", "/push/Tx", tx())) == (404, "event_not_found")
    assert register(server, event(), table()).json["registry_version"] == 3
    assert get(server) == {}
    deployed = serving(settings=Settings(metrics_interval_ms=0))
    before = deployed.dump()
    assert code(ask(deployed, "POST", "/reset", {})) == (403, "reset_disabled_in_production")
    assert deployed.dump() == before


def test_readiness_and_metrics() -> None:
    server = serving()
    assert server("GET", "/health").body == b'{"status":"ok"}'
    assert server("GET", "/ready").body == server("GET", "/features/x/ready").body == b'{"status":"ready"}'
    server("PUT", "/v0/topics/t", JSON, b"{}")
    answer = server("GET", "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4"
    lines = answer.body.decode().splitlines()
    assert {"beava_registry_version 1", "beava_node_count 2", "topics_topics 1"} <= set(lines)
    assert server("GET", "/v0/metrics").body.decode().splitlines()[0] in lines
    assert server("POST", "/metrics").status == 405


def test_bodies_may_be_compressed_both_ways() -> None:
    server = serving()
    events = gzip.compress(json.dumps([tx(f"u{number}") for number in range(200)]).encode())
    assert ask(server, "POST", "/push/Tx/batch", events, content_encoding="gzip").status == 200
    body = {"requests": [{"table": "U", "key": f"u{number}"} for number in range(200)]}
    answer = ask(server, "POST", "/batch_get", body, accept_encoding="gzip, deflate")
    assert answer.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(answer.body)) == {"results": [{"c": 1, "s": 1.0}] * 200}


def test_pushes_and_reads_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    server = serving(event(dedupe_key="n"), table())
    counted: list[tuple[str, int]] = []
    monkeypatch.setattr(server.parts.meter, "add", lambda metric, count=1: counted.append((metric.name, count)))
    for _ in range(2):
        ask(server, "POST", "/push/Tx/batch", [tx(n=1)])
    ask(server, "POST", "/batch_get", {"requests": [{"table": "U", "key": "a"}] * 3})
    register(server, event("New"))
    register(server, event("New"))
    assert [one for one in counted if one[0] in ("Pushes", "PushedEvents")] == [("Pushes", 1), ("PushedEvents", 1)]
    assert ("FeatureRows", 3) in counted
    assert sum(count for name, count in counted if name == "Registrations") == 1
