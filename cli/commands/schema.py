"""The command group `headrace schema`: the schemas, lenses, routing key and search configuration of a JSON stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from cli.documents import Members, members, value
from cli.elements import join_object, object_members
from cli.errors import BadInput, CliError
from cli.groups import CommandGroup
from cli.options import Connection, connection_options, example, json_file, json_option, read_json
from cli.tables import Column, counted, print_table
from cli.terminal import print_document, say

OFFERS = ("exact", "prefix", "column", "exists", "sortable", "aggregatable", "positions", "contains")


@click.group(
    cls=CommandGroup, epilog="`headrace schema COMMAND --help` has examples; docs/json-streams.md explains it."
)
def command() -> None:
    """Show or set what the records of a JSON stream must look like, and what can be asked of them.

    The schema registry of a stream has a schema for each version, a lens from each version to the next, the routing
    key, and the search configuration.
    """


@command.command(
    "show",
    epilog=example(
        "headrace schema show orders",
        "headrace schema show orders --version 2 > orders.schema.json",
        "headrace schema show orders --version 2 --lens    # from 1 to 2",
        "headrace schema show orders --json | jq .search",
    ),
)
@click.argument("name")
@click.option("--version", type=click.IntRange(min=1), metavar="N", help="Print the JSON schema of this version.")
@click.option("--lens", is_flag=True, help="With --version: print the lens that leads to it from the one before.")
@json_option
@connection_options
def show(connection: Connection, name: str, version: int | None, lens: bool, as_json: bool) -> None:
    """Show the schema registry of the stream NAME: versions, routing key, search fields."""
    if lens and version is None:
        raise BadInput("--lens needs --version", "it says which lens")
    target = connection.target(name)
    what = f"schema of {target.name}"
    answer = connection.client(target.url).send("GET", f"{target.url}/_schema", what=what)
    if version is None:
        if as_json:
            print_document(answer.content)
        else:
            _print(target.name, members(answer, what))
        return
    registry = members(answer, what)
    kept = object_members(registry.get("lenses" if lens else "schemas", "{}"))
    part = kept.get(str(version - 1 if lens else version))
    if part is None:
        said = f"no lens leads to version {version}" if lens else f"there is no version {version}"
        raise CliError(f"{what}: {said}", f"the current version is {registry.get('currentVersion', '0')}")
    print_document(part.encode())


@command.command(
    "set",
    epilog=example(
        "headrace schema set orders --schema orders.json --routing-key /id",
        "headrace schema set orders --search search.json",
        "headrace schema set orders --schema orders2.json --lens 1to2.json",
        "headrace schema set orders --file update.json        # all in one document",
    ),
)
@click.argument("name")
@json_file("--schema", "A JSON schema (draft-07) for records from now on.")
@json_file("--lens", "With --schema: how records of the version before are read as records of the new one.")
@json_file("--search", "The search configuration: fields, aliases, rollups.")
@click.option("--no-search", is_flag=True, help="Remove the search configuration.")
@click.option("--routing-key", metavar="POINTER", help="Where records have their routing key, like /user/id.")
@click.option("--optional-key", is_flag=True, help="With --routing-key: records without a key are accepted.")
@click.option("--no-routing-key", is_flag=True, help="Records have no routing key from now on.")
@json_file("--file", "All of it as one document, as `POST …/_schema` takes it, instead of the other options.")
@json_option
@connection_options
def set_(
    connection: Connection,
    name: str,
    schema: Path | None,
    lens: Path | None,
    search: Path | None,
    no_search: bool,
    routing_key: str | None,
    optional_key: bool,
    no_routing_key: bool,
    file: Path | None,
    as_json: bool,
) -> None:
    """Give the stream NAME a schema, a lens, a routing key or a search configuration.

    The first schema needs a stream without records; each later one needs a lens from the version before. A stream
    that has a schema may change its search configuration or routing key alone.
    """
    if (search and no_search) or (routing_key is not None and no_routing_key):
        raise BadInput("an option and its --no- form exclude each other")
    if optional_key and routing_key is None:
        raise BadInput("--optional-key needs --routing-key")
    parts = {name: read_json(path) for name, path in (("schema", schema), ("lens", lens), ("search", search)) if path}
    if routing_key is not None:
        parts["routingKey"] = json.dumps({"jsonPointer": routing_key, "required": not optional_key})
    parts |= {name: "null" for name, gone in (("search", no_search), ("routingKey", no_routing_key)) if gone}
    if bool(parts) is (file is not None):
        raise BadInput("give --file alone, or one or more of the other options", "`headrace schema set --help`")
    target = connection.target(name)
    what = f"set the schema of {target.name}"
    answer = connection.client(target.url).send(
        "POST",
        f"{target.url}/_schema",
        what=what,
        headers={"content-type": "application/json"},
        content=(read_json(file) if file else join_object(parts)).encode(),
        is_safe=False,
    )
    if as_json:
        print_document(answer.content)
    else:
        _print(target.name, members(answer, what))


def _print(name: str, registry: Members) -> None:
    """Prints a schema registry for people."""
    current = registry.get("currentVersion", "0")
    key = value(registry.get("routingKey"))
    said = "none" if key is None else f"{key['jsonPointer']}{'' if key['required'] else ' (optional)'}"
    say(f"{name}: {f'schema version {current}' if current != '0' else 'no schema'}; routing key: {said}")
    boundaries = value(registry.get("boundaries")) or []
    if len(boundaries) > 1:
        print_table(
            [Column("version", True), Column("from record", True)],
            ([one["version"], f"{one['offset']:,}"] for one in boundaries),
        )
    search = value(registry.get("search"))
    if search is None:
        say("search: not configured")
        return
    rollups = ", ".join(search.get("rollups") or {}) or "none"
    say(
        f"search: {counted(len(search['fields']), 'field')}; time: {search['primaryTimestampField']}; rollups: {rollups}"
    )
    print_table(
        [Column("field"), Column("kind"), Column("where"), Column("offers")], map(_row, search["fields"].items())
    )


def _row(item: tuple[str, Any]) -> list[str]:
    name, field = item
    where = [binding["jsonPointer"] for binding in field.get("bindings") or []]
    offers = [offer for offer in OFFERS if field.get(offer)]
    return [name, field["kind"], ", ".join(dict.fromkeys(where)), ", ".join(offers)]
