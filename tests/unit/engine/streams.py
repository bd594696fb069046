"""A stream whose records stand wherever a test wants them: in the tail, in segments, in runs, in an ancestor."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from functions.queue import MemoryQueue
from functions.sealer.context import assemble as assemble_sealer
from functions.sealer.seal import seal
from headrace.batch import Batch
from headrace.index.descriptors import Run
from headrace.index.manifest import IndexManifestStore
from headrace.query.engine.context import Budget, Engine, assemble
from headrace.query.engine.sources import Snapshot
from headrace.streams.values import AppendRequest, CreateRequest, ForkRequest
from headrace.wal.state import Cursor
from tests.support import index_runs
from tests.support.builders import JSON
from tests.support.clocks import ManualClock
from tests.unit.log.test_definitions import installing
from tests.unit.log.world import World

EVERYTHING = Budget(segments=1000)


class Stream:
    """One stream, its forks, and the processes that work on it.

    Attributes:
        name: of the newest fork, or of the stream.
        records: what it holds: the routing key and the document of each record, as it was appended.
    """

    def __init__(self, budget: Budget = EVERYTHING, **definition: Any) -> None:
        """`definition`: the body of a schema update."""
        self.clock = ManualClock()
        self.world = World()
        self.process = self.world.process(self.clock)
        self.name = "s"
        self.budget = budget
        self.process.create(self.name, content_type=JSON)
        self.records: list[tuple[str | None, Any]] = []
        self.define(**definition)
        self._engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        """One that remembers what it read."""
        if self._engine is None:
            self._engine = self.fresh_engine()
        return self._engine

    def fresh_engine(self) -> Engine:
        """Returns an engine of another process."""
        process = self.world.process(self.clock)
        return assemble(process.stores, process.logs, budget=self.budget)

    def define(self, **definition: Any) -> None:
        """Changes the schema."""
        if definition:
            self.process.logs.define(self.name, installing(self.name, **definition))

    def append(self, *documents: Any, keys: Sequence[str | None] | None = None) -> None:
        """One batch; `keys` are those of the records, if the schema doesn't say."""
        self.clock.advance(0.01)
        named = keys or [None] * len(documents)
        records = Batch.of([json.dumps(document).encode() for document in documents], key=named)
        self.process.logs.append(self.name, AppendRequest(content_type=JSON, records=records))
        self.records += zip(named, documents, strict=True)

    def seal(self) -> None:
        """Makes a segment of what is in the tail of each log."""
        parts = assemble_sealer(self.process.stores, MemoryQueue())
        for name in self._names():
            seal(parts, self.process.logs.head(name).log_id, force=True)

    def index(self, *, span: int = 16, skip: int = 0) -> list[Run]:
        """Makes runs of the segments of the newest fork."""
        runs = index_runs.index(self.process.stores, self.process.logs, self.name, span=span, skip=skip)
        self._announce()
        return runs

    def compact(self) -> None:
        """Makes one run of all."""
        index_runs.compact(self.process.stores, self.process.logs, self.name)
        self._announce()

    def _announce(self) -> None:
        """Tells other processes of the newest index manifest, as the indexer does."""
        stores, log_id = self.process.stores, self.process.logs.head(self.name).log_id
        newest = IndexManifestStore(stores.objects).newest(log_id)
        stores.watermarks.publish_index(log_id, newest.generation)

    def fork(self, position: int) -> None:
        """The stream goes on as a fork of itself, from that record on."""
        name = f"{self.name}f"
        self.clock.advance(0.01)
        request = CreateRequest(fork=ForkRequest(self.name, Cursor(None, position)))
        self.process.logs.create(name, request)
        self.name = name
        self.records = self.records[:position]

    def _names(self) -> list[str]:
        return [self.name[: length + 1] for length in range(len(self.name))]


class _Behind:
    """Sources that know a stream as it was, until they are told to look again."""

    def __init__(self, stream: Stream) -> None:
        self._sources = stream.engine.sources
        self._before = self._sources.snapshot(stream.name)

    def snapshot(self, name: str, *, fresh: bool = False) -> Snapshot:
        return self._sources.snapshot(name, fresh=True) if fresh else self._before


def behind(stream: Stream) -> Engine:
    """Returns an engine that has read no run, and until it looks again knows only of those that there are now."""
    return replace(stream.fresh_engine(), sources=_Behind(stream))  # type: ignore[arg-type]
