"""Random verbs, one after the other, on processes that forget and remember, against the simplest model: lists.

Sealing and trimming happen between verbs and must not show. Seeds are fixed; a failure prints its seed and steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from functions.queue import MemoryQueue
from functions.sealer.context import assemble
from functions.sealer.seal import seal
from functions.sealer.trim import trim
from headrace.errors import HeadraceError
from headrace.log.requests import At
from headrace.streams.values import CreateRequest, ForkRequest
from headrace.wal.state import Cursor
from tests.support.builders import BYTES, appending
from tests.support.builders import producing as produced
from tests.support.clocks import ManualClock
from tests.unit.log.world import Process, World

NAMES = ("a", "b", "c", "d")
PRODUCERS = 11  # more than a state holds
STEPS = 300


@dataclass
class Stream:
    """What the model knows of one log."""

    incarnation: int
    source: Stream | None = None
    records: list[tuple[int, bytes]] = field(default_factory=list)
    producers: dict[str, int] = field(default_factory=dict)
    closed: bool = False
    deleted: bool = False
    forks: int = 0

    def release(self) -> None:
        """Gives the source back once nobody needs this log."""
        if self.deleted and not self.forks and self.source is not None:
            self.source.forks -= 1
            self.source.release()


class Run:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(spill_bytes=200, append_timeout_ms=1000)
        self.clock = ManualClock()
        self.processes = [self.world.process(self.clock) for _ in range(3)]
        self.parts = assemble(self.processes[0].stores, MemoryQueue())
        self.logs: dict[str, Stream] = {}
        self.steps: list[str] = []
        self.written = 0

    @property
    def process(self) -> Process:
        return self.random.choice(self.processes)

    def step(self) -> None:
        name = self.random.choice([*NAMES, *list(self.logs)[-3:]])
        verbs: dict[Callable[[str], None], float] = {
            self.append: 8,
            self.produce: 8,
            self.read: 8,
            self.create: 4,
            self.since: 2,
            self.fork: 1,
            self.close: 0.3,
            self.delete: 0.7,
            self.forget: 1,
            self.seal_and_trim: 2,
        }
        [verb] = self.random.choices(list(verbs), list(verbs.values()))
        self.steps.append(f"{verb.__name__} {name}")
        self.clock.advance(self.random.choice([0, 0.001, 1, 100]))
        stream = self.logs.get(name)
        try:
            verb(name)
        except HeadraceError as exc:
            self.steps[-1] += f" -> {type(exc).__name__}"
            assert type(exc).__name__ in self.refusals(verb.__name__, stream), self.steps[-1]

    def refusals(self, verb: str, stream: Stream | None) -> set[str]:
        """Returns what may be answered instead: nothing unless the model says so."""
        if stream is None:
            return {"NotFound"}
        if stream.deleted and stream.forks:
            return {"Gone", "Conflict"}
        if stream.deleted:
            return {"NotFound"}
        if verb in ("append", "produce", "create") and stream.closed:
            return {"StreamClosed", "Conflict"}
        return {"Conflict"} if verb == "create" and stream.source is not None else set()

    def living(self, name: str) -> Stream:
        stream = self.logs[name]
        assert not stream.deleted, "used after its delete"
        return stream

    def data(self) -> bytes:
        self.written += 1
        return b"%d:" % self.written + self.random.randbytes(self.random.choice([0, 5, 400]))

    def create(self, name: str) -> None:
        request = CreateRequest(content_type=BYTES)
        created = self.process.logs.create(name, request)
        before = self.logs.get(name)
        if before is not None and not before.deleted:
            assert not created.created
            assert created.head.state.next_offset == len(before.records)
            return
        assert before is None or not before.forks
        assert created.created
        assert created.head.incarnation == (before.incarnation + 1 if before else 0)
        self.logs[name] = Stream(created.head.incarnation)

    def fork(self, name: str) -> None:
        target = f"{name}{self.written}-{len(self.steps)}"
        at = self.random.choice([None, 0, 1, 3])
        source = self.logs.get(name)
        if source is not None and at is not None and at > len(source.records):
            at = None
        cursor = Cursor(source.incarnation if source else 0, at) if at is not None else None
        try:
            created = self.process.logs.create(target, CreateRequest(fork=ForkRequest(name, cursor)))
        except HeadraceError:
            assert source is None or source.deleted
            return
        stream = self.living(name)
        stream.forks += 1
        self.logs[target] = Stream(created.head.incarnation, stream, stream.records[:at])
        self.append(target)
        self.read(target)
        if self.random.random() < 0.7:
            self.delete(target)

    def append(self, name: str) -> None:
        batch = [self.data() for _ in range(self.random.choice([1, 1, 3]))]
        appended = self.process.logs.append(name, appending(*batch))
        now_ms = self.clock.now_ms()  # only now: waiting between two tries takes time
        assert not appended.duplicate
        self.living(name).records += [(now_ms, one) for one in batch]

    def produce(self, name: str) -> None:
        producer = f"p{self.random.randrange(PRODUCERS)}"
        stream = self.logs.get(name)
        known = stream.producers.get(producer, -1) if stream else -1
        seq = max(0, known + self.random.choice([0, 1, 1]))
        data = self.data()
        appended = self.process.logs.append(name, produced(producer, seq, data))
        assert appended.duplicate == (seq <= known)
        if not appended.duplicate:
            self.living(name).producers[producer] = seq
            self.living(name).records.append((self.clock.now_ms(), data))

    def close(self, name: str) -> None:
        appended = self.process.logs.append(name, appending(content_type=None, close=True))
        assert appended.duplicate == self.living(name).closed
        self.living(name).closed = True

    def delete(self, name: str) -> None:
        deleted = self.process.logs.delete(name)
        stream = self.logs[name]
        assert deleted == (not stream.deleted)
        if deleted:
            stream.deleted = True
            stream.release()

    def read(self, name: str) -> None:
        logs = self.process.logs
        stream = self.logs.get(name)
        start = self.random.randint(0, len(stream.records)) if stream else 0
        page_size = self.random.choice([1, 2, 7, 1000])
        at, found = At(Cursor(stream.incarnation if stream else 0, start)), list[bytes]()
        while True:
            page = logs.read(name, at, max_records=page_size, max_bytes=self.random.choice([1, 500, 2**20]))
            assert len(page.data) <= page_size
            found += page.data
            if page.up_to_date:
                break
            assert page.data, "a page without records before the end"
            at = At(Cursor(page.head.incarnation, page.next))
        stream = self.living(name)
        assert found == [data for _, data in stream.records[start:]]
        assert page.head.state.is_final == stream.closed

    def since(self, name: str) -> None:
        stream = self.logs.get(name)
        times = [time_ms for time_ms, _ in stream.records] if stream else []
        since_ms = self.random.choice(times or [0]) + self.random.choice([0, 1])
        page = self.process.logs.read(name, At(since_ms=since_ms))
        expected = next((n for n, time_ms in enumerate(times) if time_ms >= since_ms), len(times))
        assert page.start == expected
        assert self.living(name)

    def forget(self, _: str) -> None:
        self.process.logs.forget()

    def seal_and_trim(self, name: str) -> None:
        row = self.world.memory.catalog.get("streams", name)
        if row is not None:
            seal(self.parts, row.log_id, force=True)
            if self.random.random() < 0.5:
                self.clock.advance(1000)
                trim(self.parts, row.log_id)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.timeout(60)
def test_any_sequence_of_verbs_does_what_the_model_does(seed: int) -> None:
    run = Run(seed)
    try:
        for _ in range(STEPS):
            run.step()
    except BaseException:
        print(f"seed={seed}", *run.steps, sep="\n")
        raise
