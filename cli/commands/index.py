"""The command group `headrace index`: how far the indexes of streams are. `operators/index.py` adds `rebuild` to it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click

from cli.client import Client
from cli.documents import document
from cli.errors import CliError
from cli.groups import CommandGroup
from cli.options import Connection, Target, base_url, connection_options, example, json_option, print_json
from cli.output import Label, steps_bar
from cli.pages import list_streams
from cli.tables import Column, age, counted, print_table, size
from cli.terminal import say

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


class IndexGroup(CommandGroup):
    prefix = "index "


@click.group(cls=IndexGroup, epilog="`headrace index COMMAND --help` has examples.")
def command() -> None:
    """Show the indexes behind search, aggregates and routing keys, wait for them, or rebuild them.

    Records are appended, published in segments, and then indexed in runs. All of this happens by itself.
    """


@command.command("status", epilog=STATUS_EPILOG)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@json_option
@connection_options
def status(connection: Connection, names: tuple[str, ...], as_json: bool) -> None:
    """Show how far the indexes of the streams NAME, or of all streams, have got."""
    url = base_url(connection.url)
    client = connection.client(connection.target(names[0]).url if names else url)
    chosen = names or tuple(row["name"] for row in list_streams(client, f"{url}/v1/streams", 0, None))
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
        say("no streams; `headrace create NAME` makes one", err=True)


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

    If the schema and profile of a stream ask for no index, only its unpublished records can be waited for
    (--records).
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


class State(NamedTuple):
    """How much of a stream its indexes cover.

    Attributes:
        wanted: whether the stream has an index at all: its schema or profile asks for one, or it has records with
            routing keys.
        segments: the number of published segments.
        covered: how many of them are covered by every index.
        lag_ms: the largest lag of an index; None if none lags.
        bytes_at_rest: the size of all indexes.
        pending_records: the number of records that are not published yet; 0 if that was not asked.
    """

    wanted: bool
    segments: int
    covered: int
    lag_ms: int | None
    bytes_at_rest: int
    pending_records: int

    @property
    def word(self) -> str:
        """Returns `complete`, `behind` or `not asked for`, to show it to people."""
        if not self.wanted:
            return "not asked for"
        return "complete" if self.covered == self.segments else "behind"

    def done(self, *, records: bool) -> bool:
        """Returns whether all published records are indexed and, with `records`, all records are published."""
        return self.covered >= self.segments and not (records and self.pending_records)


def state_of(shown: dict[str, Any], pending_records: int = 0) -> State:
    """Reads the state from the document of `_index_status`, with a number of unpublished records that it does not have."""
    segments = shown["segments"]["uploaded_count"]
    parts = list(shown["search_families"])
    parts += [part for part in (shown["routing_key_index"], shown["routing_key_lexicon"]) if is_kept(part)]
    lags = [int(part["lag_ms"]) for part in parts if part["lag_segments"] and part["lag_ms"] is not None]
    exact = [part for part in shown["exact_indexes"] if not part["fully_indexed_uploaded_segments"]]
    counts = [part.get("covered_segment_count", part.get("indexed_segment_count", 0)) for part in [*parts, *exact]]
    return State(
        wanted=bool(parts),
        segments=segments,
        covered=min([segments, *counts]),
        lag_ms=max(lags, default=None),
        bytes_at_rest=_bytes(shown),
        pending_records=pending_records,
    )


def is_kept(routing_keys: dict[str, Any]) -> bool:
    """Returns whether an index of routing keys exists: the schema asks for one, or records were appended with a key."""
    return bool(routing_keys["configured"] or routing_keys["object_count"])


def _bytes(shown: dict[str, Any]) -> int:
    """Returns the size of all indexes in bytes. Family `exact` already includes the exact indexes, which are therefore
    not added again.
    """
    own = (shown["routing_key_lexicon"], *shown["search_families"])
    return sum(int(part["bytes_at_rest"]) for part in own)


def _look(client: Client, target: Target) -> dict[str, Any]:
    what = f"index status of {target.name}"
    return document(client.send("GET", f"{target.url}/_index_status", what=what), what)


def _print_one(target: Target, shown: dict[str, Any]) -> None:
    segments, state = shown["segments"], state_of(shown)
    published = counted(segments["uploaded_count"], "segment")
    say(
        f"{target.name}: indexes {state.word}, {published}, profile {shown['profile']}, "
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
    """Polls until everything is covered or the time is over, and returns the last state."""
    what = f"index status of {target.name}"
    etag = ""
    shown: dict[str, Any] | None = None
    with steps_bar(Label("unit")) as progress:
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
                waits = (
                    f", {counted(state.pending_records, 'record')} to publish"
                    if records and state.pending_records
                    else ""
                )
                progress.update(task, completed=state.covered, total=max(state.segments, 1), unit=f"segments{waits}")
            if state.done(records=records) or time.monotonic() >= deadline:
                return state
            if not etag:
                client.sleep(PAUSE_S)
