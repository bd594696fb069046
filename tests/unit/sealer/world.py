"""A whole deployment in memory: clients that write through the library, and a sealer that can be made to fail."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Callable
from typing import Any

from functions.metrics import Metric
from functions.queue import MemoryQueue, Message
from functions.sealer.context import Context, assemble
from functions.sealer.handler import Sealer
from functions.sealer.seal import Sealed, seal
from functions.worker import Audited
from headrace.batch import Batch
from headrace.errors import StoreTimeout
from headrace.manifest.manifest import Manifest
from headrace.memory import memory_stores
from headrace.objects.memory import MemoryObjects
from headrace.segment.reader import read_data
from headrace.settings import Settings
from headrace.streams.values import STREAMS, AppendRequest, CreateRequest, ForkRequest
from headrace.streams.verbs import Streams
from headrace.wal.entry import entry_item
from headrace.wal.state import Entry
from tests.support.clocks import ManualClock
from tests.support.pairs import PAIRS, Pairs, pairs_wal

BYTES = "application/octet-stream"
SETTINGS = Settings(seal_records=10, seal_bytes=10_000, spill_bytes=300)


class World:
    """Tables, bucket and queue, with a client of each surface and one sealer."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.clock = ManualClock()
        self.wal, self.objects, self.queue = pairs_wal(), MemoryObjects(), MemoryQueue()
        numbers = itertools.count()
        self.stores = memory_stores(
            settings,
            self.clock,
            wal=self.wal,
            objects=self.objects,
            surfaces=(STREAMS, PAIRS),
            counted=frozenset({PAIRS}),
            log_ids=lambda: f"{next(numbers):032x}",
            request_ids=lambda: f"r{next(numbers)}",
        )
        self.logs, self.pairs = Streams(self.stores), Pairs(self.stores, most=0)
        self.parts = assemble(self.stores, self.queue)

    def create(self, name: str, **request: Any) -> str:
        """Creates a stream; returns its log id."""
        return self.logs.create(name, CreateRequest(**request)).head.log_id

    def fork(self, name: str, source: str) -> str:
        """Forks a stream at its tail; returns the fork's log id."""
        return self.create(name, fork=ForkRequest(source))

    def append(self, name: str, *data: bytes) -> None:
        """One entry."""
        records = Batch.of(data, key=[f"k{len(one)}" for one in data])
        self.logs.append(name, AppendRequest(content_type=BYTES, records=records))

    def fill(self, name: str, batches: int, records: int = 3, size: int = 10) -> list[bytes]:
        """Entries of distinct records; what was written. Every fourth is spilled."""
        written = []
        for batch in range(batches):
            width = size + (400 if batch % 4 == 3 else 0)
            data = [noise(f"{name}/{batch}/{n}", width) for n in range(records)]
            self.append(name, *data)
            written += data
            self.clock.advance(0.01)
        return written

    def seal(self, log_id: str) -> Sealed:
        """Everything."""
        return seal(self.parts, log_id, force=True)

    def audit(self, audits: Callable[[Any, Message], Audited[Any]], parts: Any) -> tuple[list[Any], list[Message]]:
        """Runs an audit with all messages that it sends itself: what it found out, and what else it sent."""
        found: list[Any] = []
        sent: list[Message] = []
        waiting = [Message("audit")]
        while waiting:
            for message in waiting:
                audited = audits(parts, message)
                assert audited.failed == []
                found += audited.found
            received = parts.queue.receive(2**60)
            waiting = [message for message in received if message.verb == "audit"]
            sent += [message for message in received if message.verb != "audit"]
        return found, sent

    def wait(self, seconds: float) -> None:
        """Moves the clock."""
        self.clock.advance(seconds)

    def manifest(self, log_id: str) -> Manifest | None:
        """Returns the newest generation, from the bucket alone."""
        return self.stores.manifests().newest(log_id, None, 0)

    def published(self, log_id: str) -> list[bytes]:
        """Returns every published record, from the bucket alone; segments must be complete and disjoint."""
        manifest = self.manifest(log_id)
        if manifest is None:
            return []
        offset, data = manifest.config.base_offset, []
        for number, segment in enumerate(self.stores.manifests().segments_from(manifest, offset)):
            assert (segment.number, segment.first_offset) == (number, offset)
            while offset < segment.end_offset:
                page = read_data(self.objects, segment, offset, 10**6, 10**9)
                data += page
                offset += len(page)
        assert offset == manifest.end_offset
        return data

    def entries(self, log_id: str) -> list[Entry]:
        """Returns what is in the write-ahead log."""
        return self.wal.read(log_id).entries

    def keys(self, log_id: str, folder: str = "") -> list[str]:
        """Objects of the log."""
        return list(self.objects.list(f"logs/{log_id}/{folder}"))

    def events(self, *log_ids: str) -> dict[str, Any]:
        """Returns the stream event of every entry that is stored."""
        return {
            "Records": [
                {
                    "eventSource": "aws:dynamodb",
                    "eventName": "INSERT",
                    "dynamodb": {
                        "Keys": {"log_id": {"S": log_id}, "slot": {"N": str(entry.slot)}},
                        "NewImage": entry_item(entry),
                    },
                }
                for log_id in log_ids
                for entry in self.entries(log_id)
            ]
        }

    def watched(self, hook: Hook) -> Context:
        """Returns the sealer's parts, with `hook` around every call to a store or the queue."""
        ports: dict[str, Any] = {name: Watched(getattr(self.stores, name), hook) for name in PORTS}
        ports["tables"] = {name: Watched(table, hook) for name, table in self.stores.tables.items()}
        stores = dataclasses.replace(self.stores, **ports)
        queue: Any = Watched(self.queue, hook)
        return assemble(stores, queue)


PORTS = ("wal", "catalog", "watermarks", "producers", "objects")
Hook = Callable[[str, bool], None]


class Watched:
    """A port, with a hook called before (False) and after (True) each of its methods."""

    def __init__(self, target: Any, hook: Hook) -> None:
        self._target = target
        self._hook = hook

    def __getattr__(self, name: str) -> Any:
        """Returns the method, watched."""
        method = getattr(self._target, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._hook(name, False)
            answer = method(*args, **kwargs)
            self._hook(name, True)
            return answer

        return call


class Dead(Exception):
    """The process is gone."""


class Dies:
    """A hook: the process dies at store call `at`, before it or right after it."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.calls = 0
        self._at, self._after = at, after

    def __call__(self, name: str, after: bool) -> None:
        """Counts, and raises from the given call on."""
        self.calls += not after
        if self.calls > self._at or (self.calls == self._at and after == self._after):
            raise Dead(f"{name} call={self.calls}")


class Stutters:
    """A hook: call `at` times out once, before or after it took effect."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.calls = 0
        self.at, self._after = at, after

    def __call__(self, name: str, after: bool) -> None:
        """Counts, and raises at the given call."""
        self.calls += not after
        if self.calls == self.at and after == self._after:
            raise StoreTimeout(f"{name} call={self.calls}")


class Interrupts:
    """A hook: before call `at`, something else happens."""

    def __init__(self, at: int, what: Callable[[], object]) -> None:
        self.calls = 0
        self._at, self._what = at, what

    def __call__(self, name: str, after: bool) -> None:
        """Counts, and lets it happen."""
        self.calls += not after
        if self.calls == self._at and not after:
            self._what()


class Silent:
    """Logger and meter that keep what they are told."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.errors: list[str] = []

    def add(self, metric: Metric, value: int = 1) -> None:
        """As Meter."""
        self.counts[metric.name] = self.counts.get(metric.name, 0) + value

    def exception(self, event: str, **fields: Any) -> None:
        """As Logger."""
        self.errors.append(f"{event} {fields}")

    def error(self, event: str, **fields: Any) -> None:
        """As Logger."""
        self.errors.append(f"{event} {fields}")

    def info(self, event: str, **fields: Any) -> None:
        """As Logger."""

    def append_keys(self, **fields: Any) -> None:
        """As Logger."""

    def flush(self) -> None:
        """As Meter."""


def dispatcher(context: Context) -> tuple[Sealer, Silent]:
    """Returns a sealer, and the object that is its logger and its meter, which keeps what it is told."""
    silent: Any = Silent()
    return Sealer(dataclasses.replace(context, meter=silent), silent), silent


def noise(seed: str, size: int) -> bytes:
    """Bytes that do not compress."""
    blocks = (hashlib.sha256(f"{seed}/{n}".encode()).digest() for n in range(size // 32 + 1))
    return b"".join(blocks)[:size]
