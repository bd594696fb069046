"""The commands about records of a topic: `headrace topic append`, `read`, `tail`; `headrace queue push` is the first."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import click

from cli.client import Client
from cli.documents import document
from cli.elements import PAUSE, join_object
from cli.errors import EXIT_INTERRUPTED, BadInput, CliError
from cli.options import Connection, Target, connection_options, example, json_bytes, json_option, print_json
from cli.output import LINE_BREAKS, WRITERS, LineWriter, ProgressBar
from cli.sources import Batch, Source, from_file, from_stdin, json_batches, literal, records
from cli.tables import counted
from cli.terminal import output, print_document, say
from cli.topics import DiffPage, call, read_state, record_members

WAIT_MS = 25_000
PAGE_RECORDS = 1000

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
        with ProgressBar(f"append to {target.name}") as progress:
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
    default="json",
    show_default=True,
    help="json: one array of the data. lines: the data of a record a line. records: a whole record a line.",
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
    output_format: str,
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
    with open_output(path) as out, ProgressBar(f"read {target.name}") as progress:
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


def open_output(path: Path | None) -> BinaryIO | nullcontext[BinaryIO]:
    """Opens where data goes: a file, or standard output. Raises BadInput if the file can't be written."""
    try:
        return path.open("wb") if path else nullcontext(output())
    except OSError as error:
        raise BadInput(f"can't write {path}: {error.strerror}") from error


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
