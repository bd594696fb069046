"""Subscriptions under every order of store calls: clients that create and delete subscriptions and links, writers that
create, append to and delete streams, workers that claim, acknowledge, release, or let their leases end, and relays that are
told late, twice, of items that are no entries, or not at all until a sweep.

    uv run python -m tests.simulation.relay --world subscriptions

`relay_wakes.py` has the laws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from functions.queue import visit_when_due
from functions.relay import wakes as follower
from functions.relay.followers import Hint
from functions.relay.handler import Relay
from headrace.batch import Batch
from headrace.errors import StoreError
from headrace.log.requests import JSON, At
from headrace.memory import memory_stores
from headrace.streams.values import AppendRequest, CreateRequest
from headrace.streams.verbs import Streams
from headrace.subscriptions import rules
from headrace.subscriptions.desk import Desk, timer_log
from headrace.subscriptions.errors import Fenced
from headrace.subscriptions.links import followed
from headrace.subscriptions.rows import Rows
from headrace.subscriptions.values import KIND, Config
from headrace.subscriptions.verbs import Ack, Claimed, Subscriptions
from headrace.subscriptions.wakes import Wakes
from headrace.tables.follows import Follow
from headrace.wal.state import BEGINNING, decode_cursor, encode_cursor
from tests.simulation.mutant import Mutant
from tests.simulation.relay_wakes import SurveyedRows, WakeLaws
from tests.simulation.relay_world import HeardWal, Port, Relays, Simulation, Step
from tests.support.clocks import ManualClock

STREAMS = ("orders/1", "orders/2", "orders/3", "audit/1")
POOL = "pool"
CONFIGS = {
    "glob": Config("pull-wake", "orders/*", wake_stream=POOL, lease_ttl_ms=5_000),
    "named": Config("pull-wake", streams=("audit/1", "orders/1"), wake_stream=POOL, lease_ttl_ms=5_000),
}
ROUNDS = (
    16  # of 15 s: the second look of a new subscription comes after a minute, and a message is lost after half of one
)


def everyone(_: Config, __: Sequence[str]) -> None:
    """Allows everything."""


class Process:
    """One process of the api, or a relay."""

    def __init__(self, simulation: Subscribers) -> None:
        self.stores = simulation.faulty(simulation.stores)
        self.streams = Streams(self.stores)
        self.subscriptions = Subscriptions(
            Desk(self.stores, self.streams, self._ring, simulation.random.random, lambda *_: None)
        )
        self.relay: Relay = simulation.relays.relay(self.stores)
        self._queue: Any = Port(simulation.relays.queue, simulation)

    def _ring(self, follow: Follow) -> None:
        try:
            self._queue.send([visit_when_due(follow)], self.stores.clock.now_ms())
        except StoreError:
            return  # as the api does: the row says when the relay must visit it, and the sweep sees that


class Subscribers(Simulation):
    """One run by a seed."""

    name = "subscriptions"

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.clock, self.wal = ManualClock(), HeardWal(self)
        self.laws = WakeLaws(self, self.wal, self.clock)
        self.wal.sessions.rows = SurveyedRows(self.laws)
        self.stores = memory_stores(clock=self.clock, wal=self.wal)
        self.relays = Relays(self, self.wal, self.stores, loses=0.05)
        self._claims: list[Claimed] = []

    def process(self) -> Process:
        """Returns a process with a cold memory."""
        return Process(self)

    # What happens.

    def _prepare(self) -> None:
        process = self.process()
        process.streams.create(POOL, CreateRequest(content_type=JSON))
        for name in self.random.sample(STREAMS, 2):
            process.streams.create(name, CreateRequest(content_type=JSON, records=Batch.of([b"1"])))
        for id_ in CONFIGS:
            if self.random.random() < 0.7:
                self._put(id_)(process)

    def _plans(self) -> Iterator[Sequence[Step]]:
        for _ in range(2):
            yield self.some(14, (self._append, 6), (self._create, 2), (self._remove_stream, 1))
        for id_ in CONFIGS:
            wishes = ((self._put(id_), 3), (self._delete(id_), 1), (self._add(id_), 2), (self._drop(id_), 2))
            yield self.some(6, *wishes)
        for _ in range(2):
            yield self.some(40, (self._claim, 5), (self._ack, 5), (self._release, 1), (self._wait, 2))
        for _ in range(2):
            yield self.some(40, (self._tell, 6), (self._sweep, 1), (self._plant, 1))

    def _create(self, process: Process) -> None:
        records = Batch.of([b"1"] * self.random.randint(0, 1))
        process.streams.create(self.random.choice(STREAMS), CreateRequest(content_type=JSON, records=records))

    def _append(self, process: Process) -> None:
        self.clock.advance(self.random.choice((0, 0.5, 2)))
        records = Batch.of([b"1"] * self.random.randint(1, 3))
        process.streams.append(self.random.choice(STREAMS), AppendRequest(content_type=JSON, records=records))

    def _remove_stream(self, process: Process) -> None:
        process.streams.delete(self.random.choice(STREAMS))

    def _put(self, id_: str) -> Step:
        from_start = self.random.random() < 0.2

        def step(process: Process) -> None:
            self.laws.created(
                process.subscriptions.put(id_, CONFIGS[id_], everyone, from_start=from_start).subscription
            )

        return step

    def _delete(self, id_: str) -> Step:
        def step(process: Process) -> None:
            self.laws.forget(id_)
            process.subscriptions.delete(id_, everyone)
            self.laws.deleted(id_)

        return step

    def _add(self, id_: str) -> Step:
        def step(process: Process) -> None:
            path = self.random.choice(STREAMS)
            process.subscriptions.add(id_, [path], everyone)
            self.laws.named(id_, path)

        return step

    def _drop(self, id_: str) -> Step:
        def step(process: Process) -> None:
            path = self.random.choice(STREAMS)
            self.laws.unnamed(id_, path)
            process.subscriptions.remove(id_, path, everyone)

        return step

    # Workers.

    def _claim(self, process: Process) -> None:
        id_ = self.random.choice(list(CONFIGS))
        claimed = process.subscriptions.claim(id_, f"w{next(self._ids)}", everyone)
        self.laws.claimed(claimed)
        self._claims.append(claimed)

    def _held(self) -> Claimed | None:
        """Returns what a worker believes to hold: mostly the newest claim."""
        if not self._claims:
            return None
        return self._claims[-1] if self.random.random() < 0.7 else self.random.choice(self._claims[-4:])

    def _ack(self, process: Process) -> None:
        held = self._held()
        if held is None:
            return
        acks = []
        for view in held.streams:
            tail, at = decode_cursor(view.tail_offset), decode_cursor(view.acked_offset)
            position = self.random.randint(at.position, max(at.position, tail.position))
            if tail.incarnation is not None and self.random.random() < 0.8:
                acks.append((view.path, encode_cursor(tail.incarnation, position)))
        ack = Ack(held.wake_id, held.subscription.generation, acks, done=self.random.random() < 0.5)
        self.laws.asked(held, ack)
        process.subscriptions.ack(held.subscription.id, "pull-wake", held.token, ack)

    def _release(self, process: Process) -> None:
        held = self._held()
        if held is not None:
            generation = held.subscription.generation
            self.laws.asked(held, Ack(held.wake_id, generation, done=True))
            process.subscriptions.release(held.subscription.id, held.token, held.wake_id, generation)

    def _wait(self, _: Process) -> None:
        self.clock.advance(self.random.choice((1, 4, 6, 15)))

    # The relay.

    def _tell(self, process: Process) -> None:
        self.clock.advance(self.random.choice((0, 0.5, 1)))
        self.relays.tell(process.relay)

    def _sweep(self, process: Process) -> None:
        process.relay.handle({"detail-type": "Scheduled Event"}, None)

    def _plant(self, _: Process) -> None:
        """An item comes late into a slot that was used before, and is no entry of the log."""
        logs = [events for events in self.wal.events.values() if events]
        if logs:
            events = self.random.choice(logs)
            dead = {**self.random.choice(events), "count": {"N": str(self.random.randint(1, 9))}, "relay": {"N": "1"}}
            dead["kind"] = {"S": self.random.choice(("append", "delete"))}
            events.insert(self.random.randint(0, len(events)), dead)

    def _settle(self) -> None:
        self.relays.settle(self.process().relay, ROUNDS)

    def _judge(self) -> None:
        process = self.process()
        for id_ in CONFIGS:
            row = Rows(self.stores.sessions).get(id_)
            if row is None or row.sub.is_deleted:
                kept = [key for key in self.wal.sessions.rows if key[:2] == (KIND, id_) and key[2] != "-"]
                timer = self.wal.follows.get(timer_log(id_), KIND, id_)
                self.require("a deleted subscription leaves nothing", not kept and timer is None, id_, kept, timer)
            else:
                self.laws.at_rest(row.sub, process.streams, STREAMS)
        self.laws.announced(process.streams.read(POOL, At(BEGINNING)).data)


# Mutants.


def _visit_by_the_image(self: Any, follow: Follow, hint: Hint) -> Any:
    """What the stream said of a log is taken for its state."""
    wakes = self._wakes
    if hint.kind == "delete":
        return wakes._links.ended(follow.id, follow.log_id, followed(follow).path)
    row = wakes._rows.get(follow.id)
    if row is not None and row.sub.wake is None and not row.sub.is_deleted:
        seen = wakes._links.look(wakes._rows.links(follow.id))
        for one in seen:
            if one.link.log_id == follow.log_id and hint.offset > decode_cursor(one.link.acked_offset).position:
                wakes._open(row, seen, one.link.path, is_driven=False)
    return _visit(self, follow, hint)


def _announce_over_whatever_stands(self: Any, before: Any, after: Any) -> Any:
    """The row is read once more just before it is written."""
    return _announce(self, self._rows.get(after.id) or before, after)


def _check_nothing_but_a_wake(sub: Any, *_: object) -> None:
    if sub.wake is None:
        raise Fenced


_visit, _announce = follower.Wakes.visit, Wakes.announce

MUTANTS = (
    Mutant(
        "image trusted",
        "the relay sees a dead item",
        (follower.Wakes, "visit", _visit_by_the_image),
        world="subscriptions",
    ),
    Mutant(
        "wake opened over a newer row",
        "two open one wake",
        (Wakes, "announce", _announce_over_whatever_stands),
        world="subscriptions",
    ),
    Mutant(
        "ack that ignores the fence",
        "a worker whose lease has ended",
        (rules, "check_fence", _check_nothing_but_a_wake),
        world="subscriptions",
    ),
    Mutant(
        "claim that asks for no other's lease",
        "two workers hold one wake",
        (rules, "check_unclaimed", lambda _: None),
        world="subscriptions",
    ),
)
