"""What one process costs, without a network.

    uv run python -m benchmarks.inprocess [--json]

* AWS calls of each operation, counted where the client sends them (the emulated cloud).
* CPU of an append beyond the store client: the whole request path, ASGI call to answer, over memory adapters.
* Import time of the API, with its two clients, in a fresh interpreter (byte code present).
* Seal and replay, MB of record data a second of CPU, over memory adapters.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import click

from benchmarks.events import event
from functions.api.app import create_app
from functions.api.door.access import parse
from functions.api.parts import assemble
from functions.queue import MemoryQueue
from functions.sealer.context import assemble as assemble_sealer
from functions.sealer.seal import seal
from headrace.batch import Batch
from headrace.log.requests import At
from headrace.log.stores import Stores
from headrace.objects.memory import MemoryObjects
from headrace.objects.s3 import S3Objects, make_client
from headrace.offset import BEGINNING, Cursor
from headrace.settings import Settings
from headrace.streams.requests import AppendRequest, CreateRequest
from headrace.streams.verbs import Streams
from headrace.tables.catalog import DynamoCatalog
from headrace.tables.dynamodb import Store
from headrace.tables.producers import DynamoProducers
from headrace.tables.watermarks import DynamoWatermarks
from headrace.wal.dynamodb import DynamoWal
from headrace.wal.memory import MemoryWal
from local.emulated_cloud import emulated_cloud

ROUNDS = 2_000
JSON = "application/json"


def memory_stores(settings: Settings | None = None) -> Stores:
    """Every port in memory."""
    wal = MemoryWal()
    return Stores(wal, wal.catalog, wal.watermarks, wal.producers, MemoryObjects(), settings or Settings())


def append_cpu() -> dict[str, float]:
    """CPU µs of one POST of one JSON event through the ASGI application, the store client replaced by memory."""
    app = create_app(assemble(memory_stores(), parse("")))
    body = event(1)

    async def call(method: str) -> int:
        status = 0
        sent = False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                await asyncio.Event().wait()
            sent = True
            return {"type": "http.request", "body": body if method == "POST" else b"", "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": "/v1/stream/bench",
            "raw_path": b"/v1/stream/bench",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())],
            "scheme": "http",
            "server": ("localhost", 80),
            "client": ("127.0.0.1", 1),
            "root_path": "",
        }
        await app(scope, receive, send)
        return status

    async def run() -> list[float]:
        assert await call("PUT") == 201
        samples = []
        for _ in range(ROUNDS):
            begun = time.process_time_ns()
            assert await call("POST") == 204
            samples.append((time.process_time_ns() - begun) / 1000)
        return samples

    inline = dict(os.environ)
    os.environ["AWS_LAMBDA_FUNCTION_NAME"] = "bench"  # store calls inline, as on Lambda
    try:
        samples = asyncio.run(run())
    finally:
        os.environ.clear()
        os.environ.update(inline)
    return {
        "append_cpu_us_p50": statistics.median(samples),
        "append_cpu_us_p95": statistics.quantiles(samples, n=20)[18],
    }


def import_ms() -> dict[str, float]:
    """Wall ms from a fresh interpreter's start of the import to its end; median of five, after one that compiles."""
    program = "import time; t = time.perf_counter()\n{}\nprint((time.perf_counter() - t) * 1000)"
    found = {}
    for name, code in {
        "api_import_ms": "import functions.api.app",
        "api_with_clients_import_ms": "import functions.api.app, functions.api.components",
        "sealer_import_ms": "import functions.sealer.handler",
    }.items():
        runs = [
            float(
                subprocess.run([sys.executable, "-c", program.format(code)], capture_output=True, check=True).stdout
            )
            for _ in range(6)
        ]
        found[name] = statistics.median(runs[1:])
    return found


def pipeline() -> dict[str, float]:
    """Seals 100,000 events and reads them back from the segments."""
    stores = memory_stores(Settings(seal_records=50_000))
    logs = Streams(stores)
    logs.create("bench", CreateRequest(content_type=JSON))
    total, size = 100_000, 0
    for start in range(0, total, 1000):
        records = Batch.of([event(number) for number in range(start, start + 1000)])
        size += len(records.data)
        logs.append("bench", AppendRequest(content_type=JSON, records=records))
    log_id = logs.head("bench").log_id
    begun = time.process_time()
    seal(assemble_sealer(stores, MemoryQueue()), log_id, force=True)
    sealed = time.process_time() - begun
    fresh = Streams(stores)
    position, begun = BEGINNING, time.process_time()
    read = 0
    while read < total:
        page = fresh.read("bench", At(position))
        read += len(page.data)
        position = position._replace(position=page.next)
    replayed = time.process_time() - begun
    return {"seal_mb_per_cpu_s": size / 1e6 / sealed, "replay_mb_per_cpu_s": size / 1e6 / replayed}


def aws_calls() -> dict[str, dict[str, int]]:
    """Calls of each operation as they leave the clients, on the emulated cloud."""
    with emulated_cloud() as cloud:
        os.environ.update(cloud.environment)
        settings = Settings.from_environment(os.environ)
        tables = settings.table_names
        store, client = Store("us-east-1"), make_client()
        stores = Stores(
            DynamoWal(store, tables),
            DynamoCatalog(store, tables["catalog"]),
            DynamoWatermarks(store, tables["watermarks"]),
            DynamoProducers(store, tables["producers"]),
            S3Objects(settings.bucket, client),
            settings,
        )
        sent: Counter[str] = Counter()
        for watched in (store.connection.client, client):
            watched.meta.events.register_first(
                "before-send.*.*", lambda event_name, **_: sent.update([event_name.rpartition(".")[2]])
            )
        return _count_operations(stores, sent)


def _count_operations(stores: Stores, sent: Counter[str]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}

    def measure(name: str, operation: Callable[[], object]) -> None:
        sent.clear()
        operation()
        found[name] = dict(sorted(sent.items()))

    one = AppendRequest(content_type=JSON, records=Batch.of([b"{}"]))
    batch = AppendRequest(content_type=JSON, records=Batch.of([event(n) for n in range(50)]))
    tail = At(Cursor(0, 53))
    logs = Streams(stores)
    measure("create", lambda: logs.create("calls", CreateRequest(content_type=JSON)))
    measure("append, warm", lambda: logs.append("calls", one))
    measure("append, cold", lambda: Streams(stores).append("calls", one))
    logs.append("calls", one)
    measure("append of 50 events, warm", lambda: logs.append("calls", batch))
    logs.read("calls", tail)
    measure("read at the tail, warm", lambda: logs.read("calls", tail))
    measure("read at the tail, cold", lambda: Streams(stores).read("calls", tail))
    measure("read inside the last batch, warm", lambda: logs.read("calls", At(Cursor(0, 20))))
    measure("seal", lambda: seal(assemble_sealer(stores, MemoryQueue()), logs.head("calls").log_id, force=True))
    entries = stores.wal.read(logs.head("calls").log_id).entries
    stores.wal.remove(entries[0].log_id, [entry.slot for entry in entries[:-1]])  # as trimming does, later
    reader = Streams(stores)
    measure("read in a segment, cold", lambda: reader.read("calls", At(BEGINNING), max_records=2))
    measure("read in a segment, manifest known", lambda: reader.read("calls", At(BEGINNING), max_records=2))
    measure("head, warm", lambda: logs.head("calls"))
    measure("delete", lambda: logs.delete("calls"))
    return found


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def main(as_json: bool) -> None:
    """Measures and prints."""
    found = {**append_cpu(), **import_ms(), **pipeline()}
    calls = aws_calls()
    if as_json:
        click.echo(json.dumps({**found, "aws_calls": calls}))
        return
    for name, value in found.items():
        click.echo(f"{name:32} {value:12.1f}")
    for operation, counts in calls.items():
        click.echo(f"{operation:36} {', '.join(f'{count} {name}' for name, count in counts.items())}")


if __name__ == "__main__":
    main()
