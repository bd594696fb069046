"""The commands about a stream's definition: `headrace schema` and `headrace profile`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Shell
from tests.cli.fake_server import FakeServer

LENS = {"ops": [{"op": "rename", "from": "/total", "to": "/amount"}]}
REGISTRY: dict[str, Any] = {
    "apiVersion": "durable.streams/schema-registry/v1",
    "schema": "orders",
    "currentVersion": 2,
    "routingKey": {"jsonPointer": "/id", "required": True},
    "search": {
        "primaryTimestampField": "at",
        "fields": {
            "at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}], "column": True},
            "total": {
                "kind": "integer",
                "exact": True,
                "column": True,
                "bindings": [{"version": 1, "jsonPointer": "/total"}, {"version": 2, "jsonPointer": "/amount"}],
            },
        },
    },
    "boundaries": [{"offset": 0, "version": 1}, {"offset": 3000, "version": 2}],
    "schemas": {"1": {"type": "object"}, "2": {"minimum": 1.0}},
    "lenses": {"1": LENS},
}


@pytest.fixture
def posted(server: FakeServer) -> list[str]:
    """The texts that were posted to the schema and the profile of `orders`, which answer with a definition."""
    bodies: list[str] = []

    def resource(answer: Any) -> Callable[[httpx.Request], httpx.Response]:
        def serve(request: httpx.Request) -> httpx.Response:
            if request.method == "POST":
                bodies.append(request.read().decode())
            return httpx.Response(200, json=answer)

        return serve

    server.resources["orders/_schema"] = resource(REGISTRY)
    profile = {"kind": "state-protocol", "touch": {"enabled": True}}
    server.resources["orders/_profile"] = resource({"apiVersion": "durable.streams/profile/v1", "profile": profile})
    return bodies


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_registry_is_shown(headrace: Shell, posted: list[str]) -> None:
    shown = headrace("schema", "show", "orders").stdout
    assert shown.startswith("orders: schema version 2; routing key: /id\n")
    assert "3,000" in shown and "/total, /amount" in shown and "exact, column" in shown
    assert json.loads(headrace("schema", "show", "orders", "--json").stdout) == REGISTRY
    assert json.loads(headrace("schema", "show", "orders", "--version", "2").stdout) == {"minimum": 1.0}
    assert json.loads(headrace("schema", "show", "orders", "--version", "2", "--lens").stdout) == LENS
    missing = headrace("schema", "show", "orders", "--version", "3")
    assert (missing.exit_code, "current version is 2" in missing.stderr) == (1, True)
    assert headrace("schema", "show", "orders", "--version", "1", "--lens").exit_code == 1
    assert headrace("schema", "show", "orders", "--lens").exit_code == 2


def test_a_stream_without_a_schema_says_so(headrace: Shell, server: FakeServer) -> None:
    empty = {**REGISTRY, "currentVersion": 0, "boundaries": [], "schemas": {}, "lenses": {}}
    del empty["routingKey"], empty["search"]
    server.resources["s/_schema"] = lambda _: httpx.Response(200, json=empty)
    assert headrace("schema", "show", "s").stdout == "s: no schema; routing key: none\nsearch: not configured\n"


def test_a_schema_is_sent_as_its_files_have_it(headrace: Shell, posted: list[str], tmp_path: Path) -> None:
    schema = write(tmp_path, "schema.json", '{"maximum": 1.0e2,\n "type":"object"}\n')
    lens = write(tmp_path, "lens.json", '{"from": 1}')
    done = headrace(
        "schema", "set", "orders", "--schema", schema, "--lens", lens, "--routing-key", "/id", "--optional-key"
    )
    assert done.exit_code == 0 and done.stdout.startswith("orders: schema version 2")
    assert headrace("schema", "set", "orders", "--no-search", "--json").exit_code == 0
    assert headrace("schema", "set", "orders", "--file", schema).exit_code == 0
    assert posted == [
        '{"schema":{"maximum": 1.0e2,\n "type":"object"},"lens":{"from": 1},'
        '"routingKey":{"jsonPointer": "/id", "required": false}}',
        '{"search":null}',
        '{"maximum": 1.0e2,\n "type":"object"}',
    ]


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--optional-key", "--no-search"],
        ["--routing-key", "/id", "--no-routing-key"],
        ["--file", "FILE", "--no-search"],
        ["--file", "BROKEN"],
        ["--search", "missing.json"],
    ],
)
def test_what_contradicts_itself_is_not_sent(
    headrace: Shell, posted: list[str], tmp_path: Path, args: list[str]
) -> None:
    files = {"FILE": write(tmp_path, "a.json", "{}"), "BROKEN": write(tmp_path, "b.json", '{"a": ')}
    assert headrace("schema", "set", "orders", *(files.get(arg, arg) for arg in args)).exit_code == 2
    assert posted == []


def test_a_change_of_a_schema_is_not_sent_twice_if_its_answer_is_lost(
    headrace: Shell, server: FakeServer, posted: list[str]
) -> None:
    def lose(request: httpx.Request, apply: Callable[[], httpx.Response]) -> httpx.Response:
        apply()
        raise httpx.ReadTimeout("lost", request=request)

    server.faults = [lose]
    assert headrace("schema", "set", "orders", "--no-search").exit_code == 3
    assert len(posted) == 1


def test_a_profile_is_shown_and_set(headrace: Shell, posted: list[str], tmp_path: Path) -> None:
    shown = headrace("profile", "show", "orders").stdout
    assert "kind: state-protocol" in shown and "touch: enabled=true" in shown
    assert json.loads(headrace("profile", "show", "orders", "--json").stdout)["profile"]["touch"] == {"enabled": True}
    options = write(tmp_path, "options.json", '{"touch": {"enabled": true}}')
    assert headrace("profile", "set", "orders", "evlog").exit_code == 0
    assert headrace("profile", "set", "orders", "state-protocol", "--options", options).exit_code == 0
    assert posted == [
        '{"profile":{"kind":"evlog"}}',
        '{"profile":{"kind":"state-protocol","touch":{"enabled": true}}}',
    ]
    assert headrace("profile", "set", "orders", "evlog", "--options", write(tmp_path, "l", "[]")).exit_code == 2
