"""The command group `headrace router`: rules by which the server copies records from topic to topic."""

from __future__ import annotations

import click

from cli.documents import document
from cli.errors import BadInput
from cli.groups import CommandGroup
from cli.options import (
    Connection,
    Target,
    base_url,
    confirm,
    connection_options,
    example,
    json_option,
    print_json,
    segment,
)
from cli.tables import Column, print_table
from cli.terminal import print_document, say
from cli.topics import call, list_rows, match

ROOT = "/v0/routers"
COLUMNS = ("router", "source", "dest", "guarantee", "forwarded_total")


@click.group(
    cls=CommandGroup, epilog="`headrace router COMMAND --help` has examples; docs/topics.md tells the whole story."
)
def command() -> None:
    """Rules that copy each record of one topic into another.

    The server forwards in the background, in order, each record once. A destination has one source; a source has any
    number of destinations. Records that were there before the rule are not copied.
    """


def target(connection: Connection, name: str) -> Target:
    """Returns the router with this name."""
    if not name:
        raise BadInput("a name can't be empty")
    return Target(f"{base_url(connection.url)}{ROOT}/{segment(name)}", name)


@command.command(
    "put",
    epilog=example(
        "headrace router put orders audit",
        "headrace router put chat public --tag-prefix public: --name publish",
        "headrace router put eu us --allow-cycle && headrace router put us eu --allow-cycle",
    ),
)
@click.argument("source")
@click.argument("dest")
@click.option("--name", help="The router's name. [default: SOURCE->DEST]")
@click.option("--tag", help="Only records with exactly this tag.")
@click.option("--tag-prefix", help="Only records whose tag begins with this.")
@click.option("--exactly-once", is_flag=True, help="Stamp each copy's meta with the identity of its source record.")
@click.option("--drop-node", is_flag=True, help="Copies do not say which node wrote them: it gets them back, too.")
@click.option("--drop-tag", is_flag=True, help="Copies have no tag.")
@click.option("--no-create-dest", is_flag=True, help="Refuse if DEST does not exist, instead of creating it.")
@click.option(
    "--allow-cycle", is_flag=True, help="Accept a way back to SOURCE; a record goes around at most 8 times."
)
@json_option
@connection_options
def put(
    connection: Connection,
    source: str,
    dest: str,
    name: str | None,
    tag: str | None,
    tag_prefix: str | None,
    exactly_once: bool,
    drop_node: bool,
    drop_tag: bool,
    no_create_dest: bool,
    allow_cycle: bool,
    as_json: bool,
) -> None:
    """Copy what is appended to the topic SOURCE, from now on, into the topic DEST.

    A router of that name gets these settings, and goes on where it is. Its source and destination stay what they are.
    """
    chosen = match(tag, tag_prefix)
    router = target(connection, name or f"{source}->{dest}")
    body = {
        "source": source,
        "dest": dest,
        "preserve_node": not drop_node,
        "preserve_tag": not drop_tag,
        "create_dest": not no_create_dest,
        "filter": chosen,
        "allow_cycle": allow_cycle,
        "guarantee": "exactly_once" if exactly_once else "at_least_once",
    }
    what = f"put router {router.name}"
    answer = call(connection.client(), "PUT", router, what, body=body)
    if as_json:
        print_document(answer.content)
        return
    created = document(answer, what).get("created")
    say(f"{'created' if created else 'exists already, with these settings now:'} {router.name}  {router.url}")


@command.command(
    "show", epilog=example("headrace router show 'orders->audit'", "headrace router show publish --json")
)
@click.argument("name")
@json_option
@connection_options
def show(connection: Connection, name: str, as_json: bool) -> None:
    """Show the router NAME: its settings, how many records it has copied, and what holds it up, if something does."""
    router = target(connection, name)
    what = f"look at router {router.name}"
    answer = call(connection.client(), "GET", router, what)
    if as_json:
        print_document(answer.content)
        return
    for label, fact in document(answer, what).items():
        if label != "performance" and fact is not None:
            say(f"{label.replace('_', ' '):18}{_shown(fact)}")


def _shown(fact: object) -> object:
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    return " ".join(map(str, fact)) if isinstance(fact, list) else fact


@command.command("list", epilog=example("headrace router list --source orders", "headrace router list --all --json"))
@click.option("--prefix", default="", help="Only names that begin with this.")
@click.option("--source", default="", help="Only routers from this topic.")
@click.option("--dest", default="", help="Only routers to this topic.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Show at most this many.")
@click.option("--all", "show_all", is_flag=True, help="Show every one, whatever --limit says.")
@json_option
@connection_options
def list_(
    connection: Connection, prefix: str, source: str, dest: str, limit: int, show_all: bool, as_json: bool
) -> None:
    """List routers in the order of their names."""
    asked = {"prefix": prefix, "source": source, "dest": dest}
    url = base_url(connection.url) + ROOT
    rows = list(list_rows(connection.client(), url, "routers", asked, None if show_all else limit))
    if as_json:
        print_json(rows)
        return
    if not rows:
        say("no routers; `headrace router put SOURCE DEST` makes one", err=True)
        return
    print_table(
        [Column(column.replace("_", " "), column == "forwarded_total") for column in COLUMNS],
        ([row.get(column) for column in COLUMNS] for row in rows),
    )
    if not show_all and len(rows) == limit:
        say("there may be more: --all, or a greater --limit", err=True)


@command.command("delete", epilog=example("headrace router delete 'orders->audit' --yes"))
@click.argument("name")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@connection_options
def delete(connection: Connection, name: str, yes: bool, as_json: bool) -> None:
    """Delete the router NAME. What it has copied stays; what it has not is not copied any more."""
    router = target(connection, name)
    confirm(f"delete router {router.name}", f"delete the router {router.name} at {router.url}?", yes=yes)
    client = connection.client()
    what = f"delete router {router.name}"
    answer = call(client, "DELETE", router, what)
    deleted = bool(document(answer, what).get("deleted")) or client.retries > 0  # by a try whose answer was lost
    if as_json:
        print_document(answer.content)
    else:
        say(f"deleted {router.name}" if deleted else f"there is no router {router.name}")
