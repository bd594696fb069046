"""Processes that a fork server starts are like those of a new interpreter."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from local import fork_server
from local.fork_server import VARIABLE, Forked, Order, Process, spawn
from tests.conformance.contract.client import eventually
from tests.local.test_dev import alive

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no fork server")
MODULE = "tests.local.forked"


@pytest.fixture(scope="module")
def forks() -> Iterator[dict[str, str]]:
    with fork_server.fork_server(MODULE) as variables:
        yield variables


@pytest.fixture(params=["forked", "a new interpreter"])
def environment(request: pytest.FixtureRequest, forks: dict[str, str]) -> dict[str, str]:
    given = {"PATH": os.environ["PATH"], "A": "1"}
    return given | forks if request.param == "forked" else given


def started(
    environment: dict[str, str], *order: str, fds: list[int] | None = None, stderr: int = 2
) -> tuple[Process, int]:
    """Returns the process, and the end of its standard input that is ours."""
    theirs, ours = os.pipe()
    process = spawn([MODULE, *order], environment, stdin=theirs, stderr=stderr, fds=fds or [])
    os.close(theirs)
    return process, ours


def described(environment: dict[str, str]) -> dict[str, Any]:
    end, given = os.pipe()
    process, lifeline = started(environment, "describe", str(given), fds=[given])
    os.close(given)
    with os.fdopen(end) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    assert process.wait(10) == 0
    os.close(lifeline)
    assert found["pid"] == process.pid
    assert found["files"] == [0, 1, 2, given]
    return found


def test_it_has_the_environment_the_folder_and_the_files_it_was_given_and_no_others(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if VARIABLE in environment:  # a new interpreter could not find its module there
        monkeypatch.chdir(tmp_path)
    found = described(environment)
    assert {**found["environment"], "LC_CTYPE": ""} == {**environment, "LC_CTYPE": ""}
    assert found["directory"] == str(Path.cwd())
    assert found["session"] == found["pid"]


def test_no_two_draw_the_same_numbers(forks: dict[str, str]) -> None:
    environment = {**os.environ, **forks}
    assert described(environment)["random"] != described(environment)["random"]


@pytest.mark.parametrize("code", [0, 3])
def test_its_exit_code_is_told(environment: dict[str, str], code: int) -> None:
    process, lifeline = started(environment, "end", str(code))
    assert process.wait(10) == process.poll() == process.returncode == code
    process.kill()  # is nothing any more
    os.close(lifeline)


def test_its_error_is_told_on_its_own_stderr(environment: dict[str, str], tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("w") as stderr:
        process, lifeline = started(environment, "nonsense", stderr=stderr.fileno())
        assert process.wait(10) == 1
        os.close(lifeline)
        assert "ValueError: no such order" in (tmp_path / "stderr").read_text()


@pytest.mark.parametrize(("end", "code"), [("terminate", -signal.SIGTERM), ("kill", -signal.SIGKILL), ("", 0)])
def test_a_signal_ends_it_and_the_end_of_its_input_too(environment: dict[str, str], end: str, code: int) -> None:
    process, lifeline = started(environment, "wait")
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    if end:
        getattr(process, end)()
    else:
        os.close(lifeline)
    assert process.wait(10) == code
    if end:
        os.close(lifeline)


def test_processes_outlive_the_server_and_one_that_nobody_waits_for_ends_all_the_same() -> None:
    with fork_server.fork_server(MODULE) as forks:
        environment = {**os.environ, **forks}
        forgotten, lifeline = started(environment, "wait")
        pid = forgotten.pid
        del forgotten
        os.close(lifeline)
        eventually(lambda: alive(pid), lambda now: not now)
        process, lifeline = started(environment, "wait")
    assert isinstance(process, Forked)
    assert alive(process.pid)
    os.close(lifeline)
    eventually(lambda: alive(process.pid), lambda now: not now)


def test_the_server_outlives_those_that_are_killed_while_they_ask(forks: dict[str, str]) -> None:
    order = msgspec.json.encode(Order([MODULE, "end", "0"], {**os.environ}, str(Path.cwd()), [0, 1, 2]))
    for content in (b"", order):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(forks[VARIABLE])
            if content:
                socket.send_fds(client, [content], [0, 1, 2])
    assert described({**os.environ, **forks})


def test_the_folder_of_temporary_files_may_be_deep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with fork_server.fork_server(MODULE) as forks:
        assert forks[VARIABLE].startswith(str(deep))
        assert described({**os.environ, **forks})


def test_the_server_of_a_parent_is_used_by_its_children(
    forks: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, forks[VARIABLE])
    with fork_server.fork_server("no.such.module") as more:
        assert more == {}
