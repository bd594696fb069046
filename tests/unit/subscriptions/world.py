"""Subscriptions on stores in memory, and a relay that hears of each entry when it is told to."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from headrace.batch import Batch
from headrace.log.requests import JSON, At
from headrace.memory import memory_stores
from headrace.streams.values import AppendRequest, CreateRequest
from headrace.streams.verbs import Streams
from headrace.subscriptions.desk import Desk, timer_log
from headrace.subscriptions.rules import Outcome
from headrace.subscriptions.values import KIND, Config, Link, Subscription
from headrace.subscriptions.verbs import Ack, Claimed, Subscriptions
from headrace.subscriptions.wakes import Call
from headrace.tables.follows import Follow
from headrace.wal.memory import MemoryWal
from headrace.wal.state import BEGINNING, Entry
from tests.support.clocks import ManualClock

PULL = Config("pull-wake", "orders/*", wake_stream="pool", lease_ttl_ms=5_000)
HOOK = Config("webhook", "orders/*", url="https://hooks.example/x", lease_ttl_ms=5_000)


def everyone(_: Config, __: Sequence[str]) -> None:
    """Allows everything."""


class HeardWal(MemoryWal):
    """A write-ahead log that keeps what the relay must still hear."""

    def __init__(self) -> None:
        super().__init__()
        self.unheard: list[Entry] = []

    def put(self, entry: Entry) -> None:
        super().put(entry)
        if entry.state.is_followed(entry.committed_ms) or entry.kind in ("create", "delete", "expire"):
            self.unheard.append(entry)


class World:
    """One deployment with one process.

    Attributes:
        calls: the webhook calls that were made.
        answers: what receivers answer, first to last; DONE afterwards.
        refused: why the key of no subscription allows anything.
    """

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.wal = HeardWal()
        self.stores = memory_stores(clock=self.clock, wal=self.wal)
        self.streams = Streams(self.stores)
        self.subs = self.another()
        self.calls: list[Call] = []
        self.answers: list[Outcome] = []
        self.refused: tuple[str, str] | None = None
        self.meanwhile: Callable[[], None] = lambda: None

    def another(self) -> Subscriptions:
        """Returns the verbs of another process."""
        streams = Streams(self.stores)
        return Subscriptions(Desk(self.stores, streams, lambda _: None, lambda: 0.5, lambda *_: self.refused))

    # What clients do.

    def create(self, name: str, *records: Any, content_type: str = JSON) -> None:
        data = Batch.of([json.dumps(record).encode() for record in records])
        self.streams.create(name, CreateRequest(content_type=content_type, records=data))

    def append(self, name: str, *records: Any) -> str:
        data = Batch.of([json.dumps(record).encode() for record in records or ({},)])
        return self.streams.append(name, AppendRequest(content_type=JSON, records=data)).next_offset

    def put(self, config: Config = PULL, id_: str = "s") -> Subscription:
        return self.subs.put(id_, config, everyone).subscription

    def links(self, id_: str = "s") -> dict[str, Link]:
        return {link.path: link for link in self.subs.get(id_, everyone).links}

    def sub(self, id_: str = "s") -> Subscription:
        return self.subs.get(id_, everyone).subscription

    def claim(self, worker: str = "worker", id_: str = "s") -> Claimed:
        return self.subs.claim(id_, worker, everyone)

    def ack(self, claimed: Claimed, *acks: tuple[str, str], done: bool = False) -> bool:
        own = Ack(claimed.wake_id, claimed.subscription.generation, acks, done)
        return self.subs.ack(claimed.subscription.id, "pull-wake", claimed.token, own)

    def wakes(self, name: str = "pool") -> list[dict[str, Any]]:
        """Returns the records of a wake stream."""
        return [json.loads(data) for data in self.streams.read(name, At(BEGINNING)).data]

    # What the relay does.

    def post(self, call: Call) -> Outcome:
        self.calls.append(call)
        self.meanwhile()
        return self.answers.pop(0) if self.answers else Outcome.DONE

    def hear(self) -> None:
        """Tells the followers of what was committed since the last time."""
        while self.wal.unheard:
            entry = self.wal.unheard.pop(0)
            if entry.kind == "create":
                after, is_first = "", True
                while after or is_first:
                    ids, after = self.subs.links.created(entry.log_id, after)
                    is_first = False
                    for id_ in ids:
                        self.subs.wakes.open_next(id_)
            for follow in self.stores.follows.of(entry.log_id, KIND):
                self.subs.wakes.hear(follow)

    def timer(self, id_: str = "s") -> Follow | None:
        return self.stores.follows.get(timer_log(id_), KIND, id_)

    def tick(self, id_: str = "s") -> float | None:
        """Visits a subscription if it is due, and writes when it is due next, as the relay does."""
        row = self.timer(id_)
        assert row is not None and row.due_ms, "nothing is due"
        if row.due_ms > self.clock.now_ms():
            return (row.due_ms - self.clock.now_ms()) / 1000
        pause_s = self.subs.wakes.drive(id_, self.post)
        row = self.timer(id_)
        if row is not None:
            due_ms = 0 if pause_s is None else self.clock.now_ms() + round(pause_s * 1000)
            self.stores.follows.put(Follow(row.log_id, row.kind, row.id, until_ms=row.until_ms, due_ms=due_ms), row)
        return pause_s

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
