"""The command `headrace append`: each append is applied once, however often it is sent."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import click

from cli.client import Client
from cli.errors import BadInput, CliError, Refused
from cli.options import Connection, Target, connection_options, example, json_option, print_json
from cli.output import ProgressBar
from cli.sources import Batch, Source, byte_batches, from_file, from_stdin, json_batches, literal, records
from cli.tables import counted
from cli.terminal import say

MAX_BATCH_BYTES = 4 * 1024 * 1024
JSON_TYPE = "application/json"

EPILOG = example(
    """headrace append orders --data '{"id": 1}' --data '{"id": 2}'""",
    "headrace append flights --create --file flights.json     # an array: its elements are the records",
    "tail -F app.log | headrace append logs                   # what arrives is sent when the input pauses",
    "headrace append flights --file flights.json --producer-id import-7   # run it again if it was cut off",
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
    help="Makes a rerun safe: with the same id, input, --format and --batch options only "
    "what is missing is appended. Use a new id for new data. [default: a random one]",
)
@click.option(
    "--producer-epoch",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="With --producer-id: a higher epoch starts again and locks out runs with a lower one.",
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
    producer_epoch: int,
    close: bool,
    create: bool,
    content_type: str | None,
    as_json: bool,
) -> None:
    """Append records to the stream NAME. Without --data and --file, they are read from standard input.

    The text of every JSON record arrives unchanged. Every request is applied once: after a lost answer, or an
    answer that asks to wait, it is sent again with the same producer number, which the server recognizes.
    """
    target = connection.target(name)
    client = connection.client(target.url)
    stream_type = find_type(client, target, create=create, content_type=content_type)
    sources = open_sources(data, files, is_rerun_safe=producer_id is not None, may_be_none=close)
    producer = Producer(
        client, target, stream_type, producer_id or f"cli-{uuid.uuid4().hex}", producer_epoch,
        stream_key, timestamp, stream_seq,
    )  # fmt: skip
    file_format = resolve_format(file_format, stream_type)
    sizes = [source.size for source in sources]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    started = time.monotonic()
    try:
        with ProgressBar(f"append to {target.name}", total) as progress:
            client.on_retry = progress.note_retry
            for batch in batches(sources, file_format, batch_records, batch_bytes, progress):
                producer.append(batch)
                progress.add_records(batch.records)
        if close:
            producer.close()
    except CliError as error:
        add_progress_so_far(error, producer, was_named=producer_id is not None)
        raise
    report(producer, time.monotonic() - started, closed=close, as_json=as_json)


def find_type(client: Client, target: Target, *, create: bool, content_type: str | None) -> str:
    """Returns the stream's content type. If there is no such stream, creates it if `create` is set, else raises
    Refused.

    A key that may only write can't look the type up: then `content_type` or JSON is assumed.
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
        wanted = content_type or JSON_TYPE
        client.send("PUT", target.url, what=f"create {target.name}", headers={"content-type": wanted})
        return wanted
    if answer.status_code == 403:
        return content_type or JSON_TYPE
    return answer.headers.get("content-type", "") or JSON_TYPE


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


def batches(
    sources: list[Source], file_format: str, batch_records: int, batch_bytes: int, progress: ProgressBar
) -> Iterator[Batch]:
    items = chain.from_iterable(records(source, file_format, progress.add_bytes) for source in sources)
    if file_format == "bytes":
        return byte_batches(items, batch_bytes)
    return json_batches(items, batch_records, batch_bytes)


def add_progress_so_far(error: CliError, producer: Producer, *, was_named: bool) -> None:
    """Adds to the error how much had been appended before it, and how to continue."""
    totals = producer.totals
    if totals.requests:
        error.message += (
            f"; appended before that: {counted(totals.records, 'record')}, {counted(totals.bytes, 'byte')}"
        )
        if was_named:
            error.hint = f"{error.hint + '; ' if error.hint else ''}run the same command again to continue"


def report(producer: Producer, seconds: float, *, closed: bool, as_json: bool) -> None:
    totals = producer.totals
    if as_json:
        print_json(
            {
                "name": producer.target.name,
                "url": producer.target.url,
                "records": totals.records,
                "bytes": totals.bytes,
                "requests": totals.requests,
                "duplicate_requests": totals.duplicates,
                "retries": producer.client.retries,
                "seconds": round(seconds, 3),
                "next_offset": totals.next_offset or None,
                "closed": closed,
                "producer_id": producer.producer_id,
            }
        )
        return
    what = f"{counted(totals.records, 'record')}, " if totals.records else ""
    rate = f", {totals.records / seconds:,.0f} records/s" if totals.records and seconds else ""
    say(
        f"appended {what}{counted(totals.bytes, 'byte')} in {counted(totals.requests, 'request')}, {seconds:.1f} s{rate}"
        + (f", {counted(producer.client.retries, 'retry', 'retries')}" if producer.client.retries else "")
        + (f"; already there: {counted(totals.duplicates, 'request')}" if totals.duplicates else "")
        + ("; closed" if closed else ""),
        err=True,
    )
    say(totals.next_offset)


@dataclass
class Totals:
    """The totals of a run. `duplicates` counts requests that the server already had from an earlier run."""

    requests: int = 0
    records: int = 0
    bytes: int = 0
    duplicates: int = 0
    next_offset: str = ""


@dataclass
class Producer:
    """A sender of batches, in order, one at a time. Each carries the next producer number, so that sending one twice
    changes nothing.
    """

    client: Client
    target: Target
    content_type: str
    producer_id: str
    epoch: int = 0
    stream_key: str | None = None
    timestamp: str | None = None
    stream_seq: str | None = None

    def __post_init__(self) -> None:
        self.totals = Totals()

    def append(self, batch: Batch) -> None:
        """Appends one batch. Raises `Refused` if the server answers with an error, `Unreachable` if it does not answer."""
        headers = {"content-type": self.content_type, **self.producer_headers(), **self.hint_headers()}
        answer = self.client.send(
            "POST", self.target.url, what=f"append to {self.target.name}", headers=headers, content=batch.body
        )
        self.totals.requests += 1
        self.totals.records += batch.records
        self.totals.bytes += len(batch.body)
        self.totals.next_offset = answer.headers.get("stream-next-offset", self.totals.next_offset)
        if answer.status_code == 204:
            self.totals.duplicates += 1

    def close(self) -> None:
        """Closes the stream; a closed stream is no error."""
        answer = self.client.send(
            "POST",
            self.target.url,
            what=f"close {self.target.name}",
            headers={"stream-closed": "true"},
            content=b"",
        )
        self.totals.next_offset = answer.headers.get("stream-next-offset", self.totals.next_offset)

    def producer_headers(self) -> dict[str, str]:
        return {
            "producer-id": self.producer_id,
            "producer-epoch": str(self.epoch),
            "producer-seq": str(self.totals.requests),
        }

    def hint_headers(self) -> dict[str, str]:
        """Returns the headers with hints for the server. Stream-Seq must grow with every request: later requests get a
        suffix, since a text sorts after its own prefix.
        """
        headers = {}
        if self.stream_key is not None:
            headers["stream-key"] = self.stream_key
        if self.timestamp is not None:
            headers["stream-timestamp"] = self.timestamp
        if self.stream_seq is not None:
            number = self.totals.requests
            headers["stream-seq"] = self.stream_seq if number == 0 else f"{self.stream_seq}.{number:012d}"
        return headers
