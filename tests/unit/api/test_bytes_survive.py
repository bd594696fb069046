"""A client's JSON comes back byte for byte: numbers of any size, order of keys, white space; over HTTP, sealed or not."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from functions.queue import MemoryQueue
from functions.sealer.context import assemble
from functions.sealer.seal import seal
from tests.support.examples import examples
from tests.unit.api.asgi import JSON, Server

S = "/v1/stream/s"
_SPACE = st.sampled_from(["", "", " ", "\t", "\n", "\r\n  "])
_NUMBERS = st.sampled_from(
    [
        "9007199254740993",
        "-18446744073709551617",
        "1.0",
        "1e2",
        "1E+02",
        "-0",
        "0.10",
        "1e-7",
        "123456789012345678901.50",
    ]
)
_TEXTS = st.sampled_from(['"a"', '"\\u00e9"', '"é"', '"\\/"', '"\\ud83d\\ude00"', '"]},{["', '""', '"\\"\\\\"'])
_KEYS = st.sampled_from(['"b"', '"a"', '"\\u0061"', '""', '"é"', '"},{"'])


@st.composite
def _joined(draw: st.DrawFn, opening: str, closing: str, members: SearchStrategy[str]) -> str:
    """Members between brackets, with white space anywhere."""
    parts = [draw(_SPACE) + member + draw(_SPACE) for member in draw(st.lists(members, max_size=4))]
    return opening + (",".join(parts) or draw(_SPACE)) + closing


def _values() -> SearchStrategy[str]:
    """JSON texts."""
    return st.recursive(
        _NUMBERS | _TEXTS | st.sampled_from(["true", "false", "null"]),
        lambda inner: st.one_of(
            _joined("[", "]", inner),
            _joined("{", "}", st.builds(lambda key, space, value: f"{key}{space}:{value}", _KEYS, _SPACE, inner)),
        ),
        max_leaves=8,
    )


_OBJECTS = _joined("{", "}", st.builds(lambda key, value: f"{key} : {value}", _KEYS, _values()))


def _sealed(server: Server) -> None:
    log_id = server.parts.logs().head("s").log_id
    seal(assemble(server.stores, MemoryQueue()), log_id, force=True)


@examples(150)
@given(st.lists(_values(), min_size=1, max_size=4), _SPACE, st.booleans(), st.booleans())
def test_a_stream_without_a_schema_gives_back_the_very_bytes(
    texts: list[str], space: str, has_routing_key: bool, seals: bool
) -> None:
    server = Server()
    assert server("PUT", S, JSON).status == 201
    if has_routing_key:
        where = json.dumps({"routingKey": {"jsonPointer": "/k", "required": False}}).encode()
        assert server("POST", f"{S}/_schema", JSON, where).status == 200
    body = f"{space}[{space}{f'{space},{space}'.join(texts)}{space}]{space}"
    appended = server("POST", S, JSON, body.encode())
    assert appended.status == 204, appended.body
    if seals:
        _sealed(server)
    expected = f"[{','.join(texts)}]".encode()
    assert server("GET", f"{S}?offset=-1").body == expected
    assert server("GET", f"{S}?offset=-1&live=long-poll").body == expected


@examples(75)
@given(st.lists(_OBJECTS, min_size=1, max_size=3), st.booleans())
def test_a_record_that_no_lens_touches_is_the_clients_own_under_a_schema_with_keys_and_filters_too(
    texts: list[str], seals: bool
) -> None:
    server = Server()
    server("PUT", S, JSON)
    search = {
        "primaryTimestampField": "at",
        "fields": {
            "at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}], "column": True},
            "id": {"kind": "integer", "bindings": [{"version": 1, "jsonPointer": "/id"}], "exact": True},
        },
    }
    update: dict[str, Any] = {
        "schema": {"type": "object", "required": ["id"]},
        "routingKey": {"jsonPointer": "/k", "required": True},
        "search": search,
    }
    assert server("POST", f"{S}/_schema", JSON, json.dumps(update).encode()).status == 200
    records = [_with_members(text, number) for number, text in enumerate(texts)]
    answer = server("POST", S, JSON, f"[{' , '.join(records)}]".encode())
    assert answer.status == 204, answer.body
    if seals:
        _sealed(server)
    expected = f"[{','.join(records)}]".encode()
    assert server("GET", f"{S}?offset=-1").body == expected
    assert server("GET", f"{S}?offset=-1&filter=has:id%20-id:7").body == expected
    assert server("GET", f"{S}?offset=-1&key=k1").body == f"[{','.join(records[1:2])}]".encode()
    assert server("GET", f"{S}?offset=-1&filter=id:0").body == f"[{records[0]}]".encode()


def _with_members(text: str, number: int) -> str:
    """Returns the object with an id and a routing key as its last members: of equal names the last one counts."""
    inner = text[1:-1]
    own = f'"id" : {number}.0, "k":"k{number}" '
    return f"{{{inner},{own}}}" if inner.strip() else f"{{{own}}}"
