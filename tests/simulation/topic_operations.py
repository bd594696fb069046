"""What clients and workers ask of topics and queues. Requests come from the plan's dice and the moment."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace.batch import Batch
from headrace.errors import HeadraceError, StoreError
from headrace.queues.values import ClaimRequest, SettleRequest
from headrace.queues.verbs import Queues
from headrace.topics.values import DiffRequest, Match, TopicConfig, WriteRequest
from tests.simulation.topic_answers import TopicAnswers
from tests.simulation.topics import Drop, Erase, Put

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import Running, World

TAGS = ("a", "a/1", "a/2", "b", None)
NODES = ("n0", "n1", None)
WORKERS = ("w0", "w1", "w2")
KEYS = 3
DEAD_LETTER = "dead"


class TopicOperations:
    """One operation on a topic or a queue."""

    def __init__(self, world: World, process: Process, running: Running) -> None:
        self._world = world
        self._topics: Queues = process.topics
        self._running = running
        self._op = running.op
        self._name = running.op.name
        self._dice = running.op.dice
        self._log = world.model.current(self._name)
        self._answers = TopicAnswers(world, running)

    def kind(self) -> str:
        """Returns what the operation does now: what is not there is rather created."""
        is_over = self._log is None or bool(self._log.now.ended)
        return "put" if is_over and self._dice[5] < 0.7 else self._op.kind

    def failed(self, exc: Exception) -> None:
        """The verb raised."""
        self._answers.refused(exc)

    def _told(self, answer: Any) -> None:
        if self._world.tracing:
            self._world.trace(f"   -> {answer}")

    def _config(self) -> TopicConfig:
        """Returns a configuration: with caps, a TTL, short leases, a dead-letter topic, each in some."""
        dice = self._dice
        is_queue = self._name.startswith("q")
        cap = int(dice[0] * 20)
        return TopicConfig(
            type="queue" if is_queue else "log",
            ttl_ms=int(5_000 + dice[1] * 60_000) if dice[2] < 0.3 else 0,
            cap_records=2 + cap if dice[3] < 0.4 else 0,
            cap_bytes=100 + 40 * cap if 0.35 < dice[3] < 0.5 else 0,
            discard="reject" if dice[4] < 0.3 else "old",
            idempotency_window_ms=int(dice[1] * 60_000) if dice[4] < 0.9 else 0,
            lease_ms=int(500 + dice[0] * 8_000) if is_queue else 30_000,
            claim_jitter_ms=int(dice[1] * 1_000) if is_queue and dice[2] > 0.85 else 0,
            max_deliveries=1 + int(dice[5] * 2) if is_queue else 0,
            dead_letter=DEAD_LETTER if is_queue and dice[1] < 0.8 else None,
            dedupe_node=dice[5] < 0.7,
        )

    def put(self) -> None:
        """A topic, or another configuration."""
        request = self._running.request = Put(self._config())
        answer = self._topics.put(self._name, request.config, limit=self._world.limits.most_topics)
        self._told(answer)
        self._answers.put(answer)

    def _records(self) -> Batch:
        count = 1 + int(self._dice[0] ** 2 * 5)
        turns = range(count)
        shift = int(self._dice[1] * 100)
        filler = "x" * int(self._dice[2] ** 3 * 60)
        return Batch.of(
            [f'{{"r":"{self._op.id}/{turn}{filler}"}}'.encode() for turn in turns],
            key=[TAGS[(shift + turn) % len(TAGS)] for turn in turns],
            node=[NODES[(shift // 3 + turn) % len(NODES)] for turn in turns],
            meta=[b'{"m":1}' if (shift + turn) % 4 == 0 else None for turn in turns],
        )

    def _write(self, key: str | None) -> None:
        request = self._running.request = WriteRequest(
            records=self._records(), key=key, create=self._dice[4] < 0.5, config=self._config()
        )
        answer = self._topics.append(self._name, request, limit=self._world.limits.most_topics)
        self._told(answer)
        self._answers.written(answer)

    def write(self) -> None:
        """Some records."""
        self._write(None)

    def keyed(self) -> None:
        """A write with one of few keys: a repeat, as often as not."""
        self._write(f"k{int(self._dice[3] * KEYS)}")

    def diff(self) -> None:
        """A page after a cursor, anywhere."""
        head = self._log.now.next_offset if self._log is not None else 0
        roll = self._dice[0]
        cursor = 0 if roll < 0.2 else head if roll < 0.3 else int(self._dice[1] * (head + 1)) + (roll > 0.95) * 5
        nodes = frozenset({"n0"}) if self._dice[2] < 0.4 else frozenset[str]()
        request = DiffRequest(cursor, 1 + int(self._dice[3] ** 2 * 20), nodes, 30 + int(self._dice[4] * 2000))
        page = self._topics.diff(self._name, request)
        self._told(page)
        self._answers.page(request, page)

    def erase(self) -> None:
        """A delete of records: by their place, by their tag, or both."""
        head = self._log.now.next_offset if self._log is not None else 0
        roll = self._dice[0]
        before_seq = int(self._dice[1] * (head + 3)) if roll < 0.6 else None
        match = Match("a/" if self._dice[2] < 0.3 else str(TAGS[int(self._dice[3] * 4)]), self._dice[2] < 0.3)
        request = Erase(before_seq, match if roll > 0.4 else None)
        self._running.request = request
        answer = self._topics.erase(self._name, request.before_seq, request.match)
        self._told(answer)
        self._answers.erased(request, answer)

    def remove(self) -> None:
        """A delete of the topic, perhaps only if it is empty."""
        request = self._running.request = Drop(if_empty=self._dice[1] < 0.5)
        answer = self._topics.remove(self._name, if_empty=request.if_empty)
        self._told(answer)
        self._answers.removed(answer)

    def view(self) -> None:
        """The state of a topic, or a page of all."""
        if self._dice[0] < 0.2:
            views, _ = self._topics.topics(limit=2)
            if [view.name for view in views] != sorted({view.name for view in views}):
                self._world.broken("listings are in order", str(views))
            return
        answer = self._topics.view(self._name)
        self._told(answer)
        self._answers.view(answer)

    # Queues.

    def claim(self) -> None:
        """Some jobs for a worker."""
        worker = WORKERS[int(self._dice[0] * len(WORKERS))]
        lease_ms = int(100 + self._dice[2] * 10_000) if self._dice[2] < 0.5 else None
        connection = f"c-{worker}" if self._dice[3] < 0.3 else ""
        request = ClaimRequest(worker, 1 + int(self._dice[1] ** 2 * 5), lease_ms, connection)
        self._running.request = request
        answer = self._topics.claim(self._name, request)
        self._told(answer)
        self._answers.claimed(request, answer)
        for job in answer.jobs:
            self._world.leases.setdefault((self._name, worker), []).append((job.record.offset + 1, job.lease_id))
        del self._world.leases.get((self._name, worker), [])[:-20]

    def _settle_request(self) -> SettleRequest:
        """Returns a request about jobs that a worker holds, or once held."""
        worker = WORKERS[int(self._dice[0] * len(WORKERS))]
        known = self._world.leases.get((self._name, worker), [])
        count = 1 + int(self._dice[1] * 4)
        first = max(0, len(known) - count - int(self._dice[2] ** 3 * 10))
        leases = dict(known[first : first + count])
        seqs = tuple(leases) or (1,)
        ids = tuple(leases.values()) if leases and self._dice[3] < 0.6 else None
        delay_ms = int(self._dice[4] * 5_000) if self._dice[4] < 0.5 else 0
        return SettleRequest(worker, seqs, ids, delay_ms, lease_ms=int(200 + self._dice[5] * 8_000))

    def _settle(self, verb: str) -> None:
        request = self._running.request = self._settle_request()
        answer = getattr(self._topics, verb)(self._name, request)
        self._told(answer)
        self._answers.settled(verb, request, answer)

    def ack(self) -> None:
        """Done."""
        self._settle("ack")

    def nack(self) -> None:
        """Not done."""
        self._settle("nack")

    def extend(self) -> None:
        """Not done yet."""
        self._settle("extend")

    def release(self) -> None:
        """A stream of jobs ends."""
        worker = WORKERS[int(self._dice[0] * len(WORKERS))]
        self._told(self._topics.release(self._name, worker, f"c-{worker}"))

    def forget(self) -> None:
        """A process that remembers nothing."""
        with suppress(KeyError):
            self._topics.forget()


def read_all(world: World, process: Process, running: Running) -> None:
    """Reads a topic to its end, page by page, and looks at its state."""
    answers, name, cursor = TopicAnswers(world, running), running.op.name, 0
    try:
        while True:
            request = DiffRequest(cursor, 7)
            page = process.topics.diff(name, request)
            answers.page(request, page)
            if page.caught_up:
                break
            cursor = page.next_seq
        answers.view(process.topics.view(name, touch=False))
    except (HeadraceError, StoreError) as exc:
        answers.refused(exc)
