"""The command group `headrace profile`: what the records of a stream mean."""

from __future__ import annotations

from pathlib import Path

import click

from cli.documents import document
from cli.elements import join_object, object_members
from cli.errors import BadInput
from cli.groups import CommandGroup
from cli.options import Connection, connection_options, example, json_bytes, json_file, json_option, read_json
from cli.tables import print_tree
from cli.terminal import print_document

KINDS = """\b
KIND is one of:
  generic         nothing is known of the records; the default
  evlog           one wide event per request, with search fields
  metrics         metric intervals, with rollups
  otel-traces     one OpenTelemetry span per record
  state-protocol  changes of tables
"""


@click.group(
    cls=CommandGroup, epilog="`headrace profile COMMAND --help` has examples; docs/json-streams.md explains it."
)
def command() -> None:
    """Show or set what the records of a stream mean: a profile checks them, and brings a schema and search fields."""


@command.command("show", epilog=example("headrace profile show logs", "headrace profile show logs --json"))
@click.argument("name")
@json_option
@connection_options
def show(connection: Connection, name: str, as_json: bool) -> None:
    """Show the profile of the stream NAME and its options."""
    target = connection.target(name)
    what = f"profile of {target.name}"
    answer = connection.client(target.url).send("GET", f"{target.url}/_profile", what=what)
    if as_json:
        print_document(answer.content)
    else:
        print_tree(target.name, document(answer, what).get("profile"))


@command.command(
    "set",
    epilog=KINDS
    + "\n"
    + example(
        "headrace profile set logs evlog",
        "headrace profile set rows state-protocol --options touch.json",
        "headrace profile set logs generic",
    ),
)
@click.argument("name")
@click.argument("kind")
@json_file("--options", """The options of this kind, as a JSON object, like {"touch": {"enabled": true}}.""")
@json_option
@connection_options
def set_(connection: Connection, name: str, kind: str, options: Path | None, as_json: bool) -> None:
    """Give the stream NAME the profile KIND.

    All but generic need a JSON stream; evlog, metrics and otel-traces need one without records.
    """
    profile = {"kind": json_bytes(kind).decode()}
    if options is not None:
        try:
            profile |= {name: text for name, text in object_members(read_json(options)).items() if name != "kind"}
        except ValueError as error:
            raise BadInput(f"{options}: options are a JSON object") from error
    target = connection.target(name)
    what = f"set the profile of {target.name}"
    answer = connection.client(target.url).send(
        "POST",
        f"{target.url}/_profile",
        what=what,
        headers={"content-type": "application/json"},
        content=join_object({"profile": join_object(profile)}).encode(),
    )
    if as_json:
        print_document(answer.content)
    else:
        print_tree(target.name, document(answer, what).get("profile"))
