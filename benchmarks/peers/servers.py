"""Starts and stops each peer. State goes to a temporary folder and is deleted afterwards."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


class PeerFailed(Exception):
    """A peer can't be installed or started; the message holds what it said."""


def install() -> None:
    """Installs the peers from the committed lock file, once; runs no install scripts."""
    if (HERE / "node_modules" / ".package-lock.json").exists():
        return
    npm = shutil.which("npm")
    if npm is None:
        raise PeerFailed("npm is needed: install Node.js 20 or newer")
    done = subprocess.run(
        [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=HERE, capture_output=True, text=True
    )
    if done.returncode:
        raise PeerFailed(f"npm ci failed in {HERE}:\n{done.stderr[:1000]}")


def reference(port: int, _state: Path) -> tuple[list[str], dict[str, str]]:
    return ["node", "reference.mjs", str(port)], {}


def reference_on_disk(port: int, state: Path) -> tuple[list[str], dict[str, str]]:
    return ["node", "reference.mjs", str(port), str(state)], {}


def prisma(port: int, state: Path) -> tuple[list[str], dict[str, str]]:
    """Starts it with its bucket emulated on the local disk, and without keys."""
    program = "node_modules/@prisma/streams-server/bin/prisma-streams-server"
    environment = {"PORT": str(port), "DS_HOST": "127.0.0.1", "DS_ROOT": str(state / "data")}
    return [bun(), program, "--object-store", "local", "--no-auth"], environment


def bun() -> str:
    """Returns the bun binary for this machine, straight from its npm package: no install script has linked it."""
    found = sorted(HERE.glob("node_modules/@oven/*/bin/bun"))
    if not found:
        raise PeerFailed("npm installed no bun for this machine")
    return str(found[0])


Command = Callable[[int, Path], tuple[list[str], dict[str, str]]]
PEERS: dict[str, Command] = {
    "@durable-streams/server in memory": reference,
    "@durable-streams/server on disk": reference_on_disk,
    "@prisma/streams-server": prisma,
}


@contextmanager
def running(name: str, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yields the base URL of a peer that runs until the context ends. `settings` are variables of its environment."""
    install()
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="benchmark-peer-") as state, tempfile.TemporaryFile() as log:
        command, environment = PEERS[name](port, Path(state))
        process = subprocess.Popen(
            command,
            cwd=HERE,
            env={**os.environ, **environment, **(settings or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            if not answers(port, process):
                log.seek(0)
                raise PeerFailed(f"{name} did not start:\n{log.read().decode('utf-8', 'replace')}")
            yield f"http://127.0.0.1:{port}"
        finally:
            stop(process)


def answers(port: int, process: subprocess.Popen[bytes]) -> bool:
    """Waits until the port takes connections; False when the process ends or it takes too long."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.1)
    return False


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
