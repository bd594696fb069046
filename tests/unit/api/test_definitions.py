"""`_schema` and `_profile`: what they refuse of a stream that is none of JSON."""

from __future__ import annotations

import json

import pytest

from tests.unit.api.asgi import JSON, TEXT, Server

S = "/v1/stream/s"
REFUSED = {
    "_schema": {"schema": {"type": "object"}},
    "_profile": {"profile": {"kind": "metrics"}},
}


@pytest.mark.parametrize("resource", REFUSED)
def test_meaning_needs_json(resource: str) -> None:
    server = Server()
    body = json.dumps(REFUSED[resource]).encode()
    assert server("POST", f"{S}/{resource}", JSON, body).status == 404
    server("PUT", S, TEXT)
    before = server("GET", f"{S}/{resource}").body
    answer = server("POST", f"{S}/{resource}", JSON, body)
    assert (answer.status, "application/json" in answer.json["error"]["message"]) == (400, True)
    assert server("GET", f"{S}/{resource}").body == before
    server("DELETE", S)
    server("PUT", S, JSON)
    assert server("POST", f"{S}/{resource}", JSON, body).status == 200
