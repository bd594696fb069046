"""The command `headrace append`: each append is applied once, however often it is sent."""

from __future__ import annotations

import hashlib
import json
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

import click

from cli.client import Client
from cli.errors import EXIT_INTERRUPTED, BadInput, CliError, Refused
from cli.options import Connection, Target, connection_options, example, json_option, print_json
from cli.output import ProgressBar
from cli.producers import Limits, Producer, Rerunner, Tally, Totals
from cli.signals import command_line, terminable
from cli.sources import Batch, Source, byte_batches, from_file, from_stdin, json_batches, literal, records
from cli.tables import counted
from cli.terminal import say

MAX_BATCH_BYTES = 4 * 1024 * 1024
JSON_TYPE = "application/json"

EPILOG = example(
    """headrace append orders --data '{"id": 1}' --data '{"id": 2}'""",
    "headrace append flights --create --file flights.json     # an array: its elements are the records",
    "tail -F app.log | headrace append logs                   # what arrives is sent when the input pauses",
    "headrace append flights --file flights.json     # again: appends only what is missing",
)


@click.command(epilog=EPILOG)
@click.argument("name")
@click.option("--data", multiple=True, help="The data itself; may be given more than once.")
@click.option(
    "--file",
    "files",
    multiple=True,
    help="A file, or - for standard input; may be given more than once.",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["auto", "json", "lines", "bytes"]),
    default="auto",
    show_default=True,
    help="json: an array's elements, or values apart by white space. lines: a JSON value "
    "a line. bytes: as it is, for streams that are not JSON.",
)
@click.option(
    "--batch-records",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    help="Records in one request, at most.",
)
@click.option(
    "--batch-bytes",
    type=click.IntRange(1, MAX_BATCH_BYTES),
    default=1024 * 1024,
    show_default=True,
    help=f"Bytes in one request, at most; the limit is {MAX_BATCH_BYTES}.",
)
@click.option("--stream-key", help="Key of every record sent.")
@click.option("--timestamp", help="Time of the records: RFC 3339, or nanoseconds since 1970.")
@click.option(
    "--seq",
    "stream_seq",
    help="Stream-Seq: refused unless it sorts after the previous one. Later requests of this run append a number to it.",
)
@click.option(
    "--producer-id",
    help="A name for this data: with the same name and input only what is missing is appended. "
    "[default: of files their paths and first record; else a random one]",
)
@click.option(
    "--producer-epoch",
    type=click.IntRange(min=0),
    help="With --producer-id: number the requests from 0 in this epoch, and compare nothing. A higher epoch starts "
    "again and locks out runs with a lower one.",
)
@click.option("--close", is_flag=True, help="Close the stream afterwards.")
@click.option("--create", is_flag=True, help="Create the stream first if it is missing.")
@click.option("--content-type", help=f"Type of a stream made by --create. [default: {JSON_TYPE}]")
@json_option
@connection_options
def command(
    connection: Connection,
    name: str,
    data: tuple[str, ...],
    files: tuple[Path, ...],
    file_format: str,
    batch_records: int,
    batch_bytes: int,
    stream_key: str | None,
    timestamp: str | None,
    stream_seq: str | None,
    producer_id: str | None,
    producer_epoch: int | None,
    close: bool,
    create: bool,
    content_type: str | None,
    as_json: bool,
) -> None:
    """Append records to the stream NAME. Without --data and --file, they are read from standard input.

    The text of every JSON record arrives unchanged. Every request is applied once: after a lost answer, or an
    answer that asks to wait, it is sent again with the same producer number, which the server recognizes.

    A file may be appended again, after Ctrl-C, a crash, or when it has grown: only what is missing is appended. A
    rerun is refused if the file has changed otherwise, or if it would send other batches than a run that was cut off.
    """
    target = connection.target(name)
    client = connection.client(target.url)
    head = look_up(client, target, create=create, content_type=content_type)
    stream_type = head.get("content-type") or content_type or JSON_TYPE
    sources = open_sources(data, files, is_rerun_safe=producer_id is not None, may_be_none=close)
    is_file = bool(files) and all(source.identity for source in sources)
    is_recognized = producer_epoch is None and (producer_id is not None or is_file)
    producer = Producer(
        client, target, stream_type, producer_id or f"cli-{uuid.uuid4().hex}", producer_epoch or 0,
        stream_key, timestamp, stream_seq, totals=Totals(next_offset=head.get("stream-next-offset", "")),
    )  # fmt: skip
    file_format = resolve_format(file_format, stream_type)
    limits = Limits(
        1 if file_format == "bytes" else batch_records, batch_bytes
    )  # bytes are cut without regard to records
    sizes = [source.size for source in sources]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    started = time.monotonic()
    try:
        with terminable(), ProgressBar(f"append {target.name}", total) as progress:
            client.on_retry = progress.note_retry
            items = chain.from_iterable(records(source, file_format, progress.add_bytes) for source in sources)
            tally = Tally(items, is_json=file_format != "bytes")
            if is_recognized and producer_id is None:
                producer.id = derive_id(sources, tally, stream_key, timestamp)
            sender = Rerunner(producer, limits, tally) if is_recognized else producer
            for batch in sender.append_all(batches(tally, file_format, limits)):
                progress.add_records(batch.records)
            if close:
                producer.close()
    except CliError as error:
        if producer.totals.requests or producer.totals.under_way:
            error.message += f"; before that: {summary(producer.totals)}"
            error.hint = "; ".join(filter(None, [error.hint, how_to_go_on(producer, is_recognized, sources)]))
        raise
    except KeyboardInterrupt:
        say(f"stopped: {summary(producer.totals)}", err=True)
        say(how_to_go_on(producer, is_recognized, sources), err=True)
        click.get_current_context().exit(EXIT_INTERRUPTED)
    report(producer, tally.noun, time.monotonic() - started, closed=close, as_json=as_json)


def look_up(client: Client, target: Target, *, create: bool, content_type: str | None) -> Mapping[str, str]:
    """Returns the headers that describe the stream. If there is no such stream, creates it if `create` is set, else raises
    Refused. A key that may only write can't look it up: then there are no headers.
    """
    answer = client.send("HEAD", target.url, what=f"look up {target.name}", expect=(403, 404))
    if answer.status_code == 404:
        if not create:
            raise Refused(
                f"append to {target.name}: there is no such stream (404)",
                "--create makes it",
                status=404,
                headers={},
            )
        wanted = {"content-type": content_type or JSON_TYPE}
        client.send("PUT", target.url, what=f"create {target.name}", headers=wanted)
        return wanted
    return {} if answer.status_code == 403 else answer.headers


def derive_id(sources: list[Source], tally: Tally, stream_key: str | None, timestamp: str | None) -> str:
    """Returns a producer id for an input that can be read again, from what stays the same when it grows: where it is, its
    first record, and what all its records get. So another file of the same name is other data, unless it begins with
    the same record. A stream of bytes has no records: there the place is all.
    """
    first = tally.peek() if tally.noun == "record" else b""
    places = [source.identity for source in sources]
    text = json.dumps([places, hashlib.sha256(first).hexdigest(), stream_key, timestamp])
    return f"file-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def open_sources(
    data: tuple[str, ...], files: tuple[Path, ...], *, is_rerun_safe: bool, may_be_none: bool
) -> list[Source]:
    sources = [literal(text) for text in data]
    stdin = from_stdin(report_pauses=not is_rerun_safe)
    sources += [stdin if str(path) == "-" else from_file(path) for path in files]
    if sources:
        return sources
    if sys.stdin.isatty():
        if may_be_none:
            return []
        say("reading standard input until Ctrl-D", err=True)
    return [stdin]


def resolve_format(file_format: str, stream_type: str) -> str:
    is_json = stream_type.partition(";")[0].strip().lower() == JSON_TYPE
    if is_json and file_format == "bytes":
        raise BadInput("a JSON stream takes JSON: --format json or lines", "for bytes create it with --content-type")
    if not is_json and file_format in ("json", "lines"):
        raise BadInput(f"the stream holds {stream_type}: leave --format out", "its data is sent as it is")
    return file_format if is_json else "bytes"


def batches(items: Iterable[bytes | None], file_format: str, limits: Limits) -> Iterator[Batch]:
    if file_format == "bytes":
        return byte_batches(items, limits.bytes)
    return json_batches(items, limits.records, limits.bytes)


def summary(totals: Totals) -> str:
    """Returns what a run that did not end has appended, and what it may have appended."""
    sent = f"appended {amount(totals)} in {counted(totals.requests, 'request')}"
    parts = [sent if totals.requests else "appended nothing"]
    if totals.skipped:
        parts.append(f"already there: {totals.skipped:,}")
    if batch := totals.under_way:
        what = counted(batch.records, "record") if batch.records else counted(len(batch.body), "byte")
        parts.append(f"{what} under way, which may be there")
    return "; ".join(parts)


def amount(totals: Totals) -> str:
    of_records = f"{counted(totals.records, 'record')}, " if totals.records else ""
    return of_records + counted(totals.bytes, "byte")


def how_to_go_on(producer: Producer, is_recognized: bool, sources: list[Source]) -> str:
    """Returns the command that appends the rest of an input, or says that there is none."""
    if is_recognized:
        return f"the same command goes on: {command_line()}"
    if all(source.identity for source in sources):
        return f"this goes on: {command_line('--producer-id', producer.id, '--producer-epoch', str(producer.epoch))}"
    return "what came over a pipe is not known again: append the rest of it, or name it with --producer-id from the start"


def report(producer: Producer, noun: str, seconds: float, *, closed: bool, as_json: bool) -> None:
    totals = producer.totals
    if as_json:
        print_json(
            {
                "name": producer.target.name,
                "url": producer.target.url,
                "records": totals.records,
                "bytes": totals.bytes,
                "requests": totals.requests,
                "already_there": totals.skipped,
                "duplicate_requests": totals.duplicates,
                "retries": producer.client.retries,
                "seconds": round(seconds, 3),
                "next_offset": totals.next_offset or None,
                "closed": closed,
                "producer_id": producer.id,
            }
        )
        return
    retries = f", {counted(producer.client.retries, 'retry', 'retries')}" if producer.client.retries else ""
    end = retries + ("; closed" if closed else "")
    already = counted(totals.skipped, noun)
    if not totals.skipped and not totals.requests:
        say(f"appended nothing{end}" if closed else "nothing to append: the input is empty", err=True)
    elif totals.skipped and not totals.requests:
        again = "" if closed else "; to append it again, name it: --producer-id NAME"
        say(f"already appended: {already}{end}{again}", err=True)
    else:
        rate = f", {totals.records / seconds:,.0f} records/s" if totals.records and seconds else ""
        there = f"; already there: {already}" if totals.skipped else ""
        if totals.duplicates:
            there += f"; the server already had {totals.duplicates:,} of the requests"
        say(
            f"appended {amount(totals)} in {counted(totals.requests, 'request')}, {seconds:.1f} s{rate}{there}{end}",
            err=True,
        )
    if totals.next_offset:  # unknown to a key that may only write, if nothing was sent
        say(totals.next_offset)
