"""Starts this project's Python processes by forking one that has imported what they need: that takes milliseconds of CPU,
a new interpreter seconds.

    python -m local.fork_server --listen-fd N MODULE…

imports the modules, then serves orders on the socket until its standard input ends. `spawn` starts a process through the
server that `HEADRACE_DEV_FORK_SERVER` names in the process's environment; without one, with a new interpreter. Linux only:
elsewhere a process that was forked can't rely on the system's libraries.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import msgspec

from headrace import decoding

VARIABLE = "HEADRACE_DEV_FORK_SERVER"
PROCESSES = (
    *("local.api_process", "local.dispatcher", "local.emr_serverless", "local.lambda_runtime", "local.proxy"),
    *("functions.api.app", "functions.api.sockets.sockets", "functions.worker", "mangum"),
)
"""What the processes of `headrace dev` need, but for the emulated AWS. Modules of handlers are not among them: they read
the environment when they are imported."""

STANDARD = (0, 1, 2)
_MOST_BYTES = 128 * 1024  # of an order: a Linux socket takes some 200 KiB at once
_MOST_FILES = 16


class Process(Protocol):
    """A child process; `subprocess.Popen` is one."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None:
        """Returns the exit code, negative for a signal; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end and returns the exit code. Raises subprocess.TimeoutExpired."""

    def terminate(self) -> None:
        """Sends SIGTERM, if it still runs."""

    def kill(self) -> None:
        """Sends SIGKILL, if it still runs."""


class Order(msgspec.Struct, frozen=True):
    """A process to start: `python -m arguments…`. `files` are the numbers under which it finds the files that it
    inherits.
    """

    arguments: list[str]
    environment: dict[str, str]
    directory: str
    files: list[int]


def spawn(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    stdin: int,
    stdout: int = 1,
    stderr: int = 2,
    fds: Sequence[int] = (),
) -> Process:
    """Starts `python -m arguments…` in a session of its own, with these standard files. It inherits `fds`, too."""
    address = environment.get(VARIABLE)
    if address is None:
        return subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env=dict(environment),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=fds,
            start_new_session=True,
        )
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with _short(address) as name:
        connection.connect(name)
    order = Order(list(arguments), dict(environment), str(Path.cwd()), [*STANDARD, *fds])
    socket.send_fds(connection, [msgspec.json.encode(order)], [stdin, stdout, stderr, *fds])
    return Forked(connection)


class Forked:
    """A process that a fork server has started. `connection` is the server's answer: its id, then its exit code."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self.returncode: int | None = None
        self.pid = int(connection.recv(16))  # raises ValueError where the server ends

    def poll(self) -> int | None:
        """Returns the exit code, negative for a signal; None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end and returns the exit code. Raises subprocess.TimeoutExpired."""
        with self._lock:
            if self.returncode is None:
                self._connection.settimeout(timeout)
                try:
                    # Where the server has ended, nobody learns how its processes end.
                    self.returncode = int(self._connection.recv(16) or -signal.SIGKILL)
                except (BlockingIOError, TimeoutError) as exc:
                    raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0) from exc
                self._connection.close()
            return self.returncode

    def terminate(self) -> None:
        """Sends SIGTERM, if it still runs."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL, if it still runs."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def __del__(self) -> None:
        self._connection.close()


@contextmanager
def fork_server(*modules: str) -> Iterator[dict[str, str]]:
    """Runs a fork server that has imported these modules. Yields the variables that make `spawn` use it: none where the
    system isn't Linux, or where this process's environment names a server already. It may still be importing: orders wait.
    """
    if sys.platform != "linux" or VARIABLE in os.environ:
        yield {}
        return
    with TemporaryDirectory(prefix="headrace-forks-") as scratch:
        address = str(Path(scratch) / "socket")
        with _listener(address) as listener:
            server = subprocess.Popen(
                [sys.executable, "-m", "local.fork_server", "--listen-fd", str(listener.fileno()), *modules],
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )
        try:
            yield {VARIABLE: address}
        finally:
            server.communicate()


def _listener(address: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with _short(address) as name:
        listener.bind(name)
    listener.listen(64)
    return listener


@contextmanager
def _short(address: str) -> Iterator[str]:
    """Yields another name of a socket's file: the system takes none of more than 107 bytes, and folders may be deep."""
    folder = os.open(Path(address).parent, os.O_PATH)
    try:
        yield f"/proc/self/fd/{folder}/{Path(address).name}"
    finally:
        os.close(folder)


def serve(listener: socket.socket) -> Order | None:
    """Forks a process for each order. Returns None in the server, when its standard input has ended, and the order in a
    process that it has forked.
    """
    running: dict[int, socket.socket] = {}
    told, tell = socket.socketpair()
    tell.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
    with selectors.DefaultSelector() as selector:
        for source in (listener, told, sys.stdin):
            selector.register(source, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if told in ready:
                told.recv(4096)
                _tell_ends(running)
            if listener in ready:
                connection, _ = listener.accept()
                content, files, _, _ = socket.recv_fds(connection, _MOST_BYTES, _MOST_FILES)
                if not content:  # who connected was killed
                    connection.close()
                    continue
                pid = os.fork()
                if pid == 0:
                    break
                for number in files:
                    os.close(number)
                running[pid] = connection
                _tell(connection, pid)
                continue
            if sys.stdin in ready:
                return None
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for sock in (listener, told, tell, connection, *running.values()):
        sock.close()
    order = decoding.from_json(content, Order)
    _take(files, order.files)
    return order


def _tell_ends(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with running.pop(pid) as connection:
            _tell(connection, os.waitstatus_to_exitcode(status))


def _tell(connection: socket.socket, number: int) -> None:
    with suppress(ConnectionError):  # who ordered the process was killed
        connection.send(str(number).encode())


def _take(received: Sequence[int], wanted: Sequence[int]) -> None:
    """Gives received files the numbers that they have in the process that ordered this one."""
    above = max(*received, *wanted) + 1
    moved = [os.dup2(number, above + place) for place, number in enumerate(received)]
    for number in received:
        os.close(number)
    for number, target in zip(moved, wanted, strict=True):
        os.dup2(number, target)
        os.close(number)


def become(order: Order) -> None:
    """Does in this process what `python -m` does with the order's arguments."""
    os.setsid()
    os.chdir(order.directory)
    os.environ.clear()
    os.environ.update(order.environment)
    name, *arguments = order.arguments
    sys.argv = [f"python -m {name}", *arguments]
    with suppress(OSError):  # what `ps` and `top` show
        Path("/proc/self/comm").write_text(name)
    importlib.import_module(name).main(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Imports the modules, then serves orders until the end of standard input."""
    parser = argparse.ArgumentParser(prog="python -m local.fork_server", description=__doc__)
    parser.add_argument("--listen-fd", type=int, required=True, help="an inherited socket")
    parser.add_argument("modules", nargs="*", help="what the processes need")
    options = parser.parse_args(arguments)
    for module in options.modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # so that collections of the processes don't copy these objects' pages
    order = serve(socket.socket(fileno=options.listen_fd))
    if order is not None:
        become(order)


if __name__ == "__main__":
    main()
