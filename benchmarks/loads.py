"""The loads: single and batched appends, replay. Each makes its own stream, and ends at a count or a time."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count as counter

from benchmarks.events import body, event
from benchmarks.result import Result
from benchmarks.wire import Connection, LoadFailed, Server

JSON_TYPE = "application/json"
EVENT_MARK = b'"requestId":'
BATCH_EVENTS = 1000


@contextmanager
def scratch_stream(server: Server) -> Iterator[str]:
    """Yields the path of a new JSON stream, which is deleted afterwards."""
    path = server.path(f"benchmark-{uuid.uuid4().hex[:12]}")
    connection = Connection(server)
    connection.request("PUT", path, content_type=JSON_TYPE)
    try:
        yield path
    finally:
        connection.request("DELETE", path)
        connection.close()


def single(server: Server, *, clients: int, count: int, seconds: float) -> Result:
    """Sends one event per request from `clients` connections to one stream, each as fast as it is answered; returns
    the result.
    """
    numbers = counter()
    latencies: list[float] = []
    sizes: list[int] = []
    connections = [Connection(server) for _ in range(clients)]
    failures: list[Exception] = []

    def client(connection: Connection, path: str, deadline: float) -> None:
        try:
            while (number := next(numbers)) < count and time.perf_counter() < deadline:
                data = event(number)
                started = time.perf_counter()
                connection.request("POST", path, body=data, content_type=JSON_TYPE)
                latencies.append((time.perf_counter() - started) * 1000)
                sizes.append(len(data))
        except Exception as error:  # noqa: BLE001 (a thread's failure is the load's failure)
            failures.append(error)

    with scratch_stream(server) as path:
        connections[0].request("POST", path, body=event(0), content_type=JSON_TYPE)  # not counted: connects and warms
        started = time.perf_counter()
        threads = [threading.Thread(target=client, args=(c, path, started + seconds)) for c in connections]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taken = time.perf_counter() - started
    if failures:
        raise failures[0]
    busy = sum(connection.busy for connection in connections)
    name = f"single append, {clients} client{'s' if clients > 1 else ''}"
    return Result(name, len(latencies), sum(sizes), taken, latencies, busy)


def batched(server: Server, *, events: int, seconds: float) -> Result:
    """Requests of 1,000 events from one connection."""
    with scratch_stream(server) as path:
        return fill(server, path, events=events, seconds=seconds)


def fill(server: Server, path: str, *, events: int, seconds: float) -> Result:
    """Appends events in batches of 1,000. The bodies are made outside of the time that is measured."""
    connection = Connection(server)
    latencies: list[float] = []
    sent = size = 0
    taken = 0.0
    while sent < events and taken < seconds:
        batch = min(BATCH_EVENTS, events - sent)
        data = body(sent, batch)
        started = time.perf_counter()
        connection.request("POST", path, body=data, content_type=JSON_TYPE)
        elapsed = time.perf_counter() - started
        taken += elapsed
        latencies.append(elapsed * 1000)
        sent += batch
        size += len(data)
    connection.close()
    return Result("batched append, 1,000 a request", sent, size, taken, latencies, connection.busy)


def replay(server: Server, *, events: int, seconds: float, settle_s: float) -> Result:
    """Reads a stream of `events` from its start to its end, page by page. `settle_s` is waited between filling and
    reading, so that a server may move data to where it keeps it."""
    with scratch_stream(server) as path:
        filled = fill(server, path, events=events, seconds=seconds)
        time.sleep(settle_s)
        connection = Connection(server)
        latencies: list[float] = []
        seen = size = 0
        offset, at_end = "-1", False
        while not at_end:
            started = time.perf_counter()
            answer = connection.request("GET", path, params={"offset": offset})
            latencies.append((time.perf_counter() - started) * 1000)
            next_offset = answer.headers["stream-next-offset"]
            at_end = answer.headers.get("stream-up-to-date") == "true" or next_offset == offset
            offset = next_offset
            seen += answer.body.count(EVENT_MARK)
            size += len(answer.body)
        connection.close()
        if seen != filled.events:
            raise LoadFailed(f"replay: appended={filled.events} read={seen}")
    notes = {"pages": len(latencies), "settle_s": settle_s}
    return Result("replay", seen, size, sum(latencies) / 1000, latencies, connection.busy, notes)
