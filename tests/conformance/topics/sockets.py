"""A plain client of `/v0/ws`, for tests: it sends what it is told to, and keeps what it receives."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.conformance.topics.client import Server

WAIT_S = 20.0
# Of a server whose WebSockets are elsewhere.
EXTERNAL_URL = os.environ.get("HEADRACE_CONTRACT_SOCKETS_URL")

Message = dict[str, Any]


class Socket:
    """An open socket. What comes twice, since visits of the relay may overlap, it shows once, as a client should; of what
    is subscribed to again, it shows all again.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._number = 0
        self._kept: list[Message] = []
        self._heard: dict[str, int] = {}  # the highest sequence number of each topic
        self._caught_up = set[str]()

    def send(self, message: object) -> None:
        """Sends a message; texts and bytes as they are, other values as JSON."""
        self.connection.send(message if isinstance(message, str | bytes) else json.dumps(message))

    def receive(self) -> Message:
        """Returns the next message that came."""
        return self._kept.pop(0) if self._kept else self._next()

    def until(self, holds: Callable[[Message], bool]) -> list[Message]:
        """Returns the messages up to the first of which `holds` is true, that included."""
        found: list[Message] = []
        while not found or not holds(found[-1]):
            found.append(self.receive())
        return found

    def ask(self, op: str, **members: Any) -> Message:
        """Sends a command with an id of its own; returns the answer. Keeps what else comes meanwhile."""
        self._number += 1
        request_id = f"{op}-{self._number}"
        if op == "subscribe":
            for topic in members.get("topics", [members.get("topic")]):
                self._heard.pop(topic, None)
                self._caught_up.discard(topic)
        self.send({"op": op, "request_id": request_id, **members})
        kept = []
        while (message := self._next()).get("request_id") != request_id:
            kept.append(message)
        self._kept += kept
        return message

    def publish(self, topic: str, *data: object, **members: Any) -> Message:
        """Publishes a record for each of these data; returns the answer."""
        return self.ask("publish", topic=topic, records=[{"data": one} for one in data], **members)

    def subscribe(self, *topics: str, **members: Any) -> Message:
        """Subscribes to topics from their beginnings, unless the members say otherwise; returns the answer."""
        named = (
            {"topic": topics[0]}
            if len(topics) == 1
            else {"topics": {topic: {} for topic in topics}}
            if topics
            else {}
        )
        return self.ask("subscribe", **named, **members)

    def caught_up(self) -> list[Message]:
        """Returns the messages up to the first `caught_up`."""
        return self.until(lambda message: message["op"] == "caught_up")

    def _next(self) -> Message:
        while True:
            message: Message = json.loads(self.connection.recv(timeout=WAIT_S))
            match message:
                case {"op": "record", "topic": topic, "from_seq": first, "to_seq": last, "records": records}:
                    heard = self._heard.get(topic, first)
                    assert first <= heard, "a record may come twice, and none is left out"
                    if last > heard:
                        self._heard[topic] = last
                        new = [record for record in records if record["$seq"] > heard]
                        return {**message, "from_seq": heard, "records": new}
                case {"op": "tombstone", "topic": topic, "gap_to": last}:
                    if last > self._heard.get(topic, -1):
                        self._heard[topic] = last
                        return message
                case {"op": "caught_up", "topic": topic}:
                    if topic not in self._caught_up:
                        self._caught_up.add(topic)
                        return message
                case _:
                    return message


def url_of(server: Server) -> str:
    """Returns where the server's WebSockets are."""
    return EXTERNAL_URL or server.url.replace("http", "ws", 1) + "/v0/ws"


@contextmanager
def opened(server: Server, **headers: str) -> Iterator[Socket]:
    """Opens a socket with the server's key, if it has one, and further headers of the handshake."""
    with open_at(url_of(server), server.key, **headers) as socket:
        yield socket


@contextmanager
def open_at(url: str, key: str | None, **headers: str) -> Iterator[Socket]:
    """Opens a socket at a URL with a key, if there is one, and further headers of the handshake."""
    sent = dict(headers) if key is None else {**headers, "Authorization": f"Bearer {key}"}
    with connect(url, additional_headers=sent, proxy=None, open_timeout=WAIT_S) as connection:
        yield Socket(connection)


def data_in(messages: list[Message]) -> list[object]:
    """Returns the data of the records in messages."""
    return [record["data"] for message in messages if message["op"] == "record" for record in message["records"]]
