"""The command `headrace read`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import BinaryIO

import click

from cli.client import Client
from cli.errors import BadInput
from cli.options import Connection, Target, connection_options, example, json_bytes, json_option
from cli.output import WRITERS, ProgressBar, open_output
from cli.pages import catch_up, elements, is_json
from cli.tables import counted
from cli.terminal import print_document, say

EPILOG = example(
    "headrace read orders",
    "headrace read orders --format lines --max-records 10",
    "headrace read flights --output flights.json",
    "headrace read orders --from OFFSET        # an offset that append, read, tail or info has printed",
    "headrace read orders --since 2030-01-01T00:00:00Z",
)


@click.command(epilog=EPILOG)
@click.argument("name")
@click.option(
    "--from",
    "offset",
    default=None,
    help="Offset to start after; -1 is the beginning, now is the end. [default: -1]",
)
@click.option("--since", help="Start at this time: RFC 3339, or nanoseconds since 1970. Not with --from.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["json", "raw", "lines"]),
    help="json: one array. lines: a record a line. raw: nothing in between. [default: json for JSON streams, "
    "raw for others]",
)
@click.option("--max-records", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("--output", "path", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
@json_option
@connection_options
def command(
    connection: Connection,
    name: str,
    offset: str | None,
    since: str | None,
    output_format: str | None,
    max_records: int | None,
    path: Path | None,
    as_json: bool,
) -> None:
    """Read the stream NAME up to its current end.

    Every record has the text with which it was appended. The summary goes to standard error; with --json and
    --output it goes to standard output.
    """
    if offset is not None and since:
        raise BadInput("--from and --since exclude each other")
    target = connection.target(name)
    client = connection.client(target.url)
    content_type = client.send("HEAD", target.url, what=f"read {target.name}").headers.get("content-type", "")
    if not is_json(content_type):
        if output_format in ("json", "lines"):
            raise BadInput(f"the stream holds {content_type}: only --format raw fits")
        if max_records:
            raise BadInput(f"the stream holds {content_type}, which has no records: leave --max-records out")
    started = time.monotonic()
    with open_output(path) as out:
        summary = read_all(
            client,
            target,
            out,
            offset=offset or "-1",
            since=since,
            max_records=max_records,
            output_format=output_format or ("json" if is_json(content_type) else "raw"),
            json_stream=is_json(content_type),
        )
        out.flush()
    seconds = time.monotonic() - started
    report(
        {"name": target.name, **summary, "seconds": round(seconds, 3)},
        as_json=as_json,
        to_stdout=bool(path),
    )


def read_all(
    client: Client,
    target: Target,
    out: BinaryIO,
    *,
    offset: str,
    since: str | None,
    max_records: int | None,
    output_format: str,
    json_stream: bool,
) -> dict[str, object]:
    """Writes the records to `out` and returns the summary to report.

    The summary has `next_offset`, from which reading can continue without skipping or repeating; a read that is cut
    short inside a page has none.
    """
    writer = WRITERS[output_format](out)
    next_offset: str | None = None
    closed = False
    with ProgressBar(f"read {target.name}") as progress:
        client.on_retry = progress.note_retry
        for page in catch_up(client, target, offset, since):
            progress.add_bytes(len(page.body))
            next_offset, closed = page.next_offset, page.closed
            if not json_stream:
                writer.write(page.body)
                continue
            records = elements(page.body)
            room = len(records) if max_records is None else max_records - progress.records
            for record in records[:room]:
                writer.write(record)
            progress.add_records(min(room, len(records)))
            if room < len(records):
                next_offset, closed = None, False
                break
            if max_records is not None and room == len(records):
                break
        writer.finish()
    return {
        "records": progress.records if json_stream else None,
        "bytes": progress.bytes,
        "next_offset": next_offset,
        "closed": closed,
        "retries": client.retries,
    }


def report(summary: dict[str, object], *, as_json: bool, to_stdout: bool) -> None:
    if as_json:
        print_document(json_bytes(summary), err=not to_stdout)
        return
    if not (to_stdout or sys.stderr.isatty()):
        return
    count = summary["records"]
    records = f"{counted(count, 'record')}, " if isinstance(count, int) else ""
    end = f"; next offset {summary['next_offset']}" if summary["next_offset"] else ""
    closed = "; closed" if summary["closed"] else ""
    say(
        f"read {records}{counted(int(str(summary['bytes'])), 'byte')} in {summary['seconds']:.1f} s{end}{closed}",
        err=True,
    )
