"""The process tree of `headrace dev`: emulated AWS, job runs, dispatcher, API processes and, if there are several, a
proxy.
"""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec

from headrace.settings import child_environment
from local.deployment import Deployment
from local.dev_settings import DevSettings
from local.environment import as_role, aws_environment
from local.machine.stack import MachineDeployment
from local.supervisor import Child, ChildFailed, Supervisor
from local.template import deploy, read_template

DEPLOYMENT_FILE = "deployment.json"
API_HANDLER = "functions.api.handler.handler"
HEALTHY_SECONDS = 60.0
WATCH_SECONDS = 0.1
KEYS_AGE = "HEADRACE_KEYS_AGE_MS"
PROMPT_KEYS_AGE_MS = "1000"  # nobody waits a minute for a key of a server on the desk


class Emulator:
    """The running process tree, as a context manager; leaving it stops every process.

    Args:
        forks: variables that name a fork server, for all processes but the emulated AWS, which starts meanwhile.
        machine: where data are kept instead of in the emulated AWS, which forgets them.
    """

    def __init__(
        self,
        settings: DevSettings,
        listener: socket.socket,
        forks: Mapping[str, str],
        machine: MachineDeployment | None = None,
    ) -> None:
        self._forks = forks
        self._machine = machine
        self._settings = settings
        self._listener = listener
        self._supervisor = Supervisor()
        self._deployment: Deployment | None = None
        self._api_ports: list[int] = []
        self._reserved: list[socket.socket] = []
        self._state_dir = Path()
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self.url = f"http://{host}:{listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._supervisor.stop()
        for listener in (self._listener, *self._reserved):
            listener.close()

    def start(self, scratch: Path, stop: threading.Event) -> None:
        """Starts all processes. Returns when every API process is healthy, or early if `stop` is set.

        Raises ChildFailed if a child ends or is not ready in time, UnusableTemplate for a bad template.
        """
        template = read_template(self._settings.template)
        self._state_dir = scratch
        policies_file = scratch / "policies.json"
        door = ["--policies", str(policies_file)]
        if self._settings.record is not None:
            door += ["--record", str(self._settings.record.absolute())]
        server = ["local.machine.server"] if self._machine else ["local.moto_server", "--lifeline", *door]
        aws = self._supervisor.start("aws", server, child_environment(os.environ, {"PYTHONUNBUFFERED": "1"}))
        endpoint = aws.wait_until_ready().split(" ", 1)[1]
        deployed = self._prompt(deploy(template, endpoint, self._machine.cloud if self._machine else None))
        # No process acts in a role yet: the door reads what roles may do with the first request of one.
        policies_file.write_bytes(msgspec.json.encode(deployed.policies))
        emr = self._supervisor.start(
            "emr",
            ["local.emr_serverless", *door],
            child_environment(
                os.environ,
                self._forks,
                aws_environment(endpoint),
                self._machine_environment(),
                as_role(deployed.settings().get("HEADRACE_SPARK_ROLE", "").rpartition("/")[2]),
                {"PYTHONUNBUFFERED": "1"},
            ),
        )
        emr_endpoint = emr.wait_until_ready().split(" ", 1)[1]
        self._deployment = deployment = msgspec.structs.replace(deployed, emr_endpoint=emr_endpoint)
        environment = child_environment(
            # The template's settings are defaults; names of resources are not to be argued with.
            {
                **deployment.settings(),
                **(self._machine.defaults if self._machine else {}),
                "HEADRACE_BASE_URL": self.url,
                "HEADRACE_ALLOW_RESET": "1",
                **os.environ,
            },
            self._forks,
            deployment.resource_names(),
            self._keys_environment(),
            aws_environment(endpoint, emr_endpoint),
            self._machine_environment(),
            self._settings.environment,
            # Receivers of webhooks are on this machine, too: nobody else could reach one that is being developed.
            {"PYTHONUNBUFFERED": "1", "HEADRACE_WEBHOOK_LOOPBACK": "1"},
        )
        deployment_file = scratch / DEPLOYMENT_FILE
        deployment_file.write_bytes(deployment.to_json())
        lambda_port = self._reserve_port()
        self._start_dispatcher(
            ["--deployment", str(deployment_file), "--lambda-port", str(lambda_port), *door],
            {**environment, "AWS_ENDPOINT_URL_LAMBDA": f"http://127.0.0.1:{lambda_port}"},
        )
        self._start_api({**environment, **as_role(deployment.role_of(API_HANDLER))})
        for child in self._supervisor.children:
            child.wait_until_ready()
        for port in [*self._api_ports, self._listener.getsockname()[1]]:
            self._wait_until_healthy(port, stop)

    def watch(self, stop: threading.Event, changed: Callable[[], None] = lambda: None) -> None:
        """Waits until `stop` is set; calls `changed` whenever `state()` changes. Raises ChildFailed if a child ends
        before.

        An API process or a dispatcher that was killed is started again instead.
        """
        state = self.state()
        while not stop.wait(WATCH_SECONDS):
            self._supervisor.tend()
            if (now := self.state()) != state:
                state = now
                changed()

    def state(self) -> dict[str, Any]:
        """Returns the state that tests and operators need: process ids, ports, names of resources."""
        assert self._deployment is not None
        return {
            "url": self.url,
            "endpoint": self._deployment.endpoint,
            "pid": os.getpid(),
            "pids": {c.name: c.process.pid for c in self._supervisor.children if c.ready.is_set()},
            "functions": self._function_pids(),
            "api_ports": self._api_ports,
            "deployment": str(self._state_dir / DEPLOYMENT_FILE),
            "outputs": self._deployment.outputs,
            "environment": {
                **self._deployment.settings(),
                **self._keys_environment(),
                **aws_environment(self._deployment.endpoint, self._deployment.emr_endpoint),
                **self._machine_environment(),
                **self._settings.environment,
            },
        }

    def _keys_environment(self) -> dict[str, str]:
        """Returns the variables that make processes ask for the keys in the deployment's secret, if keys are required."""
        if not self._settings.require_key:
            return {}
        assert self._deployment is not None
        return {**self._deployment.keys_secret(), KEYS_AGE: os.environ.get(KEYS_AGE, PROMPT_KEYS_AGE_MS)}

    def _machine_environment(self) -> dict[str, str]:
        """Returns the variables that make a process use the single machine, if there is one, instead of emulated AWS."""
        return self._machine.environment(self._state_dir / "bell") if self._machine else {}

    def _function_pids(self) -> dict[str, int]:
        """Returns the process id of each function that has been called so far."""
        found: dict[str, int] = {}
        for path in sorted(self._state_dir.glob("*.pid")):
            with suppress(FileNotFoundError):  # its process has ended since the folder was listed
                if pid := path.read_text():
                    found[path.stem] = int(pid)
        return found

    def _prompt(self, deployment: Deployment) -> Deployment:
        """Returns the deployment, with `--seal-age` given, with batch windows of streams that are not longer than that
        age.
        """
        seal_age_ms = self._settings.seal_age_ms
        if seal_age_ms is None:
            return deployment
        streams = tuple(
            msgspec.structs.replace(stream, window_seconds=min(stream.window_seconds, seal_age_ms // 1000))
            for stream in deployment.streams
        )
        return msgspec.structs.replace(deployment, streams=streams)

    def _start_dispatcher(self, options: list[str], environment: dict[str, str]) -> Child:
        arguments = [
            "local.dispatcher",
            *options,
            "--seed",
            str(self._settings.seed),
            "--state-dir",
            str(self._state_dir),
        ]
        arguments += ["--log-level", self._settings.log_level]
        if self._settings.sweep_every_ms:
            arguments += ["--schedule-seconds", str(self._settings.sweep_every_ms / 1000)]
        return self._supervisor.start("dispatcher", arguments, environment, replaceable=True)

    def _start_api(self, environment: dict[str, str]) -> None:
        """Starts the API processes and, if there are several, the proxy in front of them; with `--function-url`, the
        Function URL instead.
        """
        door = self._listener.fileno()
        if self._settings.function_url:
            self._start_function_url(door, environment)
            return
        if self._settings.api_processes == 1:
            self._start_api_process("api", ["--listen-fd", str(door)], environment, fds=[door])
            self._api_ports.append(self._listener.getsockname()[1])
            return
        for number in range(self._settings.api_processes):
            port = self._reserve_port()
            self._start_api_process(f"api-{number}", ["--port", str(port)], environment)
            self._api_ports.append(port)
        upstreams = [part for port in self._api_ports for part in ("--upstream", f"127.0.0.1:{port}")]
        self._supervisor.start(
            "proxy", ["local.proxy", "--listen-fd", str(door), *upstreams], environment, fds=[door]
        )

    def _start_function_url(self, door: int, environment: dict[str, str]) -> None:
        """Starts the Function URL and the instances of the template's streaming function behind it."""
        assert self._deployment is not None
        function = self._deployment.streaming_function()
        self._supervisor.start(
            "api",
            [
                "local.function_url",
                *("--listen-fd", str(door), "--instances", str(self._settings.api_processes)),
                *("--timeout", str(function.timeout_seconds), "--bootstrap", function.wrapper),
                *(["--verbose"] if self._settings.verbose else []),
            ],
            # The options were checked already: an open door is on loopback, or was asked for. Whom it obeys is said.
            {
                "HEADRACE_ALLOW_INSECURE_NO_AUTH": "1",
                "POWERTOOLS_METRICS_DISABLED": "true",
                **environment,
                **as_role(function.role),
            },
            fds=[door],
        )

    def _reserve_port(self) -> int:
        """Reserves a loopback port without listening on it, so that a replaced process gets the same port again."""
        reserved = socket.socket()
        self._reserved.append(reserved)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        port: int = reserved.getsockname()[1]
        return port

    def _start_api_process(
        self, name: str, door: list[str], environment: dict[str, str], fds: Sequence[int] = ()
    ) -> None:
        arguments = ["local.api_process", *door, "--app", self._settings.app]
        arguments += ["--sockets", self._settings.sockets]
        arguments += ["--log-level", self._settings.log_level, *(["--verbose"] if self._settings.verbose else [])]
        self._supervisor.start(name, arguments, environment, fds=fds, replaceable=True)

    def _wait_until_healthy(self, port: int, stop: threading.Event) -> None:
        host = "127.0.0.1" if port != self._listener.getsockname()[1] else _reachable(self._settings.host)
        deadline = time.monotonic() + HEALTHY_SECONDS
        status = 0
        while status != 200:
            if stop.wait(0.05):
                return
            self._supervisor.tend()
            if time.monotonic() > deadline:
                raise ChildFailed(f"GET /health on port {port} was not 200 after {HEALTHY_SECONDS:.0f} s: {status}")
            status = _health(host, port)


def _reachable(host: str) -> str:
    """Returns an address under which clients on this machine reach a listening address: loopback for `0.0.0.0` or `::`,
    any other address unchanged.
    """
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _health(host: str, port: int) -> int:
    """Requests GET /health and returns the status; 0 if there is no answer."""
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
