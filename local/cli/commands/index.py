"""`headrace index`: how far the indexes of streams are."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column as ProgressCell

from local.cli.client import Client
from local.cli.cloud import state_file_option, store_errors
from local.cli.commands.list import streams
from local.cli.coverage import State, is_kept, state_of
from local.cli.documents import document
from local.cli.errors import CliError
from local.cli.options import Connection, connection_options, example, json_option, print_json
from local.cli.tables import Column, age, print_table, size
from local.cli.target import Target, base_url

if TYPE_CHECKING:
    from headrace.log.stores import Stores

POLL_MS = 4000  # how long the server holds a question; the longest that it takes is 5 s
PAUSE_S = 0.2

STATUS_EPILOG = (
    example("headrace index status", "headrace index status logs", "headrace index status logs --json | jq .")
    + """

\b
What the table of one stream shows:
  routing keys    for `key=` reads and `headrace keys`; there if the schema has a routing key, and once
                  records that were appended with a key are indexed
  exact, col, fts, agg, mblk
                  families of search: equality, columns, words and prefixes, rollups, metric intervals
  covered         segments that the present configuration's indexes cover, of those published
  lag             how much older the first record without an index is than the newest record
Records without an index are searched all the same, as far as a request's time allows.
"""
)
WAIT_EPILOG = (
    example(
        "headrace index wait logs",
        "headrace index wait logs --records --timeout 300      # unpublished records too",
        "headrace index wait logs && headrace search logs 'level:error'",
    )
    + """

\b
Exit code 1 also means that the time was over before all was covered.
"""
)
REBUILD_EPILOG = """\b
When to use it: never in normal operation. A changed search configuration, a new schema version and a lost job all lead
to new runs by themselves. It is there for a run whose objects were damaged or removed by hand.

\b
What happens: the indexer takes every run of the stream out of use, and builds new ones from its segments. Until that is
done searches look at the segments themselves, as far as a request's time allows, and say what they left out. `headrace
index wait NAME` follows it, once it has begun.

\b
Examples:
  headrace index rebuild logs
  headrace index rebuild logs --state-file dev.json       # of `headrace dev --state-file dev.json`

\b
Exit codes: 0 asked for, 1 no such stream, 2 wrong usage, 3 AWS does not answer."""


@click.group(epilog="`headrace index COMMAND --help` has examples.")
def command() -> None:
    """Show, await or renew the indexes behind search, aggregates and routing keys.

    Records are appended, published in segments, and then indexed in runs. None of this needs to be asked for.
    """


@command.command("status", epilog=STATUS_EPILOG)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@json_option
@connection_options
def status(connection: Connection, names: tuple[str, ...], as_json: bool) -> None:
    """Show how far the indexes of the streams NAME are, or of all streams, a line each."""
    url = base_url(connection.url)
    client = connection.client(connection.target(names[0]).url if names else url)
    chosen = names or tuple(row["name"] for row in streams(client, f"{url}/v1/streams", 0, None))
    targets = [connection.target(name) for name in chosen]
    found = [(target, _look(client, target)) for target in targets]
    if as_json:
        print_json([shown for _, shown in found])
    elif names:
        for target, shown in found:
            _print_one(target, shown)
    elif found:
        _print_all(found)
    else:
        click.echo("no streams; `headrace create NAME` makes one", err=True)


@command.command("wait", epilog=WAIT_EPILOG)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0), default=600.0, show_default=True, help="Seconds."
)
@click.option("--records", is_flag=True, help="Wait for records that are not published yet, too.")
@json_option
@connection_options
def wait(connection: Connection, names: tuple[str, ...], timeout_s: float, records: bool, as_json: bool) -> None:
    """Wait until the indexes of the streams NAME cover everything published.

    A stream whose schema and profile ask for no index has nothing to wait for, but its records.
    """
    deadline = time.monotonic() + timeout_s
    states = []
    for name in names:
        target = connection.target(name)
        states.append(_wait(connection.client(target.url), target, deadline, records=records))
    if as_json:
        print_json(
            [
                {"name": name, "done": state.done(records=records), **state._asdict()}
                for name, state in zip(names, states, strict=True)
            ]
        )
    behind = [name for name, state in zip(names, states, strict=True) if not state.done(records=records)]
    if behind:
        raise CliError(
            f"not covered after {timeout_s:g} s: {', '.join(behind)}",
            "`headrace index status NAME` shows what is behind; is the indexer running?",
        )


@command.command("rebuild", epilog=REBUILD_EPILOG)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@state_file_option
def rebuild(stores: Stores, names: tuple[str, ...]) -> None:
    """Ask the indexer to build the runs of the streams NAME anew.

    It talks to AWS itself, not to a server, and answers as soon as the message is in the queue.
    """
    from headrace.names import STREAMS
    from local.cli.index_queue import open_queue

    with store_errors("rebuild"):
        log_ids = []
        for name in names:
            row = stores.catalog.get(STREAMS, name)
            if row is None:
                raise CliError(f"rebuild: no such stream: {name}", "`headrace list` shows what exists")
            log_ids.append(row.log_id)
        open_queue(stores.settings).rebuild(log_ids)
    for name in names:
        click.echo(f"asked for a rebuild of {name}")


def _look(client: Client, target: Target) -> dict[str, Any]:
    what = f"index status of {target.name}"
    return document(client.send("GET", f"{target.url}/_index_status", what=what), what)


def _print_one(target: Target, shown: dict[str, Any]) -> None:
    segments, state = shown["segments"], state_of(shown)
    click.echo(
        f"{target.name}: indexes {state.word}, {segments['uploaded_count']:,} segments, profile {shown['profile']}, "
        f"plan {shown['desired_index_plan_generation']}"
    )
    rows = list(_rows(shown))
    if rows:
        print_table(
            [
                Column("index"),
                Column("of"),
                Column("covered", True),
                Column("lag", True),
                Column("bytes", True),
                Column("objects", True),
                Column("runs", True),
                Column("updated"),
            ],
            rows,
        )


def _rows(shown: dict[str, Any]) -> Iterator[list[object]]:
    total = shown["segments"]["uploaded_count"]
    if is_kept(shown["routing_key_index"]):
        yield _row("routing keys", "", shown["routing_key_index"], total)
    for part in shown["search_families"]:
        yield _row(part["family"], ", ".join(part["fields"]), part, total)


def _row(label: str, fields: str, part: dict[str, Any], total: int) -> list[object]:
    covered = part.get("covered_segment_count", part.get("indexed_segment_count", 0))
    runs = part.get("active_run_count")
    return [
        label,
        fields,
        f"{covered:,}/{total:,}",
        age(part["lag_ms"]) if part["lag_segments"] else "-",
        size(part["bytes_at_rest"]),
        part["object_count"],
        None if runs is None else runs,
        part["updated_at"],
    ]


def _print_all(found: Sequence[tuple[Target, dict[str, Any]]]) -> None:
    rows = []
    for target, shown in found:
        state = state_of(shown)
        rows.append(
            [
                target.name,
                state.word,
                f"{state.covered:,}/{state.segments:,}",
                "-" if state.lag_ms is None else age(state.lag_ms),
                size(state.bytes_at_rest),
                shown["profile"],
            ]
        )
    columns = [
        Column("name"),
        Column("indexes"),
        Column("covered", True),
        Column("lag", True),
        Column("bytes", True),
        Column("profile"),
    ]
    print_table(columns, rows)


def _wait(client: Client, target: Target, deadline: float, *, records: bool) -> State:
    """The last state seen: covered, or the time was over."""
    what = f"index status of {target.name}"
    etag = ""
    shown: dict[str, Any] | None = None
    with _bar() as progress:
        task = progress.add_task(target.name, total=None, unit="")
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            params = {"live": "true", "timeout_ms": str(min(POLL_MS, int(left_s * 1000)))} if etag else {}
            headers = {"if-none-match": etag} if etag else {}
            answer = client.send("GET", f"{target.url}/_details", what=what, params=params, headers=headers)
            if answer.status_code != 304 or shown is None:
                shown = document(answer, what)
                etag = answer.headers.get("etag", "")
                state = state_of(shown["index_status"], int(shown["stream"]["pending_rows"]))
                waits = f", {state.pending_records:,} records to publish" if records and state.pending_records else ""
                progress.update(task, completed=state.covered, total=max(state.segments, 1), unit=f"segments{waits}")
            if state.done(records=records) or time.monotonic() >= deadline:
                return state
            if not etag:
                client.sleep(PAUSE_S)


def _bar() -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}", table_column=ProgressCell(no_wrap=True, overflow="ellipsis", max_width=40)),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
