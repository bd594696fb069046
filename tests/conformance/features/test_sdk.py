"""Registrations and requests exactly as beava's Python client 0.0.6 sends them over HTTP."""

from __future__ import annotations

from tests.conformance.contract.client import expect
from tests.conformance.features.client import Namespace, answered
from tests.unit.features.pipeline.test_captured import BIG, TXN, U1

HEADERS = {
    "Content-Type": "application/json",
    "Accept": "*/*",
    "Accept-Encoding": "gzip, deflate",
    "User-Agent": "python-httpx/0.28.1",
}
DATA = {"user_id": "it's", "amount": 200, "n": 1, "ok": True, "y": 6, "txn_id": "t", "lat": 1.0, "lon": 2}
"""All requests are sent with the client's headers."""


def test_captured_registrations_take_effect(space: Namespace) -> None:
    body = {"nodes": [TXN, BIG, U1]}
    assert answered(space.post("/register", body, HEADERS))["added"] == ["Txn", "Big2", "U1"]
    assert answered(space.post("/register", body | {"force": True}, HEADERS))["already_present"] == [
        "Txn",
        "Big2",
        "U1",
    ]
    for data in (DATA, DATA | {"opt": "x"}, DATA | {"amount": 50}, DATA | {"y": 5}):
        answered(space.post("/push", {"event": "Txn", "data": data}, HEADERS))
    key = {"table": "U1", "key": ["it's"], "features": ["c", "s", "w", "lag", "mix", "burst", "home", "p"]}
    row = answered(space.post("/get", key, HEADERS))
    assert row.pop("p") > 195 and row.pop("home") == 0.0
    assert row == {"c": 3, "s": 18.0, "w": 2, "lag": 200.0, "mix": {"t": 1.0}, "burst": 3}
    batch = {"requests": [key, {"table": "U1", "key": "nobody"}]}
    assert answered(space.post("/batch_get", batch, HEADERS))["results"][1] == {}


def test_calls_without_a_body_of_their_own_take_an_object(space: Namespace) -> None:
    assert answered(space.post("/ping", {}, HEADERS)) == {"pong": True, "registry_version": 0}
    assert answered(space.post("/reset", {}, HEADERS)) == {"reset": True, "registry_version": 1}


def test_refusals_have_what_the_client_reads(space: Namespace) -> None:
    for path, body in (
        ("/register", {"nodes": [{"kind": "x", "name": "a"}]}),
        ("/register", {}),
        ("/push", {"event": "Nope", "data": {}}),
        ("/get", {"table": "Nope", "key": ""}),
    ):
        answer = space.post(path, body, HEADERS)
        assert answer.status_code in (400, 404)
        error = answer.json()["error"]
        assert error["code"] and (error.get("reason") or error.get("message"))
    expect(space.post("/batch_get", {"requests": [{"table": "Nope", "key": ""}]}, HEADERS), 200)
