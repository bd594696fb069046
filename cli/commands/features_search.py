"""The command `headrace features search`."""

from __future__ import annotations

from typing import Any

import click
import httpx

from cli.commands.search import Hit, search_options, show
from cli.documents import value
from cli.elements import object_members
from cli.features import Tables, tables_options
from cli.options import example


@click.command(
    epilog=example(
        "headrace features search Txn 'user_id:alice amount:>100'",
        "headrace features search Txn 'has:user_id' --sort ts:asc --all --records | jq .amount",
        "headrace features search Txn 'ts:>=2026-01-01T00:00:00Z' --sort amount:desc --limit 10",
    )
)
@click.argument("event")
@search_options
@tables_options
def command(tables: Tables, event: str, **options: Any) -> None:
    """Find the events of the kind EVENT that match QUERY, in all its lanes.

    The event must be registered with `"search": true`. The query can name each field of its schema, and the time of
    arrival as `ts`. An event is found as soon as its push is acknowledged.
    """
    what = f"search of {event}"

    def send(body: dict[str, Any]) -> httpx.Response:
        return tables.call("POST", "search", what, body={"event": event, **body})

    show(send, what, _parse, **options)


def _parse(text: str) -> Hit:
    """Returns an event from its JSON text: its fields are those of its data, its place is lane and offset."""
    given = object_members(text)
    lane = value(given["lane"])
    offset = f"{lane}:{given['offset']}" if lane else given["offset"]
    return Hit(offset, given["data"], object_members(given["data"]), None)
