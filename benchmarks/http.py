"""Loads over HTTP, for any server of the protocol.

    uv run python -m benchmarks.http --url http://127.0.0.1:8787 single batched replay live

Figures of a run on a busy machine are worth little: run it alone, and look at `load_average_1m`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import click
import orjson

from benchmarks.live import live
from benchmarks.loads import batched, replay, single
from benchmarks.result import Result, machine, markdown
from benchmarks.wire import LoadFailed, Server

LOADS = ("single", "batched", "replay", "live")


@dataclass(frozen=True)
class Plan:
    """How much of each load: counts, and seconds after which a load ends in any case."""

    single_count: int = 500
    batched_events: int = 100_000
    replay_events: int = 100_000
    live_count: int = 200
    seconds: float = 60.0
    settle_s: float = 0.0


def run(server: Server, loads: tuple[str, ...], plan: Plan) -> Iterator[Result]:
    """Results in the order of `loads`, each as soon as it is there."""
    for load in loads:
        if load == "single":
            yield single(server, clients=1, count=plan.single_count, seconds=plan.seconds)
            yield single(server, clients=8, count=plan.single_count, seconds=plan.seconds)
        elif load == "batched":
            yield batched(server, events=plan.batched_events, seconds=plan.seconds)
        elif load == "replay":
            yield replay(server, events=plan.replay_events, seconds=plan.seconds, settle_s=plan.settle_s)
        else:
            yield live(server, "long-poll", count=plan.live_count, seconds=plan.seconds)
            yield live(server, "sse", count=plan.live_count, seconds=plan.seconds)


def measure(server: Server, loads: tuple[str, ...], plan: Plan) -> list[dict[str, object]]:
    """Rows of all loads; tells on standard error what is being done."""
    rows = []
    for result in run(server, loads, plan):
        rows.append(result.row())
        click.echo(f"{server.url}: {result.load}: p50 {rows[-1]['p50_ms']} ms", err=True)
    return rows


PLAN_OPTIONS = [
    click.option("--single-count", default=Plan.single_count, show_default=True, help="Single appends."),
    click.option("--batched-events", default=Plan.batched_events, show_default=True, help="Events in batches."),
    click.option("--replay-events", default=Plan.replay_events, show_default=True, help="Events to replay."),
    click.option("--live-count", default=Plan.live_count, show_default=True, help="Events to follow."),
    click.option("--seconds", default=Plan.seconds, show_default=True, help="Longest time of one load."),
    click.option("--settle-s", default=Plan.settle_s, show_default=True, help="Wait between filling and replay."),
]


def plan_options(command: click.decorators.FC) -> click.decorators.FC:
    for option in reversed(PLAN_OPTIONS):
        command = option(command)
    return command


@click.command()
@click.argument("loads", nargs=-1, type=click.Choice(LOADS))
@click.option("--url", default="http://127.0.0.1:8787", show_default=True, help="The server.")
@click.option("--prefix", default="/v1/stream", show_default=True, help="The path in front of stream names.")
@click.option("--key", envvar="HEADRACE_API_KEY", help="Bearer key.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@plan_options
def main(loads: tuple[str, ...], url: str, prefix: str, key: str | None, as_json: bool, **plan: float) -> None:
    """Put LOADS (all of them when none is named) on a server and print what was measured."""
    try:
        rows = measure(Server(url, prefix, key), loads or LOADS, Plan(**plan))  # type: ignore[arg-type]
    except (LoadFailed, OSError) as error:
        click.echo(f"error: {url}: {error}", err=True)
        sys.exit(1)
    if as_json:
        click.echo(orjson.dumps({"url": url, "machine": machine(), "results": rows}, option=orjson.OPT_INDENT_2))
    else:
        click.echo(markdown(rows))


if __name__ == "__main__":
    main()
