"""A relay in memory, with followers that do as they are told."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from functions.metrics import Meter, RelayMetric
from functions.queue import MemoryQueue, Message
from functions.relay.context import Context, assemble
from functions.relay.followers import Hint
from functions.relay.handler import Relay
from functions.wiring import make_logger
from headrace.memory import memory_stores
from headrace.tables.follows import Follow, PutFollow
from headrace.wal.memory import MemoryWal
from tests.support.clocks import ManualClock
from tests.support.faults import Faulty

LOG = f"{1:032x}"
Visit = Callable[[Follow, Hint], float | None]


class Dummy:
    """A kind of followers: each does what its script says next, and is up to date when it has ended."""

    def __init__(self) -> None:
        self.visits: Counter[str] = Counter()
        self.order: list[str] = []
        self.hints: dict[str, Hint] = {}
        self.scripts: dict[str, list[float | Exception | Visit | None]] = defaultdict(list)
        self._lock = threading.Lock()

    def visit(self, follow: Follow, hint: Hint) -> float | None:
        with self._lock:
            self.visits[follow.id] += 1
            self.order.append(follow.key)
            self.hints[follow.id] = hint
            script = self.scripts[follow.id]
            step = script.pop(0) if script else None
        if isinstance(step, Exception):
            raise step
        return step(follow, hint) if callable(step) else step


class World:
    """Tables, a queue, and a relay."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.wal = MemoryWal()
        self.follows, self.queue = Faulty(self.wal.follows), Faulty(MemoryQueue())
        stores = memory_stores(None, self.clock, wal=self.wal)
        self.lines: list[dict[str, Any]] = []
        meter = Meter(RelayMetric, lambda line: self.lines.append(json.loads(line)))
        self.parts: Context = assemble(dataclasses.replace(stores, follows=self.follows), self.queue, meter)
        self.dummy, self.created = Dummy(), list[str]()
        followers = dict.fromkeys(("router", "bell", "socket", "subscription"), self.dummy)
        self.relay = Relay(
            self.parts, make_logger("relay"), followers, [lambda _, message: self.created.append(message.log_id)]
        )

    def follow(self, *names: str, kind: str = "router", log_id: str = LOG, **more: Any) -> None:
        """Adds followers of a log."""
        for name in names:
            PutFollow(Follow(log_id, kind, name, **more)).apply({"follows": self.wal.follows})  # type: ignore[dict-item]

    def row(self, name: str, kind: str = "router") -> Follow:
        """Returns the row of a follower."""
        row = self.wal.follows.get(LOG, kind, name)
        assert row is not None
        return row

    def hear(self, *records: dict[str, Any]) -> None:
        """Handles a batch of the stream."""
        self.relay.handle({"Records": list(records)}, None)

    def append(
        self, *, log_id: str = LOG, slot: int = 0, count: int = 1, kind: str = "append", relay: bool = True
    ) -> Any:
        """Returns a record of the stream."""
        image = {
            "log_id": {"S": log_id},
            "slot": {"N": str(slot)},
            "kind": {"S": kind},
            "count": {"N": str(count)},
            "committed": {"N": str(self.clock.now_ms())},
        }
        return record({**image, "relay": {"N": "1"}} if relay else image)

    def receive(self) -> list[Message]:
        """Takes the messages whose time has come."""
        found: list[Message] = self.queue.target.receive(self.clock.now_ms())
        return found

    def receive_all(self) -> list[Message]:
        """Takes all messages, whatever their time."""
        found: list[Message] = self.queue.target.receive(2**60)
        return found

    def deliver(self, *messages: Message) -> list[str]:
        """Delivers messages in one batch; returns the numbers of those that failed."""
        answer = self.relay.handle({"Records": [message_record(n, one) for n, one in enumerate(messages)]}, None)
        return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]

    def drain(self) -> int:
        """Delivers messages, and waits for later ones, until there are none; returns how many there were."""
        delivered = 0
        while self.queue.target.waiting:
            found = self.receive()
            if not found:
                self.clock.advance(1)
            elif self.deliver(*found):
                raise AssertionError("a message failed")
            delivered += len(found)
        return delivered

    def sweep(self) -> None:
        """Runs the sweep."""
        self.relay.handle({"detail-type": "Scheduled Event"}, None)

    def metric(self, name: str) -> int:
        """Returns the sum of a metric."""
        return sum(sum(line.get(name, ())) for line in self.lines)


def record(image: dict[str, Any]) -> dict[str, Any]:
    """Returns a record of the stream, with an item."""
    keys = {name: image[name] for name in ("log_id", "slot")}
    return {"eventSource": "aws:dynamodb", "eventName": "INSERT", "dynamodb": {"Keys": keys, "NewImage": image}}


def message_record(number: int, message: Message) -> dict[str, Any]:
    """Returns a record of the queue, with a message."""
    body = msgspec.json.encode(message).decode()
    return {"eventSource": "aws:sqs", "messageId": str(number), "body": body}
