"""The emulator for tests: an emulated AWS with the template deployed, or a whole `headrace dev`, as context managers."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

from headrace.settings import child_environment
from local.deployment import Deployment
from local.environment import aws_environment, client
from local.fork_server import PROCESSES, Process, fork_server, spawn
from local.supervisor import Supervisor
from local.template import TEMPLATE_PATH, deploy, read_template

READY_SECONDS = 120  # of all children together, on cores that do other things
STOP_SECONDS = 10


# moto imports what a template and its tests use with the first request for it.
MOTO = (
    *("moto.cloudformation.parsing", "moto.cloudformation.urls", "moto.dynamodb.urls", "moto.dynamodbstreams.urls"),
    *("moto.s3.urls", "moto.secretsmanager.urls", "moto.sqs.urls", "moto.moto_server.werkzeug_app"),
)


@cache
def forks() -> dict[str, str]:
    """Returns the variables that name the fork server of this process, for all the servers that its tests start."""
    return _until_the_end.enter_context(
        fork_server("local.dev", "local.moto_server", *MOTO, *PROCESSES, "functions.sealer.seal")
    )


_until_the_end = ExitStack()
atexit.register(_until_the_end.close)


@dataclass(frozen=True)
class Cloud:
    """An emulated AWS. `environment` points the application at it."""

    endpoint: str
    deployment: Deployment
    pid: int

    @property
    def environment(self) -> dict[str, str]:
        """The AWS_* and HEADRACE_* variables of a function deployed there."""
        return {**self.deployment.settings(), **aws_environment(self.endpoint)}

    def client(self, service: str) -> Any:
        """Returns a boto3 client of this cloud."""
        return client(service, self.endpoint)


@contextmanager
def emulated_cloud(template: Path = TEMPLATE_PATH) -> Iterator[Cloud]:
    """Runs hardened moto in a child on a free port, with the template deployed; takes about two seconds."""
    with Supervisor() as supervisor:
        moto = supervisor.start("aws", ["local.moto_server", "--lifeline"], child_environment(os.environ, forks()))
        endpoint = moto.wait_until_ready().split(" ", 1)[1]
        yield Cloud(endpoint, deploy(read_template(template), endpoint), moto.process.pid)


@dataclass
class DevServer:
    """A running `headrace dev`. `log` grows with what it prints to stderr; `stdout` is what comes after
    the ready line; `state` is that of its start."""

    url: str
    state: dict[str, Any]
    process: Process
    stdout: IO[str]
    ready_line: str
    state_file: Path
    metrics_file: Path
    log: list[str] = field(default_factory=list)

    @property
    def pids(self) -> dict[str, int]:
        """The children's process ids by name, now: aws, dispatcher, api (or api-0, …), proxy. Only those that are ready."""
        return dict(self.state_now()["pids"])

    def metric_lines(self) -> list[str]:
        """Returns the EMF lines that the api and the functions have written so far."""
        whole = self.metrics_file.read_text() if self.metrics_file.exists() else ""
        return whole[: whole.rfind("\n") + 1].splitlines()

    def state_now(self) -> dict[str, Any]:
        """Returns the state file as it is now: processes that are killed get successors."""
        state: dict[str, Any] = json.loads(self.state_file.read_text())
        return state


class DevServerFailed(AssertionError):
    """`headrace dev` ended before it was ready; the message holds its stderr."""


@contextmanager
def dev_server(
    *arguments: str, environment: Mapping[str, str] | None = None, runs_jobs: bool = False
) -> Iterator[DevServer]:
    """Runs `headrace dev` with these arguments on a free port, ready when yielded, stopped afterwards.

    Args:
        runs_jobs: whether it starts index jobs. Without it no Spark starts, which takes 10 s of CPU, and as much again for
            a few jobs: the streams of any test would make it start after the index age.

    Raises:
        DevServerFailed: it does not become ready.
    """
    jobs = {} if runs_jobs else {"HEADRACE_INDEX_JOBS": "0"}
    with tempfile.TemporaryDirectory(prefix="headrace-test-") as scratch:
        state_file = Path(scratch) / "state.json"
        metrics_file = Path(scratch) / "metrics.emf"
        out, err = os.pipe(), os.pipe()
        with Path(os.devnull).open() as nothing:
            process = spawn(
                ["local.dev", "--port", "0", *_files(state_file, metrics_file), *arguments],
                child_environment(os.environ, forks(), jobs, environment or {}),
                stdin=nothing.fileno(),
                stdout=out[1],
                stderr=err[1],
            )
        os.close(out[1])
        os.close(err[1])
        lines: list[str] = []
        with os.fdopen(out[0], errors="replace") as stdout, os.fdopen(err[0], errors="replace") as stderr:
            reader = threading.Thread(target=_collect, args=(stderr, lines), daemon=True)
            reader.start()
            try:
                ready_line = _ready_line(process, stdout)
                if not ready_line:
                    process.wait(STOP_SECONDS)
                    reader.join(1)
                    raise DevServerFailed(f"exit code {process.returncode}:\n" + "\n".join(lines))
                state = json.loads(state_file.read_text())
                yield DevServer(state["url"], state, process, stdout, ready_line, state_file, metrics_file, lines)
            finally:
                _stop(process)
                reader.join(1)


def _files(state_file: Path, metrics_file: Path) -> list[str]:
    return ["--state-file", str(state_file), "--metrics-file", str(metrics_file)]


def _ready_line(process: Process, stdout: IO[str]) -> str:
    """Returns the first line of stdout; empty when the process ends or takes too long."""
    timer = threading.Timer(READY_SECONDS, process.terminate)
    timer.start()
    try:
        return stdout.readline().strip()
    finally:
        timer.cancel()


def _collect(stream: IO[str], lines: list[str]) -> None:
    for line in stream:
        # One by one: tests look at the log while it grows.
        lines.append(line.rstrip("\n"))  # noqa: PERF401


def _stop(process: Process) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
