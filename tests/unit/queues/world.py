"""Queues over memory stores: processes with memories of their own, clocks that tests move, ports that tests break."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.batch import Batch
from headrace.clock import Clock
from headrace.log.logs import Log
from headrace.memory import memory_stores
from headrace.queues import events
from headrace.queues.ledger import LeaseState, leases_of
from headrace.queues.projection import Projection, fold
from headrace.queues.values import Claimed, ClaimRequest, Settled, SettleRequest
from headrace.queues.verbs import Queues
from headrace.settings import Settings
from headrace.topics.values import LEASES, TOPICS, TopicConfig, WriteRequest
from tests.support.clocks import ManualClock
from tests.support.faults import Faulty


class World:
    """Stores that outlive every process."""

    def __init__(self, **settings: Any) -> None:
        self.stores = memory_stores(Settings(**settings), surfaces=(TOPICS,))

    def process(self, clock: Clock | None = None) -> Process:
        """Returns a process with a cold memory."""
        return Process(self, clock or ManualClock())


class Process:
    """One process: its own memory and clock, its own way to the stores."""

    def __init__(self, world: World, clock: Clock) -> None:
        self.clock: Any = clock
        stores = world.stores
        self.wal, self.objects, self.catalog = Faulty(stores.wal), Faulty(stores.objects), Faulty(stores.catalog)
        self.stores = replace(stores, wal=self.wal, objects=self.objects, catalog=self.catalog, clock=clock)
        self.queues = Queues(self.stores)

    def create(self, name: str = "q", jobs: int = 0, **config: Any) -> None:
        """Creates a queue, perhaps with jobs."""
        self.queues.put(name, TopicConfig(**{"type": "queue", **config}))
        if jobs:
            self.produce(*(b'"job %d"' % number for number in range(jobs)), name=name)

    def produce(self, *data: bytes, name: str = "q", **columns: Any) -> None:
        """Appends jobs."""
        self.queues.append(name, WriteRequest(records=Batch.of(data, **columns)))

    def claim(self, node: str = "a", max: int = 1, name: str = "q", **fields: Any) -> Claimed:
        """Claims."""
        return self.queues.claim(name, ClaimRequest(node, max, **fields))

    def ack(self, node: str, *seqs: int, name: str = "q", **fields: Any) -> Settled:
        """Acks."""
        return self.queues.ack(name, SettleRequest(node, seqs, **fields))

    def counts(self, name: str = "q") -> tuple[int, int, int, int]:
        """Returns the counters: ready, in flight, dead-lettered, and live."""
        view = self.queues.view(name, touch=False)
        assert view.queue is not None
        return (*view.queue, view.live)

    def leases(self, name: str = "q") -> tuple[LeaseState, list[bytes]]:
        """Returns the extension of the lease log, and its records."""
        page = Log.records(self.queues, (name, LEASES), 0, max_records=100_000, max_bytes=2**30)
        return leases_of(page.head.state), [record.data for record in page.records]

    def folded(self, name: str = "q") -> Projection:
        """Returns the fold of all events from the first one on."""
        return fold(Projection(), [events.decode(data, "test") for data in self.leases(name)[1]])


def seqs(claimed: Claimed) -> list[int]:
    """Returns the seqs of a claim's jobs."""
    return [job.record.offset + 1 for job in claimed.jobs]
