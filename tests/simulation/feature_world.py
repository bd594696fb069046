"""Feature tables under every order of store calls: processes that register, push and read, folders that die, a sealer that
seals, trims and purges, over stores in memory. Which goes on is drawn at each store call, as are calls that fail, answers
that are lost, and deaths; their clocks differ, and jump.

    uv run python -m tests.simulation.relay --world features

Each answer is compared with a naive computation over the prefix that it names. `feature_rest` has what must be so at rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from functions.fold_queue import MemoryFoldQueue
from functions.metrics import Meter, RelayMetric
from functions.queue import MemoryQueue
from functions.relay import context as relay
from functions.relay.followers import Hint
from functions.relay.lanes import DONE, RegistryFollower
from functions.sealer.context import assemble
from functions.sealer.purge import purge
from functions.sealer.seal import seal
from functions.sealer.trim import trim
from headrace import jobs
from headrace.errors import HeadraceError, InvalidRequest, NotFound, Overloaded, StoreError
from headrace.features import documents, fold, tail, verbs
from headrace.features.backfill import Backfills
from headrace.features.define import follower
from headrace.features.documents import Answers
from headrace.features.errors import Behind, Stopped
from headrace.features.events import Entity, Event
from headrace.features.fold import Folder, Pass
from headrace.features.pipeline.compiled import Pipeline, PipelineDocument, compile_pipeline
from headrace.features.register import Registrations
from headrace.features.values import REGISTER, GetRequest, registry_name
from headrace.features.values import lane as which_of
from headrace.features.verbs import Features
from headrace.log.seam import Which
from headrace.log.stores import Stores
from headrace.memory import memory_stores
from headrace.objects import keys, packed
from headrace.settings import Settings
from headrace.tables.features import TABLE, MemoryFeatures
from tests.simulation.feature_model import NS, Model, SurveyedWal
from tests.simulation.relay_world import Died, Port, Simulation, Step
from tests.support.clocks import ManualClock
from tests.unit.features.backfilling import run_job, waiting_jobs
from tests.unit.features.interposing import Interposed
from tests.unit.features.pipeline.documents import count, derived, event, table, total, where
from tests.unit.features.world import rows_of

USERS = ("a", "b", "c")
VALUES = tuple(f"v{number}" for number in range(6))
DEDUPE_MS = 20_000
SKEW_MS = 2_000
PORTS = ("wal", "catalog", "watermarks", "producers", "follows", "objects")
FIELDS = {"id": "str", "user": "str", "n": "i64", "once": "str"}
SETTINGS = Settings(state_age_ms=5_000, trim_age_ms=30_000)
JUMPS = (0.001, 0.05, 0.4, 1.1, 3.0, 6.0, 12.0, 40.0, 400.0)
WEIGHTS = (6, 6, 6, 6, 4, 3, 2, 1, 0.3)
# The share of store calls before which a process is suspended, and the most calls of others until it goes on; by stage.
SUSPENDED = (0.04, 60)
SUSPENDED_MORE = {"backfilled": (0.12, 250)}
STAGES = {  # by weight, what runs do
    "everything": 48,
    "renewed": 15,  # little more than to create a lane again, amid a pass over the one before
    "backfilled": 15,  # little more than to back-fill tables
    "trimmed": 15,  # little more than to trim a lane
    "outrun": 7,  # to push more than is folded, with room for little of that, and a mark for every few rows
}
POISONED = 0.07  # share of the runs in which features of a table fail at an event
POISON = ("Big", 5)  # the table, and the event's offset
UNFOLDED_BYTES, TAIL_BYTES, MARKED_ROWS = 600, 2_400, 3
FAILED = 0.1  # share of the jobs that fail, and of the others that lose a part of their result


class SkewedClock:
    """The clock of a host, which is a little wrong."""

    def __init__(self, true: ManualClock, skew_ms: int) -> None:
        self._true, self._skew_ms = true, skew_ms
        self.monotonic, self.sleep = true.monotonic, true.sleep

    def now_ms(self) -> int:
        """Returns the wall clock time in epoch milliseconds."""
        return self._true.now_ms() + self._skew_ms


class PoisonedEntity(Entity):
    """An entity whose features fail at an event, in folders."""

    def fold(self, event: Event, lane: int) -> None:
        """Folds an event of a lane."""
        if (event.table.name, event.offset) == POISON:
            raise OverflowError("poison")
        super().fold(event, lane)


class Process:
    """A process with a cold memory, whatever it is used for."""

    def __init__(self, stores: Stores) -> None:
        self.api = Features(stores, may_reset=True)
        self.folder = Folder(Registrations(stores))
        context = relay.assemble(stores, MemoryQueue(), Meter(RelayMetric, lambda _: None))
        self.folds = MemoryFoldQueue()
        self.relay = RegistryFollower(replace(context, folds=self.folds))
        self.parts = assemble(stores, MemoryQueue())
        self.stores, self.clock = stores, stores.clock

    def fold(self, which: Which, seconds: int = 10) -> Pass:
        """Folds a lane."""
        return self.folder.fold(which, self.clock.monotonic() + seconds)


class Actors(Simulation):
    """What happens in one run by a seed, until all comes to rest (`feature_rest`)."""

    name = "features"
    fates = ((0.005, "fails"), (0.015, "lost"), (0.02, "dies"), (0.025, "dies after"))

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        chance = self.random
        self.lanes = chance.choice((1, 1, 2))
        self.settings = {
            "keep_events_for_ms": chance.choice((None, None, None, 30_000)),
            "cold_after_ms": chance.choice((None, 10_000)),
        }
        self.clock, self.wal = ManualClock(), SurveyedWal({TABLE: MemoryFeatures()})
        self.stores = self._stores(self.wal)
        self.model = Model(self, self.stores, DEDUPE_MS)
        self.wal.heard = self.model.heard
        self._unsure: list[list[dict[str, Any]]] = []  # pushes that a client may repeat
        self._turn = 0
        self._snapshot: tuple[Any, Any] = ({}, {})
        self._compiled: dict[bytes, Pipeline] = {}  # what each process would do again
        self.patches = [(documents, "compile_pipeline", self._compile)]
        self._is_poisoned = chance.random() < POISONED
        (self._stage,) = chance.choices(list(STAGES), list(STAGES.values()))
        if self._is_poisoned:
            self.patches.append((fold, "Entity", PoisonedEntity))
        if self._stage == "outrun":
            self.patches += [(verbs, "MAX_UNFOLDED_BYTES", UNFOLDED_BYTES), (tail, "MAX_TAIL_BYTES", TAIL_BYTES)]
            self.patches.append((fold, "MAX_ROWS", MARKED_ROWS))

    def _stores(self, wal: SurveyedWal, objects: Any = None) -> Stores:
        return memory_stores(
            SETTINGS, self.clock, wal=wal, objects=objects, log_ids=self._log_id, request_ids=self._request_id
        )

    def _compile(self, document: PipelineDocument) -> Pipeline:
        key = msgspec.json.encode(document)
        if key not in self._compiled:
            self._compiled[key] = compile_pipeline(document)
        return self._compiled[key]

    def _request_id(self) -> str:
        return f"r{next(self._ids):011}"

    def pause(self) -> str:
        """Lets another actor go on, perhaps, or many of them: then this one is suspended."""
        share, most = SUSPENDED_MORE.get(self._stage, SUSPENDED)
        if not self.calm and self.random.random() < share:
            for _ in range(self.random.randint(5, most)):
                super().pause()
        return super().pause()

    def faulty(self, stores: Stores) -> Stores:
        """Returns the stores as a process of this run has them."""
        ports: dict[str, Any] = {name: Port(getattr(stores, name), self) for name in PORTS}
        tables: dict[str, Any] = {name: Port(one, self) for name, one in stores.tables.items()}
        clock = SkewedClock(self.clock, self.random.randint(-SKEW_MS, SKEW_MS))
        return replace(stores, **ports, tables=tables, clock=clock)

    def process(self) -> Process:
        """Returns a process with a cold memory."""
        return Process(self.faulty(self.stores))

    # What is registered.

    def nodes(self, turn: int) -> list[dict[str, Any]]:
        """Returns nodes; some turns drop the state of a table, or change the schema."""
        fields = FIELDS | ({"extra": "i64"} if turn & 1 else {})
        lanes = {"lanes": self.lanes, "lane_key": "user"} if self.lanes > 1 else {}
        dedupe = {"dedupe_key": "once", "dedupe_window_ms": DEDUPE_MS}
        agg = {
            "c": count(),
            "w": count(window="10s"),
            "x": {"op": "max", "params": {"field": "n", "window": "1m"}},
            "k": {"op": "streak", "params": {"where": "(n > 4)"}},
            "l": {"op": "last", "params": {"field": "id"}},
        }
        if turn & 2:
            agg["s"] = total("n")
        found = [
            event("Tx", fields, ["once"], **lanes, **dedupe, **self.settings),
            table("U", agg=agg, upstream="Tx"),
            table("W", agg={"c": count(window="10s"), "m": total("n", window="3s")}, upstream="Tx"),
            table("Big", where(f"(n > {3 if turn & 4 else 5})"), agg={"s": total("n"), "c": count()}, upstream="Tx"),
        ]
        if turn & 8:
            found.append(table("New", agg={"c": count()}, upstream="Tx"))
        if turn & 16:
            found = [{**one, "backfill": True} if one.get("output_kind") == "table" else one for one in found]
        if self.lanes == 1:
            halved = derived("Halves", {"op": "map", "exprs": {"n": "(n / 2)"}}, upstream="Tx")
            found += [halved, table("Half", agg={"c": count(), "l": agg["l"]}, keys=["n"], upstream="Halves")]
            found.append(table("All", agg={"c": count(), "s": total("n", window="3s")}, keys=[], upstream="Tx"))
        return found

    def keys(self) -> dict[str, tuple[str, ...]]:
        """Returns the keys of each table. `New` may not be there yet."""
        found = dict.fromkeys(("U", "W", "Big", "New"), USERS)
        return found if self.lanes > 1 else {**found, "Half": ("0", "1", "2", "3", "4"), "All": ("",)}

    # What happens.

    def _prepare(self) -> None:
        self._register(self.process())

    def _plans(self) -> Iterator[Sequence[Step]]:
        if self._stage == "outrun":
            for _ in range(3):
                yield [self._push] * 40
            yield [self._wait, self._wait, self._wait, self._fold]
            yield [self._read] * 10
        elif self._stage == "renewed":
            yield [self._push, self._fold, self._renew, self._read, self._read] * 4
            yield [self._read, self._fold, self._wait] * 4
        elif self._stage == "backfilled":  # few actors, so that many come to their end
            changes = (self._register, 1), (self._wait, 1), (self._reset, self._resets())
            yield [self._push] * 6 + [self._backfill] + [self._push] * 4
            yield self.some(6, (self._backfill, 2), *changes)
            steps = (self._push, 3), (self._job, 4), (self._go_on, 6), (self._fold, 6), (self._restart, 1)
            for _ in range(2):
                yield self.some(20, *steps)
            yield [self._read] * 6
        elif self._stage == "trimmed":  # so that a slot is trimmed while its writer is suspended
            yield [self._push] * 8
            yield [self._push, self._push, self._trim] * 3
            yield [self._push, self._read] * 3
        else:
            yield from self._everything()

    def _everything(self) -> Iterator[Sequence[Step]]:
        for _ in range(2):
            yield self.some(14, (self._push, 14), (self._wait, 2), (self._restart, 1))
        changes = (self._register, 3), (self._backfill, 2), (self._wait, 2), (self._reset, self._resets())
        yield self.some(10, (self._push, 4), *changes)
        yield self.some(10, (self._go_on, 5), (self._job, 4), (self._wait, 1), (self._restart, 1))
        for _ in range(2):
            yield self.some(14, (self._read, 14), (self._wait, 3), (self._restart, 2))
        for _ in range(2):
            yield self.some(10, (self._fold, 10), (self._wait, 2), (self._restart, 1))
        yield self.some(6, (self._seal, 6), (self._wait, 2))

    def _resets(self) -> int:
        return self.random.choice((0, 0, 1))

    def _wait(self, _: Process) -> None:
        self.linger(10)
        self.clock.advance(self.random.choices(JUMPS, WEIGHTS)[0])
        if self.random.random() < 0.2:
            kept = self._kept()
            self._snapshot = dict(kept.kept), dict(kept.marks)

    def _restart(self, _: Process) -> None:
        raise Died

    def _push(self, process: Process) -> None:
        self.linger(20)
        self.clock.advance(self.random.choice((0, 0, 0.001, 0.3)))
        is_repeat = self._unsure and self.random.random() < 0.25
        events = self.random.choice(self._unsure) if is_repeat else self._events()
        first, began_ms = events[0]["id"], self.clock.now_ms() - SKEW_MS
        self.model.pushed[first] = events
        self.model.tries[first] += 1
        try:
            ack = process.api.push(NS, "Tx", events)
        except (InvalidRequest, NotFound, Overloaded):
            self.model.refused.add(first)
            raise
        self.model.acknowledged(events, ack, began_ms)

    def _events(self) -> list[dict[str, Any]]:
        chance = self.random
        size, user = chance.choice((1, 1, 1, 2, 4)), chance.choice(USERS)
        more = {"extra": 1} if chance.random() < (0.7 if self._turn & 1 else 0.3) else {}
        values = chance.sample(VALUES, size) if chance.random() < 0.4 else []
        events = [
            {
                "id": f"e{next(self._ids)}",
                "user": user if self.lanes > 1 else chance.choice(USERS),
                "n": chance.randrange(10),
                **more,
                **({"once": values[place]} if values else {}),
            }
            for place in range(size)
        ]
        if values:
            self._unsure.append(events)
        return events

    def _read(self, process: Process) -> None:
        self.linger(20)
        tables = self.keys()
        asked = [self.random.choice(list(tables)) for _ in range(self.random.choice((1, 3)))]
        self.read(process, [GetRequest(name, self.random.choice(tables[name])) for name in asked])

    def read(self, process: Process, requests: Sequence[GetRequest]) -> Answers:
        """Reads rows, and judges the answer."""
        call, told = self.calls, {log_id: log.told for log_id, log in self.model.logs.items()}
        law = "acknowledgements do not outrun the folder"
        try:
            answers = process.api.get(NS, requests)
        except Behind as error:
            self.note(law, False, error)
            raise
        self.note(law, True)
        stopped = [one for one in answers.rows if isinstance(one, Stopped)]
        self.note("a table stops where its features fail", self._is_poisoned or not stopped, stopped)
        self.model.answered(requests, answers, call, told)
        return answers

    def _register(self, process: Process) -> None:
        self._turn = self.random.randrange(32)
        call = self.calls
        answer = process.api.register(NS, {"nodes": self.nodes(self._turn), "force": self.random.random() < 0.8})
        self.model.registered(answer.registry.touched, answer.version, call)

    def _reset(self, process: Process) -> None:
        self.model.was_reset = True
        process.api.reset(NS)
        self.lanes = self.random.choice((1, 2))

    def _fold(self, process: Process) -> None:
        self.linger(15)
        which = which_of(NS, "Tx", self.random.randrange(self.lanes))
        process.fold(which, self.random.choice((0, 10, 10)))

    def _renew(self, process: Process) -> None:
        """Makes a pass, before a call of which the lanes are created again, and filled."""
        other, port = self.process(), Interposed(process.stores)

        def renew() -> None:
            for step in (self._reset, self._register, *[self._push] * 4):
                with suppress(HeadraceError, StoreError, Died):
                    step(other)

        port.left, port.action = self.random.randint(2, 5), renew  # those before it folds come first
        folder = Folder(Registrations(port.stores))
        folder.fold(which_of(NS, "Tx", self.random.randrange(self.lanes)), self.clock.monotonic() + 10)

    def _backfill(self, process: Process) -> None:
        self.linger(20)
        Backfills(process.api).start(NS, self.random.choice(list(self.keys())))

    def _go_on(self, process: Process) -> None:
        self.linger(15)
        self._visit(process, self.random.choice(("", DONE)))

    def _visit(self, process: Process, said: str = "") -> None:
        """Lets the relay hear of the registry."""
        head = process.api.head(registry_name(NS))
        process.relay.visit(follower(head.config, head.log_id, REGISTER), Hint(said))

    def _job(self, process: Process) -> None:
        """Runs a job: it may fail, and a part of what it wrote may be lost."""
        self.linger(15)
        chance, waiting = self.random, waiting_jobs(self.stores.objects)
        if not waiting:
            return
        job_id = chance.choice(waiting)
        if chance.random() < FAILED:
            self._fail(process.stores, job_id)
            return
        parts = run_job(process.stores, job_id).parts
        if parts and chance.random() < FAILED:
            process.stores.objects.delete([chance.choice(parts).key])

    def _fail(self, stores: Stores, job_id: str) -> None:
        ended = jobs.Ended(packed.VERSION, self.clock.now_ms(), "it was to fail")
        jobs.note(stores.objects, keys.job_ended(job_id), ended)

    def _seal(self, process: Process) -> None:
        self.linger(15)
        for log_id in self._logs():
            verb = self.random.choice((seal, seal, trim, purge))
            if verb is seal:
                seal(process.parts, log_id, force=True)
            else:
                verb(process.parts, log_id)

    def _trim(self, process: Process) -> None:
        for log_id in self._logs():
            seal(process.parts, log_id, force=True)
        self.clock.advance(40)
        for log_id in self._logs():
            trim(process.parts, log_id)

    def _logs(self) -> list[str]:
        """Returns the ids of all logs, of the registry, too."""
        names: Any = self.wal.catalog
        registry = [
            one.log_id for row in names.rows.values() for one in row.logs if one.log_id not in self.model.logs
        ]
        return [*registry, *self.model.logs]

    def _kept(self) -> MemoryFeatures:
        return rows_of(self.stores)
