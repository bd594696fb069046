"""Server-sent events as they arrive."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx

from tests.conformance.topics.client import SSE, Server, Topic, prepared, shown


def blocks_of(answer: httpx.Response) -> Iterator[dict[str, str]]:
    """Yields the fields of each event as it arrives, its comments under an empty name."""
    fields: dict[str, str] = {}
    for line in answer.iter_lines():
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value
        elif fields:
            yield fields
            fields = {}


class Event(NamedTuple):
    """An event of a watch: its name, empty for a comment; its id, empty if it has none; and its data."""

    kind: str
    id: str
    data: dict[str, Any]

    @property
    def cursors(self) -> dict[str, int]:
        """The seq in each topic that the id says."""
        assert "=" not in self.id
        cursors: dict[str, int] = json.loads(base64.urlsafe_b64decode(self.id + "=" * (-len(self.id) % 4)))
        return cursors

    @property
    def seqs(self) -> list[int]:
        """The seqs of the records."""
        return [record["$seq"] for record in self.data["records"]]


class Events:
    """The events of an open stream, without its heading."""

    def __init__(self, blocks: Iterator[dict[str, str]]) -> None:
        self._blocks = blocks

    def __iter__(self) -> Iterator[Event]:
        for fields in self._blocks:
            if set(fields) == {""}:
                yield Event("", "", {"comment": fields[""]})
            else:
                assert set(fields) <= {"id", "event", "data"}, fields
                yield Event(fields["event"], fields.get("id", ""), json.loads(fields["data"]))

    def next(self, kind: str = "") -> Event:
        """Returns the next event that is no comment; it must be of this kind, if one is given."""
        event = next(one for one in self if one.kind)
        assert kind in ("", event.kind), event
        return event

    def take(self, count: int) -> list[Event]:
        """Returns the next events that are no comments."""
        return [self.next() for _ in range(count)]

    def until(self, kind: str, count: int = 1) -> list[Event]:
        """Returns the next events up to the one that is the last of `count` of this kind."""
        found: list[Event] = []
        while sum(one.kind == kind for one in found) < count:
            found.append(self.next())
        return found

    def rest(self) -> list[Event]:
        """Returns all events up to the end of the stream, without comments."""
        return [one for one in self if one.kind]


def create_watch(server: Server, topics: Mapping[str, object], **options: object) -> str:
    """Creates a session to prepare a test; returns the path of its stream."""
    return str(prepared(server.send("POST", "/v0/watch", {"topics": topics, **options}), 200)["stream_url"])


@contextmanager
def opened(server: Server, path: str, last_event_id: str = "", /, **params: object) -> Iterator[Events]:
    """Opens the stream of a session, whose heading must be right."""
    headers = {**SSE, **({"Last-Event-ID": last_event_id} if last_event_id else {})}
    with server.stream(path, headers, **params) as answer:
        if answer.status_code != 200:
            answer.read()
        assert answer.status_code == 200, shown(answer)
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-accel-buffering"] == "no"
        blocks = blocks_of(answer)
        assert next(blocks) == {"retry": "2000"}
        yield Events(blocks)


@contextmanager
def watching(*topics: Topic, **options: object) -> Iterator[Events]:
    """Opens the stream of a new session, which begins with the first record of each of these topics."""
    server = topics[0].server
    with opened(server, create_watch(server, {topic.name: {} for topic in topics}, **options)) as events:
        yield events


def data_of(events: list[Event], topic: Topic) -> list[object]:
    """Returns the data of a topic's records."""
    found = (
        event.data["records"] for event in events if event.kind == "record" and event.data["topic"] == topic.name
    )
    return [record["data"] for records in found for record in records]
