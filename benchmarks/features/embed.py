"""The server that runs beside a program: pushes over HTTP, and over beava's TCP frames."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import orjson

from benchmarks.features import loads
from benchmarks.features.events import data
from benchmarks.result import Result
from benchmarks.topics.loads import Client
from benchmarks.wire import TIMEOUT_S, LoadFailed, Server

PUSH, JSON, ERROR = 0x0010, 1, 0xFFFF
_HEAD = struct.Struct(">IHB")
_REST = _HEAD.size - 4


class Doors(NamedTuple):
    """The URL of a server, and the host and port where it takes frames."""

    url: str
    frames: tuple[str, int]


@contextmanager
def headrace_beava() -> Iterator[Doors]:
    """Runs `headrace-beava` on free ports until the context ends."""
    environment = {**os.environ, "BEAVA_LISTEN_ADDR": "127.0.0.1:0", "BEAVA_TCP_PORT": "0"}
    command = [sys.executable, "-m", "local.beava", "--memory-only", "--test-mode"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None, "it is a pipe"
        try:
            http, tcp = (orjson.loads(process.stdout.readline())["addr"] for _ in range(2))
            host, _, port = tcp.rpartition(":")
            yield Doors(f"http://{http}", (host, int(port)))
        finally:
            process.terminate()


def frame(body: bytes) -> bytes:
    """Returns the frame of a push."""
    return _HEAD.pack(len(body) + _REST, PUSH, JSON) + body


def frames(doors: Doors, *, pushes: int, at_once: int) -> Result:
    """Pushes over one TCP connection. `at_once` frames are sent together; a latency is the time until all of them are
    answered.
    """
    loads.begin(Client(Server(doors.url, "")))
    latencies, sent = list[float](), 0
    with socket.create_connection(doors.frames, TIMEOUT_S) as connection, connection.makefile("rb") as answers:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while sent < pushes:
            bodies = [orjson.dumps({"event": "Tx", "body": data(sent + at)}) for at in range(at_once)]
            started = time.perf_counter()
            connection.sendall(b"".join(map(frame, bodies)))
            for _ in bodies:
                length, operation, _ = _HEAD.unpack(answers.read(_HEAD.size))
                answer = answers.read(length - _REST)
                if operation == ERROR:
                    raise LoadFailed(f"push over TCP: {answer[:200]!r}")
            latencies.append((time.perf_counter() - started) * 1000)
            sent += at_once
    load = "push, 1 TCP connection" + (f", {at_once} frames at once" if at_once > 1 else "")
    return Result(load, sent, 0, sum(latencies) / 1000, latencies)


def measure(doors: Doors, sizes: Sequence[int] = (1, 64)) -> Iterator[Result]:
    """Yields the result of each load."""
    server = Server(doors.url, "")
    yield loads.push(server, clients=1, pushes=5_000)
    yield loads.push(server, clients=8, pushes=5_000)
    for at_once in sizes:
        yield frames(doors, pushes=10_000, at_once=at_once)
