"""Routers over memory stores: processes with memories of their own, and the steps that the relay would take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.batch import Batch
from headrace.log.stores import Stores
from headrace.memory import memory_stores
from headrace.queues.verbs import Queues
from headrace.routers.steps import Stepper
from headrace.routers.values import ROUTER, RouterRequest, RouterView
from headrace.routers.verbs import Routers
from headrace.settings import Settings
from headrace.tables.follows import Follow
from headrace.topics.values import DiffPage, DiffRequest, Feed, Routing, TopicConfig, WriteRequest, topic_of
from tests.support.clocks import ManualClock
from tests.support.faults import Faulty


class World:
    """Stores that outlive every process."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.stores = memory_stores(Settings(**settings), self.clock)

    def process(self) -> Process:
        """Returns a process with a cold memory."""
        return Process(self.stores)


class Process:
    """One process: its own memory, its own way to the stores."""

    def __init__(self, stores: Stores) -> None:
        self.clock: Any = stores.clock
        self.wal, self.follows = Faulty(stores.wal), Faulty(stores.follows)
        self.stores = replace(stores, wal=self.wal, follows=self.follows)
        self.topics = Queues(self.stores)
        self.routers = Routers(self.stores, self.topics)
        self.kicked: list[Follow] = []
        self.stepper = Stepper(self.stores, self.topics, self.kicked.append)

    def route(self, source: str = "a", dest: str = "b", name: str = "", limit: int = 0, **fields: Any) -> bool:
        """Puts a router; returns whether it was created. `fields` are those of the routing and of the request."""
        more = {key: fields.pop(key) for key in ("create_dest", "most_topics") if key in fields}
        most = more.pop("most_topics", 0)
        request = RouterRequest(name or f"{source}->{dest}", source, dest, Routing(**fields), **more)
        return self.routers.put(request, limit=limit, most_topics=most)[0]

    def put(self, name: str, **config: Any) -> None:
        """Puts a topic."""
        self.topics.put(name, TopicConfig(**config))

    def write(self, name: str, *data: bytes, **columns: Any) -> None:
        """Appends records."""
        self.topics.append(name, WriteRequest(records=Batch.of(data, **columns)))

    def page(self, name: str, from_seq: int = 0, **fields: Any) -> DiffPage:
        """Reads a page."""
        return self.topics.diff(name, DiffRequest(from_seq, **{"limit": 1000, **fields}))

    def data(self, name: str) -> list[bytes]:
        """Returns the data of a topic's records."""
        return [record.data for record in self.page(name).records]

    def follow(self, source: str = "a", dest: str = "b", name: str = "") -> Follow:
        """Returns the row of a router."""
        log_id = self.topics.head(source).log_id
        follow: Follow | None = self.stores.follows.get(log_id, ROUTER, name or f"{source}->{dest}")
        assert follow is not None
        return follow

    def step(self, source: str = "a", dest: str = "b", name: str = "") -> float | None:
        """Takes a step of a router."""
        return self.stepper.visit(self.follow(source, dest, name))

    def settle(self, source: str = "a", dest: str = "b", name: str = "") -> float | None:
        """Takes steps as long as a router must be visited at once. Returns when it must be visited again."""
        for _ in range(100):
            again = self.step(source, dest, name)
            if again != 0.0:
                return again
        raise AssertionError("it never comes to rest")

    def feed(self, dest: str = "b") -> Feed:
        """Returns the one feed of a topic."""
        (feed,) = topic_of(self.topics.head(dest).state).fed_by
        return feed

    def view(self, name: str = "a->b") -> RouterView:
        """Returns a router."""
        return self.routers.view(name)
