"""The commands that read a topic: `headrace topic read`, `headrace topic tail`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

import click

from cli.client import Client
from cli.elements import join_object
from cli.errors import EXIT_INTERRUPTED, CliError
from cli.options import Connection, Target, connection_options, example, json_bytes, json_option
from cli.output import LINE_BREAKS, WRITERS, LineWriter, ProgressBar, open_output
from cli.tables import counted
from cli.terminal import is_terminal, output, print_document, say
from cli.topics import DiffPage, call, read_state, record_members

WAIT_MS = 25_000
PAGE_RECORDS = 1000

NODE_OPTION = click.option(
    "--node", "nodes", multiple=True, help="Leave out records that this node wrote; repeatable."
)


@click.command(
    epilog=example(
        "headrace topic read events --format lines",
        "headrace topic read events --from 4800 --format records --tags   # with seq, time, node and tag",
        "headrace topic read events --node web-1 --output events.json",
    )
)
@click.argument("name")
@click.option(
    "--from",
    "from_seq",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seq to start after: the last one that you have. 0 is the beginning.",
)
@NODE_OPTION
@click.option("--tags", is_flag=True, help="With --format records: their tags, too.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["json", "lines", "records"]),
    help="json: one array of the data. lines: the data of a record a line. records: a whole record a line. "
    "[default: lines on a terminal, else json]",
)
@click.option("--max-records", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("--output", "path", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
@json_option
@connection_options
def read(
    connection: Connection,
    name: str,
    from_seq: int,
    nodes: tuple[str, ...],
    tags: bool,
    output_format: str | None,
    max_records: int | None,
    path: Path | None,
    as_json: bool,
) -> None:
    """Read the topic NAME up to its current end.

    Data has the text with which it was appended. If records after --from are gone (a TTL or a cap took them), a warning
    on standard error says which. The summary goes to standard error; with --json and --output to standard output.
    """
    target = connection.topic(name)
    client = connection.client(target.url)
    next_seq, gaps = from_seq, list[str]()
    is_shown = path is None and is_terminal()
    output_format = output_format or ("lines" if is_shown else "json")
    with open_output(path) as out, ProgressBar(f"read {target.name}", is_hidden=is_shown) as progress:
        client.on_retry = progress.note_retry
        writer = WRITERS["json" if output_format == "json" else "lines"](out)
        while max_records is None or progress.records < max_records:
            limit = min(PAGE_RECORDS, PAGE_RECORDS if max_records is None else max_records - progress.records)
            page = diff(client, target, next_seq, nodes, limit=limit, tags=tags)
            gaps += warn_of_gap(page)
            for record in page.records:
                writer.write(record if output_format == "records" else data_of(record))
                progress.add_bytes(len(record))
            progress.add_records(len(page.records))
            stands_still = page.next_seq <= next_seq
            next_seq = max(next_seq, page.next_seq)
            if page.caught_up or stands_still:
                break
        writer.finish()
        out.flush()
    summary = {"topic": target.name, "records": progress.records, "next_from_seq": next_seq, "gaps": len(gaps)}
    if as_json:
        print_document(json_bytes(summary), err=path is None)
    elif path is not None or sys.stderr.isatty():
        say(f"read {counted(progress.records, 'record')}; --from {next_seq} goes on from here", err=True)


def diff(
    client: Client,
    target: Target,
    from_seq: int,
    nodes: tuple[str, ...],
    *,
    limit: int,
    tags: bool = False,
    wait_ms: int = 0,
) -> DiffPage:
    """Returns the page of records after a seq, without those of `nodes`; waits up to `wait_ms` if there is none."""
    body: dict[str, object] = {"from_seq": from_seq, "limit": limit, "include_tags": tags, "wait_ms": wait_ms}
    if nodes:
        body["node"] = list(nodes)
    what = f"read {target.name}"
    return DiffPage(call(client, "POST", target, what, action="diff", body=body), what)


def warn_of_gap(page: DiffPage) -> list[str]:
    """Says on standard error which records a page lacks, and returns it; nothing if it lacks none."""
    if not page.gap:
        return []
    say(f"warning: {page.gap}", err=True)
    return [page.gap]


def data_of(record: bytes) -> bytes:
    """Returns the text of a record's data. Raises CliError if it has none."""
    data = record_members(record).get("data")
    if data is None:
        raise CliError("the server sent a record without data", "is --url the root of a server?")
    return data.encode()


@click.command(
    epilog=example(
        "headrace topic tail events",
        "headrace topic tail events --from 0 --json | jq .next_from_seq   # all there is, then what comes",
        "headrace topic tail chat --node web-1                            # what other nodes write",
    )
)
@click.argument("name")
@click.option(
    "--from",
    "from_seq",
    type=click.IntRange(min=0),
    help="Seq to start after; 0 is the beginning. [default: the end]",
)
@NODE_OPTION
@click.option("--tags", is_flag=True, help="With --json: their tags, too.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line: the records, and the seqs around them.")
@connection_options
def tail(
    connection: Connection, name: str, from_seq: int | None, nodes: tuple[str, ...], tags: bool, as_json: bool
) -> None:
    """Print the data of each record that is appended to the topic NAME, one per line, until Ctrl-C.

    After a lost connection it continues at the same seq: nothing is printed twice or left out. Ctrl-C prints the seq
    to continue from.
    """
    target = connection.topic(name)
    client = connection.client(target.url)
    next_seq = int(read_state(client, target).get("head_seq", 0)) if from_seq is None else from_seq
    if sys.stderr.isatty():
        client.on_retry = lambda reason, wait_s: say(f"{reason}: again in {wait_s:.1f} s", err=True)
    out = output()
    idle = 0
    try:
        while True:
            asked = client.now()
            page = diff(client, target, next_seq, nodes, limit=PAGE_RECORDS, tags=tags, wait_ms=WAIT_MS)
            print_page(out, page, next_seq, as_json=as_json)
            # A door that does not hold requests open answers at once.
            idle = 0 if page.next_seq != next_seq or client.now() - asked > 1 else idle + 1
            next_seq = page.next_seq
            if idle:
                client.sleep(min(1.0, client.policy.wait_s(idle, None, client.random)))
    except KeyboardInterrupt:
        say(f"stopped; --from {next_seq} goes on from here", err=True)
        sys.exit(EXIT_INTERRUPTED)


def print_page(out: BinaryIO, page: DiffPage, from_seq: int, *, as_json: bool) -> None:
    """Prints a page's records; as JSON also the seqs around them and the gap."""
    if not as_json:
        warn_of_gap(page)
        writer = LineWriter(out)
        for record in page.records:
            writer.write(data_of(record))
    elif page.records or page.gap:
        members = {
            "from_seq": str(from_seq),
            "next_from_seq": str(page.next_seq),
            "head_seq": str(page.head_seq),
            "tombstone": page.tombstone,
            "records": "[" + ",".join(record.decode() for record in page.records) + "]",
        }
        out.write(join_object(members).encode().translate(LINE_BREAKS) + b"\n")
    out.flush()
