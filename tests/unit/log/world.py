"""Several processes over one set of memory stores, with a clock that tests move and ports that tests break."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from headrace.log.requests import At
from headrace.memory import memory_stores
from headrace.settings import Settings
from headrace.streams.values import CreateRequest
from headrace.streams.verbs import Streams
from headrace.wal.memory import MemoryWal
from headrace.wal.state import BEGINNING, Cursor
from tests.support.builders import BYTES
from tests.support.clocks import ManualClock
from tests.support.faults import Faulty


class World:
    """Stores that outlive every process."""

    def __init__(self, **settings: Any) -> None:
        self.settings = Settings(**settings)
        self.memory = MemoryWal()
        self._ids = itertools.count()
        self.stores = memory_stores(self.settings, wal=self.memory, request_ids=self.next_id)
        self.objects = self.stores.objects

    def process(self, clock: ManualClock | None = None) -> Process:
        """Returns a process with a cold memory."""
        return Process(self, clock or ManualClock())

    def entries(self, log_id: str) -> list[Any]:
        """Returns what is in the write-ahead log."""
        return self.memory.read(log_id).entries

    def next_id(self) -> str:
        """Deterministic request ids."""
        return f"id{next(self._ids)}"


class Process:
    """One process: its own memory and clock, its own way to the stores."""

    def __init__(self, world: World, clock: ManualClock) -> None:
        self.clock = clock
        stores = world.stores
        self.wal, self.objects = Faulty(stores.wal), Faulty(world.objects)
        self.catalog, self.watermarks, self.producers, self.follows = map(
            Faulty, (stores.catalog, stores.watermarks, stores.producers, stores.follows)
        )
        self.stores = replace(
            stores,
            wal=self.wal,
            catalog=self.catalog,
            watermarks=self.watermarks,
            producers=self.producers,
            follows=self.follows,
            objects=self.objects,
            clock=clock,
        )
        self.logs = Streams(self.stores)

    def create(self, name: str = "s", **fields: Any) -> str:
        """Creates a stream of bytes; returns its log id."""
        created = self.logs.create(name, CreateRequest(**{"content_type": BYTES, **fields}))
        return created.head.log_id

    def read(self, name: str = "s", position: int = 0, incarnation: int | None = None) -> list[bytes]:
        """Returns every record from a position on."""
        found: list[bytes] = []
        at = At(BEGINNING if position == 0 and incarnation is None else Cursor(incarnation, position))
        while True:
            page = self.logs.read(name, at)
            found.extend(page.data)
            if page.up_to_date:
                return found
            at = At(Cursor(page.head.incarnation, page.next))

    @property
    def calls(self) -> int:
        """Calls to any store so far."""
        ports = (self.wal, self.catalog, self.watermarks, self.producers, self.follows, self.objects)
        return sum(port.calls.total() for port in ports)
