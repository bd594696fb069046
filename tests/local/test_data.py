"""`headrace dev --data`: what was acknowledged, or asked for, is there after the server was killed."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conformance.contract.client import eventually
from tests.support.emulated_cloud import DevServer, DevServerFailed, dev_server
from tests.support.machine import machine_folder
from tests.support.pipeline import NO_METRICS


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    with (
        machine_folder() as folder,
        dev_server("--data", str(folder), "--seal-age", "1s", "-v", environment=NO_METRICS) as running,
    ):
        yield running


def post(http: httpx.Client, path: str, value: Any) -> Any:
    answer = http.post(path, json=value)
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "cli.main", *arguments], capture_output=True, text=True, timeout=60)


def segments(server: DevServer) -> list[Path]:
    return list(Path(server.state["environment"]["HEADRACE_DATA"]).rglob("*.parquet"))


def diff(http: httpx.Client, topic: str) -> list[Any]:
    return [record["data"] for record in post(http, f"/v0/topics/{topic}/diff", {"from_seq": 0})["records"]]


def test_everything_survives_a_kill_and_goes_on(server: DevServer) -> None:
    with httpx.Client(base_url=server.url, timeout=30) as http:
        for path in ("/v1/stream/s", "/v0/topics/source", "/v0/topics/copy", "/v0/topics/q"):
            config = {"type": "queue", "lease_ms": 60_000} if path.endswith("q") else {}
            body: Any = {"json": config} if "topics" in path else {"headers": {"content-type": "application/json"}}
            assert http.put(path, **body).status_code == 201, path
        assert http.put("/v0/routers/r", json={"source": "source", "dest": "copy"}).status_code == 201
        for number in range(20):
            post(http, "/v1/stream/s", [number])
        post(http, "/v0/topics/source", {"records": [{"data": 1}]})
        post(http, "/v0/topics/q", {"records": [{"data": "a"}, {"data": "b"}]})
        claimed = post(http, "/v0/topics/q/claim", {"node": "w", "max": 1})
        eventually(lambda: diff(http, "copy"), lambda found: found == [1])
        post(http, "/v1/stream/s", [20])  # which no seal has seen

    sealed = len(segments(server))
    server.kill_and_restart()
    with httpx.Client(base_url=server.url, timeout=30) as http:
        assert http.get("/v1/stream/s").json() == list(range(21))
        assert diff(http, "copy") == [1]
        assert post(http, "/v0/topics/q/ack", {"node": "w", "seqs": [claimed["claimed"][0]["$seq"]]})
        assert [one["data"] for one in post(http, "/v0/topics/q/claim", {"node": "w", "max": 5})["claimed"]] == ["b"]
        post(http, "/v0/topics/source", {"records": [{"data": 2}]})
        post(http, "/v1/stream/s", [21])
        eventually(lambda: diff(http, "copy"), lambda found: found == [1, 2])
        eventually(lambda: len(segments(server)), lambda count: count > sealed)
        assert http.get("/v1/stream/s").json() == list(range(22))
    assert any("POST /v1/stream/s 204" in line for line in server.log), "a line for each request"


def test_an_operators_command_reads_the_folder(server: DevServer) -> None:
    done = run_command("verify", "--state-file", str(server.state_file), "--json")
    assert done.returncode == 0, done.stderr + done.stdout


def test_a_doctor_finds_nothing_wrong_with_the_data(server: DevServer) -> None:
    done = run_command("doctor", "--state-file", str(server.state_file), "--json")
    checks = {check["name"]: check["level"] for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 0, done.stdout
    assert {name: level for name, level in checks.items() if level in ("warn", "fail")} == {}


def test_a_write_of_a_stopped_process_keeps_others_no_longer_than_their_budget(server: DevServer) -> None:
    folder = server.state["environment"]["HEADRACE_DATA"]
    with httpx.Client(base_url=server.url, timeout=30) as http, Path(folder, "tables.lock").open("r+") as lock:
        assert http.put("/v1/stream/stalled", headers={"content-type": "application/json"}).status_code == 201
        post(http, "/v1/stream/stalled", [1])
        fcntl.flock(lock, fcntl.LOCK_EX)
        began = time.monotonic()
        assert http.post("/v1/stream/stalled", json=[2]).status_code in (408, 429)
        assert time.monotonic() - began < 6
        assert http.get("/v1/stream/stalled").json() == [1]
        fcntl.flock(lock, fcntl.LOCK_UN)
        post(http, "/v1/stream/stalled", [3])
        assert http.get("/v1/stream/stalled").json() in ([1, 3], [1, 2, 3])


def test_a_folder_has_one_server(server: DevServer) -> None:
    folder = server.state["environment"]["HEADRACE_DATA"]
    with pytest.raises(DevServerFailed, match="another server runs on"), dev_server("--data", folder):
        pass
    assert Path(folder, "tables.db").exists()
