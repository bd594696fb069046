"""The command `headrace topic append`, which is also `headrace queue push`: each request is applied once."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import click

from cli.client import Client
from cli.documents import document
from cli.elements import PAUSE, join_object
from cli.errors import BadInput, CliError
from cli.options import Connection, Target, connection_options, example, json_bytes, json_option, print_json
from cli.output import ProgressBar
from cli.sources import Batch, Source, from_file, from_stdin, json_batches, literal, records
from cli.tables import counted
from cli.terminal import say
from cli.topics import call

_APPEND_OPTIONS = (
    click.argument("name"),
    click.option("--data", multiple=True, help="The data itself, as JSON; may be given more than once."),
    click.option(
        "--file",
        "files",
        multiple=True,
        help="A file, or - for standard input; may be given more than once.",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    ),
    click.option(
        "--format",
        "file_format",
        type=click.Choice(["auto", "json", "lines"]),
        default="auto",
        show_default=True,
        help="json: an array's elements, or values apart by white space. lines: a JSON value a line.",
    ),
    click.option("--tag", help="Tag of every record: what `topic erase --tag` finds them by."),
    click.option("--node", help="Name of the writer: readers with the same --node do not get these records."),
    click.option(
        "--records",
        "are_records",
        is_flag=True,
        help='The input has whole records: {"data": …, "tag": …, "node": …, "meta": {…}}.',
    ),
    click.option(
        "--idempotency-key",
        help="Makes a rerun safe: with the same key, input and --batch options a run again appends only what is missing, "
        "for as long as the topic remembers keys. [default: a random one]",
    ),
    click.option(
        "--batch-records",
        type=click.IntRange(1, 10_000),
        default=1000,
        show_default=True,
        help="Records in one request, at most.",
    ),
    click.option(
        "--batch-bytes",
        type=click.IntRange(1, 4 * 1024 * 1024),
        default=1024 * 1024,
        show_default=True,
        help="Bytes in one request, at most.",
    ),
    json_option,
    connection_options,
)


def append_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the argument and options of an append to a command."""
    for option in reversed(_APPEND_OPTIONS):
        command = option(command)
    return command


@click.command(
    epilog=example(
        """headrace topic append events --data '{"id": 1}' --tag user-42:login""",
        "headrace topic append events --file events.jsonl --idempotency-key import-7   # run it again if it was cut off",
        "tail -F app.log.json | headrace topic append logs                 # sent when the input pauses",
    )
)
@click.option("--no-create", is_flag=True, help="Refuse if there is no such topic, instead of creating it.")
@append_options
def append(connection: Connection, name: str, **given: Any) -> None:
    """Append records to the topic NAME. Without --data and --file, they are read from standard input.

    The text of every record arrives unchanged. Every request is applied once: it carries an idempotency key, so that
    it can be sent again after a lost answer.
    """
    append_records(connection, name, **given)


def append_records(
    connection: Connection,
    name: str,
    *,
    data: tuple[str, ...],
    files: tuple[Path, ...],
    file_format: str,
    tag: str | None,
    node: str | None,
    are_records: bool,
    idempotency_key: str | None,
    no_create: bool,
    batch_records: int,
    batch_bytes: int,
    as_json: bool,
) -> None:
    """Appends what the options of a command name, and reports."""
    if are_records and tag is not None:
        raise BadInput("--records and --tag exclude each other", "the records have their own tags")
    target = connection.topic(name)
    writer = Writer(
        connection.client(target.url), target, idempotency_key or f"cli-{uuid.uuid4().hex}", node, no_create
    )
    started = time.monotonic()
    try:
        with ProgressBar(f"append {target.name}") as progress:
            writer.client.on_retry = progress.note_retry
            sources = open_sources(data, files, is_rerun_safe=idempotency_key is not None)
            texts = chain.from_iterable(records(source, file_format, progress.add_bytes) for source in sources)
            wrapped = texts if are_records else wrap(texts, tag)
            for batch in json_batches(wrapped, batch_records, batch_bytes):
                writer.append(batch)
                progress.add_records(batch.records)
    except CliError as error:
        if writer.requests:
            error.message += f"; appended before that: {counted(writer.records, 'record')}"
        raise
    writer.report(time.monotonic() - started, as_json=as_json)


def open_sources(data: tuple[str, ...], files: tuple[Path, ...], *, is_rerun_safe: bool) -> list[Source]:
    """Returns what is to be appended: the data and files that are named, else standard input."""
    stdin = from_stdin(report_pauses=not is_rerun_safe)
    named = [literal(text) for text in data] + [stdin if str(path) == "-" else from_file(path) for path in files]
    if not named and sys.stdin.isatty():
        say("reading standard input until Ctrl-D", err=True)
    return named or [stdin]


def wrap(texts: Iterator[bytes | None], tag: str | None) -> Iterator[bytes | None]:
    """Yields each JSON text as the data of a record; passes pauses on."""
    end = b"}" if tag is None else b',"tag":' + json_bytes(tag) + b"}"
    for text in texts:
        yield PAUSE if text is None else b'{"data":' + text + end


@dataclass
class Writer:
    """A sender of batches to a topic, in order. Each has its own idempotency key, so that sending one twice changes
    nothing.
    """

    client: Client
    target: Target
    key: str
    node: str | None
    no_create: bool
    requests: int = 0
    records: int = 0
    deduped: int = 0
    head_seq: int = 0

    def append(self, batch: Batch) -> None:
        """Appends one batch."""
        key = self.key if self.requests == 0 else f"{self.key}.{self.requests:06d}"
        members = {"records": batch.body.decode(), "idempotency_key": json_bytes(key).decode()}
        if self.node is not None:
            members["node"] = json_bytes(self.node).decode()
        if self.no_create:
            members["create"] = "false"
        what = f"append to {self.target.name}"
        params = {"return_seqs": "false"}
        body = join_object(members).encode()
        answer = document(call(self.client, "POST", self.target, what, body=body, params=params), what)
        self.requests += 1
        self.records += batch.records
        self.deduped += batch.records if answer.get("deduped") else 0
        self.head_seq = int(answer.get("last_seq", 0))

    def report(self, seconds: float, *, as_json: bool) -> None:
        """Prints what was appended; the seq of the last record on standard output."""
        if as_json:
            print_json(
                {
                    "topic": self.target.name,
                    "records": self.records,
                    "deduped_records": self.deduped,
                    "requests": self.requests,
                    "retries": self.client.retries,
                    "seconds": round(seconds, 3),
                    "last_seq": self.head_seq,
                    "idempotency_key": self.key,
                }
            )
            return
        there = f"; already there: {counted(self.deduped, 'record')}" if self.deduped else ""
        requests = counted(self.requests, "request")
        say(f"appended {counted(self.records, 'record')} in {requests}, {seconds:.1f} s{there}", err=True)
        say(self.head_seq)
