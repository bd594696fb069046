"""`headrace delete`."""

from __future__ import annotations

import sys

import click

from cli.errors import BadInput, refusal
from cli.options import Connection, connection_options, example, json_option, print_json

EPILOG = example("headrace delete orders", "headrace delete orders --yes")


@click.command(epilog=EPILOG)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@connection_options
def command(connection: Connection, name: str, yes: bool, as_json: bool) -> None:
    """Delete the stream NAME with all its data. Forks of it keep what they share."""
    target = connection.target(name)
    if not yes:
        if not sys.stdin.isatty():
            raise BadInput(f"delete {target.name}: nobody can be asked", "--yes deletes without asking")
        click.confirm(f"delete {target.name} at {target.url} with all its data?", abort=True)
    client = connection.client(target.url)
    answer = client.send("DELETE", target.url, what=f"delete {target.name}", expect=(404, 410))
    deleted_by_an_earlier_try = answer.status_code in (404, 410) and client.retries > 0
    if answer.status_code >= 400 and not deleted_by_an_earlier_try:
        raise refusal(f"delete {target.name}", answer.status_code, dict(answer.headers), answer.content)
    if as_json:
        print_json({"name": target.name, "url": target.url, "deleted": True})
    else:
        click.echo(f"deleted {target.name}")
