"""What the worlds of the relay and of feature tables share: actors of which one goes on at each store call, stores that
fail, answers that are lost, deaths, and relays that are told of what was committed, perhaps late, twice, or of an item that
is no entry.
"""

from __future__ import annotations

import logging
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

from functions.metrics import Meter, RelayMetric
from functions.queue import MemoryQueue, Message
from functions.relay.context import assemble
from functions.relay.handler import Relay
from functions.relay.kinds import CREATED, FOLLOWERS
from headrace.clock import Budget, Threads
from headrace.errors import HeadraceError, StoreError, StoreTimeout
from headrace.log.stores import Stores
from headrace.wal.entry import entry_item
from headrace.wal.memory import MemoryWal
from headrace.wal.state import Entry
from tests.simulation.coroutines import Coroutine
from tests.unit.relay.world import message_record, record

PORTS = ("wal", "catalog", "follows", "sessions")
ROUND_S = 15  # between the visits of the sweep, at rest
PATIENCE = 15  # turns that a relay waits for something to do
Step = Callable[[Any], object]


class Died(BaseException):
    """The process is gone."""


class Broken(AssertionError):
    """A law does not hold."""

    def __init__(self, law: str, *said: object) -> None:
        super().__init__(f"{law}: {said}")
        self.law = law


class Port:
    """A store: before each call others may go on, and a call may fail, or its answer be lost, or its process die."""

    def __init__(self, target: Any, simulation: Simulation) -> None:
        self._target, self._simulation = target, simulation

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)
        if not callable(method):
            return method

        def call(*args: Any, **kwargs: Any) -> Any:
            fate = self._simulation.pause()
            if fate in ("fails", "dies"):
                return self._end(name, fate == "fails")
            answer = method(*args, **kwargs)
            return self._end(name, fate == "lost") if fate else answer

        return call

    def _end(self, name: str, lives: bool) -> None:
        if not lives:
            raise Died
        if name != "take_bell":  # which says so by its answer
            raise StoreTimeout(name)


class Simulation(ABC):
    """One run by a seed.

    Attributes:
        patches: attributes to replace as long as it runs.
        calm: whether nothing fails, and the calls come one after the other.
        calls: how many store calls there were so far.
    """

    name: str
    fates: tuple[tuple[float, str], ...] = ((0.01, "fails"), (0.03, "lost"), (0.035, "dies"), (0.04, "dies after"))

    def __init__(self, seed: int) -> None:
        self.random = Random(f"{self.name} {seed}")
        self.patches: list[tuple[Any, str, Any]] = []
        self.calm = True
        self.calls = 0
        self.checked: Counter[str] = Counter()
        self._main = Coroutine()
        self._actors: dict[Coroutine, None] = {}
        self._current = self._main
        self._unknown: list[BaseException] = []
        self._ids = iter(range(1, 1_000_000))

    # The order of things.

    def pause(self) -> str:
        """Lets another actor go on, perhaps; returns what becomes of the call."""
        self.calls += 1
        if self.calm:
            return ""
        self._go(self._next())
        roll = self.random.random()
        return next((fate for limit, fate in self.fates if roll < limit), "")

    def linger(self, most: int) -> None:
        """Lets others go on for a while."""
        for _ in range(self.random.randint(0, most)):
            self.pause()

    def _next(self) -> Coroutine:
        return self.random.choice(list(self._actors)) if self._actors else self._main

    def _go(self, other: Coroutine) -> None:
        me, self._current = self._current, other
        me.hand_to(other)

    def run(self) -> None:
        """Runs all actors to their ends, then settles, and judges."""
        with _steady(self.random), ExitStack() as stack:
            for owner, name, value in self.patches:
                stack.enter_context(patch.object(owner, name, value))
            self._prepare()
            for plan in self._plans():
                self._start(plan)
            self.calm = False
            self._go(self._next())
            self.calm = True
            if self._unknown:
                raise self._unknown[0]
            self._settle()
            self._judge()
            if self._unknown:
                raise self._unknown[0]

    def _start(self, plan: Sequence[Step]) -> None:
        def body() -> Coroutine:
            process = self.process()
            for step in plan:
                if self._unknown:
                    break
                try:
                    step(process)
                except Died:
                    process = self.process()
                except (HeadraceError, StoreError):
                    pass  # refused, or of unknown outcome
                except BaseException as exc:  # noqa: BLE001 - the run reports it
                    self._unknown.append(exc)
            del self._actors[coroutine]
            self._current = self._next()
            return self._current

        coroutine = Coroutine(body)
        self._actors[coroutine] = None

    def some(self, count: int, *steps: tuple[Step, int]) -> list[Step]:
        """Draws steps, each by its weight."""
        return self.random.choices([step for step, _ in steps], [weight for _, weight in steps], k=count)

    def faulty(self, stores: Stores) -> Stores:
        """Returns the stores as a process of this run has them."""
        ports = {name: Port(getattr(stores, name), self) for name in PORTS}
        return replace(stores, log_ids=self._log_id, **ports)

    def _log_id(self) -> str:
        return f"{next(self._ids):032x}"

    def require(self, law: str, holds: bool, *said: object) -> None:
        """Checks a law."""
        self.checked[law] += 1
        if not holds:
            raise Broken(law, *said)

    def note(self, law: str, holds: bool, *said: object) -> None:
        """Checks a law where the engine would catch what is raised: the run ends, and says it."""
        self.checked[law] += 1
        if not holds:
            self.fail(Broken(law, *said))

    def fail(self, error: BaseException) -> None:
        """Ends the run, with this error."""
        self._unknown.append(error)

    @abstractmethod
    def process(self) -> Any:
        """Returns a process with a cold memory."""

    @abstractmethod
    def _prepare(self) -> None: ...

    @abstractmethod
    def _plans(self) -> Iterator[Sequence[Step]]:
        """Yields what each actor does."""

    @abstractmethod
    def _settle(self) -> None:
        """Has everything come to rest, without faults."""

    @abstractmethod
    def _judge(self) -> None:
        """Checks the laws that hold at rest."""


def _inline(self: Threads, call: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    return [call(item) for item in items]


@contextmanager
def _steady(random: Random) -> Iterator[None]:
    """Has everything depend on the seed, and nothing be logged."""
    before = logging.root.manager.disable
    with (
        patch.object(Threads, "map", _inline),
        patch.object(Budget.__init__, "__defaults__", (random.random,)),
        patch("functions.relay.wakes.SystemRandom", lambda: random),
    ):
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)


class HeardWal(MemoryWal):
    """A write-ahead log whose stream has what the relay must hear, by log.

    Attributes:
        created: at which store call each log was created.
    """

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self.events: dict[str, list[Any]] = {}
        self.created: dict[str, int] = {}
        self._simulation = simulation

    def put(self, entry: Entry) -> None:
        super().put(entry)
        if entry.kind == "create":
            self.created[entry.log_id] = self._simulation.calls
        if entry.state.is_followed(entry.committed_ms) or entry.kind in ("create", "delete", "expire"):
            self.events.setdefault(entry.log_id, []).append(entry_item(entry))


class _Listening:
    """The logger of a relay, which logs what it catches: the run ends with what no store and no verb raises."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None

    def exception(self, *_: object, **__: object) -> None:
        """Looks at the error that is being handled."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, HeadraceError | StoreError):
            self._simulation.fail(error)


class Relays:
    """What relays are told: the stream of entries in the order of each log, and messages in any order. A batch or message
    that failed, or whose relay died, comes again; others sometimes do.

    Args:
        loses: the share of messages that get lost, of those that a row remembers.
    """

    def __init__(self, simulation: Simulation, wal: HeardWal, stores: Stores, loses: float = 0.0) -> None:
        self._simulation, self._random, self._wal, self._stores = simulation, simulation.random, wal, stores
        self._loses = loses
        self._told = set[str]()  # logs of which a relay is being told
        self.queue = MemoryQueue()

    def relay(self, stores: Stores) -> Relay:
        """Returns the relay of one process."""
        queue: Any = Port(self.queue, self._simulation)
        context = assemble(stores, queue, Meter(RelayMetric, lambda _: None))
        logger: Any = _Listening(self._simulation)
        return Relay(context, logger, {kind: make(context) for kind, make in FOLLOWERS.items()}, CREATED)

    def tell(self, relay: Relay) -> bool:
        """Runs a relay once: by the stream, or by the queue. Returns whether there was anything to tell; while others go on
        it waits a while for that.
        """
        for _ in range(1 if self._simulation.calm else PATIENCE):
            if self._tell(relay):
                return True
            self._simulation.pause()
        return False

    def _tell(self, relay: Relay) -> bool:
        hear, receive = self._hear, self._receive
        first, second = (hear, receive) if self._random.random() < 0.5 else (receive, hear)
        return first(relay) or second(relay)

    def _is_again(self) -> bool:
        return not self._simulation.calm and self._random.random() < 0.1

    def _hear(self, relay: Relay) -> bool:
        logs = [log_id for log_id, events in self._wal.events.items() if events and log_id not in self._told]
        chosen = self._random.sample(logs, min(len(logs), self._random.randint(1, 3)))
        batch = {log_id: self._wal.events[log_id][: self._random.randint(1, 3)] for log_id in chosen}
        if not batch:
            return False
        self._told.update(batch)
        try:
            relay.handle({"Records": [record(image) for events in batch.values() for image in events]}, None)
            for log_id, events in batch.items():
                if not self._is_again():
                    del self._wal.events[log_id][: len(events)]
        finally:
            self._told.difference_update(batch)
        return True

    def _receive(self, relay: Relay) -> bool:
        now_ms = self._stores.clock.now_ms()
        due = self.queue.receive(now_ms)
        self._random.shuffle(due)
        count = self._random.randint(1, 3)
        taken, rest = due[:count], due[count:]
        self.queue.send(rest, now_ms)
        if not self._simulation.calm:
            taken = [one for one in taken if not one.due_ms or self._random.random() >= self._loses]
        again: list[Message] = list(taken)
        try:
            if taken:
                answer = relay.handle({"Records": [message_record(n, one) for n, one in enumerate(taken)]}, None)
                failed = {int(one["itemIdentifier"]) for one in answer["batchItemFailures"]}
                again = [one for n, one in enumerate(taken) if n in failed or self._is_again()]
        finally:
            self.queue.send(again, now_ms)
        return bool(due)

    def settle(self, relay: Relay, rounds: int) -> None:
        """Tells a relay of everything, and has it sweep, for a while."""
        for _ in range(rounds):
            for _ in range(1_000):
                if not self.tell(relay):
                    break
            relay.handle({"detail-type": "Scheduled Event"}, None)
            self._stores.clock.sleep(ROUND_S)
