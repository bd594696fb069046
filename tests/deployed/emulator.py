"""A ministack on a free loopback port, in an environment of its own, for as long as a `with` block lasts.

It has no EMR Serverless: that is the one of `headrace dev`, beside it, which runs the real jobs on local Spark.

It runs the code of functions in children of its own, with its own interpreter. All of them are one process group, which
is ended as a whole; if this process is killed, each ends because its standard input does.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.settings import child_environment
from local.environment import aws_environment, client
from local.supervisor import Supervisor
from tests.support.uv import find_uv

PROJECT = Path(__file__).parent / "ministack"
READY_S = 60.0
STOP_S = 5.0


class EmulatorFailed(RuntimeError):
    """It ended, or was not ready in time; the message holds what it printed."""


@dataclass(frozen=True)
class Emulator:
    """A running one. `log` grows with what it prints, which includes what functions print."""

    endpoint: str
    emr_endpoint: str
    log: Path
    scratch: Path

    def client(self, service: str) -> Any:
        """Returns a boto3 client of it."""
        return client(service, self.endpoint)


@contextmanager
def emulator(python: str) -> Iterator[Emulator]:
    """Installs what is missing, starts it with `python` as its own and its functions' interpreter, and stops it.

    Raises EmulatorFailed when it does not become ready.
    """
    with (
        tempfile.TemporaryDirectory(prefix="headrace-deployed-", ignore_cleanup_errors=True) as made,
        Supervisor() as supervisor,
    ):
        scratch = Path(made)
        interpreter = _install(python)
        endpoint, log = f"http://127.0.0.1:{_free_port()}", scratch / "log"
        jobs = child_environment(os.environ, aws_environment(endpoint), {"PYTHONUNBUFFERED": "1"})
        emr = supervisor.start("emr", ["local.emr_serverless"], jobs)
        emr_endpoint = emr.wait_until_ready().split(" ", 1)[1]
        with log.open("w") as output:
            process = subprocess.Popen(
                [interpreter, str(PROJECT / "serve.py")],
                cwd=scratch,
                env=_environment(endpoint, emr_endpoint, scratch),
                stdin=subprocess.PIPE,  # held open: its lifeline
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            _wait(process, endpoint, log)
            yield Emulator(endpoint, emr_endpoint, log, scratch)
        finally:
            _stop(process)


def _install(python: str) -> str:
    """Installs exactly what `uv.lock` beside this file holds into a virtual environment; returns its interpreter."""
    folder = PROJECT / ".venv"
    command = ["uv", "sync", "--frozen", "--quiet", "--project", str(PROJECT), "--python", python]
    environment = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(folder), "UV_PYTHON_DOWNLOADS": "never"}
    environment.pop("VIRTUAL_ENV", None)
    done = subprocess.run(
        [find_uv(), *command[1:]], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode != 0:
        raise EmulatorFailed(f"uv sync failed in {PROJECT}:\n{done.stdout}{done.stderr}")
    return str(folder / "bin" / "python")


def _environment(endpoint: str, emr_endpoint: str, scratch: Path) -> dict[str, str]:
    """No person's AWS identity, nothing of this project's interpreter, all files in `scratch`."""
    theirs = {
        "GATEWAY_PORT": endpoint.rpartition(":")[2],
        "BIND_HOST": "127.0.0.1",
        "MINISTACK_HOST": "127.0.0.1",
        "TMPDIR": str(scratch),
        "LOG_LEVEL": "INFO",
        # A process of a function that nobody calls is kept: a cold start costs seconds here.
        "LAMBDA_WARM_TTL_SECONDS": "3600",
    }
    found = child_environment(os.environ, aws_environment(endpoint, emr_endpoint), theirs)
    return {
        name: value for name, value in found.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "HEADRACE"))
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(process: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise EmulatorFailed(f"ministack ended with {process.returncode}:\n{log.read_text()}")
        try:
            with urllib.request.urlopen(f"{endpoint}/_ministack/health", timeout=5):
                return
        except OSError:
            time.sleep(0.1)  # it does not listen yet
    raise EmulatorFailed(f"ministack was not ready after {READY_S:.0f} s:\n{log.read_text()}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends the group: politely, then not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            continue
    assert process.stdin is not None
    process.stdin.close()
    process.wait(STOP_S)
