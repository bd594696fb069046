"""The command `headrace aggregate`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import click

from cli.documents import document, in_time, lost
from cli.errors import BadInput
from cli.options import Connection, connection_options, example, json_bytes, json_option
from cli.tables import Column, print_table, print_tree
from cli.terminal import print_document, say

STATISTICS = ("count", "sum", "avg", "min", "max", "p50", "p95", "p99")
_LENGTH = re.compile(r"(\d+)(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

EPILOG = """\
Times are RFC 3339, like 2030-01-01T00:00:00Z, or nanoseconds since 1970. A bucket at the edge counts only what lies in
the range. p50, p95 and p99 are lower bounds: powers of two, from the histogram.

""" + example(
    "headrace aggregate logs requests --last 1h --interval 1m",
    "headrace aggregate logs requests --from 2030-01-01T00:00:00Z --to 2030-01-02T00:00:00Z --interval 1h",
    "headrace aggregate logs requests --last 24h --interval 1h --group-by service --measure latency --stat avg,p95",
    "headrace aggregate logs requests --last 1h --interval 1m --query 'service:billing' --json",
)


@click.command(epilog=EPILOG)
@click.argument("name")
@click.argument("rollup")
@click.option("--from", "start", metavar="TIME", help="The first moment.")
@click.option("--to", "end", metavar="TIME", help="The moment after the last one.")
@click.option(
    "--last",
    metavar="LENGTH",
    help="Instead of --from and --to: the length of time up to now, like 90s, 15m, 24h, 7d.",
)
@click.option("--interval", required=True, help="Length of a bucket; one of the rollup's intervals.")
@click.option("--query", help="Only records that match this query; see `headrace search --help`.")
@click.option(
    "--group-by", multiple=True, help="A dimension, or several with commas. [default: one group of all records]"
)
@click.option("--measure", "measures", multiple=True, help="A measure, or several with commas. [default: all]")
@click.option("--stat", multiple=True, help=f"Columns of a measure: {', '.join(STATISTICS)}. [default: all it has]")
@click.option("--explain", is_flag=True, help="Explain how the server answered: plan, requests, bytes, caches, time.")
@json_option
@connection_options
def command(
    connection: Connection,
    name: str,
    rollup: str,
    start: str | None,
    end: str | None,
    last: str | None,
    interval: str,
    query: str | None,
    group_by: tuple[str, ...],
    measures: tuple[str, ...],
    stat: tuple[str, ...],
    explain: bool,
    as_json: bool,
) -> None:
    """Summarize the records of stream NAME by time and dimensions, as its ROLLUP is configured.

    A row is one group in one bucket of time. Buckets without records are left out.
    """
    statistics = _split(stat)
    unknown = [one for one in statistics if one not in STATISTICS]
    if unknown:
        raise BadInput(f"no such statistic: {', '.join(unknown)}", f"there are {', '.join(STATISTICS)}")
    body: dict[str, Any] = {"rollup": rollup, "interval": interval, **time_range(start, end, last, time.time())}
    body |= {"q": query} if query else {}
    body |= {"group_by": _split(group_by)} if group_by else {}
    body |= {"measures": _split(measures)} if measures else {}
    body |= {"explain": True} if explain else {}
    target = connection.target(name)
    what = f"aggregate of {target.name}"
    client = connection.client(target.url)
    answer = client.send(
        "POST",
        f"{target.url}/_aggregate",
        what=what,
        headers={"content-type": "application/json"},
        content=json_bytes(body),
        expect=(408,),
    )
    in_time(answer, what, "ask for less: a shorter range, a longer --interval, no --query")
    found = document(answer, what)
    if as_json:
        print_document(answer.content)
        return
    rows = list(groups(found))
    if rows:
        _print(rows, statistics)
    else:
        say("no records in this range", err=True)
    if explain and "explain" in found:
        print_tree("explain", found["explain"])
    missing = lost(found.get("coverage") or {})
    if missing:
        say(f"warning: {missing}", err=True)


Group = tuple[str, dict[str, Any], dict[str, dict[str, Any]]]
"""A bucket's start, the group's key, and its measures."""


def groups(found: dict[str, Any]) -> Iterator[Group]:
    """Yields the start, key and measures of each group of each bucket, in the answer's order."""
    for bucket in found.get("buckets", []):
        for group in bucket.get("groups", []):
            yield bucket["start"], group.get("key") or {}, group.get("measures") or {}


def _print(rows: list[Group], wanted: list[str]) -> None:
    dimensions = list(dict.fromkeys(name for _, key, _ in rows for name in key))
    pairs = [
        (measure, statistic)
        for measure in dict.fromkeys(name for _, _, found in rows for name in found)
        for statistic in wanted or STATISTICS
        if any(found.get(measure, {}).get(statistic) is not None for _, _, found in rows)
    ]
    columns = [Column("start"), *map(Column, dimensions)]
    columns += [
        Column(measure if statistic == "count" and not _has_more(rows, measure) else f"{measure} {statistic}", True)
        for measure, statistic in pairs
    ]
    print_table(
        columns,
        (
            [
                start,
                *("-" if key.get(name) is None else key[name] for name in dimensions),
                *(number(found.get(measure, {}).get(statistic)) for measure, statistic in pairs),
            ]
            for start, key, found in rows
        ),
    )


def _has_more(rows: list[Group], measure: str) -> bool:
    return any("sum" in found.get(measure, {}) for _, _, found in rows)


def number(value: Any) -> str | None:
    """Returns a number for people; None for None."""
    if value is None:
        return None
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}"


def _split(given: tuple[str, ...]) -> list[str]:
    return [part for one in given for part in one.split(",") if part]


def time_range(start: str | None, end: str | None, last: str | None, now_s: float) -> dict[str, Any]:
    """Returns the members `from` and `to` of a request: the given texts or, with `last`, epoch milliseconds up to
    now. Raises BadInput if the options exclude each other, one is missing, or `last` is malformed.
    """
    if last is None:
        if start is None or end is None:
            raise BadInput("a range is missing", "--last 1h, or --from and --to")
        return {"from": start, "to": end}
    if start is not None or end is not None:
        raise BadInput("--last excludes --from and --to")
    found = _LENGTH.fullmatch(last)
    if found is None or not int(found[1]):
        raise BadInput(f"not a length of time: {last!r}", "like 90s, 15m, 24h or 7d")
    now_ms = int(now_s * 1000) + 1  # includes what was appended just now
    return {"from": now_ms - int(found[1]) * _UNITS_MS[found[2]], "to": now_ms}
