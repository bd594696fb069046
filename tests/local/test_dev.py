"""Laws of `headrace dev` as a person or a script meets it: one line, one port, one life."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.support.emulated_cloud import DevServer, DevServerFailed, dev_server

FAKE_APP = ("--app", "tests.local.fake_app:create_app")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie that init has not collected yet is as dead as it gets.
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_one_process_serves_the_port_itself_with_the_environment_of_the_emulator() -> None:
    with dev_server(*FAKE_APP, "--seal-age", "1s", environment={"AWS_PROFILE": "mine", "HEADRACE_X": "y"}) as server:
        assert server.ready_line == f"headrace is ready at {server.url}"
        assert sorted(server.pids) == ["api", "aws", "dispatcher", "emr"]
        answer = httpx.get(f"{server.url}/a%2Fb%25/../c?x=%20").json()
        assert answer["pid"] == server.pids["api"]
        environment = answer["environment"]
        assert environment["AWS_ENDPOINT_URL"] == server.state["endpoint"]
        assert environment["AWS_ACCOUNT_ID_ENDPOINT_MODE"] == "disabled"
        assert environment["HEADRACE_WAL_TABLE"] == server.state["outputs"]["WalTableName"]
        assert environment["HEADRACE_SEAL_AGE_MS"] == "1000"
        assert environment["HEADRACE_X"] == "y"
        assert "AWS_PROFILE" not in environment
        pids = [*server.pids.values(), server.process.pid]
        started = time.monotonic()
        os.kill(server.process.pid, signal.SIGINT)
        assert server.process.wait(10) == 0
        assert time.monotonic() - started < 5
        assert not any(alive(pid) for pid in pids)
        assert f"curl {server.url}/v1/stream/hello\n" in server.stdout.read(), "what to try next"


def test_a_child_that_dies_takes_the_rest_down_with_an_error() -> None:
    with dev_server(*FAKE_APP) as server:
        pids = server.pids
        os.kill(pids["aws"], signal.SIGKILL)
        assert server.process.wait(10) == 1
        assert not any(alive(pid) for pid in pids.values())
        time.sleep(0.1)  # a thread copies the output to `log`, perhaps a moment later
        assert any("aws" in line and "signal 9" in line for line in server.log)


def replaced(server: DevServer, *names: str) -> None:
    """Kills these children and returns when each has a successor that is ready."""
    before = server.pids
    for name in names:
        os.kill(before[name], signal.SIGKILL)
    deadline = time.monotonic() + 30
    while not all(name in server.pids and server.pids[name] != before[name] for name in names):
        assert time.monotonic() < deadline, f"not replaced: {before} {server.pids}"
        assert server.process.poll() is None, server.log
        time.sleep(0.02)  # polls the state file


def test_a_killed_dispatcher_and_a_killed_api_process_are_replaced() -> None:
    with dev_server(*FAKE_APP) as server:
        replaced(server, "api", "dispatcher")
        assert httpx.get(f"{server.url}/x").json()["pid"] == server.pids["api"]
        assert any("signal 9 ended" in line and "started again" in line for line in server.log)
        os.kill(server.process.pid, signal.SIGINT)
        assert server.process.wait(10) == 0
        assert not any(alive(pid) for pid in server.pids.values())


def test_requests_pass_over_a_killed_process_until_it_is_back() -> None:
    with dev_server(*FAKE_APP, "--api-processes", "2") as server, httpx.Client(base_url=server.url) as client:
        before = server.pids
        os.kill(before["api-0"], signal.SIGKILL)
        time.sleep(0.05)  # the process is gone a moment after the signal
        # A request on a connection that broke is a 502; whatever begins after that is served.
        answers = [client.get("/x") for _ in range(6)]
        assert {answer.status_code for answer in answers} <= {200, 502}
        served = {answer.json()["pid"] for answer in answers if answer.status_code == 200}
        assert before["api-1"] in served
        assert before["api-0"] not in served
        deadline = time.monotonic() + 30
        while len({client.get("/x").json()["pid"] for _ in range(2)}) < 2:
            assert time.monotonic() < deadline, "it did not come back"
            time.sleep(0.05)  # polls: only answers tell that it is back
        assert client.get("/x").status_code == 200


def test_children_do_not_outlive_a_killed_parent() -> None:
    with dev_server(*FAKE_APP) as server:
        pids = server.pids
        server.process.kill()
        server.process.wait()
        deadline = time.monotonic() + 5
        while any(alive(pid) for pid in pids.values()) and time.monotonic() < deadline:
            time.sleep(0.02)  # polls: another process's children can't be waited for
        assert not any(alive(pid) for pid in pids.values())


def test_an_application_that_cannot_start_is_an_error_not_a_hang() -> None:
    with pytest.raises(DevServerFailed, match=r"api .* ended with exit code 1"), dev_server("--app", "no.such:app"):
        pass


def test_a_taken_port_is_an_error_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        answer = subprocess.run(
            [sys.executable, "-m", "local.dev", "--port", port], capture_output=True, text=True, check=False
        )
    assert answer.returncode == 1
    assert answer.stdout == ""
    assert "Choose another one with --port" in answer.stderr
