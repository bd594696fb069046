"""The command group `headrace queue`: queues, and the life of a job by hand; `headrace queue work` does it all."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from cli.client import Client
from cli.commands.topic import create_topic, show_topic
from cli.commands.topic_append import append_options, append_records
from cli.documents import document, members
from cli.elements import array_elements
from cli.errors import BadInput, CliError
from cli.groups import CommandGroup, Lazy
from cli.options import Connection, Target, base_url, connection_options, example, json_option, print_json
from cli.output import LineWriter
from cli.tables import Column, counted, print_table
from cli.terminal import output, print_document, say
from cli.topics import LOG_OPTIONS, QUEUE_OPTIONS, Config, call, config_options, list_options, list_topics, read_state
from cli.units import Duration

MAX_CLAIM = 1000


COMMANDS = {
    "work": Lazy("cli.commands.queue_work:command", "Run a command for each job."),
    "timings": Lazy("cli.commands.queue_timings:command", "Show how long jobs waited and ran."),
    "dead-letters": Lazy("cli.commands.dead_letters:command", "Show or retry jobs that failed too often."),
}


class QueueGroup(CommandGroup):
    prefix = "queue "
    lazy = COMMANDS


@click.group(
    cls=QueueGroup, epilog="`headrace queue COMMAND --help` has examples; docs/workers.md tells the whole story."
)
def command() -> None:
    """Jobs that are delivered until they are acknowledged.

    A worker claims a job: it is leased to that worker for a while. Acknowledged in time, the job is gone for good. Else
    it is delivered again, to any worker. So a job can be done twice, and is never lost.
    """


@command.command(
    "create",
    epilog=example(
        "headrace queue create jobs --lease 1m",
        "headrace queue create jobs --max-deliveries 5 --dead-letter jobs.dead",
    ),
)
@click.argument("name")
@config_options(QUEUE_OPTIONS, LOG_OPTIONS)
@json_option
@connection_options
def create(connection: Connection, name: str, config: Config, as_json: bool) -> None:
    """Create the queue NAME, or do nothing if it exists with these settings.

    Settings that are not given have their defaults. `headrace topic configure` changes them later.
    """
    create_topic(connection, name, {"type": "queue", **config}, as_json=as_json)


@command.command("list", epilog=example("headrace queue list", "headrace queue list --prefix tenant42: --json"))
@list_options
@json_option
@connection_options
def list_(connection: Connection, prefix: str, limit: int, show_all: bool, as_json: bool) -> None:
    """List queues with their jobs: ready, in flight with a worker, and moved to the dead-letter topic so far."""
    base = base_url(connection.url)
    client = connection.client(base)
    topics = list(list_topics(client, base, prefix, None if show_all else limit))
    # The list of topics has no counters of queues.
    names = [str(row["topic"]) for row in topics if row.get("type", "queue") == "queue"]
    states = [read_state(client, connection.topic(name)) for name in names]
    queues = [{"topic": state["topic"], **state["queue"]} for state in states if isinstance(state.get("queue"), dict)]
    if as_json:
        print_json(queues)
    elif queues:
        columns = ("topic", "ready", "in_flight", "dead_lettered")
        print_table(
            [Column(column.replace("_", " "), column != "topic") for column in columns],
            ([queue.get(column) for column in columns] for queue in queues),
        )
    else:
        say("no queues; `headrace queue create NAME` makes one", err=True)
    if not show_all and len(topics) == limit:
        say("there may be more: --all, or a greater --limit", err=True)


@command.command(
    "show", epilog=example("headrace queue show jobs", "headrace queue show jobs --json | jq .queue.ready")
)
@click.argument("name")
@json_option
@connection_options
def show(connection: Connection, name: str, as_json: bool) -> None:
    """Show the queue NAME: jobs ready, in flight and dead, its seqs, its settings."""
    show_topic(connection, name, as_json=as_json)


@command.command(
    "push",
    epilog=example(
        """headrace queue push jobs --data '{"resize": "a.png"}' --tag user-42""",
        "headrace queue push jobs --file jobs.jsonl --idempotency-key nightly-2030-01-01",
    ),
)
@append_options
def push(connection: Connection, name: str, **given: Any) -> None:
    """Add jobs to the queue NAME: each JSON value of --data, --file or standard input is one.

    Every request is applied once: it carries an idempotency key, so that it can be sent again after a lost answer.
    """
    append_records(connection, name, no_create=True, **given)


@command.command(
    "claim",
    epilog=example(
        "headrace queue claim jobs --node me",
        "headrace queue claim jobs --node me --max 10 --lease 5m | jq -r '[.\"$seq\", .lease_id] | @tsv'",
    ),
)
@click.argument("name")
@click.option("--node", required=True, help="Your name: the same for the ack.")
@click.option(
    "--max", "max_jobs", type=click.IntRange(1, MAX_CLAIM), default=1, show_default=True, help="Jobs, at most."
)
@click.option("--lease", "lease_ms", type=Duration(), help="For how long. [default: the queue's]")
@json_option
@connection_options
def claim(connection: Connection, name: str, node: str, max_jobs: int, lease_ms: int | None, as_json: bool) -> None:
    """Lease jobs of the queue NAME to yourself, and print them as JSON, one per line.

    Acknowledge each before its deadline, or extend its lease. A claim whose answer is lost is sent again: jobs of the
    lost answer come back when their lease ends.
    """
    target = connection.topic(name)
    what = f"claim from {target.name}"
    body = {"node": node, "max": max_jobs, **({} if lease_ms is None else {"lease_ms": lease_ms})}
    answer = call(connection.client(target.url), "POST", target, what, action="claim", body=body)
    if as_json:
        print_document(answer.content)
        return
    found = members(answer, what)
    try:
        jobs = array_elements(found["claimed"])
    except (ValueError, LookupError, RecursionError) as error:
        raise CliError(f"{what}: the answer has no jobs: {error}") from error
    out = output()
    writer = LineWriter(out)
    for job in jobs:
        writer.write(job.encode())
    out.flush()
    if sys.stderr.isatty() or not jobs:
        say(f"claimed {counted(len(jobs), 'job')}; {found.get('ready', '?')} ready", err=True)


def settle_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds what names claimed jobs to a command."""
    for option in (
        connection_options,
        json_option,
        click.option("--lease-id", "lease_ids", multiple=True, help="Lease id of each SEQ, in their order."),
        click.option("--node", required=True, help="The name that claimed them."),
        click.argument("seqs", nargs=-1, required=True, type=click.IntRange(min=1), metavar="SEQ..."),
        click.argument("name"),
    ):
        command = option(command)
    return command


@command.command("ack", epilog=example("headrace queue ack jobs 17 --node me --lease-id lease_7f3a9c"))
@settle_options
def ack(connection: Connection, **given: Any) -> None:
    """Complete the jobs SEQ of the queue NAME: they are deleted."""
    settle(connection, "ack", "acked", **given)


@command.command("nack", epilog=example("headrace queue nack jobs 17 --node me --delay 5m"))
@settle_options
@click.option(
    "--delay", "delay_ms", type=Duration(), default="0s", help="Deliver them again after this; at once if left out."
)
def nack(connection: Connection, delay_ms: int, **given: Any) -> None:
    """Give the jobs SEQ back to the queue NAME, to be delivered again."""
    settle(connection, "nack", "nacked", extra={"delay_ms": delay_ms}, **given)


@command.command("extend", epilog=example("headrace queue extend jobs 17 --node me --lease 5m"))
@settle_options
@click.option("--lease", "lease_ms", type=Duration(), required=True, help="The lease ends so long from now.")
def extend(connection: Connection, lease_ms: int, **given: Any) -> None:
    """Keep the jobs SEQ of the queue NAME for longer."""
    settle(connection, "extend", "extended", extra={"lease_ms": lease_ms}, **given)


def settle(
    connection: Connection,
    verb: str,
    done: str,
    *,
    name: str,
    seqs: tuple[int, ...],
    node: str,
    lease_ids: tuple[str, ...],
    as_json: bool,
    extra: dict[str, object] | None = None,
) -> None:
    """Sends an ack, nack or extend, and reports. Raises CliError if it skipped a job: another worker may hold it."""
    if lease_ids and len(lease_ids) != len(seqs):
        raise BadInput(
            f"{counted(len(seqs), 'job')}, {counted(len(lease_ids), 'lease id')}", "give one --lease-id per SEQ"
        )
    target = connection.topic(name)
    client = connection.client(target.url)
    answer = send_settle(client, target, verb, node, seqs, lease_ids, extra or {})
    if as_json:
        print_json(answer)
    else:
        say(f"{done} {counted(int(answer.get(done, 0)), 'job')}")
    if skipped := answer.get("skipped"):
        shown = ", ".join(map(str, skipped))
        raise CliError(
            f"{verb} {target.name}: skipped {shown}: {node} does not hold it (any more)",
            "the lease ended, or the job was completed by an earlier try",
        )


def send_settle(
    client: Client,
    target: Target,
    verb: str,
    node: str,
    seqs: tuple[int, ...],
    lease_ids: tuple[str, ...],
    extra: dict[str, object],
) -> dict[str, Any]:
    """Sends an ack, nack or extend and returns the answer."""
    body = {"node": node, "seqs": list(seqs), **extra, **({"lease_ids": list(lease_ids)} if lease_ids else {})}
    what = f"{verb} {target.name}"
    return document(call(client, "POST", target, what, action=verb, body=body), what)
