"""The command group `headrace topic`: topics as a whole, and what is deleted from them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from cli.client import Client
from cli.documents import document
from cli.errors import BadInput, CliError
from cli.groups import CommandGroup, Lazy
from cli.options import Connection, Target, base_url, confirm, connection_options, example, json_option, print_json
from cli.tables import Column, counted, print_table, size
from cli.terminal import print_document, say
from cli.topics import (
    LOG_OPTIONS,
    QUEUE_OPTIONS,
    Config,
    call,
    config_options,
    list_options,
    list_topics,
    look_at,
    match,
    read_state,
)
from cli.units import format_duration

RECORDS = {
    "append": Lazy("cli.commands.topic_append:append", "Append records from files, standard input or --data."),
    "read": Lazy("cli.commands.topic_records:read", "Read what is in a topic, then stop."),
    "tail": Lazy("cli.commands.topic_records:tail", "Follow a topic live."),
}

LATEST_MS = 253_402_300_800_000  # the end of the year 9999
NUMBERS = ("head_seq", "earliest_seq", "next_seq", "count", "bytes", "effective_priority")
COLUMNS = ("topic", "type", "head_seq", "earliest_seq", "count", "bytes", "durable", "effective_priority")


class TopicGroup(CommandGroup):
    prefix = "topic "
    lazy = RECORDS


@click.group(cls=TopicGroup, epilog="`headrace topic COMMAND --help` has examples.")
def command() -> None:
    """Logs of records with sequence numbers, tags, time limits and caps.

    A topic forgets on purpose: a TTL, a cap, or a delete takes records away. A reader that was too slow is told what
    it missed. Work that must be done once by someone belongs into a queue: `headrace queue`.
    """


@command.command(
    "create",
    epilog=example(
        "headrace topic create events --ttl 24h",
        "headrace topic create readings --cap-records 1000000 --discard reject",
    ),
)
@click.argument("name")
@config_options(LOG_OPTIONS)
@json_option
@connection_options
def create(connection: Connection, name: str, config: Config, as_json: bool) -> None:
    """Create the topic NAME, or do nothing if it exists with these settings.

    Settings that are not given have their defaults. `headrace topic configure` changes them later.
    """
    create_topic(connection, name, {"type": "log", **config}, as_json=as_json)


def create_topic(connection: Connection, name: str, config: Config, *, as_json: bool) -> None:
    """Creates a topic or queue, and says so. Raises CliError if it exists with other settings: a PUT would change them."""
    target = connection.topic(name)
    client = connection.client(target.url)
    what = f"create {target.name}"
    # A key with the scope admin alone may not look: then the PUT decides.
    there = look_at(client, target, expect=(403, 404))
    if there.status_code == 200:
        present = document(there, what).get("config") or {}
        if differing := {member: present.get(member) for member in config if present.get(member) != config[member]}:
            shown = ", ".join(
                f"{member.removesuffix('_ms')}={member_text(member, text)}" for member, text in differing.items()
            )
            raise CliError(f"{what}: it exists with {shown}", "`headrace topic configure NAME` changes settings")
        answer = {"topic": target.name, "created": False, "config": present}
    else:
        answer = document(call(client, "PUT", target, what, body=config), what)
    if as_json:
        print_json(answer)
    else:
        say(f"{'created' if answer.get('created') else 'exists already:'} {target.name}  {target.url}")


@command.command(
    "configure",
    epilog=example(
        "headrace topic configure events --ttl 7d",
        "headrace topic configure jobs --max-deliveries 5 --dead-letter jobs.dead",
    ),
)
@click.argument("name")
@config_options(LOG_OPTIONS, QUEUE_OPTIONS)
@json_option
@connection_options
def configure(connection: Connection, name: str, config: Config, as_json: bool) -> None:
    """Change settings of the topic or queue NAME, from now on; the others stay as they are.

    A lower TTL or cap takes records away that are over it.
    """
    if not config:
        raise BadInput("nothing to change", "give a setting, like --ttl 1h; `headrace topic show NAME` shows them")
    target = connection.topic(name)
    client = connection.client(target.url)
    what = f"configure {target.name}"
    # The whole configuration is sent, so that no member falls back to its default.
    present = read_state(client, target).get("config") or {}
    answer = document(call(client, "PUT", target, what, body={**present, **config}), what)
    if as_json:
        print_json(answer)
    else:
        print_config(answer.get("config") or {})


@command.command("list", epilog=example("headrace topic list --prefix tenant42:", "headrace topic list --all --json"))
@list_options
@json_option
@connection_options
def list_(connection: Connection, prefix: str, limit: int, show_all: bool, as_json: bool) -> None:
    """List topics and queues in the order of their names."""
    base = base_url(connection.url)
    rows = list(list_topics(connection.client(), base, prefix, None if show_all else limit))
    if as_json:
        print_json(rows)
        return
    if not rows:
        say("no topics; `headrace topic create NAME` makes one", err=True)
        return
    columns = [column for column in COLUMNS if any(row.get(column) is not None for row in rows)]
    print_table(
        [Column(column.replace("_", " "), column not in ("topic", "type", "durable")) for column in columns],
        ([row.get(column) for column in columns] for row in rows),
    )
    if not show_all and len(rows) == limit:
        say("there may be more: --all, or a greater --limit", err=True)


@command.command(
    "show", epilog=example("headrace topic show events", "headrace topic show events --json | jq .count")
)
@click.argument("name")
@json_option
@connection_options
def show(connection: Connection, name: str, as_json: bool) -> None:
    """Show the topic NAME: its first and last seq, how much it holds, its settings."""
    show_topic(connection, name, as_json=as_json)


def show_topic(connection: Connection, name: str, *, as_json: bool) -> None:
    """Prints the state of a topic or queue."""
    target = connection.topic(name)
    answer = look_at(connection.client(target.url), target)
    if as_json:
        print_document(answer.content)
        return
    state = document(answer, f"look at {target.name}")
    print_facts({"topic": target.name, "type": state.get("type", "log")})
    queue = state.get("queue")
    print_facts({label: state.get(label) for label in NUMBERS})
    print_facts({label.removesuffix("_ts"): moment(state.get(label)) for label in ("last_write_ts", "last_read_ts")})
    print_facts(queue if isinstance(queue, dict) else {})
    print_config(state.get("config") or {})


def moment(millis: object) -> str | None:
    """Returns a time in milliseconds since 1970 as people write it, in UTC; None if it is not one."""
    if not isinstance(millis, int) or not 0 <= millis < LATEST_MS:
        return None
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def print_facts(facts: Mapping[str, object]) -> None:
    """Prints labelled values, one per line, without those that are None."""
    for label, fact in facts.items():
        if fact is not None:
            say(f"{label.replace('_', ' '):24}{fact}")


def print_config(config: Mapping[str, Any]) -> None:
    """Prints a configuration, one member per line; those of queues only for a queue."""
    queue_members = {"lease_ms", "claim_jitter_ms", "max_deliveries", "dead_letter", "leases_durable"}
    is_queue = config.get("type") == "queue"
    print_facts(
        {
            member.removesuffix("_ms"): member_text(member, config[member])
            for member in config
            if member not in ("type", "durable") and (is_queue or member not in queue_members)
        }
    )


def member_text(member: str, value: object) -> str:
    """Returns a member of a configuration for people, in the form that its option takes."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "auto" if member == "priority" else "none"
    if isinstance(value, int):
        if value == 0 and member in ("ttl_ms", "cap_records", "cap_bytes", "max_deliveries"):
            return "off"
        return format_duration(value) if member.endswith("_ms") else str(value)
    return str(value)


@command.command(
    "delete", epilog=example("headrace topic delete events --yes", "headrace topic delete old --if-empty")
)
@click.argument("name")
@click.option("--if-empty", is_flag=True, help="Refuse if it holds records.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@connection_options
def delete(connection: Connection, name: str, if_empty: bool, yes: bool, as_json: bool) -> None:
    """Delete the topic or queue NAME with all its records, for good."""
    target = connection.topic(name)
    confirm(f"delete {target.name}", f"delete {target.name} at {target.url} with all its records?", yes=yes)
    client = connection.client(target.url)
    what = f"delete {target.name}"
    params = {"if_empty": "true"} if if_empty else None
    answer = call(client, "DELETE", target, what, params=params)
    deleted = bool(document(answer, what).get("deleted")) or client.retries > 0  # by a try whose answer was lost
    if as_json:
        print_document(answer.content)
    else:
        say(f"deleted {target.name}" if deleted else f"there is no topic {target.name}")


@command.command(
    "erase",
    epilog=example(
        "headrace topic erase chat --before 4800                 # all records with a lower seq",
        "headrace topic erase chat --tag msg-123 --before 4800   # older versions of one message",
        "headrace topic erase chat --tag-prefix user-42: --yes",
    ),
)
@click.argument("name")
@click.option("--before", "before_seq", type=click.IntRange(min=0), help="Only records with a lower seq.")
@click.option("--tag", help="Only records with exactly this tag.")
@click.option("--tag-prefix", help="Only records whose tag begins with this.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@connection_options
def erase(
    connection: Connection,
    name: str,
    before_seq: int | None,
    tag: str | None,
    tag_prefix: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete records of the topic NAME for good: by seq, by tag, or both.

    Only records that are there now: later ones with such a tag stay. Readers are not told of a gap.
    """
    chosen = match(tag, tag_prefix)
    body = {member: given for member, given in (("before_seq", before_seq), ("match", chosen)) if given is not None}
    if not body:
        raise BadInput("nothing says which records", "give --before, --tag or --tag-prefix")
    target = connection.topic(name)
    confirm(f"erase records of {target.name}", f"delete these records of {target.name} at {target.url}?", yes=yes)
    answer = erase_records(connection.client(target.url), target, body)
    if as_json:
        print_json(answer)
        return
    deleted, count = int(answer.get("deleted", 0)), int(answer.get("count", 0))
    say(f"deleted {counted(deleted, 'record')}; {counted(count, 'record')} left, {size(int(answer.get('bytes', 0)))}")


def erase_records(client: Client, target: Target, body: Mapping[str, object]) -> dict[str, Any]:
    """Deletes records by the members of `body` and returns the answer."""
    what = f"erase records of {target.name}"
    return document(call(client, "POST", target, what, action="delete", body=body), what)
