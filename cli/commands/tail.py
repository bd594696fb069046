"""The command `headrace tail`: follows a stream live through long-polls or server-sent events, and reconnects after a
lost connection.
"""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

import click
import httpx

from cli.client import Client, retry_after_s
from cli.commands.queue_work import check_lease
from cli.consumer import open_consumer
from cli.errors import EXIT_INTERRUPTED, BadInput, CliError, Refused
from cli.follow import follow_as
from cli.options import Connection, Target, connection_options, example, json_bytes
from cli.output import LINE_BREAKS, LineWriter, RawWriter
from cli.pages import EVERYTHING, Page, elements, is_json, page_of
from cli.selection import Selection, as_object, as_row, find_last, selection_options, start_of_last
from cli.signals import terminable
from cli.sse import events
from cli.subscriptions import LEASE_MS, consumer_id
from cli.terminal import output, say
from cli.units import Duration

EPILOG = example(
    "headrace tail orders",
    "headrace tail orders -n 10 --fields offset,time,value",
    "headrace tail orders --from -1          # all there is, then what comes",
    "headrace tail orders --filter 'status:open'",
    "headrace tail orders --sse --json | jq .next_offset",
    "headrace tail orders --as me            # goes on where `me` stopped",
)


@click.command(epilog=EPILOG)
@click.argument("name")
@click.option(
    "--from",
    "offset",
    help="Offset to start after; -1 is the beginning, now is the end. With --as only these two, for a name that is "
    "new. [default: now]",
)
@selection_options
@click.option(
    "--as",
    "consumer",
    metavar="NAME",
    help="Go on where this name stopped in the stream. The server keeps that; what is printed is acknowledged.",
)
@click.option(
    "--lease",
    "lease_ms",
    type=Duration(),
    default="30s",
    show_default=True,
    help="With --as, for a name that is new: how long the stream stays with a reader that is not heard of any more.",
)
@click.option("--sse", is_flag=True, help="Use server-sent events instead of long-polls.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="A JSON object a line: where the data starts and ends, and the "
    "records of a JSON stream, or text, or base64.",
)
@connection_options
def command(
    connection: Connection,
    name: str,
    offset: str | None,
    selection: Selection,
    consumer: str | None,
    lease_ms: int,
    sse: bool,
    as_json: bool,
) -> None:
    """Print each record that is appended to the stream NAME, one per line, until the stream is closed.

    After a lost connection it continues at the same offset: nothing is printed twice or left out. Ctrl-C stops it
    and prints the offset to continue from.

    With --as, the server keeps how far the name is: the same command goes on there, later or on another machine. One
    reader of a name prints at a time; another one waits, and takes over when the first ends, or is killed. What was
    printed by a reader that was killed just then is printed again.
    """
    if offset is not None and selection.last:
        raise BadInput("--from and -n exclude each other")
    if sse and (selection.filter is not None or selection.fields):
        raise BadInput("--sse goes without --filter and --fields")
    offset = offset or "now"
    target = connection.target(name)
    client = connection.client(target.url)
    if consumer is not None:
        if sse or offset not in ("-1", "now"):
            raise BadInput("--as goes without --sse and --from OFFSET", "the name says where to start")
        if selection != Selection():
            raise BadInput("--as goes without -n, --filter, --routing-key and --fields")
        consumer_id(consumer, target.name)
        check_lease(lease_ms, LEASE_MS)
    head = client.send("HEAD", target.url, what=f"follow {target.name}").headers
    content_type = head.get("content-type", "")
    if consumer is not None:
        asyncio.run(tail_as(connection, target, consumer, offset, lease_ms, as_json=as_json))
        return
    if sys.stderr.isatty():
        client.on_retry = lambda reason, wait_s: say(f"{reason}: again in {wait_s:.1f} s", err=True)
    out = output()
    try:
        with terminable():
            for page in start_pages(client, target, head, selection):
                print_page(out, page, offset, content_type, selection.fields, as_json=as_json)
                offset = page.next_offset
            if offset == "now":
                offset = head.get("stream-next-offset", offset)  # fixed now, so that a reconnect misses nothing
            follow = server_sent if sse else long_poll
            for page in follow(client, target, offset, selection.params):
                print_page(out, page, offset, content_type, selection.fields, as_json=as_json)
                offset = page.next_offset
    except KeyboardInterrupt:
        say(f"stopped; --from {offset} goes on from here", err=True)
        sys.exit(EXIT_INTERRUPTED)


def start_pages(client: Client, target: Target, head: Mapping[str, str], selection: Selection) -> Iterator[Page]:
    """Yields a page that comes before what is followed: with the last selected records, or an empty one that ends where
    the last records begin. Nothing without -n.
    """
    if selection.last is None:
        return
    if not selection.selects:
        yield Page(b"", start_of_last(selection, head), up_to_date=False, closed=False)
    elif not (is_json(head.get("content-type", "")) or selection.fields):
        raise BadInput("-n with --routing-key needs a JSON stream, or --fields")
    else:
        found, behind, warning = find_last(client, target, head, selection)
        if warning:
            say(warning, err=True)
        yield Page(b"[" + b",".join(found) + b"]" if found else b"", behind, up_to_date=True, closed=False)


async def tail_as(
    connection: Connection, target: Target, name: str, start: str, lease_ms: int, *, as_json: bool
) -> None:
    """Prints a stream under a name, until it is closed, or a signal comes."""
    out = output()
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)

    def show(page: Page, offset: str, content_type: str) -> None:
        print_page(out, page, offset, content_type, (), as_json=as_json)

    async with open_consumer(connection, name) as consumer:
        if sys.stderr.isatty():
            consumer.on_retry = lambda reason, wait_s: say(f"{reason}: again in {wait_s:.1f} s", err=True)
        try:
            await follow_as(consumer, target, start, lease_ms, show)
        except asyncio.CancelledError:
            say(f"stopped; --as {name} goes on from here", err=True)
            sys.exit(EXIT_INTERRUPTED)


def print_page(
    out: BinaryIO, page: Page, offset: str, content_type: str, fields: tuple[str, ...], *, as_json: bool
) -> None:
    has_records = is_json(content_type) or bool(fields)
    if as_json:
        if page.body or page.closed:
            out.write(described(page, offset, fields, has_records=has_records) + b"\n")
    elif has_records:
        writer = LineWriter(out)
        for record in elements(page.body):
            writer.write(as_row(fields, record) if fields else record)
    else:
        RawWriter(out).write(page.body)
    out.flush()


def described(page: Page, offset: str, fields: tuple[str, ...], *, has_records: bool) -> bytes:
    """Returns a page as one line of JSON: `offset` and `next_offset` around the data. Records keep their text, except
    that line breaks become spaces.
    """
    value: dict[str, object] = {"offset": offset, "next_offset": page.next_offset, "closed": page.closed}
    if has_records:
        records = [as_object(fields, record) if fields else record for record in elements(page.body)]
        return json_bytes(value)[:-1] + b',"records":[' + b",".join(records).translate(LINE_BREAKS) + b"]}"
    try:
        value["text"] = page.body.decode()
    except UnicodeDecodeError:
        value["base64"] = base64.b64encode(page.body).decode()
    return json_bytes(value)


IDLE_CONNECTION_S = 1.0
"""A connection that ends sooner and without data came through a proxy or gateway that does not hold connections
open.
"""


def long_poll(
    client: Client, target: Target, offset: str, selection: Mapping[str, str] = EVERYTHING
) -> Iterator[Page]:
    """Yields pages from `offset` on as they arrive, empty ones included, until the stream is closed."""
    cursor: str | None = None
    while True:
        params = {**selection, **live_params("long-poll", offset, cursor)}
        answer = client.send("GET", target.url, what=f"follow {target.name}", params=params)
        page = page_of(answer, offset)
        yield page
        if page.closed:
            return
        offset, cursor = page.next_offset, page.cursor


def server_sent(
    client: Client, target: Target, offset: str, selection: Mapping[str, str] = EVERYTHING
) -> Iterator[Page]:
    """Yields pages from `offset` on through server-sent events, until the stream is closed. Connects again whenever the
    connection ends; raises Unreachable or Refused when it gives up.
    """
    what = f"follow {target.name}"
    cursor: str | None = None
    failures = 0
    idle = 0
    while True:
        started = client.now()
        got_data = False
        try:
            params = {**selection, **live_params("sse", offset, cursor)}
            with client.stream(target.url, what=what, params=params) as answer:
                is_base64 = answer.headers.get("stream-sse-data-encoding") == "base64"
                for page in pages(answer.iter_bytes(), offset, is_base64=is_base64):
                    failures = 0
                    got_data = got_data or bool(page.body)
                    offset, cursor = page.next_offset, page.cursor
                    yield page
                    if page.closed:
                        return
        except httpx.TransportError as error:
            failures += 1
            client.wait_or_raise(error, failures, target.url, what)
            continue
        except Refused as refused:
            failures += 1
            if client.policy.gives_up(failures, refused.status):
                raise
            after_s = retry_after_s(refused.headers.get("retry-after"), client.now())
            client.pause(f"status {refused.status}", failures, after_s)
            continue
        idle = 0 if got_data or client.now() - started > IDLE_CONNECTION_S else idle + 1
        if idle:
            client.sleep(min(IDLE_CONNECTION_S, client.policy.wait_s(idle, None, client.random)))


def live_params(mode: str, offset: str, cursor: str | None) -> dict[str, str]:
    params = {"live": mode, "offset": offset}
    return {"cursor": cursor, **params} if cursor else params


@dataclass(frozen=True)
class Control:
    """The data of a `control` event, which says where to continue."""

    next_offset: str
    cursor: str | None
    up_to_date: bool
    closed: bool


def pages(chunks: Iterable[bytes], offset: str, *, is_base64: bool) -> Iterator[Page]:
    """Yields a page for every data event, and an empty one for a control event without data, starting at `offset`.

    Data is held until a control event says where to continue, so that a lost connection repeats nothing. Of several
    pages before one control event only the last moves `next_offset`.
    """
    held: list[bytes] = []
    for event in events(chunks):
        if event.type == "data":
            held.append(decode(event.data) if is_base64 else event.data.encode())
        elif event.type == "control":
            control = control_of(event.data)
            bodies = held or [b""]
            held = []
            for number, body in enumerate(bodies, start=1):
                is_last = number == len(bodies)
                yield Page(
                    body=body,
                    next_offset=control.next_offset if is_last else offset,
                    up_to_date=is_last and (control.up_to_date or control.closed),
                    closed=is_last and control.closed,
                    cursor=control.cursor,
                )
            offset = control.next_offset


def control_of(text: str) -> Control:
    try:
        given = json.loads(text)
        cursor = given.get("streamCursor")
        return Control(
            next_offset=str(given["streamNextOffset"]),
            cursor=None if cursor is None else str(cursor),
            up_to_date=given.get("upToDate") is True,
            closed=given.get("streamClosed") is True,
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CliError(f"the server sent a control event without a next offset: {text[:200]}") from error


def decode(text: str) -> bytes:
    try:
        return base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except ValueError as error:  # binascii.Error is one; text that is not ASCII is another
        raise CliError(f"the server sent an event that is not base64: {error}") from error
