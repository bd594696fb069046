"""The same loads on Headrace and its peers, in turn on this machine.

    uv run python -m benchmarks.peers --markdown table.md --json figures.json

The servers take turns, three by default, since a machine may change its speed from minute to minute. Figures compare only
with others of the same run. Peers keep data in a process or on one disk; so does Headrace with --data. Without it, it runs
on an emulated cloud in one process tree, whose store is the slow part.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from benchmarks.http import LOADS, Plan, measure, plan_options
from benchmarks.peers.servers import PEERS, PeerFailed, running
from benchmarks.result import file_options, machine, publish
from benchmarks.wire import LoadFailed, Server

HEADRACE = "headrace dev"
DURABLE = "headrace dev --data"
SERVERS = (HEADRACE, DURABLE, *PEERS)
COLUMNS = ("load", "server", "rounds", "events_per_s", "from", "to", "p50_ms", "p95_ms", "p99_ms")


@contextmanager
def server_url(name: str) -> Iterator[str]:
    if name not in (HEADRACE, DURABLE):
        with running(name) as url:
            yield url
        return
    from tests.support.emulated_cloud import dev_server

    with TemporaryDirectory(prefix="benchmark-data-") as folder:
        options = ["--data", folder] if name == DURABLE else []
        with dev_server(*options, runs_jobs=True) as server:
            yield server.url


def medians(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns a row for each load and server, with the median of each figure, and the lowest and highest rate."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for load in dict.fromkeys(row["load"] for row in rows):
        for row in rows:
            if row["load"] == load:
                found.setdefault((load, row["server"]), []).append(row)
    return [{"load": load, "server": server, **_medians(turns)} for (load, server), turns in found.items()]


def _medians(turns: list[dict[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {"rounds": len(turns)}
    for figure in ("events_per_s", "p50_ms", "p95_ms", "p99_ms"):
        numbers = [turn[figure] for turn in turns if turn[figure] != ""]
        row[figure] = round(statistics.median(numbers), 2) if numbers else ""
        if figure == "events_per_s" and numbers:
            row |= {"from": min(numbers), "to": max(numbers)}
    return row


@click.command()
@click.argument("loads", nargs=-1, type=click.Choice(LOADS))
@click.option("--server", "servers", multiple=True, type=click.Choice(SERVERS), help="Only these. [default: all]")
@click.option("--rounds", default=3, type=click.IntRange(min=1), show_default=True, help="Turns of each server.")
@file_options
@plan_options
def main(
    loads: tuple[str, ...],
    servers: tuple[str, ...],
    rounds: int,
    markdown_file: Path | None,
    json_file: Path | None,
    **plan: float,
) -> None:
    """Put LOADS (all of them when none is named) on each server in turn, and print one table of medians."""
    rows: list[dict[str, Any]] = []
    failed = False
    before = machine()
    for turn, name in product(range(rounds), servers or SERVERS):
        try:
            with server_url(name) as url:
                measured = measure(Server(url), loads or LOADS, Plan(**plan))  # type: ignore[arg-type]
                rows += [{"server": name, "round": turn + 1, **row} for row in measured]
        except (PeerFailed, LoadFailed, OSError, AssertionError) as error:
            failed = True
            click.echo(f"error: {name}: {error}", err=True)
    publish(medians(rows), COLUMNS, before, markdown_file, json_file, plan=plan, results=rows)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
