"""The same loads on Headrace and its peers, one after another on this machine.

    uv run python -m benchmarks.peers --markdown table.md --json figures.json

Figures compare only with others of the same run. Peers keep data in a process or on one disk; Headrace here runs on an
emulated cloud in one process tree, whose store is the slow part.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import orjson

from benchmarks.http import LOADS, Plan, measure, plan_options
from benchmarks.peers.servers import PEERS, PeerFailed, running
from benchmarks.result import COLUMNS, machine, markdown
from benchmarks.wire import LoadFailed, Server

HEADRACE = "headrace dev"
SERVERS = (HEADRACE, *PEERS)


@contextmanager
def server_url(name: str) -> Iterator[str]:
    if name != HEADRACE:
        with running(name) as url:
            yield url
        return
    from tests.support.emulated_cloud import dev_server

    with dev_server(runs_jobs=True) as server:
        yield server.url


@click.command()
@click.argument("loads", nargs=-1, type=click.Choice(LOADS))
@click.option("--server", "servers", multiple=True, type=click.Choice(SERVERS), help="Only these. [default: all]")
@click.option("--markdown", "markdown_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the table.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures.")
@plan_options
def main(
    loads: tuple[str, ...],
    servers: tuple[str, ...],
    markdown_file: Path | None,
    json_file: Path | None,
    **plan: float,
) -> None:
    """Put LOADS (all of them when none is named) on each server and print one table."""
    rows: list[dict[str, Any]] = []
    failed = False
    before = machine()
    for name in servers or SERVERS:
        try:
            with server_url(name) as url:
                measured = measure(Server(url), loads or LOADS, Plan(**plan))  # type: ignore[arg-type]
                rows += [{"server": name, **row} for row in measured]
        except (PeerFailed, LoadFailed, OSError, AssertionError) as error:
            failed = True
            click.echo(f"error: {name}: {error}", err=True)
    order = list(dict.fromkeys(row["load"] for row in rows))
    rows.sort(key=lambda row: order.index(row["load"]))
    table = markdown(rows, ("load", "server", *COLUMNS[1:]))
    click.echo(table)
    if markdown_file:
        markdown_file.write_text(table + "\n")
    if json_file:
        document = {"machine_before": before, "plan": plan, "results": rows}
        json_file.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
