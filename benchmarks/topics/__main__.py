"""Topics and queues, on Headrace and on another server of the contract, in turn on this machine.

    uv run python -m benchmarks.topics --peer http://127.0.0.1:4000 --markdown table.md --json figures.json
    uv run python -m benchmarks.topics --growth
    uv run python -m benchmarks.topics --push --peer http://127.0.0.1:4000

The peer is upstream's server, built outside of this project and started by hand, with its data on this disk. Appends ask
both for the class `fsync`: what Headrace acknowledges is always durable. Headrace runs on an emulated cloud in one process
tree, whose store is the slow part.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from benchmarks.result import Result, file_options, machine, publish
from benchmarks.topics import loads, push
from benchmarks.wire import LoadFailed, Server
from tests.support.emulated_cloud import DevServer, dev_server

PREFIX = "/v0/topics"
COLUMNS = (
    "load",
    "server",
    "events_per_s",
    "operations_per_s",
    "p50_ms",
    "p95_ms",
    "p99_ms",
    "busy",
    "tries",
    "most_tries",
)
PUSH = ("load", "server", "events", "operations_per_s", "ack_p50_ms", "p50_ms", "p95_ms", "p99_ms", "busy")
GROWTH = ("server", "records", "deleted", "delete_ms", "diff_start_ms", "diff_middle_ms", "diff_end_ms")


def measure(server: Server, *, is_queue_only: bool = False) -> Iterator[Result]:
    """Yields the result of each load."""
    if not is_queue_only:
        yield loads.single(server, clients=1, writes=500)
        yield loads.single(server, clients=8, writes=1000)
        yield loads.single(server, clients=1, writes=500, durability="disk")
        yield loads.single(server, clients=1, writes=500, keyed=True)
        yield loads.batch(server, records=100_000)
        yield loads.diffs(server, records=100_000, limit=1000)
        yield loads.tail(server, reads=500)
        yield loads.jobs(server, workers=1, jobs=300, most=1)
    yield loads.jobs(server, workers=8, jobs=1000, most=1)
    yield loads.jobs(server, workers=8, jobs=20_000, most=100)


def pushed(server: Server, *, is_peer: bool = False) -> Iterator[Result]:
    """Yields the result of each load about what an append sets off. A peer lets nobody watch more than 256 topics."""
    yield push.watch(server, topics=1, count=200)
    yield push.watch(server, topics=250 if is_peer else 1000, count=200)
    yield push.fan_out(server, destinations=0, count=50)
    yield push.fan_out(server, destinations=100, count=20)
    yield push.fan_out(server, destinations=1000, count=5)


def rows_of(name: str, results: Iterator[Result]) -> list[dict[str, Any]]:
    """Returns the rows of a server's loads; tells on standard error what was measured."""
    rows = []
    for result in results:
        row = {"server": name, **result.row(), **result.notes}
        rows.append(row)
        click.echo(f"{name}: {result.load}: {row['events_per_s'] or '-'} a second, p50 {row['p50_ms']} ms", err=True)
    return rows


def grown(name: str, server: Server, sizes: list[int]) -> list[dict[str, Any]]:
    """Returns the rows of the growth of a topic; tells on standard error what was measured."""
    rows = []
    for row in loads.growth(server, sizes=sizes):
        rows.append({"server": name, **row})
        click.echo(f"{name}: {row}", err=True)
    return rows


def _server(server: DevServer) -> Server:
    return Server(server.url, PREFIX)


@click.command()
@click.option("--peer", help="The URL of another server of the contract.")
@click.option(
    "--growth", is_flag=True, help="Measure what deletes and diffs cost as a topic grows, and nothing else."
)
@click.option("--push", "is_push", is_flag=True, help="Measure watches and routers, and nothing else.")
@click.option(
    "--records", default=1_000_000, show_default=True, help="With --growth: the records of the largest topic."
)
@file_options
def main(
    peer: str | None, growth: bool, is_push: bool, records: int, markdown_file: Path | None, json_file: Path | None
) -> None:
    """Measure appends, diffs, deletes and queues, and print one table."""
    before, rows = machine(), []
    peers = [("upstream", Server(peer, PREFIX))] if peer is not None else []
    try:
        with ExitStack() as stack:
            dev = stack.enter_context(dev_server(runs_jobs=growth))
            named = [("headrace dev", _server(dev)), *peers]
            if growth:
                sizes = [size for size in (10_000, 100_000, 1_000_000) if size < records] + [records]
                for name, server in named:
                    rows += grown(name, server, sizes)
            else:
                for name, server in named:
                    is_peer = name == "upstream"
                    rows += rows_of(name, pushed(server, is_peer=is_peer) if is_push else measure(server))
        if not growth:
            with dev_server("--api-processes", "3") as dev:
                results = pushed(_server(dev)) if is_push else measure(_server(dev), is_queue_only=True)
                rows += rows_of("headrace dev, 3 processes", results)
    except (LoadFailed, OSError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    publish(rows, GROWTH if growth else PUSH if is_push else COLUMNS, before, markdown_file, json_file)


if __name__ == "__main__":
    main()
