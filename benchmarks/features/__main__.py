"""Feature tables, on Headrace and on beava's own server, in turn on this machine: see --help."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.features import backfill, cpu, embed, loads
from benchmarks.result import Result, file_options, machine, publish
from benchmarks.wire import LoadFailed, Server
from tests.support.emulated_cloud import dev_server

PEER = "beava 0.0.6"
LOADS = ("load", "server", "events_per_s", "p50_ms", "p95_ms", "p99_ms", "max_ms", "busy")
CPU = ("what", "us", "us_1h", "per_s", "wall_per_s")
BACKFILL = (
    *("events", "rows", "live_fold_cpu_s", "job_cpu_s", "beyond_fixed_cpu_s", "per_million_cpu_s"),
    *("wall_s", "peak_mb"),
)


def measure(server: Server, *, is_peer: bool) -> Iterator[Result]:
    """Yields the result of each load. The peer folds when it acknowledges, and takes no batches."""
    yield loads.push(server, clients=1, pushes=2_000)
    yield loads.push(server, clients=8, pushes=4_000)
    yield loads.push(server, clients=1, pushes=1_000, deduped=True)
    if not is_peer:
        yield loads.batch(server, pages=100)
        yield loads.batch(server, pages=200, sustained=True)
    yield loads.read(server, reads=1_000)
    yield loads.read(server, reads=500, tail=1)
    yield loads.read(server, reads=300, entities=100)
    if not is_peer:
        yield loads.fold_lag(server, pushes=1_500, per_s=50)


def rows_of(name: str, results: Iterable[Result]) -> Iterator[dict[str, Any]]:
    """Yields the rows of a server's loads."""
    for result in results:
        yield {"server": name, **result.row()}


def both(peer: str | None) -> Iterator[dict[str, Any]]:
    """Yields the rows of `headrace dev`, and of a peer."""
    with dev_server() as dev:
        yield from rows_of("headrace dev", measure(Server(dev.url, ""), is_peer=False))
    if peer is not None:
        yield from rows_of(PEER, measure(Server(peer, ""), is_peer=True))


def embedded(peer: str | None, frames: str) -> Iterator[dict[str, Any]]:
    """Yields the rows of `headrace-beava`, and of a peer."""
    with embed.headrace_beava() as doors:
        yield from rows_of("headrace-beava", embed.measure(doors))
    if peer is not None:
        host, _, port = frames.rpartition(":")
        yield from rows_of(PEER, embed.measure(embed.Doors(peer, (host, int(port)))))


def tell(what: str) -> None:
    """Reports progress on standard error."""
    click.echo(what, err=True)


@click.command()
@click.option("--peer", help="The URL of beava's own server.")
@click.option("--peer-tcp", default="127.0.0.1:8081", show_default=True, help="With --embed: its port for frames.")
@click.option(
    "--embed", "is_embed", is_flag=True, help="Measure servers in memory, over HTTP and TCP, and nothing else."
)
@click.option("--cpu", "is_cpu", is_flag=True, help="Measure CPU in one process, and nothing else.")
@click.option(
    "--backfill",
    "events",
    type=click.IntRange(min=10),
    help="Measure the back-fill of this many events, compare all rows with those of live folds, and nothing else.",
)
@file_options
def main(
    peer: str | None,
    peer_tcp: str,
    is_embed: bool,
    is_cpu: bool,
    events: int | None,
    markdown_file: Path | None,
    json_file: Path | None,
) -> None:
    """Measure feature tables on `headrace dev`, and on beava's own server beside it, and print one table.

    \b
    beava --memory-only --test-mode     # the server that PyPI's beava 0.0.6 ships: HTTP at port 8080, frames at 8081
    P=http://127.0.0.1:8080
    uv run python -m benchmarks.features --peer $P --markdown table.md --json figures.json
    uv run python -m benchmarks.features --embed --peer $P --peer-tcp 127.0.0.1:8081
    uv run python -m benchmarks.features --cpu
    uv run python -m benchmarks.features --backfill 1000000

    You start the peer yourself, outside of this project; it acknowledges from memory. Headrace acknowledges what is
    stored, on an emulated cloud in one process tree, whose store is the slow part; with --embed both are in memory. The
    client is one process, the same for both, and shares the cores with them.

    All that the servers hold is removed: give no peer whose data you want to keep.
    """
    before, rows = machine(), list[dict[str, Any]]()
    found: Iterable[dict[str, Any]]
    columns: Sequence[str]
    if is_cpu:
        found, columns = cpu.measure(), CPU
    elif events is not None:
        found, columns = backfill.measure(events, tell), BACKFILL
    elif is_embed:
        found, columns = embedded(peer, peer_tcp), LOADS
    else:
        found, columns = both(peer), LOADS
    try:
        for row in found:
            rows.append(row)
            tell(", ".join(f"{name} {row[name]}" for name in columns if row.get(name, "") != ""))
    except (LoadFailed, backfill.BackfillFailed, OSError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    publish(rows, columns, before, markdown_file, json_file)


if __name__ == "__main__":
    main()
