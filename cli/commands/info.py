"""`headrace info`."""

from __future__ import annotations

import click

from cli.options import Connection, connection_options, example, json_option, print_json
from cli.pages import is_true

EPILOG = example("headrace info orders", "headrace info orders --json")


@click.command(epilog=EPILOG)
@click.argument("name")
@json_option
@connection_options
def command(connection: Connection, name: str, as_json: bool) -> None:
    """Show what the stream NAME is: type, end, expiry, closed or open."""
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
    }
    if as_json:
        print_json(facts)
        return
    for label, value in facts.items():
        if value is not None:
            click.echo(f"{label.replace('_', ' '):14}{yes_no(value)}")


def yes_no(value: object) -> object:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
