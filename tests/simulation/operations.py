"""Runs one planned operation: makes its request from the plan's dice and the moment, calls the verb, has it judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.batch import EMPTY, Batch
from headrace.log.requests import JSON, At
from headrace.streams.errors import ProducerGap, StaleProducer
from headrace.streams.values import AppendRequest, CreateRequest, ForkRequest
from headrace.streams.verbs import Streams
from headrace.wal.state import Cursor, Producer
from tests.simulation import definitions
from tests.simulation.background import Background
from tests.simulation.disaster import Operator
from tests.simulation.faults import Dice
from tests.simulation.followers import FollowOperations
from tests.simulation.log_model import LogModel
from tests.simulation.outside import Outside
from tests.simulation.plan import FOLLOW, TOPIC_NAMES, Op
from tests.simulation.process import EPOCH_MS, Process
from tests.simulation.scheduler import Killed
from tests.simulation.topic_operations import TopicOperations
from tests.simulation.world import Running, World

BYTES = "application/octet-stream"
LONGEST_MS = 60_000
NEAR_MS = 30
FAR_MS = 10 * 365 * 24 * 3600 * 1000


def run(world: World, op: Op) -> None:
    """One operation, from call to verdict."""
    actor = world.scheduler.current
    assert actor is not None
    running = Running(op, Dice(world.plan, op.id))
    world.ops[op.id] = running
    actor.op = running  # type: ignore[attr-defined]
    running.start = world.scheduler.step()
    if world.tracing:
        world.trace(f"--- operation {op.id}: {op.kind} {op.name}")
    if op.slot == "outside":
        getattr(Outside(world, running), op.kind)()
        return
    if op.slot == "operator":
        Operator(world, running).disaster()
        return
    process = world.slots[op.slot]
    process.enter(actor)
    verbs = _verbs(world, process, running)
    running.kind = verbs.kind()
    try:
        getattr(verbs, running.kind)()
        running.outcome = "done"
    except Killed:
        if world.tracing:
            world.trace("   the process dies")
    except Exception as exc:  # noqa: BLE001 - the judge says which are right
        running.outcome = repr(exc)
        if world.tracing:
            world.trace(f"   -> {exc!r}")
        verbs.failed(exc)
    finally:
        process.exit(actor)


def _verbs(world: World, process: Process, running: Running) -> Any:
    if not running.op.slot.startswith("api"):
        return Background(world, process, running)
    if running.op.kind in FOLLOW:
        return FollowOperations(world, process, running)
    is_topic = running.op.name in TOPIC_NAMES
    return TopicOperations(world, process, running) if is_topic else _Api(world, process, running)


class _Api:
    """What clients ask."""

    def __init__(self, world: World, process: Process, running: Running) -> None:
        self._world = world
        self._logs: Streams = process.logs
        self._running = running
        self._op = running.op
        self._dice = running.op.dice
        self._log = world.model.current(running.op.name)

    def kind(self) -> str:
        """Returns what the operation does now: a stream that is over is rather created again, or deleted."""
        kind = self._op.kind
        if kind == "define":
            return "define" if self._finds_json() else "list"
        if self._log is None or kind not in ("append", "produce", "read") or self._dice[5] < 0.3:
            return kind
        if self._log.now.ended and not self._log.now.forks:
            return "create"
        return "delete" if self._log.now.closed and self._dice[5] > 0.85 else kind

    def _finds_json(self) -> bool:
        """Turns to a stream that may have a schema, if there is one."""
        model = self._world.model
        found = [
            name
            for name in sorted(model.names)
            if (log := model.current(name)) and log.config.content_type == JSON and not log.now.ended
            if name not in TOPIC_NAMES
        ]
        if found:
            name = found[int(self._dice[1] * len(found))]
            self._op = self._running.op = replace(self._op, name=name)
        return bool(found)

    def failed(self, exc: Exception) -> None:
        """The verb raised."""
        self._world.judge.refused(self._running, exc)
        request = self._running.request
        producer = getattr(request, "producer", None)
        if producer is not None:
            key = (self._op.name, int(producer.id[1:]))
            if isinstance(exc, ProducerGap):
                self._world.producers[key] = (producer.epoch, exc.expected - 1)
            elif isinstance(exc, StaleProducer):
                self._world.producers[key] = (exc.epoch, producer.seq)

    def _told(self, text: str) -> None:
        if self._world.tracing:
            self._world.trace(f"   -> {text}")

    def _records(self, log: LogModel | None, *, is_json: bool) -> Batch:
        """Records that fit the schema in force, if nobody changes it now; seldom those of the one before."""
        count = 1 + int(self._dice[0] ** 2 * 5)
        large = abs(self._dice[1] - 0.5) > 0.35
        version = definitions.facts(log.now.definition if log is not None else None)[1]
        if 0.8 < self._dice[2] < 0.85:
            version = max(0, version - 1)
        made = []
        for number in range(count):
            label, noise = f"{self._op.id}/{number}", self._noise(number) if large else b""
            data = definitions.record(version, label + noise.hex()) if is_json else label.encode() + noise
            made.append(data)
        return Batch.of(made, key=["k" if number % 2 else None for number in range(count)])

    def _fitting(self) -> Batch:
        return self._records(self._log, is_json=self._type() == JSON)

    def _noise(self, number: int) -> bytes:
        """Bytes that do not compress, so that the payload is spilled."""
        state = (self._op.id * 1_000_003 + number * 7919 + 12345) & 0xFFFFFFFF
        out = bytearray()
        for _ in range(60):
            state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
            out += (state >> 8).to_bytes(3, "big")
        return bytes(out)

    def _hint(self) -> int | None:
        roll = self._dice[2]
        now_ms = EPOCH_MS + self._world.scheduler.now // 1000
        if roll < 0.9:
            return None
        return now_ms + (FAR_MS if roll < 0.92 else -FAR_MS if roll < 0.96 else int((roll - 0.98) * 1e6))

    def _append(self, request: AppendRequest) -> None:
        self._running.request = request
        answer = self._logs.append(self._op.name, request)
        self._told(str(answer))
        self._world.judge.appended(self._running, answer)
        if request.producer is not None:
            number = int(request.producer.id[1:])
            self._world.producers[self._op.name, number] = (request.producer.epoch, request.producer.seq)

    def _type(self) -> str:
        right = self._log.config.content_type if self._log else BYTES
        return right if self._dice[3] < 0.98 else "text/plain"

    def append(self) -> None:
        """Some records."""
        seq = f"{self._op.id:06d}" if self._dice[4] < 0.15 else None
        self._append(
            AppendRequest(content_type=self._type(), records=self._fitting(), time_hint_ms=self._hint(), seq=seq)
        )

    def produce(self) -> None:
        """The next write of a producer, or a repeat, or a mistake."""
        number = int(self._dice[4] * 5)
        epoch, seq = self._world.producers.get((self._op.name, number), (0, -1))
        roll = self._dice[5]
        if roll < 0.7:
            seq += 1
        elif roll < 0.9:
            seq = max(seq, 0)
        elif roll < 0.93:
            seq += 2
        elif roll < 0.97:
            epoch, seq = epoch + 1, 0
        else:
            epoch = max(0, epoch - 1)
            seq += 1
        producer = Producer(f"p{number}", epoch, seq)
        close = self._dice[1] > 0.99
        self._append(
            AppendRequest(content_type=self._type(), records=self._fitting(), producer=producer, close=close)
        )

    def close(self) -> None:
        """A close, with or without last records."""
        records = self._fitting() if self._dice[4] < 0.5 else EMPTY
        self._append(AppendRequest(content_type=self._type() if records else None, records=records, close=True))

    def create(self) -> None:
        """A stream."""
        roll = self._dice[3]
        expiring = self._world.plan.weather.expiring
        ttl_ms = int(1_500 + self._dice[5] ** 2 * 40_000) if roll < expiring * 0.8 else None
        expires_at_ms = None
        if expiring * 0.8 <= roll < expiring:
            expires_at_ms = self._world.true_ms + int(self._dice[5] * 120_000)
        is_json = self._dice[4] < 0.2
        self._create(
            CreateRequest(
                content_type=JSON if is_json else BYTES,
                ttl_ms=ttl_ms,
                expires_at_ms=expires_at_ms,
                closed=self._dice[4] > 0.97,
                records=self._records(None, is_json=is_json) if self._dice[1] > 0.7 else EMPTY,
                time_hint_ms=self._hint(),
            )
        )

    def fork(self) -> None:
        """A fork of another stream, somewhere in it."""
        names = sorted(self._world.model.names)
        others = [name for name in names if name != self._op.name] or names or [self._op.name]
        source = others[int(self._dice[3] * len(others))]
        log = self._world.model.current(source)
        at = None
        sub_offset = 0
        if log is not None and self._dice[4] < 0.7:
            position = int(self._dice[5] * (log.now.next_offset + 1))
            at = Cursor(log.incarnation, position)
            sub_offset = 1 if self._dice[2] < 0.2 else 0
        is_json = log is not None and log.config.content_type == JSON
        few = self._records(log, is_json=is_json) if self._dice[1] > 0.8 else EMPTY
        self._create(CreateRequest(fork=ForkRequest(source, at, sub_offset), records=few))

    def _create(self, request: CreateRequest) -> None:
        self._running.request = request
        answer = self._logs.create(self._op.name, request)
        self._told(f"created={answer.created} log={answer.head.log_id[-8:]} {answer.head.next_offset}")
        self._world.judge.created(self._running, answer)

    def read(self) -> None:
        """A page, anywhere; of a stream that expires, often just when it does."""
        self._linger()
        start: int | None = None
        at = At()
        roll = self._dice[0]
        if self._log is not None and roll < 0.85:
            tail = self._log.now.next_offset
            start = 0 if roll < 0.2 else tail if roll < 0.3 else int(self._dice[1] * (tail + 1))
            known = self._dice[2] < 0.8 and roll >= 0.2
            incarnations = self._log.incarnations
            incarnation = incarnations[-1 - int(self._dice[2] ** 2 * len(incarnations))]
            at = At(Cursor(incarnation if known else None, start))
            self._running.text = "foreign" if known else ""
        self._page(at, start, None)

    def _linger(self) -> None:
        """Waits for the deadline, as others do, whose clocks are behind or ahead."""
        world, log = self._world, self._log
        if log is None or log.now.ended or self._dice[1] >= 0.4:
            return
        left_ms = world.judge.deadline_ms(log) - world.true_ms + int(self._dice[4] * NEAR_MS)
        if 0 < left_ms < LONGEST_MS:
            world.scheduler.sleep(left_ms * 1000)

    def since(self) -> None:
        """A page from a time on."""
        times = self._log.times if self._log else []
        now_ms = EPOCH_MS + self._world.scheduler.now // 1000
        since_ms = times[int(self._dice[0] * len(times))] + int(self._dice[1] * 3) - 1 if times else now_ms
        self._page(At(since_ms=since_ms), None, since_ms)

    def _page(self, at: At, start: int | None, since_ms: int | None) -> None:
        limit = 1 + int(self._dice[3] ** 2 * 30)
        size = 20 + int(self._dice[4] * 2000)
        page = self._logs.read(self._op.name, at, touch=self._dice[5] < 0.7, max_records=limit, max_bytes=size)
        self._told(f"log={page.head.log_id[-8:]} {page.start}..{page.next} of {page.end}")
        self._world.judge.read(self._running, page, start, since_ms)

    def head(self) -> None:
        """The tail."""
        head = self._logs.head(self._op.name)
        self._told(f"log={head.log_id[-8:]} {head.state.next_offset}")
        self._world.judge.head(self._running, head)

    def delete(self) -> None:
        """A delete."""
        answer = self._logs.delete(self._op.name)
        self._told(str(answer))
        self._world.judge.deleted(self._running, answer)

    def define(self) -> None:
        """The next schema, or another profile."""
        request = self._running.request = definitions.Define(evolves=self._dice[0] < 0.7)
        answer = self._logs.define(self._op.name, request.change)
        self._told(f"version={answer.schema_version} profile={answer.own.kind}")
        self._world.judge.defined(self._running, answer)

    def list(self) -> None:
        """A page of names."""
        rows = self._logs.list(limit=3)
        names = [row.name for row in rows]
        if names != sorted(set(names)):
            self._world.broken("listings are in order", str(names))

    def forget(self) -> None:
        """A process that remembers nothing."""
        self._logs.forget()
