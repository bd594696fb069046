"""The command group `headrace features`: what is registered, and the features of entities."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import click

from cli.documents import document
from cli.errors import BadInput, CliError
from cli.features import Tables, diff_lines, nodes_of, tables_options
from cli.groups import CommandGroup, Lazy
from cli.options import example, json_bytes, json_option, print_json
from cli.tables import Column, counted, print_table, print_tree
from cli.terminal import print_document, say

COMMANDS = {
    "push": Lazy("cli.commands.features_push:push", "Push events, from standard input, files or --data."),
    "load": Lazy("cli.commands.features_push:load", "Push the events of files, and go on after an interruption."),
    "search": Lazy("cli.commands.features_search:command", "Find events by a query."),
    "backfill": Lazy("cli.commands.features_export:backfill", "Compute a table from all events, and then read it."),
    "training-set": Lazy(
        "cli.commands.features_export:training_set", "Add features to labels, as of the time of each."
    ),
    "snapshot": Lazy("cli.commands.features_export:snapshot", "Write the rows of a table as Parquet."),
    "job": Lazy("cli.commands.features_export:job", "Show what became of a training set, a snapshot or a back-fill."),
}


class FeaturesGroup(CommandGroup):
    prefix = "features "
    lazy = COMMANDS


@click.group(cls=FeaturesGroup, epilog="`headrace features COMMAND --help` has examples.")
def command() -> None:
    """Tables of features that are kept up to date by events.

    Register events and tables, push events, and read the features of an entity: counts, sums, quantiles and others,
    over windows of time.
    """


@command.command(
    "ls",
    epilog=example("headrace features ls", "headrace features ls Spend", "headrace features ls --json | jq .version"),
)
@click.argument("name", required=False)
@json_option
@tables_options
def ls(tables: Tables, name: str | None, as_json: bool) -> None:
    """List the events, derivations and tables of a namespace, or show the node NAME.

    The column `since` says in which version of the registry a table, as it is now, began.
    """
    registry = tables.registry()
    nodes = [node for node in registry.get("nodes") or () if isinstance(node, dict)]
    if name is not None:
        nodes = [node for node in nodes if node.get("name") == name]
        if not nodes:
            raise CliError(f"{name} is not registered in the namespace {tables.namespace}", "`headrace features ls`")
        if as_json:
            print_json(nodes[0])
        else:
            print_tree(name, {member: part for member, part in _parts(nodes[0]) if part not in ([], {}, None)})
        return
    if as_json:
        print_json(registry)
        return
    states = registry.get("tables") or {}
    say(f"namespace {tables.namespace}, version {registry.get('version')}", err=True)
    if not nodes:
        say("nothing is registered; `headrace features register FILE` registers nodes", err=True)
        return
    rows = [_row(node, states.get(node.get("name")) or {}) for node in nodes]
    print_table(
        [Column("name"), Column("kind"), Column("from"), Column("key"), Column("has"), Column("since", True)], rows
    )


def _row(node: Mapping[str, Any], state: Mapping[str, Any]) -> tuple[object, ...]:
    """Returns the row of a node in the list."""
    kind, has = _kind(node), counted(len(_schema(node).get("fields") or {}), "field")
    if kind != "event":
        steps = [str(op.get("op")) for op in node.get("ops") or () if op.get("op") != "group_by"]
        has = " ".join(steps) if kind == "derived" else counted(len(_aggregations(node)), "feature")
    sources = ", ".join(map(str, node.get("upstreams") or ()))
    key = ", ".join(map(str, node.get("table_primary_key") or ())) if kind == "table" else ""
    return (
        node.get("name"),
        kind,
        sources,
        key or ("(global)" if kind == "table" else ""),
        has,
        state.get("generation"),
    )


def _kind(node: Mapping[str, Any]) -> str:
    if node.get("kind") == "event":
        return "event"
    return "table" if node.get("output_kind") == "table" else "derived"


def _schema(node: Mapping[str, Any]) -> Mapping[str, Any]:
    return node.get("schema") or {}


def _aggregations(node: Mapping[str, Any]) -> Mapping[str, Any]:
    ops = node.get("ops")
    return (ops[-1].get("agg") or {}) if ops else {}


def _parts(node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields what a node consists of, with labels for people."""
    shown = {"kind", "name", "schema", "output_kind", "upstreams", "ops", "table_primary_key"}
    yield "kind", _kind(node)
    optional = _schema(node).get("optional_fields") or ()
    fields = _schema(node).get("fields") or {}
    yield "fields", {field: f"{kind}, optional" if field in optional else kind for field, kind in fields.items()}
    yield "from", node.get("upstreams")
    yield "steps", [op for op in node.get("ops") or () if op.get("op") != "group_by"]
    yield "key", node.get("table_primary_key")
    yield (
        "features",
        {feature: {"op": agg.get("op"), **(agg.get("params") or {})} for feature, agg in _aggregations(node).items()},
    )
    for member, value in node.items():
        if member not in shown:
            yield member, value


@command.command(
    "register",
    epilog=example(
        "headrace features register fraud.json --dry-run     # what would change",
        "headrace features register fraud.json",
        "headrace features ls --json | headrace features register - --namespace copy",
    ),
)
@click.argument("file", type=click.File("rb"))
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@click.option("--force", is_flag=True, help="Also make changes that drop state.")
@json_option
@tables_options
def register(tables: Tables, file: BinaryIO, dry_run: bool, force: bool, as_json: bool) -> None:
    """Register the nodes in the JSON file FILE (- for standard input). What is registered and not in it stays.

    Changes that would drop state are shown and refused, unless --force is given.
    """
    try:
        nodes = nodes_of(json.load(file), file.name)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{file.name} is not JSON: {error}") from error
    what = f"register {counted(len(nodes), 'node')}"
    flags = {name: True for name, given in (("dry_run", dry_run), ("force", force)) if given}
    answer = tables.call("POST", "register", what, body={"nodes": nodes, **flags}, expect=() if dry_run else (409,))
    if answer.status_code == 409:
        refused = document(answer, what).get("error")
        if as_json:
            print_document(answer.content)
        elif isinstance(refused, dict):
            _print_diff(refused.get("diff") or {}, err=True)
        raise tables.client.refusal(what, answer)
    found = document(answer, what)
    if as_json:
        print_document(answer.content)
    elif dry_run:
        _print_diff(found.get("diff") or {})
    else:
        for name in found.get("added") or ():
            say(f"registered {name}")
        present = found.get("already_present") or ()
        say(f"version {found.get('registry_version')}; unchanged: {counted(len(present), 'node')}", err=True)


def _print_diff(diff: Mapping[str, Any], *, err: bool = False) -> None:
    lines = list(diff_lines(diff))
    for line in lines or ["nothing changes"]:
        say(line, err=err)


@command.command(
    "get",
    epilog=example(
        "headrace features get Spend alice",
        "headrace features get Spend alice --feature tx_count_1h --feature tx_sum_1h",
        "headrace features get SpendByCard alice 4711     # a key of two columns",
        "headrace features get Totals                     # a global table has no key",
    ),
)
@click.argument("table")
@click.argument("entity", nargs=-1, metavar="[KEY]...")
@click.option("--feature", "features", multiple=True, help="Only this feature; may be given more than once.")
@click.option("--stale", is_flag=True, help="Accept an answer that is some seconds old; it costs less.")
@json_option
@tables_options
def get(
    tables: Tables, table: str, entity: tuple[str, ...], features: tuple[str, ...], stale: bool, as_json: bool
) -> None:
    """Show the features of the entity KEY in TABLE, as they are now."""
    body: dict[str, object] = {"table": table, "key": list(entity)}
    if features:
        body["features"] = list(features)
    if stale:
        body["consistency"] = "stale"
    what = f"read {' '.join((table, *entity))}"
    answer = tables.call("POST", "get", what, body=body)
    if as_json:
        print_document(answer.content)
        return
    row = document(answer, what)
    if not row:
        say("no event has touched this entity", err=True)
    width = max(map(len, row), default=0)
    for name, value in row.items():
        say(f"{name:{width}}  {value if isinstance(value, str) else json_bytes(value).decode()}")
