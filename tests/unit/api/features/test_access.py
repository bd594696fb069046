"""Who may do what to feature tables: keys, scopes, and prefixes of `<namespace>/<node>`."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from headrace.settings import Settings
from tests.unit.api.asgi import Answer, Server
from tests.unit.api.features.wire import SETTINGS, ask, code, register, serving
from tests.unit.features.world import event, table, tx

KEYS = (
    "all,r:read,w:write,rw:rw,a:admin,ar:admin+read,mine:read+write+admin:team/|default/Tx|default/U,p:rw:default/Tx"
)
GET = {"table": "U", "key": "a"}

# Each route with a body that is in order, and the keys that it answers beside `all`.
ROUTES: list[tuple[str, str, Any, set[str]]] = [
    ("POST", "/register", {"nodes": [event("New"), table("NewT", "New")]}, {"ar"}),
    ("POST", "/register", {"nodes": [event("New")]}, {"a", "ar"}),
    ("POST", "/register", {"nodes": []}, {"a", "ar"}),
    ("POST", "/reset", {}, {"a", "ar"}),
    ("GET", "/registry", None, {"r", "rw", "ar"}),
    ("POST", "/ping", {}, {"r", "w", "rw", "a", "ar"}),
    ("POST", "/push", {"event": "Tx", "data": tx()}, {"w", "rw"}),
    ("POST", "/push-sync", {"event": "Tx", "data": tx()}, {"w", "rw"}),
    ("POST", "/push/Tx", tx(), {"w", "rw"}),
    ("POST", "/push-sync/Tx", tx(), {"w", "rw"}),
    ("POST", "/push/Tx/batch", [tx()], {"w", "rw"}),
    ("POST", "/get", GET, {"r", "rw", "ar"}),
    ("POST", "/batch_get", {"requests": [GET]}, {"r", "rw", "ar"}),
    ("GET", "/get/U/a", None, {"r", "rw", "ar"}),
    ("GET", "/get/c/a", None, {"r", "rw", "ar"}),
    ("POST", "/search", {"event": "Tx", "q": "has:user"}, {"r", "rw", "ar"}),
    ("POST", "/snapshot", {"table": "U"}, {"ar"}),
    ("POST", "/backfill", {"table": "U"}, {"ar"}),
    ("GET", "/metrics", None, {"r", "rw", "ar"}),
]


def refused(answer: Answer) -> tuple[int, str]:
    """Returns the status and the code of an error."""
    return answer.status, answer.json["error"]["code"]


@pytest.mark.parametrize(("method", "target", "body", "allowed"), ROUTES)
def test_each_route_wants_its_scopes(method: str, target: str, body: Any, allowed: set[str]) -> None:
    server = serving(event(search=True), table(), keys=KEYS)
    ask(server, "POST", "/push/Tx", tx(), "all")
    before = server.dump()
    assert refused(ask(server, method, target, body)) == (401, "unauthorized")
    assert refused(ask(server, method, target, body, "wrong")) == (401, "unauthorized")
    for key in {"r", "w", "rw", "a", "ar"} - allowed:
        assert refused(ask(server, method, target, body, key)) == (403, "forbidden")
    assert server.dump() == before
    for key in ("all", *sorted(allowed)):
        answer = ask(server, method, target, body, key)
        assert answer.status == 200, (key, answer)
        if target == "/reset":
            register(server, event(), table(), key="all")


def test_a_registration_wants_admin_on_each_node_and_read_on_each_upstream() -> None:
    server = serving(event(), table(), event("Theirs"), keys=KEYS)
    before = server.dump()
    assert refused(register(server, event(), event("Other"), key="mine")) == (403, "forbidden")
    assert refused(register(server, table("U", "Theirs"), key="mine")) == (403, "forbidden")
    assert refused(register(server, table("U", "Absent"), key="mine")) == (403, "forbidden")
    assert refused(register(server, event("X"), under="/features/team2", key="mine")) == (403, "forbidden")
    assert server.dump() == before
    assert register(server, table("U", "Tx", c="count", s2="count"), key="mine", force=True).status == 200
    assert register(server, event("X"), table("Y", "X"), under="/features/team", key="mine").status == 200


def test_nodes_of_no_form_are_no_way_around_the_scopes() -> None:
    server = serving(keys=KEYS)
    odd: list[Any] = [5, None, {"name": 5}, {"name": "Tx", "upstreams": 5}, {"name": "Tx", "upstreams": [5]}]
    for node in odd:
        answer = register(server, node, key="mine")
        assert (answer.status, answer.json["registry_version"]) == (400, 1), node
        assert refused(register(server, node, key="r")) == (403, "forbidden")
    assert refused(ask(server, "POST", "/register", b"[", "r")) == (403, "forbidden")


def test_a_key_sees_the_nodes_that_it_may_touch() -> None:
    server = serving(event(), table(), event("Theirs"), table("Secret", "Theirs", hidden="count"), keys=KEYS)
    shown = ask(server, "GET", "/registry", key="mine").json
    assert [node["name"] for node in shown["nodes"]] == ["Tx", "U"]
    assert (shown["node_count"], list(shown["tables"])) == (2, ["U"])
    assert register(server, key="mine").json["registered_descriptors"] == ["Tx", "U"]
    assert b"beava_node_count 2\n" in ask(server, "GET", "/metrics", key="mine").body
    assert b"beava_node_count 4\n" in ask(server, "GET", "/metrics", key="all").body


def test_a_refusal_does_not_tell_what_is_there() -> None:
    server = serving(event(), table(), event("Theirs"), table("Secret", "Theirs", hidden="count"), keys=KEYS)
    for target, there, absent in (
        ("/push", {"event": "Theirs", "data": {}}, {"event": "Absent", "data": {}}),
        ("/get", {"table": "Secret", "key": "a"}, {"table": "Absent", "key": "a"}),
        (
            "/batch_get",
            {"requests": [GET, {"table": "Secret", "key": "a"}]},
            {"requests": [{"table": "No", "key": ""}]},
        ),
    ):
        first, second = (ask(server, "POST", target, body, "mine") for body in (there, absent))
        assert code(first) == code(second) == (403, "forbidden")
        assert first.body == second.body
    for name in ("Secret", "hidden", "absent"):
        assert code(ask(server, "GET", f"/get/{name}/a", key="mine")) == (404, "feature_not_found")


def test_a_reset_wants_the_whole_namespace() -> None:
    server = serving(keys=KEYS)
    assert code(ask(server, "POST", "/reset", {}, "mine")) == (403, "forbidden")
    assert ask(server, "POST", "/features/team/reset", {}, "mine").status == 200
    deployed = serving(settings=Settings(metrics_interval_ms=0), keys=KEYS)
    assert code(ask(deployed, "POST", "/reset", {}, "r")) == (403, "forbidden")
    assert code(ask(deployed, "POST", "/reset", {}, "all")) == (403, "reset_disabled_in_production")


def test_the_namespace_is_part_of_the_name() -> None:
    server = serving(keys=KEYS)
    register(server, event(), table(), under="/features/other", key="all")
    assert ask(server, "POST", "/push/Tx", tx(), "p").status == 200
    assert code(ask(server, "POST", "/features/other/push/Tx", tx(), "p")) == (403, "forbidden")
    assert ask(server, "POST", "/features/default/push/Tx", tx(), "p").status == 200


def test_a_key_may_come_as_basic_since_the_sdk_has_no_other_way() -> None:
    server = serving(keys=KEYS)
    header = "Basic " + base64.b64encode(b"any:rw").decode()
    assert ask(server, "POST", "/push/Tx", tx(), authorization=header).status == 200


def test_readiness_needs_no_key() -> None:
    assert Server(KEYS, SETTINGS)("GET", "/ready").status == 200


def test_a_server_without_keys_obeys_this_machine_only() -> None:
    server = Server(settings=SETTINGS, hosts=())
    assert register(server, event()).status == 200
    answer = ask(server, "POST", "/register", {"nodes": []}, host="evil.example")
    assert (answer.status, answer.json["error"]["code"], answer.json["registry_version"]) == (403, "forbidden", 0)


def test_one_key_may_have_so_many_requests_at_once() -> None:
    server = serving(keys=KEYS, settings=Settings(metrics_interval_ms=0, max_inflight_per_key=1))
    with server.parts.in_flight.request(server.parts.access.grant("Bearer rw").key_id):
        refusal = ask(server, "POST", "/push/Tx", tx(), "rw")
        assert code(refusal) == (429, "throttled")
        assert refusal.json["error"]["detail"] == {"limit": "max_inflight_per_key", "max": 1}
        assert refusal.headers["retry-after"]
        assert ask(server, "POST", "/push/Tx", tx(), "w").status == 200
