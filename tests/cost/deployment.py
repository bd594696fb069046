"""A deployment whose stores count: tables in moto, objects in memory, a clock and ids that are the same every time."""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from functions.indexer import context as indexer
from functions.queue import MemoryQueue
from functions.queue import MemoryQueue as WakeQueue
from functions.relay import context as relay
from functions.sealer import context as sealer
from headrace.settings import Settings
from headrace.streams.verbs import Streams
from headrace.surfaces import COUNTED, SURFACES
from headrace.tables.jobs import DynamoJobs
from tests.cost.metered import Metered, MeteredObjects, Meters
from tests.support.aws import create_jobs_table, dynamodb_stores, in_process_aws
from tests.support.clocks import ManualClock
from tests.unit.indexer.world import FakeRuns


class Still(ManualClock):
    """A clock that only `advance` moves: how long a writer waits after it lost a slot is random."""

    def sleep(self, seconds: float) -> None:
        """Does nothing."""


class Deployment:
    """Stores with counters, a client, a sealer, an indexer and a relay. Ids look random, as real ones do, since they are
    stored.
    """

    def __init__(self, store: Metered) -> None:
        numbers = itertools.count()
        self.objects = MeteredObjects()
        self.clock = Still()
        self.queue = MemoryQueue()
        self.wakes = WakeQueue()
        self.runs = FakeRuns()
        self.stores = dynamodb_stores(
            store,
            self.objects,
            Settings(),
            clock=self.clock,
            log_ids=lambda: _digest(next(numbers), 16).hex(),
            request_ids=lambda: base64.urlsafe_b64encode(_digest(next(numbers), 9)).decode(),
            surfaces=SURFACES,
            counted=COUNTED,
        )
        self.logs = Streams(self.stores)
        self.meters = Meters(store, self.objects)
        self.sealer = sealer.assemble(self.stores, self.queue)
        runs: Any = self.runs
        self.relay = relay.assemble(self.stores, MemoryQueue())
        self.indexer = indexer.assemble(self.stores, DynamoJobs(store, create_jobs_table()), runs, self.wakes)

    def cold(self) -> Streams:
        """Returns a process that knows nothing."""
        return Streams(self.stores)


def _digest(number: int, size: int) -> bytes:
    return hashlib.blake2b(number.to_bytes(8, "big"), digest_size=size).digest()


@contextmanager
def deployed() -> Iterator[Deployment]:
    """Yields a new deployment."""
    with in_process_aws() as store:
        yield Deployment(Metered(store))
