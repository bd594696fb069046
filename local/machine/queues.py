"""The queues of a single machine: the calls of SQS's API that functions and the dispatcher make, on SQLite."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any
from urllib.parse import quote_plus
from uuid import uuid4

import msgspec

from headrace.decoding import from_json
from local.access_calls import arn
from local.machine.bell import Bell
from local.machine.database import Database

_DEDUPLICATION_MS = 300_000  # SQS
Json = dict[str, Any]


class Queue(msgspec.Struct, frozen=True):
    """What the template says about a queue.

    Attributes:
        visibility_s: how long a message that was received is hidden.
        delay_s: how long each message is hidden at first.
        is_fifo: whether messages of one group come one after the other, and repeats of five minutes are swallowed.
        dead: the queue to which a message goes that was received `receives` times; empty if it is kept.
        notices: prefix and suffix of the keys of new objects about which the bucket sends it messages, as S3 does.
    """

    visibility_s: int = 30
    delay_s: int = 0
    is_fifo: bool = False
    dead: str = ""
    receives: int = 0
    notices: tuple[tuple[str, str], ...] = ()


def queue_arn(name: str) -> str:
    """Returns the ARN of a queue."""
    return arn("sqs", name)


def queue_url(name: str) -> str:
    """Returns the URL of a queue: a name that nobody calls."""
    return f"sqlite://queues/{name}"


def declare_queue(database: Database, name: str, queue: Queue) -> None:
    """Creates or changes a queue."""
    database.write(
        lambda connection: connection.execute("REPLACE INTO queues VALUES (?, ?)", (name, msgspec.json.encode(queue)))
    )


class Queues:
    """The client of SQS. It waits for messages only if it has a bell."""

    def __init__(self, database: Database, bell: Bell | None = None) -> None:
        self._database = database
        self._bell = bell
        self._known: dict[str, Queue] = {}

    @cached_property
    def _notices(self) -> list[tuple[str, str, str]]:
        shapes = self._database.read("SELECT name, shape FROM queues")
        return [(name, *rule) for name, shape in shapes for rule in from_json(shape, Queue).notices]

    def note_object(self, key: str) -> None:
        """Sends a message about a new object to each queue that wants to be told."""
        for name, prefix, suffix in self._notices:
            if key.startswith(prefix) and key.endswith(suffix):
                told = {"Records": [{"eventName": "ObjectCreated:Put", "s3": {"object": {"key": quote_plus(key)}}}]}
                self.send_message(QueueUrl=queue_url(name), MessageBody=msgspec.json.encode(told).decode())

    def list_queues(self) -> Json:
        """Returns the URLs of all queues."""
        return {"QueueUrls": [queue_url(name) for (name,) in self._database.read("SELECT name FROM queues")]}

    def get_queue_url(self, *, QueueName: str) -> Json:
        """Returns the URL of a queue."""
        return {"QueueUrl": queue_url(QueueName)}

    def get_queue_attributes(self, *, QueueUrl: str, **_: Any) -> Json:
        """Returns how many messages a queue has, as text, and its dead letters, whatever attributes are named."""
        name, now_ms = _name(QueueUrl), _now_ms()
        queue = self._queue(name)
        visible, hidden, delayed = self._database.read(
            "SELECT sum(visible_ms <= ?1), sum(visible_ms > ?1 AND receives > 0), sum(visible_ms > ?1 AND receives = 0)"
            " FROM messages WHERE queue = ?2",
            (now_ms, name),
        )[0]
        redrive = {"deadLetterTargetArn": queue_arn(queue.dead), "maxReceiveCount": queue.receives}
        return {
            "Attributes": {
                "QueueArn": queue_arn(name),
                "ApproximateNumberOfMessages": str(visible or 0),
                "ApproximateNumberOfMessagesNotVisible": str(hidden or 0),
                "ApproximateNumberOfMessagesDelayed": str(delayed or 0),
                **({"RedrivePolicy": msgspec.json.encode(redrive).decode()} if queue.dead else {}),
            }
        }

    def send_message(self, *, QueueUrl: str, MessageBody: str, **more: Any) -> Json:
        """Sends one message."""
        return self.send_message_batch(QueueUrl=QueueUrl, Entries=[{"Id": "0", "MessageBody": MessageBody, **more}])

    def send_message_batch(self, *, QueueUrl: str, Entries: Sequence[Json]) -> Json:
        """Sends messages; they are on the disk when it returns."""
        name = _name(QueueUrl)
        queue, now_ms = self._queue(name), _now_ms()

        def work(connection: sqlite3.Connection) -> None:
            for entry in Entries:
                family = entry.get("MessageGroupId", "") if queue.is_fifo else ""
                repeats = entry.get("MessageDeduplicationId", "") if queue.is_fifo else ""
                if repeats and not _is_new(connection, name, repeats, now_ms):
                    continue
                visible_ms = now_ms + 1000 * entry.get("DelaySeconds", queue.delay_s)
                told = {"MessageGroupId": family, "MessageDeduplicationId": repeats} if queue.is_fifo else {}
                connection.execute(
                    "INSERT INTO messages (queue, body, visible_ms, sent_ms, family, attributes) VALUES (?, ?, ?, ?, ?, ?)",
                    (name, entry["MessageBody"], visible_ms, now_ms, family, msgspec.json.encode(told)),
                )
            self._database.ring_after_commit()

        self._database.write(work)
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries]}

    def receive_message(
        self, *, QueueUrl: str, MaxNumberOfMessages: int = 1, WaitTimeSeconds: float = 0, **_: Any
    ) -> Json:
        """Receives messages, which are hidden from others for a while. If there are none, waits for some until the next is
        due or rings.
        """
        name, until = _name(QueueUrl), time.monotonic() + WaitTimeSeconds
        while True:
            rings = self._bell.rings if self._bell is not None else 0
            due_ms = self._due(name)
            if due_ms is not None and due_ms <= _now_ms():
                found = self._receive(name, MaxNumberOfMessages)
                if found:
                    return {"Messages": found}
                due_ms = None  # a group whose message another one has
            left = until - time.monotonic()
            if self._bell is None or left <= 0:
                return {}
            self._bell.wait(rings, min(left, (due_ms - _now_ms()) / 1000) if due_ms is not None else left)

    def delete_message_batch(self, *, QueueUrl: str, Entries: Sequence[Json]) -> Json:  # noqa: ARG002 - the receipt says it
        """Deletes messages that were received."""
        # A receipt begins with the message's number, by which it is found at once.
        receipts = [(int(one.partition("-")[0]), one) for one in (entry["ReceiptHandle"] for entry in Entries)]

        def work(connection: sqlite3.Connection) -> None:
            connection.executemany("DELETE FROM messages WHERE number = ? AND receipt = ?", receipts)
            self._database.ring_after_commit()  # the next one of a group may come

        self._database.write(work, waits=False)  # a lost deletion only means that the message comes again
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries]}

    def _queue(self, name: str) -> Queue:
        if name not in self._known:
            ((shape,),) = self._database.read("SELECT shape FROM queues WHERE name = ?", (name,))
            self._known[name] = from_json(shape, Queue)
        return self._known[name]

    def _due(self, name: str) -> int | None:
        due_ms: int | None = self._database.read("SELECT min(visible_ms) FROM messages WHERE queue = ?", (name,))[0][
            0
        ]
        return due_ms

    def _receive(self, name: str, count: int) -> list[Json]:
        queue = self._queue(name)

        def work(connection: sqlite3.Connection) -> list[Json]:
            now_ms = _now_ms()
            if queue.dead:
                connection.execute(
                    "UPDATE messages SET queue = ?, receives = 0, receipt = NULL"
                    " WHERE queue = ? AND visible_ms <= ? AND receives >= ?",
                    (queue.dead, name, now_ms, queue.receives),
                )
            # Of a group, nothing while an earlier message of it is hidden or waits.
            first = (
                "AND NOT EXISTS (SELECT 1 FROM messages AS earlier WHERE earlier.queue = messages.queue"
                " AND earlier.family = messages.family AND earlier.family <> '' AND earlier.number < messages.number)"
            )
            rows = connection.execute(
                "SELECT number, body, sent_ms, receives, first_ms, attributes FROM messages"
                f" WHERE queue = ? AND visible_ms <= ? {first if queue.is_fifo else ''} ORDER BY visible_ms LIMIT ?",
                (name, now_ms, count),
            ).fetchall()
            found = []
            for number, body, sent_ms, receives, first_ms, told in rows:
                receipt = f"{number}-{uuid4().hex}"
                connection.execute(
                    "UPDATE messages SET visible_ms = ?, receives = ?, first_ms = ?, receipt = ? WHERE number = ?",
                    (now_ms + 1000 * queue.visibility_s, receives + 1, first_ms or now_ms, receipt, number),
                )
                attributes = {
                    "SentTimestamp": str(sent_ms),
                    "ApproximateReceiveCount": str(receives + 1),
                    "ApproximateFirstReceiveTimestamp": str(first_ms or now_ms),
                    **msgspec.json.decode(told),
                }
                found.append(
                    {
                        "MessageId": f"{number:032x}",
                        "ReceiptHandle": receipt,
                        "Body": body,
                        "MD5OfBody": hashlib.md5(body.encode(), usedforsecurity=False).hexdigest(),
                        "Attributes": attributes,
                    }
                )
            return found

        return self._database.write(work, waits=False)


def _is_new(connection: sqlite3.Connection, queue: str, repeats: str, now_ms: int) -> bool:
    """Notes the id of a message, and returns whether none had it within five minutes."""
    connection.execute("DELETE FROM repeats WHERE queue = ? AND until_ms <= ?", (queue, now_ms))
    added = connection.execute(
        "INSERT OR IGNORE INTO repeats VALUES (?, ?, ?)", (queue, repeats, now_ms + _DEDUPLICATION_MS)
    )
    return added.rowcount > 0


def _name(url: str) -> str:
    return url.rpartition("/")[2]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
