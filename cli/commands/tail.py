"""`headrace tail`."""

from __future__ import annotations

import base64
import sys

import click

from cli.errors import EXIT_INTERRUPTED
from cli.follow import long_poll, server_sent
from cli.options import Connection, connection_options, example, json_bytes
from cli.output import LINE_BREAKS, LineWriter, RawWriter
from cli.pages import Page, elements, is_json

EPILOG = example(
    "headrace tail orders",
    "headrace tail orders --from -1          # all there is, then what comes",
    "headrace tail orders --sse --json | jq .next_offset",
)


@click.command(epilog=EPILOG)
@click.argument("name")
@click.option(
    "--from",
    "offset",
    default="now",
    show_default=True,
    help="Offset to start after; -1 is the beginning, now is the end.",
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
def command(connection: Connection, name: str, offset: str, sse: bool, as_json: bool) -> None:
    """Print what is appended to the stream NAME, a record a line, until the stream is closed.

    After a lost connection it goes on where it was: nothing is printed twice or left out. Ctrl-C stops it
    and prints the offset to go on from.
    """
    target = connection.target(name)
    client = connection.client(target.url)
    head = client.send("HEAD", target.url, what=f"follow {target.name}").headers
    content_type = head.get("content-type", "")
    if offset == "now":
        offset = head.get("stream-next-offset", offset)  # fixed now, so that a reconnect misses nothing
    if sys.stderr.isatty():
        client.on_retry = lambda reason, wait_s: click.echo(f"{reason}: again in {wait_s:.1f} s", err=True)
    try:
        for page in (server_sent if sse else long_poll)(client, target, offset):
            print_page(page, offset, content_type, as_json=as_json)
            offset = page.next_offset
    except KeyboardInterrupt:
        click.echo(f"stopped; --from {offset} goes on from here", err=True)
        sys.exit(EXIT_INTERRUPTED)


def print_page(page: Page, offset: str, content_type: str, *, as_json: bool) -> None:
    out = sys.stdout.buffer
    if as_json:
        if page.body or page.closed:
            out.write(described(page, offset, content_type) + b"\n")
    elif is_json(content_type):
        writer = LineWriter(out)
        for record in elements(page.body):
            writer.write(record)
    else:
        RawWriter(out).write(page.body)
    out.flush()


def described(page: Page, offset: str, content_type: str) -> bytes:
    """Returns one line: `offset` and `next_offset` around the data. Records keep their text, line breaks aside."""
    value: dict[str, object] = {"offset": offset, "next_offset": page.next_offset, "closed": page.closed}
    if is_json(content_type):
        records = b",".join(record.translate(LINE_BREAKS) for record in elements(page.body))
        return json_bytes(value)[:-1] + b',"records":[' + records + b"]}"
    try:
        value["text"] = page.body.decode()
    except UnicodeDecodeError:
        value["base64"] = base64.b64encode(page.body).decode()
    return json_bytes(value)
