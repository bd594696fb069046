"""`headrace index`: how far the indexes of a stream are, as a person or a script asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from cli.commands import index
from cli.main import main
from headrace.errors import StoreTimeout
from operators import index as index_queue
from operators import stores as cloud
from tests.cli.conftest import Shell
from tests.cli.fake_server import FakeServer
from tests.unit.recovery.world import Ruins


def part(covered: int, total: int, **extra: Any) -> dict[str, Any]:
    """Progress of an index."""
    return {
        "indexed_segment_count": covered,
        "covered_segment_count": covered,
        "contiguous_covered_segment_count": covered,
        "lag_segments": total - covered,
        "lag_ms": None if covered == total else "93000",
        "bytes_at_rest": "1500000",
        "object_count": 3,
        "active_run_count": 2,
        "retired_run_count": 0,
        "fully_indexed_uploaded_segments": covered == total,
        "updated_at": "2030-01-01T00:00:00.000Z",
        **extra,
    }


def status(covered: int, total: int, *, keyed: bool = True, searched: bool = True) -> dict[str, Any]:
    """Returns an `_index_status` document."""
    families = [part(covered, total, family=family, fields=["a", "b"]) for family in ("exact", "col")]
    keys = part(total, total, configured=keyed, object_count=3 if keyed else 0)
    return {
        "stream": "logs",
        "profile": "generic",
        "desired_index_plan_generation": 1,
        "segments": {"total_count": total, "uploaded_count": total},
        "routing_key_index": keys,
        "routing_key_lexicon": keys,
        "exact_indexes": [part(covered, total, name="a", kind="keyword")] if searched else [],
        "search_families": families if searched else [],
    }


class Indexing:
    """Answers `_details`: with each question that waits, one more segment is covered."""

    def __init__(self, covered: int, total: int, pending: int = 0, step: int = 1) -> None:
        self.covered, self.total, self.pending, self.step = covered, total, pending, step
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if "live" in request.url.params:
            if not self.step:
                return httpx.Response(304, headers={"etag": self.etag})
            if self.pending:
                self.pending -= 1
                self.total += 1
            else:
                self.covered += self.step
        shown = {"index_status": status(self.covered, self.total), "stream": {"pending_rows": str(self.pending)}}
        return httpx.Response(200, json=shown, headers={"etag": self.etag})

    @property
    def etag(self) -> str:
        return f'W/"{self.covered}-{self.total}-{self.pending}"'


def test_status_of_one_stream_is_a_table_of_its_indexes(headrace: Shell, server: FakeServer) -> None:
    server.resources["logs/_index_status"] = lambda request: httpx.Response(200, json=status(3, 5))
    result = headrace("index", "status", "logs")
    first, header, keys, exact, col = result.stdout.splitlines()
    assert first == "logs: indexes behind, 5 segments, profile generic, plan 1"
    assert header.split() == ["index", "of", "covered", "lag", "bytes", "objects", "runs", "updated"]
    assert keys.split()[:4] == ["routing", "keys", "5/5", "-"]
    assert exact.split()[:8] == ["exact", "a,", "b", "3/5", "1m", "33s", "1.5", "MB"]
    assert col.startswith("col")


def test_status_of_all_streams_is_a_line_each(headrace: Shell, server: FakeServer) -> None:
    shown = {"a": status(2, 2), "b": status(0, 2), "c d": status(0, 1, keyed=False, searched=False)}
    for name, document in shown.items():
        headrace("create", name)
        server.resources[f"{name}/_index_status"] = lambda request, found=document: httpx.Response(200, json=found)
    rows = headrace("index", "status").stdout.splitlines()[1:]
    assert [row.split()[1:4] for row in rows[:2]] == [["complete", "2/2", "-"], ["behind", "0/2", "1m"]]
    assert rows[2].startswith("c d")
    assert "not asked for" in rows[2]
    assert json.loads(headrace("index", "status", "a", "b", "--json").stdout) == [shown["a"], shown["b"]]


def test_keys_that_records_were_appended_with_are_an_index(headrace: Shell, server: FakeServer) -> None:
    shown = status(0, 3, keyed=False, searched=False)
    keys = part(2, 3, configured=False)
    shown |= {"routing_key_index": keys, "routing_key_lexicon": keys}
    headrace("create", "keyed")
    server.resources["keyed/_index_status"] = lambda request: httpx.Response(200, json=shown)
    (row,) = headrace("index", "status").stdout.splitlines()[1:]
    assert row.split()[1:3] == ["behind", "2/3"]
    first, _, found = headrace("index", "status", "keyed").stdout.splitlines()
    assert first.startswith("keyed: indexes behind, 3 segments")
    assert found.split()[:3] == ["routing", "keys", "2/3"]


def test_status_without_streams(headrace: Shell, server: FakeServer) -> None:
    result = headrace("index", "status")
    assert (result.exit_code, result.stdout) == (0, "")
    server.resources["none/_index_status"] = lambda request: httpx.Response(404)
    assert headrace("index", "status", "none").exit_code == 1


def test_waiting_ends_when_everything_is_covered(headrace: Shell, server: FakeServer) -> None:
    server.resources["logs/_details"] = indexing = Indexing(covered=1, total=4)
    assert headrace("index", "wait", "logs").exit_code == 0
    first, *others = indexing.requests
    assert "if-none-match" not in first.headers
    assert [request.headers["if-none-match"] for request in others] == ['W/"1-4-0"', 'W/"2-4-0"', 'W/"3-4-0"']
    assert {request.url.params["live"] for request in others} == {"true"}
    assert all(int(request.url.params["timeout_ms"]) <= index.POLL_MS for request in others)


def test_waiting_can_include_what_is_not_published(headrace: Shell, server: FakeServer) -> None:
    server.resources["logs/_details"] = indexing = Indexing(covered=1, total=1, pending=2)
    assert headrace("index", "wait", "logs").exit_code == 0
    assert (indexing.pending, len(indexing.requests)) == (2, 1)
    found = json.loads(headrace("index", "wait", "logs", "--records", "--json").stdout)
    assert (indexing.pending, indexing.covered) == (0, 3)
    assert [(one["name"], one["done"], one["segments"], one["covered"]) for one in found] == [("logs", True, 3, 3)]


def test_waiting_ends_with_the_time(headrace: Shell, server: FakeServer) -> None:
    server.resources["logs/_details"] = Indexing(covered=1, total=4, step=0)
    result = headrace("index", "wait", "logs", "--timeout", "0")
    assert result.exit_code == 1
    assert "not covered after 0 s: logs" in result.stderr
    result = headrace("index", "wait", "logs", "--timeout", "0.05", "--json")
    assert (result.exit_code, json.loads(result.stdout)[0]["covered"]) == (1, 1)


# Rebuild: the queue itself, not a server.


class Sqs:
    """The part of the SQS client that is used."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.failed: list[Any] = []

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:  # noqa: N803
        assert len(Entries) <= 10
        self.sent += [(QueueUrl, json.loads(entry["MessageBody"])) for entry in Entries]
        return {"Failed": self.failed}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Ruins:
    built = Ruins()
    monkeypatch.setattr(cloud, "open_stores", lambda state_file: built.stores)
    return built


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Sqs:
    found = Sqs()
    monkeypatch.setattr(index_queue, "open_queue", lambda settings: index_queue.IndexQueue(found, "queue"))
    return found


def rebuild(*names: str) -> Any:
    return CliRunner().invoke(main, ["index", "rebuild", *names])


def test_a_rebuild_is_a_message_for_each_log(world: Ruins, sqs: Sqs) -> None:
    log_ids = [world.create(name) for name in ("a", "b")]
    result = rebuild("a", "b")
    assert (result.exit_code, result.stdout) == (0, "asked for a rebuild of a\nasked for a rebuild of b\n")
    assert sqs.sent == [("queue", {"verb": "rebuild", "log_id": log_id}) for log_id in log_ids]


def test_a_rebuild_of_what_is_not_there_sends_nothing(world: Ruins, sqs: Sqs) -> None:
    world.create("a")
    result = rebuild("a", "none")
    assert (result.exit_code, sqs.sent) == (1, [])
    assert "no such name: none" in result.stderr


def test_a_queue_that_refuses_is_said(world: Ruins, sqs: Sqs) -> None:
    world.create("a")
    sqs.failed = [{"Id": "0"}]
    assert rebuild("a").exit_code == 3


def test_a_store_that_is_silent_is_said(world: Ruins, sqs: Sqs, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise StoreTimeout("no answer")

    monkeypatch.setattr(type(world.stores.catalog), "get", silent)
    assert rebuild("a").exit_code == 3


def test_without_a_queue_it_says_what_to_set(world: Ruins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create("a")
    result = rebuild("a")
    assert result.exit_code == 2
    assert "HEADRACE_INDEX_QUEUE_URL" in result.stderr
