"""The loads of `/v0`: appends, diffs, deletes, claims with acks. Each makes its own topic, and deletes it afterwards."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import orjson

from benchmarks.events import event
from benchmarks.result import Result, percentile
from benchmarks.wire import Connection, LoadFailed, Server

JSON_TYPE = "application/json"
PAGE = 1000


_TRIES = re.compile(r'^commit;desc="tries (\d+)"$')


class Client:
    """One connection, for JSON requests to topics. Not for several threads.

    Attributes:
        tries: how many commits each write, claim and ack took, as far as the server says so.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self.connection = Connection(server)
        self.tries: list[int] = []

    def ask(self, method: str, name: str, verb: str = "", body: Any = None) -> Any:
        """Sends a request about a topic, and returns the decoded answer. Raises `LoadFailed` for an error."""
        path = self._server.path(name) + verb
        data = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        answer = self.connection.request(method, path, body=data, content_type=JSON_TYPE)
        if told := _TRIES.match(answer.headers.get("server-timing", "")):
            self.tries.append(int(told[1]))
        return orjson.loads(answer.body)

    def timed(self, method: str, name: str, verb: str = "", body: Any = None) -> tuple[float, Any]:
        """Returns the milliseconds that `ask` takes, and its result."""
        started = time.perf_counter()
        answer = self.ask(method, name, verb, body)
        return (time.perf_counter() - started) * 1000, answer


@contextmanager
def scratch_topic(server: Server, **config: Any) -> Iterator[str]:
    """Yields the name of a new topic, which is deleted afterwards."""
    name = f"benchmark-{uuid.uuid4().hex[:12]}"
    client = Client(server)
    client.ask("PUT", name, body=config)
    try:
        yield name
    finally:
        client.ask("DELETE", name)
        client.connection.close()


def write_body(first: int, records: int, tag: Callable[[int], str] | None = None, key: str | None = None) -> bytes:
    """Returns the body of a write of `records` events, made by hand so that the client costs little."""
    parts = []
    for number in range(first, first + records):
        tagged = b',"tag":"%s"' % tag(number).encode() if tag is not None else b""
        parts.append(b'{"data":%s%s}' % (event(number), tagged))
    keyed = b',"idempotency_key":"%s"' % key.encode() if key is not None else b""
    return b'{"records":[%s]%s}' % (b",".join(parts), keyed)


def fill(client: Client, name: str, records: int, tag: Callable[[int], str] | None = None) -> list[float]:
    """Appends events in writes of 1,000; returns the milliseconds of each."""
    latencies = []
    for first in range(0, records, PAGE):
        body = write_body(first, min(PAGE, records - first), tag)
        latencies.append(client.timed("POST", name, "?return_seqs=false", body)[0])
    return latencies


def at_once(
    server: Server, clients: int, work: Callable[[Client, int], list[float]]
) -> tuple[list[float], float, int, dict[str, Any]]:
    """Runs `work(client, number)` in a thread for each client. Returns all latencies that they return, the seconds of the
    whole, how often a server was busy, and how many commits a request took: the mean, the 99th percentile and the most.
    Raises the first error of a thread.
    """
    latencies: list[float] = []
    failures: list[Exception] = []
    made = [Client(server) for _ in range(clients)]

    def run(client: Client, number: int) -> None:
        try:
            latencies.extend(work(client, number))
        except Exception as error:  # noqa: BLE001 (a thread's failure is the load's failure)
            failures.append(error)

    threads = [threading.Thread(target=run, args=(client, number)) for number, client in enumerate(made)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - started
    for client in made:
        client.connection.close()
    if failures:
        raise failures[0]
    tries = [one for client in made for one in client.tries]
    told: dict[str, Any] = {}
    if tries:
        mean = round(sum(tries) / len(tries), 2)
        told = {"tries": mean, "p99_tries": percentile(tries, 99), "most_tries": max(tries)}
    return latencies, taken, sum(client.connection.busy for client in made), told


def single(server: Server, *, clients: int, writes: int, durability: str = "fsync", keyed: bool = False) -> Result:
    """Writes one record at a time from some connections to one topic, each as fast as it is answered."""
    numbers = count()

    def work(client: Client, _: int) -> list[float]:
        latencies = []
        while (number := next(numbers)) < writes:
            body = write_body(number, 1, key=f"key-{number}" if keyed else None)
            latencies.append(client.timed("POST", name, "", body)[0])
        return latencies

    with scratch_topic(server, durability=durability) as name:
        latencies, taken, busy, tries = at_once(server, clients, work)
    what = "keyed append" if keyed else "append"
    load = f"{what}, {clients} client{'s' if clients > 1 else ''}, {durability}"
    return Result(load, len(latencies), 0, taken, latencies, busy, tries)


def batch(server: Server, *, records: int) -> Result:
    """Sends writes of 1,000 records from one connection."""
    client = Client(server)
    with scratch_topic(server, durability="fsync") as name:
        latencies = fill(client, name, records)
    client.connection.close()
    return Result("append, 1,000 a write", records, 0, sum(latencies) / 1000, latencies)


def diffs(server: Server, *, records: int, limit: int) -> Result:
    """Reads a topic from its start to its end in pages of `limit`."""
    client = Client(server)
    with scratch_topic(server) as name:
        fill(client, name, records)
        latencies, seen, cursor, caught_up = [], 0, 0, False
        while not caught_up:
            asked = {"from_seq": cursor, "limit": limit}
            took, page = client.timed("POST", name, "/diff", asked)
            latencies.append(took)
            seen += len(page["records"])
            cursor, caught_up = page["next_from_seq"], page["caught_up"]
    client.connection.close()
    if seen != records:
        raise LoadFailed(f"diff: appended={records} read={seen}")
    return Result(f"diff, {limit:,} a page", seen, 0, sum(latencies) / 1000, latencies)


def tail(server: Server, *, reads: int) -> Result:
    """Diffs at the end of a topic, where nothing is."""
    client = Client(server)
    with scratch_topic(server) as name:
        head = client.ask("POST", name, "", write_body(0, 100))["head_seq"]
        latencies = [client.timed("POST", name, "/diff", {"from_seq": head})[0] for _ in range(reads)]
    client.connection.close()
    return Result("diff at the end", reads, 0, sum(latencies) / 1000, latencies)


def jobs(server: Server, *, workers: int, jobs: int, most: int) -> Result:
    """Runs workers that claim at most `most` jobs at a time and ack them. Latencies are those of claims; each claim or ack
    is an operation.
    """
    done: set[int] = set()
    operations = count()

    def work(client: Client, number: int) -> list[float]:
        node, latencies = f"worker-{number}", []
        wanted = {"node": node, "max": most, "lease_ms": 60_000}
        while len(done) < jobs:
            took, claimed = client.timed("POST", name, "/claim", wanted)
            next(operations)
            if not claimed["claimed"]:
                continue
            latencies.append(took)
            seqs = [job["$seq"] for job in claimed["claimed"]]
            acked = client.ask("POST", name, "/ack", {"node": node, "seqs": seqs})
            next(operations)
            if acked["skipped"]:
                raise LoadFailed(f"jobs: a held job was not acked: {acked}")
            done.update(seqs)
        return latencies

    with scratch_topic(server, type="queue", durability="fsync") as name:
        fill(Client(server), name, jobs)
        latencies, taken, busy, tries = at_once(server, workers, work)
    asked = next(operations)
    load = f"jobs, {workers} worker{'s' if workers > 1 else ''}, {most} a claim"
    return Result(load, jobs, 0, taken, latencies, busy, {"operations_per_s": round(asked / taken, 1), **tries})


_STRETCH = 10_000  # records that share tags: each of ten tags has a thousand of them


def growth(server: Server, *, sizes: Sequence[int], samples: int = 30) -> Iterator[dict[str, Any]]:
    """Fills one topic to each of `sizes`, multiples of 10,000, and deletes four records of ten by tag. Yields what deletes
    and diffs cost then: milliseconds (medians).
    """
    client = Client(server)

    def read(name: str, **asked: int) -> float:
        return median([client.timed("POST", name, "/diff", asked)[0] for _ in range(samples)])

    with scratch_topic(server) as name:
        first = 0
        for size in sizes:
            for start in range(first, size, PAGE):
                body = write_body(start, PAGE, lambda number: f"t{number % 10}:{number // _STRETCH}")
                client.ask("POST", name, "?return_seqs=false", body)
            removed, deletes = 0, []
            for stretch in range(first // _STRETCH, size // _STRETCH):
                for digit in range(4):
                    took, answer = client.timed("POST", name, "/delete", {"match": f"t{digit}:{stretch}"})
                    deletes.append(took)
                    removed += answer["deleted"]
            if removed != (size - first) * 4 // 10:
                raise LoadFailed(f"growth: added={size - first} deleted={removed}")
            yield {
                "records": size,
                "deleted": size * 4 // 10,
                "delete_ms": median(deletes[-samples:]),
                "diff_start_ms": read(name, from_seq=0, limit=100),
                "diff_middle_ms": read(name, from_seq=size // 2, limit=100),
                "diff_end_ms": read(name, from_seq=size),
            }
            first = size
    client.connection.close()


def median(values: Sequence[float]) -> float:
    """Returns the median of measured values, rounded."""
    return round(sorted(values)[len(values) // 2], 2)
