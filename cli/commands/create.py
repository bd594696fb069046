"""`headrace create`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cli.errors import BadInput
from cli.options import Connection, connection_options, example, json_option, print_json

EPILOG = example(
    "headrace create orders",
    "headrace create logs --content-type text/plain --ttl 24h",
    "headrace create report --file report.json --closed",
    "headrace create orders-test --from orders --at OFFSET --sub 2",
)


@click.command(epilog=EPILOG)
@click.argument("name")
@click.option("--content-type", help="Type of the data; application/json unless it is a fork.")
@click.option("--ttl", help="Delete after this long without use: seconds, or a duration like 24h.")
@click.option("--expires-at", help="Delete at this time, like 2030-01-01T00:00:00Z.")
@click.option("--from", "source", help="Fork: start with the data of this stream (name or URL).")
@click.option("--at", "offset", help="Fork: up to this offset of the source; its end when left out.")
@click.option("--sub", "sub_offset", type=click.IntRange(min=0), help="Fork: and so many records or bytes more.")
@click.option(
    "--file",
    "body_file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="First data of the stream, sent in one request; - is standard input.",
)
@click.option("--closed", is_flag=True, help="Close it at once: what it holds now is all it ever holds.")
@json_option
@connection_options
def command(
    connection: Connection,
    name: str,
    content_type: str | None,
    ttl: str | None,
    expires_at: str | None,
    source: str | None,
    offset: str | None,
    sub_offset: int | None,
    body_file: Path | None,
    closed: bool,
    as_json: bool,
) -> None:
    """Create the stream NAME, or do nothing if it exists with the same settings."""
    if ttl and expires_at:
        raise BadInput("--ttl and --expires-at exclude each other")
    if (offset or sub_offset is not None) and not source:
        raise BadInput("--at and --sub need --from", "they say where a fork leaves its source")
    headers = {
        "content-type": content_type or ("" if source else "application/json"),
        "stream-ttl": ttl or "",
        "stream-expires-at": expires_at or "",
        "stream-forked-from": connection.target(source).path if source else "",
        "stream-fork-offset": offset or "",
        "stream-fork-sub-offset": "" if sub_offset is None else str(sub_offset),
        "stream-closed": "true" if closed else "",
    }
    target = connection.target(name)
    client = connection.client(target.url)
    answer = client.send(
        "PUT",
        target.url,
        what=f"create {target.name}",
        headers={header: value for header, value in headers.items() if value},
        content=read_body(body_file),
    )
    created = answer.status_code == 201
    if as_json:
        print_json(
            {
                "name": target.name,
                "url": target.url,
                "created": created,
                "content_type": answer.headers.get("content-type"),
                "next_offset": answer.headers.get("stream-next-offset"),
                "closed": answer.headers.get("stream-closed", "").lower() == "true",
            }
        )
    else:
        click.echo(f"{'created' if created else 'exists already:'} {target.name}  {target.url}")


def read_body(path: Path | None) -> bytes:
    if path is None:
        return b""
    return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
