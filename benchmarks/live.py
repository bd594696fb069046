"""Latency of following: from the moment an append is sent to the moment a waiting reader has the event."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import orjson

from benchmarks.events import event
from benchmarks.loads import JSON_TYPE, scratch_stream
from benchmarks.result import Result
from benchmarks.wire import Connection, LoadFailed, Server

GAP_S = 0.02
"""Between the receipt of an event and the next append: the reader is waiting again by then."""
ARRIVAL_TIMEOUT_S = 20.0


class Arrivals:
    """When each event was received; a reader thread fills it, the writer waits on it."""

    def __init__(self) -> None:
        self._times: dict[int, float] = {}
        self._changed = threading.Condition()
        self.failure: Exception | None = None

    def received(self, data: bytes) -> None:
        """Notes the arrival of the events in a JSON array."""
        now = time.perf_counter()
        numbers = [item["id"] for item in orjson.loads(data)] if data else []
        with self._changed:
            for number in numbers:
                self._times.setdefault(number, now)
            self._changed.notify_all()

    def failed(self, error: Exception) -> None:
        with self._changed:
            self.failure = error
            self._changed.notify_all()

    def wait_for(self, number: int) -> float:
        """Waits for event `number`; returns when it arrived, in seconds of `perf_counter`. Raises `LoadFailed` if it
        does not, or the reader's error.
        """
        with self._changed:
            arrived = self._changed.wait_for(lambda: number in self._times or self.failure, ARRIVAL_TIMEOUT_S)
            if self.failure:
                raise self.failure
            if not arrived:
                raise LoadFailed(f"event {number} did not arrive in {ARRIVAL_TIMEOUT_S} s")
            return self._times[number]


Follow = Callable[[Connection, str, threading.Event], Iterator[bytes]]


def live(server: Server, mode: str, *, count: int, seconds: float) -> Result:
    """`count` events, one after another, to one reader in `mode` (`long-poll` or `sse`)."""
    follow: Follow = {"long-poll": long_polls, "sse": server_sent}[mode]
    arrivals = Arrivals()
    stop = threading.Event()
    latencies: list[float] = []

    def reader(path: str) -> None:
        connection = Connection(server)
        try:
            for data in follow(connection, path, stop):
                arrivals.received(data)
        except Exception as error:  # noqa: BLE001 (a thread's failure is the load's failure)
            if not stop.is_set():
                arrivals.failed(error)
        finally:
            connection.close()

    with scratch_stream(server) as path:
        writer = Connection(server)
        thread = threading.Thread(target=reader, args=(path,), daemon=True)
        thread.start()
        time.sleep(0.3)
        size = 0
        started = time.perf_counter()
        for number in range(count + 1):
            if time.perf_counter() - started > seconds:
                break
            data = event(number)
            sent = time.perf_counter()
            writer.request("POST", path, body=data, content_type=JSON_TYPE)
            received = arrivals.wait_for(number)
            if number:  # the first one warms the connections up
                latencies.append((received - sent) * 1000)
                size += len(data)
            time.sleep(GAP_S)
        taken = time.perf_counter() - started
        stop.set()
        writer.request("POST", path, body=event(count + 1), content_type=JSON_TYPE)  # wakes the reader, so it ends
        thread.join(ARRIVAL_TIMEOUT_S)
        writer.close()
    return Result(f"live, {mode}", len(latencies), size, taken, latencies, writer.busy, paced=True)


def long_polls(connection: Connection, path: str, stop: threading.Event) -> Iterator[bytes]:
    """Yields the data of each long-poll from the start of the stream on."""
    params = {"live": "long-poll", "offset": "-1"}
    while not stop.is_set():
        answer = connection.request("GET", path, params=params)
        params["offset"] = answer.headers.get("stream-next-offset", params["offset"])
        if "stream-cursor" in answer.headers:
            params["cursor"] = answer.headers["stream-cursor"]
        if answer.status == 200:
            yield answer.body


def server_sent(connection: Connection, path: str, stop: threading.Event) -> Iterator[bytes]:
    """Yields the data of each `data` event; connects again from the last control event when the server ends."""
    params = {"live": "sse", "offset": "-1"}
    while not stop.is_set():
        kind, data = b"", list[bytes]()
        for line in connection.event_lines(path, params):
            if line.startswith(b"event:"):
                kind = line[6:].strip()
            elif line.startswith(b"data:"):
                data.append(line[5:])
            elif not line:
                if kind == b"data":
                    yield b"\n".join(data)
                elif kind == b"control":
                    params["offset"] = orjson.loads(b"".join(data))["streamNextOffset"]
                kind, data = b"", []
                if stop.is_set():
                    return
