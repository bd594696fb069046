"""The command group `headrace queue dead-letters`: jobs that were delivered too often without an ack."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

import click

from cli.client import Client
from cli.commands.topic import erase_records
from cli.commands.topic_records import PAGE_RECORDS, diff, warn_of_gap
from cli.documents import Members, document, text
from cli.elements import join_object, object_members
from cli.errors import CliError
from cli.groups import CommandGroup
from cli.options import Connection, Target, confirm, connection_options, example, json_option, print_json
from cli.output import LineWriter
from cli.tables import Column, counted, print_table
from cli.terminal import output, say
from cli.topics import call, read_state, record_members

SOURCE, DELIVERIES, SOURCE_SEQ = "$dead_letter_from", "$dead_letter_deliveries", "$dead_letter_src_seq"
SHOWN_CHARACTERS = 80


@dataclass(frozen=True)
class Letter:
    """A record of a dead-letter topic: the job's data, tag, node and meta as JSON text, and where it came from."""

    seq: int
    record: bytes
    members: Members
    meta: Members

    @property
    def queue(self) -> str:
        return text(self.meta.get(SOURCE))

    def as_job(self) -> str:
        """Returns the job as a record to append, as JSON text."""
        meta = {name: value for name, value in self.meta.items() if name not in (SOURCE, DELIVERIES, SOURCE_SEQ)}
        job = {
            "data": self.members["data"],
            "tag": self.members.get("$tag"),
            "node": self.members.get("$node"),
            "meta": join_object(meta) if meta else None,
        }
        return join_object({name: value for name, value in job.items() if value is not None})


@click.group(cls=CommandGroup, epilog="`headrace queue dead-letters COMMAND --help` has examples.")
def command() -> None:
    """Show or retry jobs that were delivered --max-deliveries times without an ack.

    They are in the topic that the queue's --dead-letter names.
    """


@command.command(
    "list", epilog=example("headrace queue dead-letters list jobs", "headrace queue dead-letters list jobs --json")
)
@click.argument("name")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Show at most this many.")
@click.option("--json", "as_json", is_flag=True, help="Print whole records, one per line.")
@connection_options
def list_(connection: Connection, name: str, limit: int, as_json: bool) -> None:
    """List the dead letters of the queue NAME, the oldest first."""
    queue = connection.topic(name)
    client = connection.client(queue.url)
    topic = dead_letter_topic(connection, client, queue)
    letters: list[Letter] = []
    for page in pages(client, topic):
        letters += [letter for letter in page if letter.queue == queue.name]
        if len(letters) >= limit:
            break
    if as_json:
        out = output()
        writer = LineWriter(out)
        for letter in letters[:limit]:
            writer.write(letter.record)
        out.flush()
    elif letters:
        columns = [
            Column("seq", True),
            Column("job", True),
            Column("deliveries", True),
            Column("tag"),
            Column("data"),
        ]
        print_table(columns, map(row, letters[:limit]))
    else:
        say(f"no dead letters of {queue.name} in {topic.name}", err=True)


def row(letter: Letter) -> tuple[object, ...]:
    data = letter.members["data"]
    cut = data if len(data) <= SHOWN_CHARACTERS else data[: SHOWN_CHARACTERS - 1] + "…"
    meta = letter.meta
    return letter.seq, text(meta.get(SOURCE_SEQ)), text(meta.get(DELIVERIES)), text(letter.members.get("$tag")), cut


@command.command(
    "retry", epilog=example("headrace queue dead-letters retry jobs", "headrace queue dead-letters retry jobs --yes")
)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@connection_options
def retry(connection: Connection, name: str, yes: bool, as_json: bool) -> None:
    """Push the dead letters of the queue NAME into it again, the oldest first, and delete them.

    A letter is deleted after it was pushed; if that is cut off, a job may be pushed twice. Other records of the topic,
    such as dead letters of other queues, stay.
    """
    queue = connection.topic(name)
    client = connection.client(queue.url)
    topic = dead_letter_topic(connection, client, queue)
    confirm(f"retry dead letters of {queue.name}", f"push what is in {topic.name} into {queue.name} again?", yes=yes)
    done = 0
    for page in pages(client, topic):
        pushed: list[int] = []
        try:
            for letter in page:
                if letter.queue == queue.name:
                    push_again(client, queue, topic, letter)
                    pushed.append(letter.seq)
        finally:  # a later retry would push them again, if a letter could not be pushed
            if pushed:
                erase_records(client, topic, {"seqs": pushed})
        done += len(pushed)
    if as_json:
        print_json({"topic": queue.name, "dead_letter": topic.name, "retried": done})
    else:
        say(f"pushed {counted(done, 'job')} into {queue.name} again")


def push_again(client: Client, queue: Target, topic: Target, letter: Letter) -> None:
    """Appends the job of a letter to its queue; once, if it is repeated soon after."""
    # Of the whole record, with its seq and time: a topic that was created again has the same seqs.
    key = hashlib.sha256(topic.name.encode() + b"\0" + letter.record).hexdigest()
    body = f'{{"records":[{letter.as_job()}],"create":false,"idempotency_key":"dead-letter:{key}"}}'.encode()
    call(client, "POST", queue, f"push into {queue.name}", body=body)


def dead_letter_topic(connection: Connection, client: Client, queue: Target) -> Target:
    """Returns the dead-letter topic of a queue. Raises CliError if it has none."""
    config = read_state(client, queue).get("config")
    name = config.get("dead_letter") if isinstance(config, dict) else None
    if not name:
        raise CliError(
            f"{queue.name} has no dead-letter topic",
            "`headrace topic configure NAME --dead-letter TOPIC --max-deliveries 5` gives it one",
        )
    return connection.topic(str(name))


def pages(client: Client, topic: Target) -> Iterator[list[Letter]]:
    """Yields the pages of a dead-letter topic up to its present end, the oldest first; none if it does not exist yet."""
    state = call(client, "GET", topic, f"look at {topic.name}", params={"touch": "false"}, expect=(404,))
    next_seq = 0
    end = int(document(state, f"look at {topic.name}").get("head_seq", 0)) if state.status_code == 200 else 0
    while next_seq < end:
        page = diff(client, topic, next_seq, (), limit=PAGE_RECORDS, tags=True)
        warn_of_gap(page)
        yield [letter_of(record) for record in page.records]
        if page.caught_up or page.next_seq <= next_seq:
            return
        next_seq = page.next_seq


def letter_of(record: bytes) -> Letter:
    """Parses a record of a dead-letter topic. Raises CliError if it is not a record."""
    members = record_members(record)
    try:
        meta = object_members(members.get("meta", "{}"))
        return Letter(int(json.loads(members["$seq"])), record, {"data": "null", **members}, meta)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise CliError(f"the server sent a record without a seq: {error}") from error
