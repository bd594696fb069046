"""The whole way from an append to published index runs, with real jobs on local Spark, and processes killed on the way."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.index import manifest as manifests
from headrace.index.manifest import IndexManifest, IndexManifestStore, gaps
from headrace.objects.s3 import S3Objects
from tests.support.command_line import headrace
from tests.support.emulated_cloud import DevServer, dev_server
from tests.support.pipeline import NO_METRICS, Pipeline

OPTIONS = ("--seal-age", "1s", "--index-age", "1s", "--index-segments", "1", "--compact-fanout", "2")
SEARCH: dict[str, Any] = {
    "primaryTimestampField": "at",
    "fields": {
        "at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}], "column": True},
        "status": {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "/status"}], "exact": True},
    },
}
PATIENCE_S = 180


class Indexed:
    """A stream of a running emulator, seen from its bucket."""

    def __init__(self, server: DevServer, http: httpx.Client, name: str) -> None:
        self.server, self.http, self.name = server, http, name
        self.pipeline = Pipeline(server)
        assert http.put(name, headers={"Content-Type": "application/json"}).status_code == 201
        schema = {"schema": {"type": "object"}, "search": SEARCH}
        assert http.post(f"{name}/_schema", json=schema).status_code == 200
        self.log_id = self.pipeline.log_id(name)
        objects = S3Objects(self.pipeline.settings["HEADRACE_BUCKET"], self.pipeline.client("s3"))
        self.store = IndexManifestStore(objects)
        self.end = 0

    def append(self, records: int = 5) -> None:
        """One batch."""
        body = [{"at": 1_700_000_000_000 + n, "status": f"s{n % 3}"} for n in range(records)]
        assert self.http.post(self.name, json=body).status_code == 204
        self.end += records

    def index(self) -> IndexManifest:
        """Returns the newest index manifest."""
        return self.store.newest(self.log_id)

    def wait_until_indexed(self, also: Callable[[IndexManifest], bool] = lambda index: True) -> IndexManifest:
        """Waits until every record is covered by runs that do not overlap."""
        return eventually(lambda: self._indexed(also), f"{self.name} is not indexed")

    def _indexed(self, also: Callable[[IndexManifest], bool]) -> IndexManifest | None:
        index = self.index()
        manifests.check(index, "newest")
        return index if not gaps(index.runs, 0, self.end) and also(index) else None

    def rebuild(self) -> None:
        """Asks for new runs, as the command line does."""
        message = json.dumps({"verb": "rebuild", "log_id": self.log_id})
        url = self.pipeline.settings["HEADRACE_INDEX_QUEUE_URL"]
        self.pipeline.client("sqs").send_message(QueueUrl=url, MessageBody=message)


def eventually(found: Callable[[], Any], otherwise: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (value := found()):
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.2)  # polls: other processes do the work
    return value


def children(pid: int) -> list[int]:
    """Processes that a process started."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def kill(server: DevServer, victim: str) -> None:
    """Kills the indexer, the Spark of the job that runs, or the dispatcher."""
    match victim:
        case "indexer":
            pid = next(pid for name, pid in server.state_now()["functions"].items() if name.startswith("Indexer"))
        case "spark":
            (pid,) = children(server.pids["emr"])
        case _:
            pid = server.pids["dispatcher"]
    os.kill(pid, signal.SIGKILL)


def runs_under_way(server: DevServer) -> list[dict[str, Any]]:
    """Job runs that are not over."""
    url = server.state["environment"]["AWS_ENDPOINT_URL_EMR_SERVERLESS"]
    application = server.state["environment"]["HEADRACE_SPARK_APPLICATION"]
    runs = httpx.get(f"{url}/applications/{application}/jobruns").json()["jobRuns"]
    return [run for run in runs if run["state"] not in ("SUCCESS", "FAILED", "CANCELLED")]


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    """Yields one emulator, with one Spark, for all tests of this module."""
    with dev_server(*OPTIONS, "--sweep-every", "4s", environment=NO_METRICS, runs_jobs=True) as server:
        yield server


@pytest.fixture
def http(server: DevServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{server.url}/v1/stream/", timeout=30) as http:
        yield http


def test_no_java_runs_before_there_is_something_to_index(server: DevServer, http: httpx.Client) -> None:
    assert children(server.pids["emr"]) == []


def test_what_is_appended_is_sealed_indexed_and_compacted(server: DevServer, http: httpx.Client) -> None:
    orders = Indexed(server, http, "orders")
    for _ in range(4):
        orders.append()
        time.sleep(1.5)  # longer than the seal age: each batch becomes a segment of its own
    index = orders.wait_until_indexed(lambda index: max(run.level for run in index.runs) >= 1)
    assert {family for run in index.runs for family in run.sizes} >= {"kw", "lex", "col"}
    assert all(run.objects["kw"] for run in index.runs)


def test_a_rebuild_makes_new_runs_of_everything(server: DevServer, http: httpx.Client) -> None:
    rebuilt = Indexed(server, http, "rebuilt")
    rebuilt.append()
    before = {run.id for run in rebuilt.wait_until_indexed().runs}
    rebuilt.rebuild()
    index = rebuilt.wait_until_indexed(lambda index: not before & {run.id for run in index.runs})
    assert before <= {one.run.id for one in index.retired}


def test_a_quiet_stream_is_indexed_again_under_a_changed_configuration(server: DevServer, http: httpx.Client) -> None:
    """Nothing is appended: the entry of the change alone is sealed, and the manifest without a segment is news."""
    changed = Indexed(server, http, "changed")
    changed.append()
    (before,) = {run.plan for run in changed.wait_until_indexed().runs}
    fields = {**SEARCH["fields"], "status": {**SEARCH["fields"]["status"], "normalizer": "lowercase_v1"}}
    assert http.post("changed/_schema", json={"search": {**SEARCH, "fields": fields}}).status_code == 200
    index = changed.wait_until_indexed(lambda index: before not in {run.plan for run in index.runs})
    assert {one.run.plan for one in index.retired} == {before}


# `test_merging.py` kills the indexer for every push; the crash of a job at each step is in `tests/unit/emr_jobs`.
@pytest.mark.parametrize(
    "victim",
    [pytest.param("indexer", marks=pytest.mark.full), pytest.param("spark", marks=pytest.mark.full), "dispatcher"],
)
def test_whoever_is_killed_while_a_job_runs_everything_is_indexed_once(
    server: DevServer, http: httpx.Client, victim: str
) -> None:
    """Spark takes its job with it; the dispatcher takes the event that would have told of its end."""
    stream = Indexed(server, http, f"killed-{victim}")
    stream.append(2000)
    eventually(lambda: runs_under_way(server), "no job started")
    kill(server, victim)
    stream.append()
    stream.wait_until_indexed()


def test_what_stands_in_the_end_is_whole(server: DevServer, tmp_path: Path) -> None:
    eventually(lambda: not runs_under_way(server), "jobs go on and on")
    state_file = tmp_path / "dev.json"
    state_file.write_text(json.dumps(server.state))
    _, report = headrace("verify", "--state-file", str(state_file))
    serious = [one for one in report["findings"] if one["severity"] == "error"]
    assert serious == []
    orphans = [one["where"] for one in report["findings"] if one["kind"] == "bucket.orphan"]
    assert all("/index/runs/" in key for key in orphans), "parts of runs that were killed"
