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
from tests.support.machine import machine_folder

ON_DATA = "HEADRACE_TESTS_ON_DATA"
"""A variable; if it is set, every `dev_server` keeps its data as with `--data`: to see what a suite says and costs."""
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

    state_file: Path
    metrics_file: Path
    environment: dict[str, str]
    url: str = ""
    state: dict[str, Any] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    ready_line: str = ""
    process: Process = field(init=False)
    stdout: IO[str] = field(init=False)
    _readers: list[threading.Thread] = field(default_factory=list)
    _is_restarting: bool = False

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

    def start(self, *arguments: str, port: int = 0) -> None:
        """Starts it, and waits until it is ready. Raises DevServerFailed if it does not become so."""
        out, err = os.pipe(), os.pipe()
        self._arguments = arguments
        files = ["--state-file", str(self.state_file), "--metrics-file", str(self.metrics_file)]
        with Path(os.devnull).open() as nothing:
            self.process = spawn(
                ["local.dev", "--port", str(port), *files, *arguments],
                self.environment,
                stdin=nothing.fileno(),
                stdout=out[1],
                stderr=err[1],
            )
        os.close(out[1])
        os.close(err[1])
        self.stdout = os.fdopen(out[0], errors="replace")
        self._readers.append(threading.Thread(target=_collect, args=(err[0], self.log), daemon=True))
        self._readers[-1].start()
        self.ready_line = _ready_line(self.process, self.stdout)
        if not self.ready_line:
            self.process.wait(STOP_SECONDS)
            self._readers[-1].join(1)
            raise DevServerFailed(f"exit code {self.process.returncode}:\n" + "\n".join(self.log))
        self.state = json.loads(self.state_file.read_text())
        self.url = self.state["url"]

    def kill_and_restart(self) -> None:
        """Kills it (its processes end with it), and starts it again on the same port. With `--data` it has what it had."""
        self._is_restarting = True
        try:
            self.process.kill()
            self.process.wait(STOP_SECONDS)
            self.stdout.close()
            self.start(*self._arguments, port=int(self.url.rpartition(":")[2]))
        finally:
            self._is_restarting = False

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, and is not being started again."""
        return not self._is_restarting and self.process.poll() is not None

    def stop(self) -> None:
        """Stops it, if it has ever started."""
        if hasattr(self, "process"):
            _stop(self.process)
            self.stdout.close()
        for reader in self._readers:
            reader.join(1)


class DevServerFailed(AssertionError):
    """`headrace dev` ended before it was ready; the message holds its stderr."""


@contextmanager
def dev_server(
    *arguments: str, environment: Mapping[str, str] | None = None, runs_jobs: bool = False, on_data: bool = False
) -> Iterator[DevServer]:
    """Runs `headrace dev` with these arguments on a free port, ready when yielded, stopped afterwards.

    Args:
        runs_jobs: whether it starts index jobs. Without it no Spark starts, which takes 10 s of CPU, and as much again for
            a few jobs: the streams of any test would make it start after the index age.
        on_data: whether it keeps its data in a folder, as with `--data`, in place of the emulated AWS: a third of the CPU.

    Raises:
        DevServerFailed: it does not become ready.
    """
    jobs = {} if runs_jobs else {"HEADRACE_INDEX_JOBS": "0"}
    with tempfile.TemporaryDirectory(prefix="headrace-test-") as scratch, machine_folder() as data:
        folder, variables = Path(scratch), child_environment(os.environ, forks(), jobs, environment or {})
        server = DevServer(folder / "state.json", folder / "metrics.emf", variables)
        try:
            server.start(*arguments, *(["--data", str(data)] if on_data or os.environ.get(ON_DATA) else []))
            yield server
        finally:
            server.stop()


def _ready_line(process: Process, stdout: IO[str]) -> str:
    """Returns the first line of stdout; empty when the process ends or takes too long."""
    timer = threading.Timer(READY_SECONDS, process.terminate)
    timer.start()
    try:
        return stdout.readline().strip()
    finally:
        timer.cancel()


def _collect(number: int, lines: list[str]) -> None:
    with os.fdopen(number, errors="replace") as stream:
        for line in stream:
            lines.append(line.rstrip("\n"))  # noqa: PERF401 - one by one: tests look at the log while it grows


def _stop(process: Process) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
