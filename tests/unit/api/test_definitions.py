"""`_schema` and `_profile`: what they refuse of a stream that is none of JSON, and what a change of them changes."""

from __future__ import annotations

import json

import pytest

from tests.unit.api.asgi import JSON, TEXT, Server
from tests.unit.search.samples import SEARCH, field

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


def bound_to(pointer: str) -> bytes:
    """Returns a change of the search configuration alone: the field `name` is found at another place."""
    return json.dumps(
        {"search": {**SEARCH, "fields": {**SEARCH["fields"], "name": field("keyword", pointer, "exact")}}}
    ).encode()


def test_a_change_of_the_search_configuration_alone_changes_the_tag() -> None:
    server = Server()
    server("PUT", S, JSON)
    assert server("POST", S + "/_schema", JSON, b'{"schema":{"type":"object"}}').status == 200
    assert server("POST", S + "/_schema", JSON, bound_to("/a")).status == 200
    server("POST", S, JSON, b'[{"a":"x","b":"y","at":1},{"a":"y","b":"x","at":1}]')
    for target in ("?filter=name:x", "?filter=name:x&live=long-poll&offset=-1", ""):
        first = server("GET", S + target)
        tag = {"if-none-match": first.headers["etag"]}
        if "live" not in target:
            assert server("GET", S + target, tag).status == 304
        assert server("POST", S + "/_schema", JSON, bound_to("/b")).status == 200
        changed = server("GET", S + target, tag)
        assert changed.status == 200
        assert changed.headers["etag"] != first.headers["etag"]
        assert (changed.body != first.body) == ("filter" in target)
        assert server("POST", S + "/_schema", JSON, bound_to("/a")).status == 200
