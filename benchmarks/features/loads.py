"""The loads of `/push`, `/get` and `/batch_get`. Each begins with a reset: the server must be one for trying things out."""

from __future__ import annotations

import time
import uuid
from itertools import count
from typing import Any

import orjson

from benchmarks.features.events import DEDUPED, EVENT, MIXED, USERS, data, user
from benchmarks.result import Result
from benchmarks.topics.loads import Client, at_once
from benchmarks.wire import LoadFailed, Server

PAGE = 1_000
_UNFOLDED_PAGES = 25  # of 1,000 events: somewhat less than may wait to be folded
_POLL_S = 0.1
_FOLD_TIMEOUT_S = 60.0


def begin(client: Client, event: dict[str, Any] = EVENT, table: dict[str, Any] = MIXED) -> None:
    """Resets the server, registers an event and a table, and pushes once, so that the server knows both."""
    client.ask("POST", "reset", body={})
    client.ask("POST", "register", body={"nodes": [event, table]})
    client.ask("POST", "push", body={"event": "Tx", "data": data(0) | {"id": uuid.uuid4().hex}})


def settle(client: Client) -> None:
    """Waits until all that was pushed is folded."""
    last = f"last-{uuid.uuid4().hex}"
    client.ask("POST", "push", body={"event": "Tx", "data": data(0) | {"user": last}})
    began = time.perf_counter()
    while not client.ask("POST", "get", body={"table": "U", "key": last, "consistency": "stale"}):
        if time.perf_counter() - began > _FOLD_TIMEOUT_S:
            raise LoadFailed(f"events were not folded in {_FOLD_TIMEOUT_S} s")
        # Seldom enough to leave the server the processors.
        time.sleep(_POLL_S)  # polls: no server tells when it has folded


def push(server: Server, *, clients: int, pushes: int, deduped: bool = False) -> Result:
    """Pushes one event at a time from some connections, each as fast as it is answered."""
    numbers, run = count(), uuid.uuid4().hex
    begin(Client(server), DEDUPED if deduped else EVENT)

    def work(client: Client, _: int) -> list[float]:
        latencies = []
        while (number := next(numbers)) < pushes:
            more = {"id": f"{run}-{number}"} if deduped else {}
            latencies.append(client.timed("POST", "push", "", {"event": "Tx", "data": data(number) | more})[0])
        return latencies

    latencies, taken, busy, _ = at_once(server, clients, work)
    load = f"push{' with dedupe' if deduped else ''}, {clients} client{'s' if clients > 1 else ''}"
    return Result(load, pushes, 0, taken, latencies, busy)


def batch(server: Server, *, pages: int, sustained: bool = False) -> Result:
    """Pushes 1,000 events in a request, from one connection. The server may refuse more while too much is not folded: the
    load waits for that before, outside of the time that is measured, unless it is to be sustained.
    """
    client, latencies = Client(server), []
    begin(client)
    starts = range(0, _UNFOLDED_PAGES * PAGE, PAGE)
    bodies = [orjson.dumps([data(number) for number in range(first, first + PAGE)]) for first in starts]
    began = time.perf_counter()
    for page in range(pages):
        if not sustained and page % _UNFOLDED_PAGES == 0:
            settle(client)
        latencies.append(client.timed("POST", "push", "/Tx/batch", bodies[page % _UNFOLDED_PAGES])[0])
    taken = time.perf_counter() - began if sustained else sum(latencies) / 1000
    busy = client.connection.busy
    client.connection.close()
    load = "batch of 1,000, as fast as they are folded" if sustained else "batch of 1,000"
    return Result(load, pages * PAGE, 0, taken, latencies, busy)


def read(server: Server, *, reads: int, entities: int = 1, tail: int = 0) -> Result:
    """Reads the rows of some entities in each request, once all events are folded; or after so many more were pushed, which
    the server has to add itself.
    """
    client, latencies = Client(server), []
    begin(client)
    for number in range(2 * USERS):
        client.ask("POST", "push", body={"event": "Tx", "data": data(number)})
    settle(client)
    for first in range(reads):
        for number in range(tail):
            client.ask("POST", "push", body={"event": "Tx", "data": data(number)})
        keys = [user(number) for number in range(first, first + entities)]
        if entities == 1:
            took, row = client.timed("POST", "get", "", {"table": "U", "key": keys[0]})
            rows = [row]
        else:
            asked = {"requests": [{"table": "U", "key": key} for key in keys]}
            took, answer = client.timed("POST", "batch_get", "", asked)
            rows = answer["results"]
        latencies.append(took)
        if not all(rows):
            raise LoadFailed(f"a row is missing: keys={keys}")
    client.connection.close()
    load = "get" if entities == 1 else f"batch_get of {entities}"
    load += f", {tail} push{'es' if tail > 1 else ''} before" if tail else ""
    return Result(load, reads, 0, sum(latencies) / 1000, latencies)


def fold_lag(server: Server, *, pushes: int, per_s: int) -> Result:
    """Pushes events of as many new users at a steady rate. A latency is the time from an acknowledgement until a stale read
    has the row, to a tenth of a second.
    """
    client, latencies, run = Client(server), list[float](), uuid.uuid4().hex
    begin(client)
    settle(client)
    acked: dict[str, float] = {}
    number, asked, began = 0, 0.0, time.perf_counter()
    while number < pushes or acked:
        now = time.perf_counter()
        if number < pushes and now >= began + number / per_s:
            name = f"{run}-{number}"
            client.ask("POST", "push", body={"event": "Tx", "data": data(number) | {"user": name}})
            acked[name] = time.perf_counter()
            number += 1
        elif acked and now >= asked + _POLL_S:
            if now - min(acked.values()) > _FOLD_TIMEOUT_S:
                raise LoadFailed(f"events were not folded in {_FOLD_TIMEOUT_S} s")
            asked, names = now, list(acked)
            requests = [{"table": "U", "key": name} for name in names]
            rows = client.ask("POST", "batch_get", body={"requests": requests, "consistency": "stale"})["results"]
            seen = time.perf_counter()
            latencies += [(seen - acked.pop(name)) * 1000 for name, row in zip(names, rows, strict=True) if row]
        else:
            time.sleep(0.002)  # until the next push or look is due: nothing to wait for but the clock
    client.connection.close()
    return Result(
        f"acknowledged to folded, {per_s} pushes/s",
        pushes,
        0,
        time.perf_counter() - began,
        latencies,
        client.connection.busy,
        paced=True,
    )
