"""The command `headrace queue timings`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from cli.commands.aggregate import number, time_range
from cli.documents import document, in_time, lost
from cli.options import Connection, connection_options, example, json_option
from cli.tables import Column, age, print_table
from cli.terminal import print_document, say
from cli.topics import call

INTERVALS = ("1m", "5m", "1h", "1d")
ALWAYS = ("claimed", "acked")
IF_ANY = ("redelivered", "nacked", "released", "expired", "dead")  # left out if nothing of it happened
TIMES = ("wait", "run")
STATISTICS = ("avg", "p95", "max")

EPILOG = """\b
wait  from the push of a job to its first claim
run   from the last claim of a job to its ack
p95 is a lower bound, a power of two: the true value is less than twice as much. Jobs that nobody has claimed yet, and
runs that have not ended, are not among them. Timings reach back 30 days at least.
""" + example(
    "headrace queue timings jobs",
    "headrace queue timings jobs --last 15m --interval 1m",
    "headrace queue timings jobs --from 2030-01-01T00:00:00Z --to 2030-01-02T00:00:00Z --interval 1h",
    "headrace queue timings jobs --json | jq '.buckets[] | [.start, .wait_ms.p99]'",
)


@click.command(epilog=EPILOG)
@click.argument("name")
@click.option("--from", "start", metavar="TIME", help="The first moment, like 2030-01-01T00:00:00Z.")
@click.option("--to", "end", metavar="TIME", help="The moment after the last one.")
@click.option(
    "--last", metavar="LENGTH", help="Instead: the length of time up to now, like 15m or 7d. [default: 24h]"
)
@click.option("--interval", type=click.Choice(INTERVALS), default="1h", show_default=True, help="Length of a row.")
@json_option
@connection_options
def command(
    connection: Connection,
    name: str,
    start: str | None,
    end: str | None,
    last: str | None,
    interval: str,
    as_json: bool,
) -> None:
    """Show how long jobs of the queue NAME waited and ran, and what became of them.

    A row is an interval of time, in UTC. Intervals in which nothing happened are left out.
    """
    if start is None and end is None:
        last = last or "24h"
    body = {"interval": interval, **time_range(start, end, last, time.time())}
    target = connection.topic(name)
    what = f"timings of {target.name}"
    answer = call(connection.client(target.url), "POST", target, what, action="timings", body=body, expect=(408,))
    in_time(answer, what, "ask for less: a shorter range, a longer --interval")
    found = document(answer, what)
    if as_json:
        print_document(answer.content)
        return
    if buckets := found.get("buckets"):
        _print(buckets)
    else:
        say("nothing happened in this range", err=True)
    if missing := lost(found.get("coverage") or {}):
        say(f"warning: {missing}", err=True)


def _print(buckets: Sequence[dict[str, Any]]) -> None:
    counts = [*ALWAYS, *(name for name in IF_ANY if any(bucket.get(name) for bucket in buckets))]
    pairs = [(name, statistic) for name in TIMES for statistic in STATISTICS]
    print_table(
        [
            Column("start"),
            *(Column(name, True) for name in counts),
            *(Column(" ".join(pair), True) for pair in pairs),
        ],
        (
            [
                bucket["start"],
                *(number(bucket.get(name)) for name in counts),
                *(_time((bucket.get(f"{name}_ms") or {}).get(statistic)) for name, statistic in pairs),
            ]
            for bucket in buckets
        ),
    )


def _time(millis: float | str | None) -> str | None:
    return None if millis is None else age(round(float(millis)))
