"""The process tree of `headrace dev`: store, dispatcher, API processes and, in front of several of these, a proxy."""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any, Self

import msgspec

from local.deployment import Deployment
from local.dev_settings import DevSettings
from local.environment import aws_environment, child_environment
from local.supervisor import Child, ChildFailed, Supervisor
from local.template import deploy, read_template

HEALTHY_SECONDS = 60.0
WATCH_SECONDS = 0.1


class Emulator:
    """A context manager over the process tree; leaving it stops every process."""

    def __init__(self, settings: DevSettings, listener: socket.socket) -> None:
        self._settings = settings
        self._listener = listener
        self._supervisor = Supervisor()
        self._deployment: Deployment | None = None
        self._api_ports: list[int] = []
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self.url = f"http://{host}:{listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._supervisor.stop()
        self._listener.close()

    def start(self, scratch: Path, stop: threading.Event) -> None:
        """Returns when every API process is healthy, or early when `stop` is set.

        Raises ChildFailed when a child ends or is not ready in time, UnusableTemplate for a bad template.
        """
        template = read_template(self._settings.template)
        moto = self._supervisor.start(
            "aws",
            ["local.moto_server", "--lifeline"],
            child_environment(os.environ, {"PYTHONUNBUFFERED": "1"}),
        )
        endpoint = moto.wait_until_ready().split(" ", 1)[1]
        self._deployment = deployment = self._prompt(deploy(template, endpoint))
        environment = child_environment(
            # The template's settings are defaults; names of resources are not to be argued with.
            {**deployment.settings(), **os.environ},
            deployment.resource_names(),
            aws_environment(endpoint),
            self._settings.environment,
            {"PYTHONUNBUFFERED": "1"},
        )
        deployment_file = scratch / "deployment.json"
        deployment_file.write_bytes(deployment.to_json())
        dispatcher = self._start_dispatcher(deployment_file, environment)
        front = self._start_api(environment)
        for child in (dispatcher, *front):
            child.wait_until_ready()
        for port in [*self._api_ports, self._listener.getsockname()[1]]:
            self._wait_until_healthy(port, stop)

    def watch(self, stop: threading.Event) -> None:
        """Returns when `stop` is set. Raises ChildFailed when a child ends before."""
        while not stop.wait(WATCH_SECONDS):
            self._supervisor.require_all_alive()

    def state(self) -> dict[str, Any]:
        """What tests and operators want to know: processes, ports, names of resources."""
        assert self._deployment is not None
        return {
            "url": self.url,
            "endpoint": self._deployment.endpoint,
            "pid": os.getpid(),
            "pids": {child.name: child.process.pid for child in self._supervisor.children},
            "api_ports": self._api_ports,
            "outputs": self._deployment.outputs,
            "environment": {**self._deployment.settings(), **aws_environment(self._deployment.endpoint)},
        }

    def _prompt(self, deployment: Deployment) -> Deployment:
        """A batch that waits longer than the seal age would make `--seal-age 1s` a lie."""
        seal_age_ms = self._settings.seal_age_ms
        if seal_age_ms is None:
            return deployment
        streams = tuple(
            msgspec.structs.replace(stream, window_seconds=min(stream.window_seconds, seal_age_ms // 1000))
            for stream in deployment.streams
        )
        return msgspec.structs.replace(deployment, streams=streams)

    def _start_dispatcher(self, deployment_file: Path, environment: dict[str, str]) -> Child:
        arguments = [
            "local.dispatcher",
            "--deployment",
            str(deployment_file),
            "--seed",
            str(self._settings.seed),
        ]
        arguments += ["--log-level", self._settings.log_level]
        if self._settings.sweep_every_ms:
            arguments += ["--schedule-seconds", str(self._settings.sweep_every_ms / 1000)]
        return self._supervisor.start("dispatcher", arguments, environment)

    def _start_api(self, environment: dict[str, str]) -> list[Child]:
        """Starts the API processes; returns the proxy in front of them where there is one."""
        count = self._settings.api_processes
        if count == 1:
            self._start_api_process("api", self._listener, environment)
            return []
        for number in range(count):
            # A free port of loopback each: only the proxy should find them.
            with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
                self._start_api_process(f"api-{number}", listener, environment)
        upstreams = [part for port in self._api_ports for part in ("--upstream", f"127.0.0.1:{port}")]
        arguments = ["local.proxy", "--listen-fd", str(self._listener.fileno()), *upstreams]
        return [self._supervisor.start("proxy", arguments, environment, fds=[self._listener.fileno()])]

    def _start_api_process(self, name: str, listener: socket.socket, environment: dict[str, str]) -> None:
        arguments = ["local.api_process", "--listen-fd", str(listener.fileno()), "--app", self._settings.app]
        arguments += ["--log-level", self._settings.log_level]
        self._supervisor.start(name, arguments, environment, fds=[listener.fileno()])
        self._api_ports.append(listener.getsockname()[1])

    def _wait_until_healthy(self, port: int, stop: threading.Event) -> None:
        host = "127.0.0.1" if port != self._listener.getsockname()[1] else _reachable(self._settings.host)
        deadline = time.monotonic() + HEALTHY_SECONDS
        status = 0
        while status != 200:
            if stop.wait(0.05):
                return
            self._supervisor.require_all_alive()
            if time.monotonic() > deadline:
                raise ChildFailed(f"GET /health on port {port} was not 200 after {HEALTHY_SECONDS:.0f} s: {status}")
            status = _health(host, port)


def _reachable(host: str) -> str:
    """An address of this machine for an address to listen on."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _health(host: str, port: int) -> int:
    """The status of GET /health; 0 when nobody answers."""
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
