"""Small segments of slow logs are merged by real jobs on local Spark: every answer is as before, and costs less."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.log.requests import At
from headrace.log.stores import Stores
from headrace.manifest.manifest import Manifest
from headrace.objects import keys
from headrace.objects.observed import ObservedObjects, Request
from headrace.streams.values import STREAMS
from headrace.streams.verbs import Streams
from headrace.wal.state import BEGINNING, Cursor, encode_cursor
from tests.chaos.rest import stores_of
from tests.e2e.test_indexing import SEARCH, eventually, kill, runs_under_way
from tests.e2e.test_recover import drop_items
from tests.support.command_line import headrace
from tests.support.emulated_cloud import DevServer, dev_server
from tests.support.pipeline import NO_METRICS, Pipeline

SEGMENTS, RECORDS = 8, 5
RETIRE_S = 2
OPTIONS = (
    *("--seal-age", "1s", "--state-age", "1s", "--trim-age", "8s", "--index-age", "2s", "--sweep-every", "4s"),
    *("--merge-segments", str(SEGMENTS), "--merge-age", "1s", "--merge-retire", f"{RETIRE_S}s"),
)
JSON = {"Content-Type": "application/json"}
SCHEMA = {"schema": {"type": "object"}, "search": SEARCH, "routingKey": {"jsonPointer": "/id", "required": True}}


class Slow:
    """A stream that gets a few records now and then."""

    def __init__(self, server: DevServer, http: httpx.Client, stores: Stores, name: str) -> None:
        self.http, self.stores, self.name = http, stores, name
        assert http.put(name, headers=JSON).status_code == 201
        self.log_id = Pipeline(server).log_id(name)
        self.written: list[Any] = []

    def append(self) -> None:
        """A batch, and waits until it is a segment of its own."""
        at = len(self.written)
        body = [
            {"at": 1_700_000_000_000 + n, "status": f"s{n % 3}", "id": f"k{n % 7}", "n": n}
            for n in range(at, at + RECORDS)
        ]
        assert self.http.post(self.name, json=body, headers=JSON).is_success
        self.written += body
        eventually(lambda: self.published() == len(self.written), f"{self.name} is not sealed")

    def wait_until_trimmed(self) -> None:
        """Almost all of it is read from segments."""
        eventually(lambda: len(self.stores.wal.read(self.log_id).entries) == 1, f"{self.name} is not trimmed")

    def manifest(self) -> Manifest:
        """Returns the newest generation."""
        manifest = self.stores.manifests().newest(self.log_id, None, 0)
        assert manifest is not None
        return manifest

    def published(self) -> int:
        """Returns the end offset of what is published."""
        manifest = self.stores.manifests().newest(self.log_id, None, 0)
        return manifest.end_offset if manifest is not None else 0

    def check_answers(self) -> None:
        """All that can be asked of it is as its records are."""
        get, written = self.http.get, self.written
        row = self.stores.catalog.get("streams", self.name)
        assert row is not None
        middle = len(written) // 2 + 1
        asked = {
            "all": get(self.name),
            "rest": get(self.name, params={"offset": encode_cursor(row.config.incarnation, middle)}),
            "key": get(self.name, params={"key": "k3"}),
            "filter": get(self.name, params={"filter": "status:s1"}),
            "keys": get(f"{self.name}/_routing_keys"),
            "search": self.http.post(f"{self.name}/_search", json={"q": "status:s2", "size": 100}),
        }
        assert {what: one.status_code for what, one in asked.items()} == dict.fromkeys(asked, 200)
        said = {what: one.json() for what, one in asked.items()}
        assert said["all"] == written
        assert said["rest"] == written[middle:]
        assert said["key"] == [one for one in written if one["id"] == "k3"]
        assert said["filter"] == [one for one in written if one["status"] == "s1"]
        assert said["keys"]["keys"] == sorted({one["id"] for one in written})
        found = sorted(hit["source"]["n"] for hit in said["search"]["hits"])
        assert found == [one["n"] for one in written if one["status"] == "s2"]


def reading_costs(stores: Stores, name: str) -> tuple[list[Any], int]:
    """Returns what a process that knows nothing reads, and how many GETs of segments it takes."""
    requests: list[Request] = []
    logs = Streams(
        dataclasses.replace(stores, objects=ObservedObjects(stores.objects, stores.clock, requests.append))
    )
    found, at = [], BEGINNING
    while True:
        page = logs.read(name, At(at))
        found += [json.loads(data) for data in page.data]
        at = Cursor(None, page.next)
        if page.up_to_date:
            break
    gets = [keys.artifact(key) for request in requests if request.operation == "get" for key in request.keys]
    return found, sum(one is not None and one[1] == "segment" for one in gets)


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    """Yields one emulator, with one Spark, for all tests of this module."""
    with dev_server(*OPTIONS, environment=NO_METRICS, runs_jobs=True) as server:
        yield server


@pytest.fixture
def http(server: DevServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{server.url}/v1/stream/", timeout=30) as http:
        yield http


@pytest.fixture
def stores(server: DevServer) -> Iterator[Stores]:
    with stores_of(server.state) as stores:
        yield stores


def errors(server: DevServer, folder: Path) -> list[Any]:
    """Returns what `headrace verify` finds wrong, and `headrace recover` finds to do."""
    state_file = folder / "dev.json"
    state_file.write_text(json.dumps(server.state))
    _, checked = headrace("verify", "--state-file", str(state_file))
    code, recovered = headrace("recover", "--state-file", str(state_file))
    assert code == 0
    wrong = [one for one in checked["findings"] if one["severity"] == "error"]
    # A watermark follows its manifest: between the two, recovery is as good as a sealer.
    return wrong + [log for log in recovered["logs"] if log["wrote"] not in ([], ["watermark"])]


@pytest.mark.full  # for every push, the log whose indexer is killed is merged and read
def test_a_slow_log_is_merged_and_answers_as_before(
    server: DevServer, http: httpx.Client, stores: Stores, tmp_path: Path
) -> None:
    slow = Slow(server, http, stores, "slow")
    assert http.post("slow/_schema", json=SCHEMA).status_code == 200
    for _ in range(SEGMENTS - 1):
        slow.append()
    slow.wait_until_trimmed()
    slow.check_answers()
    read, dear = reading_costs(stores, "slow")
    assert read == slow.written
    assert dear >= SEGMENTS - 1
    old = Streams(stores)
    assert len(old.read("slow", At(BEGINNING), max_records=3).data) == 3
    assert http.put("branch", headers={**JSON, "Stream-Forked-From": "/v1/stream/slow"}).status_code == 201
    inherited = list(slow.written)
    assert http.get("branch").json() == inherited
    assert errors(server, tmp_path) == []
    assert slow.manifest().merged_away == 0

    slow.append()
    eventually(lambda: slow.manifest().merged_away == SEGMENTS - 1, "not merged")
    small = {one.key for one in slow.manifest().replaced}
    assert len(small) == SEGMENTS
    slow.wait_until_trimmed()
    slow.check_answers()
    assert http.get("branch").json() == inherited
    read, cheap = reading_costs(stores, "slow")
    assert read == slow.written
    assert cheap <= 2, f"{dear} before, with a segment less"
    assert errors(server, tmp_path) == []

    time.sleep(RETIRE_S)  # replaced segments are kept for that long; what is sealed later removes them
    for _ in range(3):
        slow.append()
    assert not small & set(stores.objects.list(f"logs/{slow.log_id}/segments/")), "nobody asks for them any more"
    assert slow.manifest().replaced == ()
    stale = old.read("slow", At(Cursor(None, 3)), max_records=1000).data
    assert [json.loads(data) for data in stale] == slow.written[3:], "by a process that knows the small ones"
    slow.check_answers()
    assert http.get("branch").json() == inherited
    assert errors(server, tmp_path) == []


# Merging and indexing share queue, jobs and their events, and `test_indexing.py` kills the dispatcher for every push. The
# steps in which they differ meet every crash in `tests/unit/indexer` and `tests/unit/emr_jobs`.
@pytest.mark.parametrize(
    "victim",
    ["indexer", pytest.param("spark", marks=pytest.mark.full), pytest.param("dispatcher", marks=pytest.mark.full)],
)
def test_whoever_is_killed_while_segments_are_merged_nothing_is_lost(
    server: DevServer, http: httpx.Client, stores: Stores, victim: str
) -> None:
    slow = Slow(server, http, stores, f"killed-{victim}")
    for _ in range(SEGMENTS):
        slow.append()
    eventually(lambda: runs_under_way(server) or slow.manifest().merged_away, "no job started")
    kill(server, victim)
    slow.append()
    eventually(lambda: slow.manifest().merged_away >= SEGMENTS - 1, "not merged")
    assert http.get(slow.name).json() == slow.written
    assert reading_costs(stores, slow.name)[0] == slow.written


def test_merged_logs_come_back_from_the_bucket_alone(
    server: DevServer, http: httpx.Client, stores: Stores, tmp_path: Path
) -> None:
    names = [row.name for row in stores.catalog.living(STREAMS, after="", limit=100)]
    assert "killed-indexer" in names
    eventually(lambda: not runs_under_way(server), "jobs go on and on")
    assert errors(server, tmp_path) == []
    before = {name: http.get(name).json() for name in names}
    assert drop_items(Pipeline(server)) > len(names)
    time.sleep(1.2)  # nobody remembers
    assert http.get("killed-indexer").status_code == 404
    code, report = headrace("recover", "--state-file", str(tmp_path / "dev.json"))
    assert code == 0
    assert {log["name"]: log["status"] for log in report["logs"]} == dict.fromkeys(names, "restored")
    assert {name: http.get(name).json() for name in names} == before
    assert errors(server, tmp_path) == []
