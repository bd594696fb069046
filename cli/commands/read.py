"""The command `headrace read`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

import click

from cli.client import Client
from cli.errors import BadInput
from cli.offsets import position
from cli.options import Connection, Target, connection_options, example, json_bytes, json_option
from cli.output import WRITERS, ProgressBar, open_output
from cli.pages import Page, catch_up, elements, is_json
from cli.selection import Selection, as_object, as_row, find_last, selection_options, start_of_last
from cli.tables import counted
from cli.terminal import is_terminal, print_document, say

EPILOG = example(
    "headrace read orders",
    "headrace read orders -n 10 --fields offset,time,value",
    "headrace read flights --output flights.json",
    "headrace read orders --from OFFSET  # that append, read, tail or info printed",
    "headrace read orders --since 2030-01-01T00:00:00Z --routing-key ann",
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
@selection_options
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["json", "raw", "lines"]),
    help="json: one array. lines: a record a line. raw: nothing in between. [default: lines on a terminal and with "
    "--fields, else json; raw for streams that are not JSON]",
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
    selection: Selection,
    output_format: str | None,
    max_records: int | None,
    path: Path | None,
    as_json: bool,
) -> None:
    """Read the stream NAME up to its current end.

    Every record has the text with which it was appended. The summary goes to standard error; with --json and
    --output it goes to standard output.
    """
    if sum(given is not None for given in (offset, since, selection.last)) > 1:
        raise BadInput("--from, --since and -n exclude each other")
    target = connection.target(name)
    client = connection.client(target.url)
    headers = client.send("HEAD", target.url, what=f"read {target.name}").headers
    content_type = headers.get("content-type", "")
    has_records = is_json(content_type) or bool(selection.fields)
    if selection.fields and output_format == "raw":
        raise BadInput("--fields goes with --format lines or json")
    if not has_records:
        if output_format in ("json", "lines"):
            raise BadInput(f"the stream holds {content_type}: only --format raw fits", "or --fields offset,value")
        if max_records or (selection.last and selection.selects):
            option = "--max-records" if max_records else "-n"
            raise BadInput(f"the stream holds {content_type}, whose records have no ends: leave {option} out")
    is_shown = path is None and is_terminal()
    for_people = selection.fields or is_shown
    output_format = output_format or ("raw" if not has_records else "lines" if for_people else "json")
    started = time.monotonic()
    with open_output(path) as out, ProgressBar(f"read {target.name}", is_hidden=is_shown) as progress:
        client.on_retry = progress.note_retry
        copy = Copy(out, output_format, selection, progress, has_records, max_records)
        pages = open_pages(client, target, headers, selection, offset, since, copy)
        copy.write_all(pages)
        out.flush()
    summary: dict[str, object] = {
        "name": target.name,
        "records": progress.records if has_records else None,
        "bytes": progress.bytes,
        "next_offset": copy.next_offset,
        "closed": copy.closed,
        "retries": client.retries,
        "seconds": round(time.monotonic() - started, 3),
    }
    report(summary, as_json=as_json, to_stdout=bool(path))


def open_pages(
    client: Client,
    target: Target,
    headers: Mapping[str, str],
    selection: Selection,
    offset: str | None,
    since: str | None,
    copy: Copy,
) -> Iterable[Page]:
    """Returns the pages that the options ask for, and tells `copy` how far they reach."""
    end = headers.get("stream-next-offset", "")
    if selection.last and selection.selects:
        found, behind, warning = find_last(client, target, headers, selection)
        if warning:
            say(warning, err=True)
        return [Page(b"[" + b",".join(found) + b"]", behind, up_to_date=True, closed=False)]
    if selection.last:
        offset = start_of_last(selection, headers)
    offset = offset or "-1"
    first = headers.get("stream-earliest-offset", "0" * len(end)) if offset == "-1" else offset
    start, stop = position(first), position(end)
    if start is not None and stop is not None and since is None:
        total = max(0, stop - start)
        copy.progress.expect(min(total, copy.max_records or total) if not selection.selects else total)
        copy.start = start
    return catch_up(client, target, offset, since, selection.params)


class Copy:
    """Writes pages to an output, and counts them.

    Attributes:
        start: the position where the pages begin, if it is known.
        next_offset: from here reading goes on without skipping or repeating; None if a page was not written to its end.
        closed: the stream is closed, and was written to its end.
    """

    def __init__(
        self,
        out: BinaryIO,
        output_format: str,
        selection: Selection,
        progress: ProgressBar,
        has_records: bool,
        max_records: int | None,
    ) -> None:
        self.progress = progress
        self.max_records = max_records
        self.start: int | None = None
        self.next_offset: str | None = None
        self.closed = False
        self._writer = WRITERS[output_format](out)
        self._has_records = has_records
        self._show = partial(as_object if output_format == "json" else as_row, selection.fields)
        self._fields = selection.fields

    def write_all(self, pages: Iterable[Page]) -> None:
        """Writes pages, until there are `max_records` records, or no more pages."""
        for page in pages:
            self.progress.add_bytes(len(page.body))
            self.next_offset, self.closed = page.next_offset, page.closed
            is_whole = self._write(page)
            if self.start is not None and (here := position(page.next_offset)) is not None:
                self.progress.reach(here - self.start)
            if not is_whole:
                self.next_offset, self.closed = None, False
            if not is_whole or self.progress.records == self.max_records:
                break
        self._writer.finish()

    def _write(self, page: Page) -> bool:
        """Writes a page, as far as there is room. Returns whether that was all of it."""
        if not self._has_records:
            self._writer.write(page.body)
            return True
        records = elements(page.body)
        room = len(records) if self.max_records is None else self.max_records - self.progress.records
        for record in records[:room]:
            self._writer.write(self._show(record) if self._fields else record)
        self.progress.add_records(min(room, len(records)))
        return room >= len(records)


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
