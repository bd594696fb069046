"""Ingest into streams that say what their records mean: schema, routing key and search configuration on, or a profile.

    uv run python -m benchmarks.described --repeat 3 --json figures.json

The same events, in the same batches, over the same client, on Headrace and on the npm server of Prisma Streams, and to a
plain stream on each, so that the price of each description can be told. Of the repetitions the fastest is shown: what
else ran on the machine can only have made the others slower.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click
import orjson

from benchmarks.events import body, event
from benchmarks.loads import JSON_TYPE
from benchmarks.peers.__main__ import HEADRACE, server_url
from benchmarks.peers.servers import PeerFailed
from benchmarks.result import COLUMNS, Result, machine, markdown
from benchmarks.wire import Connection, LoadFailed, Server
from functions.api.door import requests
from headrace.definition import EMPTY, Definition
from headrace.json import registry
from headrace.streams import profiles
from headrace.streams.profiles import prepare

PRISMA = "@prisma/streams-server"
SERVERS = (HEADRACE, PRISMA)
BATCH_EVENTS = 500
WARM_EVENTS = 2_000

_TEXT = {"type": "string"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["id", "timestamp", "level", "service", "status", "requestId", "message"],
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "timestamp": {"type": "integer"},
        "level": {"type": "string", "enum": ["info", "warn", "error"]},
        "service": {"type": "string", "minLength": 1},
        "method": _TEXT,
        "path": {"type": "string", "pattern": "^/"},
        "status": {"type": "integer", "minimum": 100, "maximum": 599},
        "duration": {"type": "number"},
        "requestId": _TEXT,
        "traceId": _TEXT,
        "message": _TEXT,
    },
}


def _field(kind: str, name: str, *capabilities: str, **more: str) -> dict[str, Any]:
    bindings = [{"version": 1, "jsonPointer": f"/{name}"}]
    return {"kind": kind, "bindings": bindings, **dict.fromkeys(capabilities, True), **more}


_NAME = ("exact", "prefix", "exists", "sortable", "aggregatable")
_NUMBER = ("exact", "column", "exists", "sortable", "aggregatable")
SEARCH: dict[str, Any] = {
    "primaryTimestampField": "timestamp",
    "defaultFields": [{"field": "message", "boost": 2}],
    "fields": {
        "timestamp": _field("date", "timestamp", *_NUMBER),
        "level": _field("keyword", "level", *_NAME, normalizer="lowercase_v1"),
        "service": _field("keyword", "service", *_NAME, normalizer="lowercase_v1"),
        "method": _field("keyword", "method", *_NAME, normalizer="lowercase_v1"),
        "path": _field("keyword", "path", *_NAME),
        "status": _field("integer", "status", *_NUMBER),
        "duration": _field("float", "duration", *_NUMBER),
        "requestId": _field("keyword", "requestId", "exact", "prefix", "exists"),
        "traceId": _field("keyword", "traceId", "exact", "prefix", "exists"),
        "message": _field("text", "message", "exists", "positions", analyzer="unicode_word_v1"),
    },
}
UPDATE = {"schema": SCHEMA, "routingKey": {"jsonPointer": "/service", "required": True}, "search": SEARCH}


class Kind(NamedTuple):
    """What a stream says of its records: the resource that is told, and what it is told. None: nothing."""

    name: str
    resource: str | None = None
    document: dict[str, Any] | None = None


KINDS = (
    Kind("plain"),
    Kind("schema, routing key, search", "_schema", UPDATE),
    Kind("evlog profile", "_profile", {"profile": {"kind": "evlog"}}),
)


@contextmanager
def stream(server: Server, kind: Kind) -> Iterator[str]:
    """Yields the path of a new stream of a kind, which is deleted afterwards."""
    path = server.path(f"benchmark-{uuid.uuid4().hex[:12]}")
    connection = Connection(server)
    connection.request("PUT", path, content_type=JSON_TYPE)
    if kind.resource is not None:
        document = orjson.dumps(kind.document)
        connection.request("POST", f"{path}/{kind.resource}", body=document, content_type=JSON_TYPE)
    try:
        yield path
    finally:
        connection.request("DELETE", path)
        connection.close()


def load(server: Server, kind: Kind, *, events: int, batch: int, seconds: float) -> Result:
    """Appends events, `batch` in a request, from one connection. Bodies are made outside of the time that is measured."""
    connection = Connection(server)
    latencies: list[float] = []
    size = sent = 0
    began = time.perf_counter()
    with stream(server, kind) as path:
        connection.request("POST", path, body=body(0, min(batch, WARM_EVENTS)), content_type=JSON_TYPE)
        while sent < events and time.perf_counter() - began < seconds:
            data = body(sent, batch) if batch > 1 else event(sent)
            started = time.perf_counter()
            connection.request("POST", path, body=data, content_type=JSON_TYPE)
            latencies.append((time.perf_counter() - started) * 1000)
            sent += batch
            size += len(data)
    connection.close()
    how = "single appends" if batch == 1 else f"batches of {batch}"
    return Result(f"{how}: {kind.name}", sent, size, sum(latencies) / 1000, latencies, connection.busy)


def preparing(kind: Kind, batch: int = BATCH_EVENTS, rounds: int = 20) -> Result:
    """CPU of what a description adds to one append: parse, check, find keys, normalise. One process, no store."""
    definition = _definition(kind)
    records = requests.records(body(0, batch), JSON_TYPE, None)
    samples = []
    for _ in range(rounds):
        started = time.process_time()
        prepare(definition, JSON_TYPE, records, 0)
        samples.append((time.process_time() - started) * 1000)
    size = len(records.data)
    best = min(samples)
    return Result(f"CPU of preparing {batch} events: {kind.name}", batch, size, best / 1000, samples)


def _definition(kind: Kind) -> Definition:
    if kind.resource is None or kind.document is None:
        return EMPTY
    if kind.resource == "_schema":
        update = registry.parse_update(orjson.dumps(kind.document), "s")
        return Definition(registry.apply(EMPTY.registry, update, name="s", next_offset=0, is_empty=True), EMPTY.own)
    profile = profiles.parse_update(kind.document)
    installed = profile.registry()
    assert installed is not None, "it brings a schema"
    return Definition(registry.install(installed, name="s", next_offset=0), profile)


def best_of(repeat: int, measure: Callable[[], Result]) -> Result:
    """Returns the fastest of some repetitions; its notes hold the rates of all."""
    results = [measure() for _ in range(repeat)]
    found = max(results, key=lambda result: result.events / result.seconds)
    found.notes["all_events_per_s"] = [round(result.events / result.seconds, 1) for result in results]
    return found


def run(server: Server, repeat: int, batched: int, single: int, seconds: float) -> Iterator[Result]:
    """Yields the result of both loads on each kind of stream: the fastest of `repeat` repetitions."""
    for events, batch in ((batched, BATCH_EVENTS), (single, 1)):
        for kind in KINDS:
            yield best_of(
                repeat,
                lambda kind=kind, events=events, batch=batch: load(  # type: ignore[misc]
                    server, kind, events=events, batch=batch, seconds=seconds
                ),
            )


@click.command()
@click.option("--server", "servers", multiple=True, type=click.Choice(SERVERS), help="Only these. [default: both]")
@click.option("--repeat", default=3, show_default=True, help="Runs of each load, of which the fastest counts.")
@click.option("--batched", default=50_000, show_default=True, help="Events in batches.")
@click.option("--single", default=500, show_default=True, help="Single appends.")
@click.option("--seconds", default=60.0, show_default=True, help="Longest time of one load.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures.")
def main(
    servers: tuple[str, ...], repeat: int, batched: int, single: int, seconds: float, json_file: Path | None
) -> None:
    """Measure ingest under schemas and profiles on each server and print one table."""
    before = machine()
    rows = [{"server": "one process", **best_of(repeat, lambda k=kind: preparing(k)).row()} for kind in KINDS[1:]]  # type: ignore[misc]
    failed = False
    for name in servers or SERVERS:
        try:
            with server_url(name) as url:
                for result in run(Server(url), repeat, batched, single, seconds):
                    rows.append({"server": name, **result.row()})
                    click.echo(f"{name}: {result.load}: {rows[-1]['events_per_s']} events/s", err=True)
        except (PeerFailed, LoadFailed, OSError) as error:
            failed = True
            click.echo(f"error: {name}: {error}", err=True)
    rows.sort(key=lambda row: str(row["load"]), reverse=True)
    click.echo(markdown(rows, ("load", "server", *COLUMNS[1:-2])))
    if json_file:
        document = {"machine_before": before, "machine_after": machine(), "repeat": repeat, "results": rows}
        json_file.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
