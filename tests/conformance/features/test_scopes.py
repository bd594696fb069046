"""Keys, their scopes and their prefixes, on a server that has some; and resets, which it refuses."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.conformance.contract.client import expect, shown
from tests.conformance.features.client import Namespace, answered, refused, txn, unused
from tests.conformance.topics.client import Server
from tests.conformance.topics.configurations import SCOPES
from tests.unit.features.pipeline.documents import event, table

GET = {"table": "U", "key": "a"}
ROUTES: list[tuple[str, str, Any, set[str]]] = [
    ("POST", "/register", {"nodes": [event()]}, {"admin"}),
    ("POST", "/register", {"nodes": [table()]}, {"admin", "read"}),
    ("GET", "/registry", None, {"read"}),
    ("POST", "/ping", {}, set()),
    ("POST", "/push", {"event": "Txn", "data": txn()}, {"write"}),
    ("POST", "/push-sync", {"event": "Txn", "data": txn()}, {"write"}),
    ("POST", "/push/Txn", txn(), {"write"}),
    ("POST", "/push-sync/Txn", txn(), {"write"}),
    ("POST", "/push/Txn/batch", [txn()], {"write"}),
    ("POST", "/get", GET, {"read"}),
    ("POST", "/batch_get", {"requests": [GET]}, {"read"}),
    ("GET", "/get/U/a", None, {"read"}),
    ("GET", "/get/c/a", None, {"read"}),
]


@pytest.fixture(scope="module")
def guarded(limited: Server) -> Namespace:
    """Returns a namespace with an event, a table and a row, on a server with keys."""
    return unused(limited, "mine.").has(event(), table()).filled(txn())


@pytest.mark.parametrize(
    ("method", "path", "body", "needed"), ROUTES, ids=[f"{one[1]} {sorted(one[3])}" for one in ROUTES]
)
def test_each_call_needs_its_scopes(guarded: Namespace, method: str, path: str, body: Any, needed: set[str]) -> None:
    for key in (None, "unknown"):
        expect(guarded.by(key).send(method, path, body), 401)
    for key, scopes in SCOPES.items():
        answer = guarded.by(key).send(method, path, body)
        assert answer.status_code == (200 if needed <= scopes else 403), (key, shown(answer))
        if answer.status_code == 403:
            assert answer.json()["error"]["code"] == "forbidden"


def test_health_and_readiness_need_no_key(limited: Server) -> None:
    for path in ("/health", "/ready"):
        expect(limited.with_key(None).get(path), 200)
    expect(limited.with_key(None).get("/metrics"), 401)


def test_a_key_reaches_only_names_within_its_prefixes(limited: Server, guarded: Namespace) -> None:
    other = unused(limited, "theirs.").has(event(), table())
    for path, body in (
        ("/push", {"event": "Txn", "data": txn()}),
        ("/get", GET),
        ("/batch_get", {"requests": [GET]}),
        ("/register", {"nodes": [event("New")]}),
        ("/reset", {}),
    ):
        answer = other.by("bound").post(path, body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden"), shown(answer)
        absent = unused(limited, "theirs.")
        told = absent.by("bound").post(path, body).content.replace(str(absent.name).encode(), b"")
        assert told == answer.content.replace(str(other.name).encode(), b""), "a refusal does not tell what is there"
    answered(guarded.by("bound").push(txn()))
    answered(guarded.by("reader-bound").get())
    refused(guarded.by("reader-bound").push(txn()), 403, "forbidden")
    answered(guarded.by("writer-bound").push(txn()))


def test_a_key_sees_the_nodes_that_it_may_touch(limited: Server) -> None:
    space = unused(limited, "theirs.").has(event(), table())
    shown_to = answered(space.by("bound").send("GET", "/registry"))
    assert (shown_to["node_count"], shown_to["nodes"], shown_to["tables"]) == (0, [], {})
    assert answered(space.by("bound").register())["registered_descriptors"] == []
    assert answered(space.by("all").register())["registered_descriptors"] == ["Txn", "U"]
    refused(space.by("bound").send("GET", "/get/U/a"), 404, "feature_not_found")


def test_a_key_may_come_as_basic_since_the_client_has_no_other_way(guarded: Namespace) -> None:
    basic = {"Authorization": "Basic " + base64.b64encode(b"any:reader").decode()}
    assert answered(guarded.by(None).send("GET", "/registry", None, basic))["node_count"] == 2


def test_a_reset_is_refused_where_none_is_allowed(guarded: Namespace) -> None:
    before = guarded.row()
    for key in ("all", "bound"):
        refused(guarded.by(key).post("/reset", {}), 403, "reset_disabled_in_production")
    for key in ("reader", "worker"):
        refused(guarded.by(key).post("/reset", {}), 403, "forbidden")
    assert guarded.row() == before and guarded.version() == 1
