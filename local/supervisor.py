"""Starts and stops child processes together; prints their output on stderr, each line behind the child's name.

A child without state may be marked replaceable: if it is killed by a signal after it was ready, it is started again, as
AWS replaces an instance that dies. A child that ends by itself, or before it was ready, ends all others.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Self

from local.fork_server import Process, spawn

READY_SECONDS = 60.0
STOP_SECONDS = 3.0
_print_lock = threading.Lock()


class ChildFailed(RuntimeError):
    """A child process ended, or did not become ready; the message names it and its exit code."""


@dataclass
class Child:
    """A running child process. It ends when its standard input closes, which happens when this process ends."""

    name: str
    process: Process
    stdin: IO[str]
    output: Sequence[IO[str]]
    replaceable: bool = False
    started: float = field(default_factory=time.monotonic)
    ready: threading.Event = field(default_factory=threading.Event)
    ready_line: str = ""
    _pumps: list[threading.Thread] = field(default_factory=list)

    def follow_logs(self) -> None:
        """Prints what the child prints, from now until it ends."""
        for stream in self.output:
            pump = threading.Thread(target=_pump, args=(self, stream), name=f"log of {self.name}", daemon=True)
            pump.start()
            self._pumps.append(pump)

    def close(self) -> None:
        """Prints the last lines of a child that has ended, and closes its pipes."""
        for pump in self._pumps:
            pump.join(1)
        self.let_go()

    def let_go(self) -> None:
        """Closes the child's standard input, which makes it end; its remaining output is printed later."""
        self.stdin.close()

    def wait_until_ready(self, timeout_seconds: float = READY_SECONDS) -> str:
        """Waits for the child's ready line and returns it. Raises ChildFailed if the child ends before or takes too
        long.
        """
        deadline = time.monotonic() + timeout_seconds
        while not self.ready.wait(0.02):
            self.require_alive()
            if time.monotonic() > deadline:
                raise ChildFailed(f"{self.name} was not ready after {timeout_seconds:.0f} s")
        return self.ready_line

    @property
    def was_killed(self) -> bool:
        """Returns whether a signal ended the child after it had been ready."""
        code = self.process.poll()
        return code is not None and code < 0 and self.ready.is_set()

    def require_alive(self) -> None:
        """Raises ChildFailed if the child has ended."""
        code = self.process.poll()
        if code is not None:
            raise ChildFailed(f"{self.name} (pid {self.process.pid}) ended with {_exit(code)}")


class Supervisor:
    """The running child processes, as a context manager: leaving it stops every child, the first one started after all
    others.
    """

    def __init__(self) -> None:
        self.children: list[Child] = []
        self._run_again: dict[str, Callable[[], Child]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        fds: Sequence[int] = (),
        replaceable: bool = False,
    ) -> Child:
        """Starts `python -m arguments…` and returns the child at once, before it is ready. It has a session of its own,
        so that Ctrl-C reaches only this process.
        """

        def run() -> Child:
            stdin, out, err = os.pipe(), os.pipe(), os.pipe()
            process = spawn(arguments, environment, stdin=stdin[0], stdout=out[1], stderr=err[1], fds=fds)
            for theirs in (stdin[0], out[1], err[1]):
                os.close(theirs)
            output = [os.fdopen(ours, errors="replace") for ours in (out[0], err[0])]
            child = Child(name, process, os.fdopen(stdin[1], "w"), output, replaceable)
            child.follow_logs()
            return child

        child = run()
        self.children.append(child)
        self._run_again[name] = run
        return child

    def tend(self) -> None:
        """Restarts replaceable children that were killed. Raises ChildFailed for any other child that has ended."""
        for place, child in enumerate(self.children):
            if child.replaceable and child.was_killed:
                log(child.name, f"{_exit(child.process.wait())} ended pid {child.process.pid}: started again")
                child.let_go()
                self.children[place] = self._run_again[child.name]()
                continue
            child.require_alive()
            if not child.ready.is_set() and time.monotonic() - child.started > READY_SECONDS:
                raise ChildFailed(f"{child.name} was not ready after {READY_SECONDS:.0f} s")

    def stop(self) -> None:
        """Asks the children to end, all but the first at once; kills those that still run after three seconds."""
        if not self.children:
            return
        # The first child is the store of the others: while they end, it must still answer.
        first, *others = self.children
        _end(others)
        _end([first])
        self.children = []


def _end(children: Sequence[Child]) -> None:
    for child in children:
        if child.process.poll() is None:
            child.process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for child in children:
        try:
            child.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()
        child.close()


def _pump(child: Child, stream: IO[str]) -> None:
    with stream:
        for line in stream:
            if not child.ready.is_set() and line.startswith("ready"):
                child.ready_line = line.strip()
                child.ready.set()
                continue
            log(child.name, line.rstrip("\n"))


def log(name: str, line: str) -> None:
    """Prints one line on stderr, after the name of the process that wrote it."""
    from cli.terminal import say  # not for the children, which import this module, too

    with _print_lock:
        say(f"{name:<10} | {line}", err=True)


def _exit(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
