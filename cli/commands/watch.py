"""The command `headrace watch`: follows many topics over one connection, and goes on after a lost one where it was."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

import click
import httpx

from cli.client import Client, retry_after_s
from cli.documents import Members, document, text, value
from cli.elements import array_elements, object_members
from cli.errors import EXIT_INTERRUPTED, BadInput, CliError, Refused
from cli.options import Connection, Target, base_url, connection_options, example, json_bytes
from cli.output import LINE_BREAKS
from cli.sse import Event, events
from cli.terminal import output, say
from cli.topics import call, gap_text

QUICK_S = 1.0
"""A connection that ends sooner and without an event came through a door that does not hold connections open."""
GONE = (404, 410)
"""What says that a session is not there any more. A new one begins where this one stopped."""

EPILOG = (
    example(
        "headrace watch orders payments",
        "headrace watch orders payments --tail           # only what comes",
        "headrace watch orders --from orders=4800        # what came after seq 4800",
        "headrace watch chat --node web-1                # what other nodes write",
        "headrace watch orders --frames | jq .event      # all that the server says",
    )
    + """

\b
Each line of output is a record, with its topic:
  {"topic":"orders","$seq":4801,"$ts":1780420000000,"data":{"id":7}}
What is not a record goes to standard error: records that are gone, topics that were deleted. With --frames it is
on standard output, too: {"event":"tombstone","id":"…","data":{…}}.
"""
)


@dataclass
class Session:
    """A watch session: what the server is told to watch, and where each topic is."""

    client: Client
    base: str
    options: Mapping[str, object]
    topics: dict[str, dict[str, object]]
    lenient: bool
    seqs: dict[str, int] = field(default_factory=dict)
    """The seq up to which each topic was printed, or is known to be gone."""
    url: str = ""
    last_id: str = ""

    @property
    def what(self) -> str:
        """The topics, for messages."""
        shown = ", ".join(list(self.topics)[:3])
        return f"watch {shown}{', …' if len(self.topics) > 3 else ''}"

    def open(self) -> None:
        """Makes a session that begins where the topics stand now. Topics that do not exist are left out if that is asked
        for, or if they existed before.

        Raises:
            Refused: a topic does not exist or may not be read, or there are too many.
        """
        topics = {
            name: {"from_seq": self.seqs[name]} if name in self.seqs else given for name, given in self.topics.items()
        }
        params = {"lenient": "true"} if self.lenient or self.url else None
        watch = Target(f"{self.base}/v0/watch", "watch")
        answer = document(
            call(self.client, "POST", watch, self.what, body={**self.options, "topics": topics}, params=params),
            self.what,
        )
        try:
            starts = {name: int(start["from_seq"]) for name, start in answer["topics"].items()}
            self.url, self.last_id = self.base + str(answer["stream_url"]), ""
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise CliError(f"{self.what}: the answer names no session", "is --url the root of a server?") from error
        for name in [name for name in self.topics if name not in starts]:
            say(f"warning: there is no topic {name}", err=True)
            self.forget(name)
        self.seqs = {**starts, **self.seqs}

    def events(self) -> Iterator[Event]:
        """Yields the events of one connection. Raises httpx errors, and Refused."""
        headers = {"accept": "text/event-stream", **({"last-event-id": self.last_id} if self.last_id else {})}
        with self.client.stream(self.url, what=self.what, headers=headers) as answer:
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                raise CliError(f"{self.what}: the answer is no stream of events")
            yield from events(answer.iter_bytes())

    def forget(self, topic: str) -> None:
        """Stops watching a topic that is gone."""
        self.topics.pop(topic, None)
        self.seqs.pop(topic, None)


@click.command(epilog=EPILOG)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--tail", is_flag=True, help="Begin at the end of each topic. [default: at its beginning]")
@click.option(
    "--from", "starts", multiple=True, metavar="TOPIC=SEQ", help="Begin after this seq of this topic; repeatable."
)
@click.option("--node", help="Leave out records that this node wrote.")
@click.option("--tags/--no-tags", default=True, show_default=True, help="Show tags.")
@click.option(
    "--data/--no-data", default=True, show_default=True, help="Show data; without it a line has seq and time."
)
@click.option("--lenient", is_flag=True, help="Leave out topics that do not exist, instead of failing.")
@click.option("--frames", is_flag=True, help="Print every event that the server sends, one per line.")
@connection_options
def command(
    connection: Connection,
    topics: tuple[str, ...],
    tail: bool,
    starts: tuple[str, ...],
    node: str | None,
    tags: bool,
    data: bool,
    lenient: bool,
    frames: bool,
) -> None:
    """Print each record of the topics TOPIC... as a line of JSON, as it comes, until Ctrl-C.

    After a lost connection it goes on where it was: nothing is printed twice or left out. Ctrl-C prints the options that
    continue from there. It ends when all its topics are deleted.
    """
    seqs = dict(map(start_of, starts))
    if unknown := seqs.keys() - set(topics):
        raise BadInput(f"--from {min(unknown)}=…: this topic is not watched")
    options = {"include_tags": tags, "include_data": data, **({} if node is None else {"node": node})}
    client = connection.client()
    if sys.stderr.isatty():
        client.on_retry = lambda reason, wait_s: say(f"{reason}: again in {wait_s:.1f} s", err=True)
    start: dict[str, object] = {"tail": True} if tail else {"from_seq": 0}
    session = Session(
        client, base_url(connection.url), options, dict.fromkeys(topics, start), lenient=lenient, seqs=seqs
    )
    out = output()
    try:
        for event in follow(session):
            print_event(out, event, frames=frames)
    except KeyboardInterrupt:
        shown = " ".join(f"--from {name}={seq}" for name, seq in session.seqs.items())
        say(f"stopped; {shown} goes on from here", err=True)
        sys.exit(EXIT_INTERRUPTED)


def start_of(given: str) -> tuple[str, int]:
    """Returns a topic and a seq from `TOPIC=SEQ`. Raises BadInput if it is something else."""
    topic, _, seq = given.rpartition("=")
    if not topic or not seq.isdecimal():
        raise BadInput(f"--from {given!r}: not a topic and a seq", "write --from orders=4800; 0 is the beginning")
    return topic, int(seq)


@dataclass(frozen=True)
class Frame:
    """An event of a watch: its kind, its id, its data as text and the members of that, and the topic that it is about."""

    kind: str
    id: str
    data: str
    members: Members

    @property
    def topic(self) -> str:
        """The topic; empty if the event is about none, or about several."""
        return text(self.members.get("topic"))

    def number(self, name: str) -> int:
        """Returns a member that is a number. Raises CliError if it is missing, or something else."""
        try:
            return int(self.members[name])
        except (LookupError, ValueError) as error:
            raise CliError(f"the server sent a {self.kind} without {name}: {self.data[:200]}") from error


def frame_of(event: Event) -> Frame:
    """Parses an event. Raises CliError if its data is not a JSON object."""
    try:
        return Frame(event.type, event.id, event.data, object_members(event.data))
    except (ValueError, RecursionError) as error:
        raise CliError(f"the server sent an event that is not JSON: {event.data[:200]}") from error


def follow(session: Session) -> Iterator[Frame]:
    """Yields what the server says, over as many connections as it takes, until all topics are gone. Raises Unreachable or
    Refused when it gives up.
    """
    client = session.client
    session.open()
    failures = idle = 0
    while session.topics:
        started, is_gone, happened = client.now(), False, False
        try:
            for event in session.events():
                frame = frame_of(event)
                yield frame
                failures, happened = 0, True
                is_gone = note(session, frame)
        except httpx.TransportError as error:
            failures += 1
            client.wait_or_raise(error, failures, session.url, session.what)
            continue
        except Refused as refused:
            failures += 1
            is_gone = refused.status in GONE
            if client.policy.gives_up(failures, 503 if is_gone else refused.status):
                raise
            if not is_gone:
                after_s = retry_after_s(refused.headers.get("retry-after"), client.now())
                client.pause(f"status {refused.status}", failures, after_s)
        if is_gone and session.topics:
            session.open()
        idle = 0 if happened or client.now() - started > QUICK_S else idle + 1
        if idle:
            client.sleep(min(QUICK_S, client.policy.wait_s(idle, None, client.random)))


def note(session: Session, frame: Frame) -> bool:
    """Moves a session past an event that was printed. Returns whether the event says that the session is gone."""
    session.last_id = frame.id or session.last_id
    if frame.kind == "record":
        session.seqs[frame.topic] = frame.number("to_seq")
    elif frame.kind == "tombstone":
        session.seqs[frame.topic] = frame.number("gap_to")
    elif frame.kind == "topic-deleted":
        session.forget(frame.topic)
    return frame.kind == "error" and frame.number("code") in GONE


def print_event(out: BinaryIO, frame: Frame, *, frames: bool) -> None:
    """Prints the records of an event, one per line, or says what it says; with `frames` prints the event as it is."""
    if frames:
        head = json_bytes({"event": frame.kind, "id": frame.id})[:-1]
        out.write(head + b',"data":' + frame.data.encode().translate(LINE_BREAKS) + b"}\n")
    elif frame.kind == "record":
        lead = b'{"topic":' + json_bytes(frame.topic) + b","
        try:
            records = array_elements(frame.members["records"])
        except (ValueError, LookupError, RecursionError) as error:
            raise CliError(f"the server sent a record event without records: {frame.data[:200]}") from error
        for record in records:
            out.write(lead + record.lstrip()[1:].encode().translate(LINE_BREAKS) + b"\n")
    elif frame.kind == "tombstone":
        say(f"warning: {frame.topic}: {gap_text(value(frame.data))}", err=True)
    elif frame.kind == "topic-deleted":
        say(f"warning: {frame.topic} was deleted", err=True)
    elif frame.kind == "error":
        say(f"warning: {text(frame.members.get('error')) or frame.data[:200]}", err=True)
    out.flush()
