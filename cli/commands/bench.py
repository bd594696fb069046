"""The command `headrace bench`: a small load of appends, a read and a tail, on a stream of its own."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

import click

from cli.client import ANSWER_TIMEOUT_S, Client
from cli.commands.tail import long_poll
from cli.errors import CliError
from cli.latencies import percentile, show_ms
from cli.options import Connection, Target, connection_options, example, json_option, print_json
from cli.output import steps_bar
from cli.pages import catch_up, elements
from cli.producers import Producer
from cli.signals import terminable
from cli.sources import json_batch
from cli.tables import Column, print_table
from cli.units import Duration, Size

JSON_TYPE = "application/json"
MAX_LOAD_MS = 60_000
MAX_BODY_BYTES = 4 * 1024 * 1024
RECORD_BYTES = (64, 256 * 1024)
PACE_S = 0.02
TTL_S = 3600

EPILOG = (
    example(
        "headrace bench",
        "headrace bench --duration 10s --clients 4 --batch-records 1000",
        "headrace bench --record-size 4KiB --json | jq '.loads[].p99_ms'",
    )
    + """

\b
What it does, each for at most --duration:
  append  batches, from --clients connections, each as fast as it is answered
  read    all of that, from one connection, page by page
  tail    one record every 20 ms, while another connection follows (long-poll):
          the latency is from before the append until the record has arrived
A sample is a request, in the tail a record. Latencies include retries, and the
way to the server. A server on this machine shares its processors with the client.
"""
)


@dataclass
class Load:
    """What one kind of load measured. Latencies are of requests; in `tail`, of records."""

    name: str
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)
    has_rate: bool = True

    def facts(self) -> dict[str, Any]:
        """Returns the figures, rounded, for `--json`."""
        figures = {f"p{rank}_ms": percentile(self.latencies_ms, rank) for rank in (50, 99)}
        figures["max_ms"] = percentile(self.latencies_ms, 100)
        rates = {"records_per_s": self.records, "bytes_per_s": self.bytes} if self.has_rate and self.seconds else {}
        return {
            "load": self.name,
            "records": self.records,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            **{name: round(amount / self.seconds) for name, amount in rates.items()},
            "samples": len(self.latencies_ms),
            **{name: None if figure is None else round(figure, 3) for name, figure in figures.items()},
        }


@click.command(epilog=EPILOG)
@click.option(
    "--duration", "duration_ms", type=Duration(), default="3s", show_default=True, help="Of each load; at most 1m."
)
@click.option("--clients", type=click.IntRange(1, 32), default=1, show_default=True, help="Connections that append.")
@click.option(
    "--batch-records", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Records in one request."
)
@click.option("--record-size", "record_bytes", type=Size(), default="256", show_default=True, help="Of one record.")
@json_option
@connection_options
def command(
    connection: Connection, duration_ms: int, clients: int, batch_records: int, record_bytes: int, as_json: bool
) -> None:
    """Put a small load on a server: appends, a read, a tail. It says rates and latencies.

    It uses a stream of its own, whose name begins with bench-, and deletes it in the end. A key needs every scope.
    """
    if not 0 < duration_ms <= MAX_LOAD_MS:
        raise click.BadParameter("at most 1m", param_hint="--duration")
    low, high = RECORD_BYTES
    if not low <= record_bytes <= high or (record_bytes + 1) * batch_records + 1 > MAX_BODY_BYTES:
        raise click.BadParameter(
            "64 B to 256 KiB, and at most 4 MiB in the --batch-records of one request", param_hint="--record-size"
        )
    duration_s = duration_ms / 1000
    with terminable(), scratch_stream(connection) as target, steps_bar() as progress:
        task = progress.add_task("append", total=3)
        loads = [append(connection, target, duration_s, clients, batch_records, record_bytes)]
        progress.update(task, description="read", advance=1)
        loads.append(read(connection, target, duration_s, loads[0].records))
        progress.update(task, description="tail", advance=1)
        loads.append(tail(connection, target, duration_s, record_bytes))
    facts = [load.facts() for load in loads]
    if as_json:
        print_json({"url": connection.url, "clients": clients, "batch_records": batch_records, "loads": facts})
        return
    titles = ("records", "records/s", "MB/s", "samples", "p50 ms", "p99 ms", "max ms")
    print_table([Column("load"), *(Column(title, True) for title in titles)], map(_row, facts))


def _row(load: dict[str, Any]) -> list[str | None]:
    has_rate = "records_per_s" in load
    return [
        load["load"],
        f"{load['records']:,}",
        f"{load['records_per_s']:,}" if has_rate else None,
        f"{load['bytes_per_s'] / 1e6:,.1f}" if has_rate else None,
        f"{load['samples']:,}",
        *(show_ms(load[name]) for name in ("p50_ms", "p99_ms", "max_ms")),
    ]


@contextmanager
def scratch_stream(connection: Connection) -> Iterator[Target]:
    """Yields a new JSON stream, and deletes it in the end. One that a killed run leaves behind expires."""
    target = connection.target(f"bench-{uuid.uuid4().hex[:12]}")
    client = connection.client()
    headers = {"content-type": JSON_TYPE, "stream-ttl": str(TTL_S)}
    client.send("PUT", target.url, what=f"create {target.name}", headers=headers)
    try:
        yield target
    finally:
        client.send("DELETE", target.url, what=f"delete {target.name}", expect=(404, 410))


def append(
    connection: Connection, target: Target, duration_s: float, clients: int, batch_records: int, record_bytes: int
) -> Load:
    """Appends batches from several connections until the time is over."""
    parts = [Load("append") for _ in range(clients)]
    started = time.perf_counter()
    stop = threading.Event()

    def run(client: Client, load: Load) -> None:
        producer = new_producer(client, target)
        records = make_records(record_bytes)
        while time.perf_counter() - started < duration_s and not stop.is_set():
            batch = json_batch(list(islice(records, batch_records)))
            sent = time.perf_counter()
            producer.append(batch)
            load.latencies_ms.append((time.perf_counter() - sent) * 1000)
            load.seconds = time.perf_counter() - started
        load.records, load.bytes = producer.totals.records, producer.totals.bytes

    with ThreadPoolExecutor(clients) as pool:
        try:
            for done in [pool.submit(run, connection.client(), load) for load in parts]:
                done.result()
        finally:
            stop.set()  # one failed, or the user interrupts
    return Load(
        "append",
        sum(load.records for load in parts),
        sum(load.bytes for load in parts),
        max(load.seconds for load in parts),
        [latency for load in parts for latency in load.latencies_ms],
    )


def read(connection: Connection, target: Target, duration_s: float, expected: int) -> Load:
    """Reads the stream from its beginning until its end or until the time is over. Raises CliError if the end comes
    before every record that was appended.
    """
    load = Load("read")
    started = asked = time.perf_counter()
    at_end = False
    for page in catch_up(connection.client(), target, "-1", None):
        load.latencies_ms.append((time.perf_counter() - asked) * 1000)
        load.records += len(elements(page.body))
        load.bytes += len(page.body)
        load.seconds = time.perf_counter() - started
        at_end = page.up_to_date
        if load.seconds > duration_s:
            break
        asked = time.perf_counter()
    if at_end and load.records != expected:
        raise CliError(f"bench: {expected:,} records were appended, {load.records:,} were read", "please report this")
    return load


def tail(connection: Connection, target: Target, duration_s: float, record_bytes: int) -> Load:
    """Follows the stream while records are appended one by one. Measures how long each takes to arrive."""
    load = Load("tail", has_rate=False)
    sent: dict[bytes, float] = {}
    client, reader = connection.client(), connection.client()
    producer = new_producer(client, target)
    head = client.send("HEAD", target.url, what=f"look up {target.name}")

    def follow() -> None:
        for page in long_poll(reader, target, head.headers["stream-next-offset"]):
            arrived = time.perf_counter()
            for record in elements(page.body):
                load.latencies_ms.append((arrived - sent[record]) * 1000)
                load.records += 1
                load.bytes += len(record)

    with ThreadPoolExecutor(1) as pool:
        follower = pool.submit(follow)
        started = time.perf_counter()
        try:
            for record in make_records(record_bytes):
                if time.perf_counter() - started > duration_s or follower.done():
                    break
                sent[record] = time.perf_counter()
                producer.append(json_batch([record]))
                client.sleep(PACE_S)
        finally:
            producer.close()  # which ends the follower, once it has everything
        follower.result(timeout=ANSWER_TIMEOUT_S)
    load.seconds = time.perf_counter() - started
    return load


def new_producer(client: Client, target: Target) -> Producer:
    """Returns a producer with an id of its own."""
    return Producer(client, target, JSON_TYPE, f"bench-{uuid.uuid4().hex}")


def make_records(record_bytes: int) -> Iterator[bytes]:
    """Yields JSON records of this size, none like another. Half of each is random, so that it compresses as text does."""
    source = random.Random()
    prefix = uuid.uuid4().hex[:12]
    for number in count():
        head = f'{{"id":"{prefix}-{number:08d}","text":"'
        left = record_bytes - len(head) - 2
        noise = source.randbytes(left // 4 + 1).hex()[: left // 2]
        yield f'{head}{noise}{"." * (left - len(noise))}"}}'.encode()
