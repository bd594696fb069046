"""Builds or installs each server beside the project, starts it on loopback, and asks it the suites of the adapters.

    ./run test --real                 all of them
    ./run test --real versitygw       some of them

Nothing of a server is in this repository: binaries are under `$XDG_CACHE_HOME/headrace-real` (default ~/.cache). A server
must answer as the suite says, but for the differences that are listed here, each with its consequence in
docs/verification.md; a difference that is gone is reported, too. Exit status 1 means that another difference was found, or
that a server could not be had.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.aws import REAL_DYNAMODB, REAL_S3, REAL_S3_VERSIONS

REPOSITORY = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "headrace-real"
MINISTACK = REPOSITORY / "tests" / "deployed" / "ministack"
CONTRACT = "tests/contract/test_{}.py"
_SUITES = ("catalog", "features", "follows", "jobs", "producers", "sessions", "watermarks", "wal")
TABLES = tuple(map(CONTRACT.format, _SUITES))
OBJECTS = (CONTRACT.format("objects"),)
READY_S, STOP_S = 30.0, 5.0

_AFTER_DELETE = "test_create_succeeds_once_and_changes_nothing_after[s3]"
_UNDER_AN_OBJECT = "test_list_is_in_byte_order_and_only_of_the_prefix[s3]"


class NotToBeHad(Exception):
    """The server can't be built or installed here, or does not start; the message says why."""


@dataclass(frozen=True)
class Server:
    """A server and how to get it.

    Attributes:
        name: name and version; its licence is in docs/verification.md.
        asked: the suites.
        endpoint: name of the variable that tells the suites where it is; `told` are more variables for them.
        build: the command that makes the file `made`, below `CACHE`.
        start: its command line; `{made}`, `{port}` and `{data}` (an empty folder) are filled in.
        environment: more variables for it.
        known: tests that it fails.
    """

    name: str
    asked: tuple[str, ...]
    endpoint: str
    build: Sequence[str]
    made: str
    start: Sequence[str]
    told: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    known: frozenset[str] = frozenset()


_VGW = ("go", "install", "github.com/versity/versitygw/cmd/versitygw@v1.8.0")
_VGW_START = ("{made}", "--access", "test", "--secret", "test", "--port", "127.0.0.1:{port}", "--quiet", "posix")
_MINISTACK_SYNC = ("uv", "sync", "--frozen", "--quiet", "--project", str(MINISTACK))
_MINISTACK = {"GATEWAY_PORT": "{port}", "BIND_HOST": "127.0.0.1", "MINISTACK_HOST": "127.0.0.1", "TMPDIR": "{data}"}
_MINISTACK_START = ("{made}", "-m", "ministack.app")
_DYNOXIDE = ("cargo", "install", "dynoxide-rs", "--version", "3.2.0", "--locked", "--no-default-features")

SERVERS = (
    Server(
        *("versitygw 1.8.0", OBJECTS, REAL_S3, _VGW, "bin/versitygw", (*_VGW_START, "{data}")),
        told={REAL_S3_VERSIONS: "no"},
        known=frozenset({_UNDER_AN_OBJECT}),
    ),
    Server(
        *("versitygw 1.8.0 with versions", OBJECTS, REAL_S3, _VGW, "bin/versitygw"),
        start=(*_VGW_START, "--versioning-dir", "{data}-versions", "{data}"),
        known=frozenset({_UNDER_AN_OBJECT, _AFTER_DELETE}),
    ),
    Server(
        *("ministack 1.5.33 (S3)", OBJECTS, REAL_S3, _MINISTACK_SYNC, "ministack/bin/python", _MINISTACK_START),
        environment=_MINISTACK,
    ),
    Server(
        *("ministack 1.5.33 (DynamoDB)", TABLES, REAL_DYNAMODB, _MINISTACK_SYNC, "ministack/bin/python"),
        start=_MINISTACK_START,
        environment=_MINISTACK,
    ),
    Server(
        *("dynoxide 3.2.0", TABLES, REAL_DYNAMODB),
        build=(*_DYNOXIDE, "--features", "native-sqlite,http-server,cli", "--root", str(CACHE)),
        made="bin/dynoxide",
        start=("{made}", "serve", "--host", "127.0.0.1", "--port", "{port}"),
    ),
)


def main(wanted: Sequence[str]) -> int:
    """Asks the servers whose names begin with one of these, or all; returns the exit status."""
    said: list[str] = []
    failed = False
    for server in SERVERS:
        if wanted and not server.name.startswith(tuple(wanted)):
            continue
        try:
            found = _ask(server)
        except NotToBeHad as exc:
            failed = True
            said.append(f"{server.name}: not to be had: {exc}")
            continue
        new, gone = sorted(found - server.known), sorted(server.known - found)
        failed = failed or bool(new or gone)
        said.append(f"{server.name}: {len(found)} known differences" if not new and not gone else server.name)
        said += [f"  differs: {test}" for test in new] + [f"  no longer differs: {test}" for test in gone]
    print("\n".join(said))
    return int(failed or not said)


def _ask(server: Server) -> set[str]:
    """Returns the tests that a server fails."""
    made = _build(server)
    with running(server, made) as endpoint:
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", *server.asked]
        environment = {**os.environ, server.endpoint: endpoint, **server.told}
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True, timeout=1800, check=False
        )
    print(done.stdout[-4000:])
    if done.returncode not in (0, 1):
        raise NotToBeHad(f"pytest ended with {done.returncode}")
    return set(re.findall(r"^(?:FAILED|ERROR) [^:]+::(\S+)", done.stdout, re.MULTILINE))


def _build(server: Server) -> Path:
    made = CACHE / server.made
    if made.exists():
        return made
    CACHE.mkdir(parents=True, exist_ok=True)
    print(f"== {server.name}: {' '.join(server.build)}", file=sys.stderr)
    places = {
        "GOBIN": str(CACHE / "bin"),
        "CARGO_TARGET_DIR": str(CACHE / "target"),
        "UV_PROJECT_ENVIRONMENT": str(CACHE / "ministack"),
    }
    try:
        done = subprocess.run(server.build, env={**os.environ, **places}, timeout=5400, check=False)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise NotToBeHad(str(exc)) from exc
    if done.returncode or not made.exists():
        raise NotToBeHad(f"{' '.join(server.build)} ended with {done.returncode}")
    return made


@contextmanager
def running(server: Server, made: Path) -> Iterator[str]:
    """Yields the endpoint of a server that runs as long as the block lasts."""
    with (
        socket.socket() as probe,
        tempfile.TemporaryDirectory(prefix="headrace-real-", ignore_cleanup_errors=True) as folder,
    ):
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        data = Path(folder, "data")
        for place in (data, Path(f"{data}-versions")):
            place.mkdir()
        facts = {"made": str(made), "port": str(port), "data": str(data)}
        environment = {name: text.format(**facts) for name, text in server.environment.items()}
        with Path(folder, "log").open("w") as log:
            process = subprocess.Popen(
                [one.format(**facts) for one in server.start],
                cwd=folder,
                env={**os.environ, **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            _wait(process, port, Path(folder, "log"))
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(STOP_S)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise NotToBeHad(f"it does not listen: {log.read_text()[-500:]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
