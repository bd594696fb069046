"""The commands about a stream as a whole: `headrace create`, `info`, `list`, `delete`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from cli.errors import BadInput, refusal
from cli.options import Connection, base_url, confirm, connection_options, example, json_option, print_json
from cli.pages import is_true, list_streams
from cli.tables import Column, print_table
from cli.terminal import say

COLUMNS = {
    "name": Column("name"),
    "content_type": Column("content type"),
    "profile": Column("profile"),
    "next_offset": Column("records", is_number=True),
    "created_at": Column("created at"),
    "expires_at": Column("expires at"),
}


@click.command(
    epilog=example(
        "headrace create orders",
        "headrace create logs --content-type text/plain --ttl 24h",
        "headrace create report --file report.json --closed",
        "headrace create orders-test --from orders --at OFFSET --sub 2",
    )
)
@click.argument("name")
@click.option("--content-type", help="Type of the data; application/json unless it is a fork.")
@click.option("--ttl", help="Delete after this long without use: seconds, or a duration like 24h.")
@click.option("--expires-at", help="Delete at this time, like 2030-01-01T00:00:00Z.")
@click.option("--retention-age", help="Keep records so long: seconds, or a duration like 168h; none: for ever.")
@click.option("--retention-bytes", help="Keep so many bytes of the newest records, like 10000000000; none: all.")
@click.option("--from", "source", help="Fork: start with the data of this stream (name or URL).")
@click.option("--at", "offset", help="Fork: up to this offset of the source; its end when left out.")
@click.option("--sub", "sub_offset", type=click.IntRange(min=0), help="Fork: and this many records or bytes more.")
@click.option(
    "--file",
    "body_file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="First data of the stream, sent in one request; - is standard input.",
)
@click.option("--closed", is_flag=True, help="Close it at once: it never accepts more data.")
@json_option
@connection_options
def create(
    connection: Connection,
    name: str,
    content_type: str | None,
    ttl: str | None,
    expires_at: str | None,
    retention_age: str | None,
    retention_bytes: str | None,
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
        "stream-retention-age": retention_age or "",
        "stream-retention-bytes": retention_bytes or "",
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
        content=_read_body(body_file),
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
                "closed": is_true(answer.headers, "stream-closed"),
            }
        )
    else:
        say(f"{'created' if created else 'exists already:'} {target.name}  {target.url}")


def _read_body(path: Path | None) -> bytes:
    if path is None:
        return b""
    return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()


@click.command(epilog=example("headrace info orders", "headrace info orders --json"))
@click.argument("name")
@json_option
@connection_options
def info(connection: Connection, name: str, as_json: bool) -> None:
    """Show the stream NAME: its type, end, expiry, retention, and whether it is closed."""
    target = connection.target(name)
    headers = connection.client(target.url).send("HEAD", target.url, what=f"info of {target.name}").headers
    facts: dict[str, object] = {
        "name": target.name,
        "url": target.url,
        "content_type": headers.get("content-type"),
        "next_offset": headers.get("stream-next-offset"),
        "closed": is_true(headers, "stream-closed"),
        "ttl": headers.get("stream-ttl"),
        "expires_at": headers.get("stream-expires-at"),
        "retention_age": headers.get("stream-retention-age"),
        "retention_bytes": headers.get("stream-retention-bytes"),
        "earliest_offset": headers.get("stream-earliest-offset"),
    }
    if as_json:
        print_json(facts)
        return
    for label, value in facts.items():
        if value is not None:
            say(f"{label.replace('_', ' '):16}{_yes_no(value)}")


def _yes_no(value: object) -> object:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


@click.command("list", epilog=example("headrace list", "headrace list --all --json | jq -r '.[].name'"))
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Show at most this many.")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Skip this many, in the order of names.")
@click.option("--all", "show_all", is_flag=True, help="Show every stream, whatever --limit says.")
@json_option
@connection_options
def list_(connection: Connection, limit: int, offset: int, show_all: bool, as_json: bool) -> None:
    """List streams in the order of their names."""
    url = base_url(connection.url) + "/v1/streams"
    rows = list(list_streams(connection.client(), url, offset, None if show_all else limit))
    if as_json:
        print_json(rows)
        return
    if not rows:
        say("no streams; `headrace create NAME` makes one", err=True)
        return
    _print_list(rows)
    if not show_all and len(rows) == limit:
        say(f"there may be more: --offset {offset + limit}, or --all", err=True)


def _print_list(rows: list[dict[str, Any]]) -> None:
    """Prints a table with a column for each known field that any row has."""
    shown = [name for name in COLUMNS if any(row.get(name) is not None for row in rows)]
    print_table([COLUMNS[name] for name in shown], ([row.get(name) for name in shown] for row in rows))


@click.command(epilog=example("headrace delete orders", "headrace delete orders --yes"))
@click.argument("name")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@connection_options
def delete(connection: Connection, name: str, yes: bool, as_json: bool) -> None:
    """Delete the stream NAME with all its data. Forks of it keep the data that they share with it."""
    target = connection.target(name)
    confirm(f"delete {target.name}", f"delete {target.name} at {target.url} with all its data?", yes=yes)
    client = connection.client(target.url)
    answer = client.send("DELETE", target.url, what=f"delete {target.name}", expect=(404, 410))
    deleted_by_an_earlier_try = answer.status_code in (404, 410) and client.retries > 0
    if answer.status_code >= 400 and not deleted_by_an_earlier_try:
        raise refusal(f"delete {target.name}", answer.status_code, dict(answer.headers), answer.content)
    if as_json:
        print_json({"name": target.name, "url": target.url, "deleted": True})
    else:
        say(f"deleted {target.name}")
