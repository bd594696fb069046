"""The commands `headrace features push` and `load`.

An event counts once for each push that reaches the server. So a batch is only sent again if that is safe: the event has a
dedupe key, by which the server knows what it has; or the server certainly wrote nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import click

from cli.commands.topic_append import open_sources
from cli.documents import document
from cli.elements import PAUSE
from cli.errors import CliError, Refused, Unreachable
from cli.features import Tables, tables_options
from cli.options import example, json_option, print_json, segment
from cli.output import ProgressBar
from cli.sources import Batch, json_batches, records
from cli.tables import counted
from cli.terminal import say

BATCH_EVENTS = 1000
MOST_EVENTS = 10_000
DEDUPED_EVENTS = 90
"""The most events of one batch that the server accepts if each has a dedupe value."""

_PUSH_OPTIONS = (
    click.option(
        "--format",
        "file_format",
        type=click.Choice(["auto", "json", "lines"]),
        default="auto",
        show_default=True,
        help="json: an array's elements, or values apart by white space. lines: a JSON value a line.",
    ),
    click.option(
        "--batch-events",
        type=click.IntRange(1, MOST_EVENTS),
        help=f"Events in one request, at most; all or none are pushed. [default: {BATCH_EVENTS}; {DEDUPED_EVENTS} if the "
        "event has a dedupe key]",
    ),
    click.option(
        "--batch-bytes",
        type=click.IntRange(1, 4 * 1024 * 1024),
        default=1024 * 1024,
        show_default=True,
        help="Bytes in one request, at most.",
    ),
    json_option,
    tables_options,
)


def _push_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_PUSH_OPTIONS):
        command = option(command)
    return command


@click.command(
    epilog=example(
        """headrace features push Txn --data '{"user_id": "alice", "amount": 25}'""",
        "headrace features push Txn --file events.jsonl",
        "tail -F app.log.json | headrace features push Txn        # sent when the input pauses",
    )
)
@click.argument("event")
@click.option("--data", multiple=True, help="The event itself, as JSON; may be given more than once.")
@click.option(
    "--file",
    "files",
    multiple=True,
    help="A file, or - for standard input; may be given more than once.",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
)
@_push_options
def push(tables: Tables, event: str, data: tuple[str, ...], files: tuple[Path, ...], **given: Any) -> None:
    """Push events of the kind EVENT. Without --data and --file, they are read from standard input.

    A request whose answer is lost is sent again only if the event has a dedupe key. Else the command ends, and says how
    much was pushed.
    """
    run(tables, event, data, files, **given)


@click.command(
    epilog=example(
        "headrace features load Txn january.jsonl february.jsonl",
        "headrace features load Txn january.jsonl --skip 40000      # go on where it was cut off",
    )
)
@click.argument("event")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--skip", type=click.IntRange(min=0), default=0, help="Leave out so many events: those that were pushed before."
)
@_push_options
def load(tables: Tables, event: str, files: tuple[Path, ...], skip: int, **given: Any) -> None:
    """Push all events of FILES, of the kind EVENT, in their order. They have the time of their arrival.

    If it is cut off, it says how many events were pushed: --skip goes on after these.
    """
    run(tables, event, (), files, skip=skip, **given)


def run(
    tables: Tables,
    event: str,
    data: tuple[str, ...],
    files: tuple[Path, ...],
    *,
    file_format: str,
    batch_events: int | None,
    batch_bytes: int,
    as_json: bool,
    skip: int = 0,
) -> None:
    """Pushes what the options of a command name, and reports."""
    dedupes = has_dedupe_key(tables, event)
    pusher = Pusher(tables, event, is_safe=dedupes, skipped=skip)
    started = time.monotonic()
    try:
        with ProgressBar(f"push {event}") as progress:
            tables.client.on_retry = progress.note_retry
            sources = open_sources(data, files, is_rerun_safe=False)
            texts = chain.from_iterable(records(source, file_format, progress.add_bytes) for source in sources)
            most = batch_events or (DEDUPED_EVENTS if dedupes else BATCH_EVENTS)
            for batch in json_batches(left_out(texts, skip), most, batch_bytes):
                pusher.push(batch)
                progress.add_records(batch.records)
    except CliError as error:
        error.message += pusher.progress(error)
        raise
    pusher.report(time.monotonic() - started, as_json=as_json)


def has_dedupe_key(tables: Tables, event: str) -> bool:
    """Returns whether an event has a dedupe key; False if the key may not look."""
    try:
        nodes = tables.registry().get("nodes") or ()
    except Refused as error:
        if error.status != 403:
            raise
        return False
    return any(node.get("name") == event and node.get("dedupe_key") for node in nodes if isinstance(node, dict))


def left_out(texts: Iterable[bytes | None], count: int) -> Iterator[bytes | None]:
    """Yields all texts but the first `count`; passes pauses on."""
    if not count:
        yield from texts
        return
    numbered = (text for text in texts if text is not PAUSE)
    yield from islice(numbered, count, None)


@dataclass
class Pusher:
    """A sender of batches of events, in order.

    Attributes:
        is_safe: whether a batch may be sent twice.
        skipped: the events of the input before the first batch.
    """

    tables: Tables
    event: str
    is_safe: bool
    skipped: int = 0
    requests: int = 0
    events: int = 0
    replays: int = 0
    ack_lsn: int = 0

    def push(self, batch: Batch) -> None:
        """Pushes one batch."""
        what = f"push to {self.event}"
        path = f"push/{segment(self.event)}/batch"
        answer = self.tables.call("POST", path, what, body=batch.body, is_safe=self.is_safe)
        self.requests += 1
        self.events += batch.records
        self.replays += "x-beava-idempotent-replay" in answer.headers
        self.ack_lsn = int(document(answer, what).get("ack_lsn", 0))

    def progress(self, error: CliError) -> str:
        """Returns what an error's message must say of the events that were pushed before it."""
        done = self.skipped + self.events
        text = f"; pushed before that: {counted(done, 'event')}" if done else ""
        unknown = isinstance(error, Unreachable) or (
            isinstance(error, Refused) and error.status in (408, 500, 502, 503, 504)
        )
        if unknown and not self.is_safe:
            text += "; the batch after that may have been pushed, too"
        return text

    def report(self, seconds: float, *, as_json: bool) -> None:
        """Prints what was pushed; the number of the last acknowledgement on standard output."""
        if as_json:
            print_json(
                {
                    "event": self.event,
                    "events": self.events,
                    "requests": self.requests,
                    "replayed_requests": self.replays,
                    "retries": self.tables.client.retries,
                    "seconds": round(seconds, 3),
                    "ack_lsn": self.ack_lsn,
                }
            )
            return
        again = f"; already there: {counted(self.replays, 'request')}" if self.replays else ""
        requests = counted(self.requests, "request")
        rate = f", {self.events / seconds:,.0f} events/s" if seconds and self.events >= BATCH_EVENTS else ""
        say(f"pushed {counted(self.events, 'event')} in {requests}, {seconds:.1f} s{rate}{again}", err=True)
        say(self.ack_lsn)
