"""What one process costs, without a network.

    uv run python -m benchmarks.inprocess [--json]

* AWS calls of each operation, counted where the client sends them (the emulated cloud).
* CPU of requests beyond the store client: the whole request path, ASGI call to answer, over memory adapters. An append of
  one event; a batch of 1,000 as a ratio to the calls that it can't do without; a page of 1,000 beyond a page of one.
* Import time of the API, with its two clients, in a fresh interpreter (byte code present).
* What the sealer's function takes to decide on 1,000 entries of as many logs, none of them due, with decoding the event.
* Seal and replay, MB of record data a second of CPU, over memory adapters.
"""

from __future__ import annotations

import asyncio
import base64
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
import msgspec
import orjson
import simdjson
import zstandard

from benchmarks.events import body, event
from functions.access import parse
from functions.api.app import create_app
from functions.api.context import assemble
from functions.queue import MemoryQueue
from functions.sealer.context import assemble as assemble_sealer
from functions.sealer.seal import seal
from functions.wiring import spare_start_up
from headrace.batch import Batch
from headrace.log.requests import At
from headrace.log.stores import Stores
from headrace.memory import memory_stores
from headrace.objects.s3 import S3Objects, make_client
from headrace.settings import Settings
from headrace.streams.values import AppendRequest, CreateRequest
from headrace.streams.verbs import Streams
from headrace.tables.dynamodb import Store
from headrace.tables.dynamodb_catalog import DynamoCatalog
from headrace.tables.follows import DynamoFollows
from headrace.tables.producers import DynamoProducers
from headrace.tables.sessions import DynamoSessions
from headrace.tables.watermarks import DynamoWatermarks
from headrace.wal.dynamodb import DynamoWal
from headrace.wal.entry import entry_item
from headrace.wal.state import BEGINNING, Cursor
from tests.support.emulated_cloud import emulated_cloud
from tests.unit.sealer.world import dispatcher

ROUNDS = 2_000
BATCH_ROUNDS = 200
BATCH_EVENTS = 1_000
JSON = "application/json"

_elements = msgspec.json.Decoder(list[msgspec.Raw])
_compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)


class _Client:
    """Calls the ASGI application on stores in memory, inline as on Lambda, and measures the CPU of each call."""

    def __init__(self) -> None:
        self.stores = memory_stores(Settings(seal_records=50_000))
        self._app = create_app(assemble(self.stores, parse("")))
        self._loop = asyncio.new_event_loop()

    def call(self, method: str, name: str, body: bytes = b"", query: bytes = b"") -> tuple[int, bytes, float]:
        """Status, body and CPU µs of one request, from the ASGI call to its answer."""
        path = f"/v1/stream/{name}"
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query,
            "headers": [(b"content-type", JSON.encode()), (b"content-length", str(len(body)).encode())],
            "scheme": "http",
            "server": ("localhost", 80),
            "client": ("127.0.0.1", 1),
            "root_path": "",
        }
        status, parts, sent = 0, [], False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                await asyncio.Event().wait()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message["body"])

        begun = time.process_time_ns()
        self._loop.run_until_complete(self._app(scope, receive, send))
        return status, b"".join(parts), (time.process_time_ns() - begun) / 1000

    def samples(self, count: int, status: int, *call: Any) -> list[float]:
        """CPU µs of so many equal requests, each with this status."""
        found = [self.call(*call) for _ in range(count)]
        assert {one[0] for one in found} == {status}, found[0]
        return [one[2] for one in found]


def request_cpu() -> dict[str, float]:
    """CPU of requests through the ASGI application, the store client replaced by memory, as on Lambda.

    A batch of 1,000 events is beside the calls that it can't do without; a page of 1,000 beside a page of one.
    """
    spare_start_up()  # as a process of the API does
    inline = dict(os.environ)
    os.environ["AWS_LAMBDA_FUNCTION_NAME"] = "bench"  # store calls inline, as on Lambda
    try:
        return _request_cpu(_Client())
    finally:
        os.environ.clear()
        os.environ.update(inline)


def _request_cpu(client: _Client) -> dict[str, float]:
    for name in ("bench", "batch", "one", "page"):
        assert client.call("PUT", name)[0] == 201
    single = client.samples(ROUNDS, 204, "POST", "bench", event(1))
    found = {
        "append_cpu_us_p50": statistics.median(single),
        "append_cpu_us_p95": statistics.quantiles(single, n=20)[18],
    }
    batch = body(0, BATCH_EVENTS)
    requests, calls, fastest = [], [], []
    for _ in range(BATCH_ROUNDS):  # by turns, so that all meet the same machine
        requests += client.samples(1, 204, "POST", "batch", batch)
        calls.append(_unavoidable_us(batch, orjson.loads))
        fastest.append(_unavoidable_us(batch, simdjson.Parser().parse))
    found["batch_append_cpu_us"] = statistics.median(requests)
    found["batch_unavoidable_cpu_us"] = statistics.median(calls)
    found["batch_append_to_unavoidable"] = found["batch_append_cpu_us"] / found["batch_unavoidable_cpu_us"]
    found["batch_append_to_unavoidable_with_simdjson"] = found["batch_append_cpu_us"] / statistics.median(fastest)
    client.call("POST", "one", event(0))
    client.call("POST", "page", batch)
    for place in ("tail", "segment"):
        if place == "segment":
            sealer = assemble_sealer(client.stores, MemoryQueue())
            for name in ("one", "page"):
                seal(sealer, Streams(client.stores).head(name).log_id, force=True)
                forget_tail(client.stores, name)
        assert client.call("GET", "page", b"", b"offset=-1")[1] == batch
        ones, pages = [], []
        for _ in range(BATCH_ROUNDS):
            ones += client.samples(1, 200, "GET", "one", b"", b"offset=-1")
            pages += client.samples(1, 200, "GET", "page", b"", b"offset=-1")
        found[f"page_of_1_cpu_us_{place}"] = statistics.median(ones)
        found[f"page_of_1000_cpu_us_{place}"] = statistics.median(pages)
        found[f"page_of_1000_more_cpu_us_{place}"] = statistics.median(pages) - statistics.median(ones)
    return found


def _unavoidable_us(batch: bytes, load: Callable[[bytes], object]) -> float:
    """CPU µs of what an append of a batch can't do without: the parse of the JSON, cutting it, one zstd of its data."""
    data = b"".join(_elements.decode(batch))
    begun = time.process_time_ns()
    load(batch)
    _elements.decode(batch)
    _compressor.compress(data)
    return (time.process_time_ns() - begun) / 1000


def forget_tail(stores: Stores, name: str) -> None:
    """Leaves the newest entry of a sealed log alone, as trimming does, later."""
    log_id = Streams(stores).head(name).log_id
    entries = stores.wal.read(log_id).entries
    stores.wal.remove(log_id, [entry.slot for entry in entries[:-1]])


def import_ms() -> dict[str, float]:
    """Wall ms from a fresh interpreter's start of the import to its end; median of five, after one that compiles."""
    program = "import time; t = time.perf_counter()\n{}\nprint((time.perf_counter() - t) * 1000)"
    found = {}
    for name, code in {
        "api_import_ms": "import functions.api.app",
        "api_with_clients_import_ms": "import functions.api.app, functions.api.context",
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


def hints() -> dict[str, float]:
    """Decides on the second entry of each of 1,000 logs, as the stream tells of them in one event."""
    stores = memory_stores(Settings())
    logs, records = Streams(stores), []
    for number in range(1000):
        name = f"bench-{number}"
        log_id = logs.create(name, CreateRequest(content_type=JSON)).head.log_id
        logs.append(name, AppendRequest(content_type=JSON, records=Batch.of([b"{}"] * 100)))
        entry = stores.wal.newest(log_id)
        assert entry is not None
        keys = {"log_id": {"S": log_id}, "slot": {"N": str(entry.slot)}}
        change = {"Keys": keys, "NewImage": entry_item(entry)}
        records.append({"eventSource": "aws:dynamodb", "eventName": "INSERT", "dynamodb": change})
    text = json.dumps({"Records": records}, default=lambda value: base64.b64encode(value).decode())
    sealer, _ = dispatcher(assemble_sealer(stores, MemoryQueue()))
    runs = []
    for _ in range(7):
        begun = time.process_time()
        sealer.dispatch(json.loads(text))
        runs.append(time.process_time() - begun)
    return {"hints_of_1000_logs_cpu_ms": statistics.median(runs) * 1000}


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
            DynamoFollows(store, tables),
            DynamoSessions(store, tables),
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
    found = {**request_cpu(), **import_ms(), **hints(), **pipeline()}
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
