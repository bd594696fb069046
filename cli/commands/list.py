"""`headrace list`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from cli.client import Client
from cli.errors import CliError
from cli.options import Connection, connection_options, example, json_option, print_json
from cli.target import base_url

PAGE_ROWS = 1000
COLUMNS = ("name", "content_type", "profile", "next_offset", "sealed_through", "created_at", "expires_at")

EPILOG = example("headrace list", "headrace list --all --json | jq -r '.[].name'")


@click.command(epilog=EPILOG)
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Show so many.")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Leave out so many, in the order of names.")
@click.option("--all", "show_all", is_flag=True, help="Show every stream, whatever --limit says.")
@json_option
@connection_options
def command(connection: Connection, limit: int, offset: int, show_all: bool, as_json: bool) -> None:
    """List streams in the order of their names."""
    url = base_url(connection.url) + "/v1/streams"
    rows = list(streams(connection.client(), url, offset, None if show_all else limit))
    if as_json:
        print_json(rows)
        return
    if not rows:
        click.echo("no streams; `headrace create NAME` makes one", err=True)
        return
    print_table(rows)
    if not show_all and len(rows) == limit:
        click.echo(f"there may be more: --offset {offset + limit}, or --all", err=True)


def streams(client: Client, url: str, offset: int, limit: int | None) -> Iterator[dict[str, Any]]:
    """Descriptors from row `offset` on, at most `limit`, in pages."""
    while limit is None or limit > 0:
        page_rows = PAGE_ROWS if limit is None else min(limit, PAGE_ROWS)
        params = {"limit": str(page_rows), "offset": str(offset)}
        answer = client.send("GET", url, what="list streams", params=params, expect=(404,))
        if answer.status_code == 404:
            raise CliError("list streams: this server has no list (404)", "is --url the root of a server?")
        rows = descriptors(answer.content)
        yield from rows
        if len(rows) < page_rows:
            return
        offset += len(rows)
        limit = None if limit is None else limit - len(rows)


def descriptors(body: bytes) -> list[dict[str, Any]]:
    """The objects of a list answer: an array of objects or names, or one under the key `streams`."""
    try:
        rows = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise CliError(f"list streams: the answer is not JSON: {error}", "is --url that of a server?") from error
    if isinstance(rows, dict):
        rows = rows.get("streams", [])
    if not isinstance(rows, list):
        raise CliError("list streams: the answer is no list", "is --url that of a server?")
    return [row if isinstance(row, dict) else {"name": str(row)} for row in rows]


def print_table(rows: list[dict[str, Any]]) -> None:
    """A column for each known field that any row has."""
    columns = [column for column in COLUMNS if any(row.get(column) is not None for row in rows)]
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(str(row.get(column) if row.get(column) is not None else "") for column in columns))
    console = Console()
    if not console.is_terminal:
        console.width = 1000  # a pipe has no width: keep a row on a line
    console.print(table, markup=False)
