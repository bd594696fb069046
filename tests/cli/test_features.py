"""`headrace features …` against a server of feature tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Shell
from tests.cli.fake_features import FakeFeatures
from tests.cli.fake_server import answer_lost, status

EVENT = {
    "kind": "event",
    "name": "Txn",
    "schema": {"fields": {"user": "str", "amount": "f64"}, "optional_fields": ["amount"]},
}
KEYED = {**EVENT, "name": "Keyed", "dedupe_key": "user"}
COUNT = {"op": "count", "params": {"window": "1h", "where": "(amount > 1)"}}
TABLE = {
    "kind": "derivation",
    "name": "Spend",
    "output_kind": "table",
    "upstreams": ["Txn"],
    "table_primary_key": ["user", "card"],
    "ops": [
        {"op": "filter", "expr": "(amount > 0)"},
        {"op": "group_by", "keys": ["user", "card"], "agg": {"n": COUNT}},
    ],
}


@pytest.fixture
def registered(features: FakeFeatures) -> FakeFeatures:
    features.nodes["default"] = {node["name"]: node for node in (EVENT, KEYED, TABLE)}  # type: ignore[misc]
    features.rows["Spend"] = {"n": 2, "sum": 50.0, "top": [{"value": "a", "count": 1}], "city": "Bern"}
    return features


def write(path: Path, content: Any) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def unavailable(_: httpx.Request, __: Callable[[], httpx.Response]) -> httpx.Response:
    return httpx.Response(503, json={"error": {"code": "wal_unavailable", "message": "later"}})


@pytest.mark.parametrize("form", [{"nodes": [EVENT, TABLE]}, [EVENT, TABLE]])
def test_register_takes_the_forms_of_a_file(
    headrace: Shell, features: FakeFeatures, tmp_path: Path, form: Any
) -> None:
    result = headrace("features", "register", write(tmp_path / "f.json", form))
    assert (result.exit_code, result.stdout) == (0, "registered Txn\nregistered Spend\n")
    assert json.loads(features.requests[-1].content) == {"nodes": [EVENT, TABLE]}
    assert headrace("features", "register", write(tmp_path / "one.json", EVENT), "-n", "shop").exit_code == 0
    assert features.requests[-1].url.path == "/features/shop/register"


@pytest.mark.parametrize("content", ["", "{", "1", "{}", '{"nodes": 1}', "[" * 100_000])
def test_what_is_no_file_of_nodes_is_not_sent(
    headrace: Shell, features: FakeFeatures, tmp_path: Path, content: str
) -> None:
    assert headrace("features", "register", write(tmp_path / "f.json", content)).exit_code == 2
    assert not features.requests


def test_a_diff_is_a_line_for_each_change(headrace: Shell, features: FakeFeatures, tmp_path: Path) -> None:
    features.diff = {
        "additive": [
            {"kind": "new_descriptor", "descriptor_kind": "event", "name": "Txn"},
            {"kind": "new_field", "event": "Txn", "field": "city", "type": "str"},
            {"kind": "new_agg", "table": "Spend", "agg": "n", "source": "Txn"},
            {"kind": "setting_change", "event": "Txn", "setting": "dedupe_key", "from": None, "to": "user"},
            {"kind": "optional_field", "event": "Txn", "field": "amount"},
        ],
        "destructive": [
            {"kind": "type_change", "field": "Txn.amount", "from": "f64", "to": "i64"},
            {"kind": "agg_removal", "table": "Spend", "agg": "m"},
            {"kind": "window_change", "agg": "Spend.n", "from": "1h", "to": "2h"},
            {"kind": "key_cols_change", "table": "Spend", "from": ["user"], "to": []},
            {"kind": "op_removal", "descriptor": "Big", "index": 0, "op": "filter"},
            {"kind": "op_change", "descriptor": "Big", "index": 1, "from": {"op": "drop"}, "to": {"op": "select"}},
            {"kind": "new\x1b[2Jkind", "name": "x"},
            {"kind": "type_change"},
        ],
    }
    file = write(tmp_path / "f.json", [EVENT])
    lines = [
        "+ event Txn", "+ field Txn.city: str", "+ feature Spend.n", "+ dedupe_key of Txn: null -> user",
        "+ field Txn.amount becomes optional", "- Txn.amount: f64 -> i64", "- feature Spend.m is removed",
        "- window of Spend.n: 1h -> 2h", "- key of Spend: user -> (global)", "- step 1 of Big is removed: filter",
        '- step 2 of Big: {"op":"drop"} -> {"op":"select"}', '- new\\u001b[2Jkind  name="x"', "- type_change",
    ]  # fmt: skip
    assert headrace("features", "register", file, "--dry-run").stdout.splitlines() == lines
    refused = headrace("features", "register", file)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.splitlines()[: len(lines)] == lines
    assert "it drops state (409)" in refused.stderr and "--force" in refused.stderr
    assert json.loads(headrace("features", "register", file, "--json").stdout)["error"]["code"] == "force_required"
    assert headrace("features", "register", file, "--force").exit_code == 0
    features.diff = {"additive": [], "destructive": []}
    assert headrace("features", "register", file, "--dry-run").stdout == "nothing changes\n"
    assert json.loads(headrace("features", "register", file, "--dry-run", "--json").stdout)["would_apply"] is False


def test_a_refused_node_is_told_with_its_place(headrace: Shell, features: FakeFeatures, tmp_path: Path) -> None:
    def refuse(_: httpx.Request, __: object) -> httpx.Response:
        error = {"code": "invalid_registration", "path": "nodes[0].name", "reason": "no name"}
        return httpx.Response(400, json={"error": error, "registry_version": 0})

    features.faults = [refuse]
    result = headrace("features", "register", write(tmp_path / "f.json", [EVENT]))
    assert result.exit_code == 1
    assert result.stderr.startswith("error: register 1 node: nodes[0].name: no name (400)")


def test_ls_shows_what_is_registered(headrace: Shell, registered: FakeFeatures) -> None:
    lines = [line.split() for line in headrace("features", "ls").stdout.splitlines()]
    assert lines == [
        ["name", "kind", "from", "key", "has", "since"],
        ["Txn", "event", "2", "fields"],
        ["Keyed", "event", "2", "fields"],
        ["Spend", "table", "Txn", "user,", "card", "1", "feature", "1"],
    ]
    assert json.loads(headrace("features", "ls", "--json").stdout)["nodes"] == [EVENT, KEYED, TABLE]
    assert json.loads(headrace("features", "ls", "Spend", "--json").stdout) == TABLE
    shown = headrace("features", "ls", "Spend").stdout
    for part in ("from: Txn", "key: user, card", "op=filter  expr=(amount > 0)", "n: op=count  window=1h"):
        assert part in shown
    event = headrace("features", "ls", "Keyed").stdout
    assert "amount=f64, optional" in event and "dedupe_key: user" in event
    assert headrace("features", "ls", "no").exit_code == 1
    assert "nothing is registered" in headrace("features", "ls", "-n", "empty").stderr


def test_get_shows_a_row(headrace: Shell, registered: FakeFeatures) -> None:
    result = headrace("features", "get", "Spend", "alice", "4|7")
    assert result.stdout == 'n     2\nsum   50.0\ntop   [{"value":"a","count":1}]\ncity  Bern\n'
    assert json.loads(registered.requests[-1].content) == {"table": "Spend", "key": ["alice", "4|7"]}
    result = headrace("features", "get", "Spend", "a", "--feature", "n", "--feature", "city", "--stale", "--json")
    assert json.loads(result.stdout) == {"n": 2, "city": "Bern"}
    assert json.loads(registered.requests[-1].content) == {
        "table": "Spend", "key": ["a"], "features": ["n", "city"], "consistency": "stale",
    }  # fmt: skip
    nobody = headrace("features", "get", "Spend", "nobody")
    assert (nobody.exit_code, nobody.stdout) == (0, "") and "no event" in nobody.stderr
    missing = headrace("features", "get", "No")
    assert missing.exit_code == 1 and "headrace features ls" in missing.stderr
    assert json.loads(registered.requests[-1].content) == {"table": "No", "key": []}


ODD = ['{"user": "a",  "amount":1.50 }', '{"amount":12345678901234567890123}', '{"user":"\\u00e9"}']


def test_events_arrive_as_they_are_written(headrace: Shell, registered: FakeFeatures, tmp_path: Path) -> None:
    file = write(tmp_path / "f.jsonl", "\n".join(ODD) + "\n")
    result = headrace("features", "push", "Txn", "--data", ODD[0], "--file", file)
    assert (result.exit_code, result.stdout) == (0, "104\n")
    assert [text.decode() for text in registered.events] == [ODD[0], *ODD]
    assert registered.batches == [4]
    assert "pushed 4 events in 1 request" in result.stderr
    array = write(tmp_path / "f.json", "[" + ",".join(ODD) + "]")
    report = json.loads(headrace("features", "push", "Txn", "--file", array, "--batch-events", "2", "--json").stdout)
    assert (report["events"], report["requests"], report["ack_lsn"]) == (3, 2, 107)
    assert headrace("features", "push", "No", "--data", "{}").exit_code == 1


def test_events_with_a_dedupe_key_go_in_batches_that_are_sent_again(
    headrace: Shell, registered: FakeFeatures, tmp_path: Path
) -> None:
    file = write(tmp_path / "f.jsonl", "{}\n" * 200)
    registered.faults = [None, answer_lost, None, status(500)]
    result = headrace("features", "load", "Keyed", file)
    assert result.exit_code == 0
    assert registered.batches == [90, 90, 90, 20], "the second one twice"


@pytest.mark.parametrize("fault", [answer_lost, status(500), status(503), status(504), status(408)])
def test_a_batch_without_dedupe_key_is_not_sent_twice(
    headrace: Shell, registered: FakeFeatures, tmp_path: Path, fault: Any
) -> None:
    file = write(tmp_path / "f.jsonl", "".join(f'{{"n":{number}}}\n' for number in range(10)))
    registered.faults = [None, fault]
    result = headrace("features", "load", "Txn", file, "--batch-events", "4")
    assert result.exit_code in (1, 3)
    assert (
        "pushed before that: 4 events; the batch after that may have been pushed, too"
        in result.stderr.replace("; appended", "; pushed")
        or fault is not answer_lost
    )
    assert "pushed before that: 4 events" in result.stderr
    assert len([request for request in registered.requests if request.method == "POST"]) == 2
    rest = headrace("features", "load", "Txn", file, "--batch-events", "4", "--skip", "8", "--json")
    assert json.loads(rest.stdout)["events"] == 2
    assert registered.events[-1] == b'{"n":9}'


def test_what_the_server_says_it_did_not_write_is_sent_again(headrace: Shell, registered: FakeFeatures) -> None:
    registered.faults = [status(429, retry_after="2"), unavailable]
    result = headrace("features", "push", "Txn", "--data", "{}", "--json")
    assert json.loads(result.stdout)["retries"] == 2
    assert registered.events == [b"{}"]
    assert headrace.slept[0] >= 2


def test_a_key_that_may_only_write_pushes_too(headrace: Shell, registered: FakeFeatures) -> None:
    registered.hides_registry = True
    assert headrace("features", "push", "Txn", "--data", "{}").exit_code == 0


@pytest.mark.parametrize("name", ["ls", "register", "get", "push", "load"])
def test_every_command_teaches_by_examples(headrace: Shell, name: str) -> None:
    text = headrace("features", name, "--help").stdout
    assert f"headrace features {name}" in text and "Exit codes" in text
    assert name in headrace("features", "--help").stdout


def test_search_shows_events_and_where_they_are(headrace: Shell, registered: FakeFeatures) -> None:
    registered.events = [b'{"user":"a","amount":1.50}', b'{"user":"b","amount":2}', b'{"user":"c"}']
    result = headrace("features", "search", "Txn", "has:user", "--sort", "ts:asc", "-n", "shop")
    assert result.exit_code == 0, result.stderr
    shown = [line.split() for line in result.stdout.splitlines()]
    assert ["0", "a", "1.50"] in shown and ["2:2", "c"] in shown
    assert "3 hits of 3" in result.stderr and "up to 3 records left out" in result.stderr
    (request,) = registered.requests
    assert request.url.path == "/features/shop/search"
    assert json.loads(request.content) == {"event": "Txn", "q": "has:user", "sort": ["ts:asc"], "size": 50}


def test_search_prints_events_as_they_were_pushed_page_by_page(headrace: Shell, registered: FakeFeatures) -> None:
    registered.events = [b'{"user":"%d","amount":1.50}' % number for number in range(501)]
    result = headrace("features", "search", "Txn", "has:user", "--all", "--records")
    assert result.stdout.encode() == b"".join(one + b"\n" for one in registered.events)
    assert [json.loads(one.content).get("search_after") for one in registered.requests] == [None, [500]]
    found = json.loads(headrace("features", "search", "Txn", "has:user", "--limit", "2", "--json").stdout)
    assert [hit["data"]["user"] for hit in found["hits"]] == ["0", "1"]
