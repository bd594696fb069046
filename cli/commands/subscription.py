"""The command group `headrace subscription`: who is woken when streams have something new."""

from __future__ import annotations

from typing import Any

import click

from cli.commands.queue_work import check_lease
from cli.documents import document
from cli.errors import BadInput
from cli.groups import CommandGroup
from cli.options import (
    Connection,
    confirm,
    connection_options,
    example,
    json_bytes,
    json_option,
    print_json,
    segment,
)
from cli.subscriptions import LEASE_MS, subscription
from cli.tables import Column, counted, print_table
from cli.terminal import print_document, say
from cli.units import Duration, format_duration

JSON = {"content-type": "application/json"}


@click.group(
    cls=CommandGroup,
    epilog="`headrace subscription COMMAND --help` has examples; docs/subscriptions.md tells the whole story.",
)
def command() -> None:
    """Durable cursors over many streams, which wake a worker when one of them has something new.

    A subscription calls a webhook, or appends to a wake stream that workers read. A wake carries positions, not data.
    `headrace tail --as` and `headrace work --as` use subscriptions whose ids are NAME/STREAM.
    """


@command.command(
    "create",
    epilog=example(
        "headrace subscription create billing --pattern 'orders/*' --webhook https://hooks.example.com/ds",
        "headrace subscription create audit --stream orders/eu --stream orders/us --wake-stream wakes/audit",
    ),
)
@click.argument("subscription_id", metavar="ID")
@click.option("--pattern", help="Streams by name: * is one segment between slashes, ** is any number of them.")
@click.option("--stream", "streams", multiple=True, help="A stream, which need not exist yet; repeatable.")
@click.option("--webhook", help="The https URL that is called.")
@click.option("--wake-stream", help="The stream that wakes are appended to. It must exist to be appended to.")
@click.option("--lease", "lease_ms", type=Duration(), help="How long a worker may be silent. [default: 30s]")
@click.option("--description", help="Any text.")
@json_option
@connection_options
def create(
    connection: Connection,
    subscription_id: str,
    pattern: str | None,
    streams: tuple[str, ...],
    webhook: str | None,
    wake_stream: str | None,
    lease_ms: int | None,
    description: str | None,
    as_json: bool,
) -> None:
    """Create the subscription ID, or do nothing if it exists with these settings.

    It begins at the present end of the streams that it covers. A stream that matches later begins with its first append.
    """
    if (webhook is None) == (wake_stream is None):
        raise BadInput("give one of --webhook and --wake-stream", "they say how a worker is woken")
    if pattern is None and not streams:
        raise BadInput("nothing says which streams", "give --pattern or --stream")
    if lease_ms is not None:
        check_lease(lease_ms, LEASE_MS)
    given = {
        "type": "pull-wake" if webhook is None else "webhook",
        "pattern": pattern,
        "streams": list(streams) or None,
        "webhook": None if webhook is None else {"url": webhook},
        "wake_stream": wake_stream,
        "lease_ttl_ms": lease_ms,
        "description": description,
    }
    target = subscription(connection.url, subscription_id)
    what = f"create subscription {target.name}"
    body = json_bytes({name: member for name, member in given.items() if member is not None})
    answer = connection.client().send("PUT", target.url, what=what, headers=JSON, content=body)
    if as_json:
        print_document(answer.content)
        return
    state = document(answer, what)
    say(f"{'created' if answer.status_code == 201 else 'exists already:'} {target.name}  {target.url}")
    signing = (state.get("webhook") or {}).get("signing") or {}
    if signing:
        say(f"its calls are signed with {signing.get('alg')}, key {signing.get('kid')} of {signing.get('jwks_url')}")


@command.command(
    "show", epilog=example("headrace subscription show billing", "headrace subscription show me/orders --json")
)
@click.argument("subscription_id", metavar="ID")
@json_option
@connection_options
def show(connection: Connection, subscription_id: str, as_json: bool) -> None:
    """Show the subscription ID: whom it wakes, and how far each of its streams is acknowledged."""
    target = subscription(connection.url, subscription_id)
    what = f"look at subscription {target.name}"
    answer = connection.client().send("GET", target.url, what=what)
    if as_json:
        print_document(answer.content)
        return
    state = document(answer, what)
    webhook = state.get("webhook") or {}
    lease_ms = state.get("lease_ttl_ms")
    facts = {
        "id": target.name,
        "type": state.get("type"),
        "status": state.get("status"),
        "pattern": state.get("pattern"),
        "webhook": webhook.get("url"),
        "wake stream": state.get("wake_stream"),
        "lease": format_duration(lease_ms) if isinstance(lease_ms, int) else None,
        "created": state.get("created_at"),
        "description": state.get("description"),
    }
    for label, fact in facts.items():
        if fact is not None:
            say(f"{label:14}{fact}")
    print_links([link for link in state.get("streams") or [] if isinstance(link, dict)])


def print_links(links: list[dict[str, Any]]) -> None:
    """Prints the streams of a subscription, one per line."""
    if links:
        print_table(
            [Column("stream"), Column("linked by"), Column("acked offset")],
            ([link.get("path"), link.get("link_type"), link.get("acked_offset")] for link in links),
        )
    else:
        say("no stream so far")


@command.command("delete", epilog=example("headrace subscription delete billing --yes"))
@click.argument("subscription_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@connection_options
def delete(connection: Connection, subscription_id: str, yes: bool, as_json: bool) -> None:
    """Delete the subscription ID, with where it was in each stream. The streams stay as they are."""
    target = subscription(connection.url, subscription_id)
    confirm(f"delete subscription {target.name}", f"delete the subscription {target.name} at {target.url}?", yes=yes)
    connection.client().send("DELETE", target.url, what=f"delete subscription {target.name}")
    if as_json:
        print_json({"id": target.name, "deleted": True})
    else:
        say(f"deleted {target.name}")


@command.command("add-streams", epilog=example("headrace subscription add-streams audit orders/asia orders/africa"))
@click.argument("subscription_id", metavar="ID")
@click.argument("streams", nargs=-1, required=True, metavar="STREAM...")
@json_option
@connection_options
def add_streams(connection: Connection, subscription_id: str, streams: tuple[str, ...], as_json: bool) -> None:
    """Have the subscription ID cover the streams STREAM..., too, from their present end on. They need not exist yet."""
    target = subscription(connection.url, subscription_id)
    what = f"add streams to subscription {target.name}"
    body = json_bytes({"streams": list(streams)})
    connection.client().send("POST", f"{target.url}/streams", what=what, headers=JSON, content=body)
    if as_json:
        print_json({"id": target.name, "added": list(streams)})
    else:
        say(f"{target.name} covers {counted(len(streams), 'more stream')}")


@command.command("remove-stream", epilog=example("headrace subscription remove-stream audit orders/asia"))
@click.argument("subscription_id", metavar="ID")
@click.argument("stream")
@json_option
@connection_options
def remove_stream(connection: Connection, subscription_id: str, stream: str, as_json: bool) -> None:
    """Take the stream STREAM out of the subscription ID. If its pattern covers the stream, it stays."""
    target = subscription(connection.url, subscription_id)
    what = f"remove {stream} from subscription {target.name}"
    connection.client().send("DELETE", f"{target.url}/streams/{segment(stream)}", what=what)
    if as_json:
        print_json({"id": target.name, "removed": stream})
    else:
        say(f"{target.name} does not name {stream} any more")
