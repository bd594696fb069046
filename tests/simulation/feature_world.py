"""Feature tables under every order of store calls: processes that register, push and read, folders that die, a sealer that
seals, trims and purges, over stores in memory. Which goes on is drawn at each store call, as are calls that fail, answers
that are lost, and deaths; their clocks differ, and jump.

    uv run python -m tests.simulation.relay --world features

Each answer is compared with a naive computation over the prefix that it names. At rest rows are what is stored, useless
ones go, and all is computed again from the bucket alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from functions.queue import MemoryQueue
from functions.sealer.context import assemble
from functions.sealer.purge import purge
from functions.sealer.seal import seal
from functions.sealer.trim import trim
from headrace.errors import HeadraceError, InvalidRequest, NotFound, Overloaded
from headrace.features import documents
from headrace.features.documents import Answers
from headrace.features.fold import Folder
from headrace.features.pipeline.compiled import Pipeline, PipelineDocument, compile_pipeline
from headrace.features.register import Registrations
from headrace.features.values import GetRequest
from headrace.features.values import lane as which_of
from headrace.features.verbs import Features
from headrace.log.stores import Stores
from headrace.memory import memory_stores
from headrace.recovery.recover import recover
from headrace.recovery.verify import verify_all
from headrace.settings import Settings
from headrace.tables.features import TABLE, MemoryFeatures
from tests.simulation.feature_model import NS, Model, SurveyedWal
from tests.simulation.relay_world import Broken, Died, Port, Simulation, Step
from tests.support.clocks import ManualClock
from tests.unit.features.pipeline.documents import count, derived, event, table, total, where

USERS = ("a", "b", "c")
VALUES = tuple(f"v{number}" for number in range(6))
DEDUPE_MS = 20_000
SKEW_MS = 2_000
PORTS = ("wal", "catalog", "watermarks", "producers", "follows", "objects")
FIELDS = {"id": "str", "user": "str", "n": "i64", "once": "str"}
SETTINGS = Settings(state_age_ms=5_000, trim_age_ms=30_000)
JUMPS = (0.001, 0.05, 0.4, 1.1, 3.0, 6.0, 12.0, 40.0, 400.0)
WEIGHTS = (6, 6, 6, 6, 4, 3, 2, 1, 0.3)
SUSPENDED = 0.04  # of the store calls: those before which a process is suspended
RENEWED = 0.15  # of the runs: those that do little more than create a lane again
TRIMMED = 0.15  # of the runs: those that do little more than trim a lane
ROUNDS = 20  # passes after which a lane that is not folded never is


class SkewedClock:
    """The clock of a host, which is a little wrong."""

    def __init__(self, true: ManualClock, skew_ms: int) -> None:
        self._true, self._skew_ms = true, skew_ms
        self.monotonic, self.sleep = true.monotonic, true.sleep

    def now_ms(self) -> int:
        """Returns the wall clock time in epoch milliseconds."""
        return self._true.now_ms() + self._skew_ms


class Process:
    """A process with a cold memory, whatever it is used for."""

    def __init__(self, stores: Stores) -> None:
        self.api = Features(stores, may_reset=True)
        self.folder = Folder(Registrations(stores))
        self.parts = assemble(stores, MemoryQueue())
        self.clock = stores.clock


class Tables(Simulation):
    """One run by a seed."""

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
        if not self.calm and self.random.random() < SUSPENDED:
            for _ in range(self.random.randint(5, 60)):
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
        stage = self.random.random()
        if stage < RENEWED:  # few actors, so that a lane is created again while one is suspended
            yield [self._push] * 3 + [self._reset, self._register] + [self._push] * 4
            yield [self._fold] * 8
            yield [self._read] * 4
            yield [self._push] * 4
            return
        if stage < RENEWED + TRIMMED:  # so that a slot is trimmed while its writer is suspended
            yield [self._push] * 8
            yield [self._push, self._push, self._trim] * 3
            yield [self._push, self._read] * 3
            return
        for _ in range(2):
            yield self.some(14, (self._push, 14), (self._wait, 2), (self._restart, 1))
        yield self.some(8, (self._push, 4), (self._register, 3), (self._wait, 2), (self._reset, self._resets()))
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
        asked = [self.random.choice(list(tables)) for _ in range(self.random.choice((1, 1, 3)))]
        self.read(process, [GetRequest(name, self.random.choice(tables[name])) for name in asked])

    def read(self, process: Process, requests: Sequence[GetRequest]) -> Answers:
        """Reads rows, and judges the answer."""
        call, told = self.calls, {log_id: log.told for log_id, log in self.model.logs.items()}
        answers = process.api.get(NS, requests)
        self.model.answered(requests, answers, call, told)
        return answers

    def _register(self, process: Process) -> None:
        self._turn = self.random.randrange(16)
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
        process.folder.fold(which, process.clock.monotonic() + 10)

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

    # At rest.

    def _settle(self) -> None:
        process = Process(self.stores)
        process.api.finish(NS)
        view = process.api.registry(NS)
        self.require("registrations end by themselves", not view.state.is_open)
        root = view.registry.root_of("U")
        self.lanes = root.lanes if root is not None else self.lanes
        process.api.register(NS, {"nodes": self.nodes(self._turn | 8), "force": True})
        self._rest(process, self.model)
        self._remove_useless(process)
        self._read_everything(Process(self.stores), self.model)
        kinds = [self._rebuild, self._reuse, *([] if self.settings["keep_events_for_ms"] else [self._rewind])]
        self.random.choice(kinds)(process)

    def _rest(self, process: Process, model: Model) -> None:
        """Folds everything; before and after that reads are right, and then those of stored rows, too."""
        stores = process.api.stores
        self._read_everything(Process(stores), model)
        for number in range(self.lanes):
            which = which_of(NS, "Tx", number)
            done = any(process.folder.fold(which, process.clock.monotonic() + 10).is_done for _ in range(ROUNDS))
            mark = stores.tables[TABLE].mark(model.lanes["Tx", number][-1].log_id)  # type: ignore[attr-defined]
            end = model.lanes["Tx", number][-1].end
            self.require("everything is folded at last", done and mark.folded == end, number, mark, end)
        self._read_everything(process, model)
        self._read_everything(Process(stores), model, stale=True)

    def _read_everything(self, process: Process, model: Model, *, stale: bool = False) -> None:
        law = "at rest every read is answered"
        requests = [GetRequest(name, key) for name, keys in self.keys().items() for key in keys]
        try:
            answers = process.api.get(NS, requests, stale=stale)
        except HeadraceError as error:
            raise Broken(law, error) from error
        errors = [one for one in answers.rows if isinstance(one, Exception)]
        self.require(law, not errors, errors)
        model.answered(requests, answers, self.calls, {})

    def _remove_useless(self, process: Process) -> None:
        """Lets time pass: rows that nobody needs any longer go."""
        for seconds in (301, 86_401):
            self.clock.advance(seconds)
            for number in range(self.lanes):
                for _ in range(ROUNDS):
                    done = process.folder.fold(which_of(NS, "Tx", number), process.clock.monotonic() + 10)
                    if not done.due_ms or done.due_ms > self.clock.now_ms():
                        break
        ended = [log_id for log_id, log in self.model.logs.items() if log.ended is not None]
        for log_id in ended * ROUNDS:
            purge(process.parts, log_id)
        kept, living = self._kept(), set[tuple[str, str]]()
        for number in range(self.lanes):
            head = process.api.head(which_of(NS, "Tx", number))
            tables = process.api.pipelines_of(head, head.state.next_offset).last.tables.values()
            living |= {(head.log_id, documents.generation_of(one.name, one.generation, head)) for one in tables}
        law = "rows that nobody needs go"
        self.require(law, {key[:2] for key in kept.kept} <= living, kept.kept.keys(), living)
        self.require(law, kept.marks.keys() <= {log_id for log_id, _ in living}, kept.marks, living)

    def _kept(self) -> MemoryFeatures:
        kept: Any = self.stores.tables[TABLE]
        return kept

    def _rebuild(self, process: Process) -> None:
        """All tables are lost, and computed again from the bucket."""
        self._seal_all(process)
        again, model = self._recover(MemoryFeatures())
        for lane, (log,) in model.lanes.items():
            before = [one for one in self.model.lanes[lane][-1].events if one.offset >= log.floor]
            self.require("the bucket has everything that was sealed", log.events == before, lane, log.events, before)
        self._go_on(again, model)

    def _reuse(self, process: Process) -> None:
        """All tables but the rows are lost, which then have events that are lost."""
        self._seal_all(process)
        for _ in range(3):
            with suppress(InvalidRequest):
                process.api.push(NS, "Tx", self._events())
        for number in range(self.lanes):
            process.folder.fold(which_of(NS, "Tx", number), process.clock.monotonic() + 10)
        again, model = self._recover(self._kept())
        self._go_on(again, model)

    def _rewind(self, process: Process) -> None:
        """The rows are restored as they were once."""
        kept = self._kept()
        kept.kept, kept.marks = (dict(one) for one in self._snapshot)
        self._go_on(Process(process.api.stores), self.model)

    def _seal_all(self, process: Process) -> None:
        for log_id in self._logs():
            seal(process.parts, log_id, force=True)

    def _recover(self, rows: MemoryFeatures) -> tuple[Process, Model]:
        wal = SurveyedWal({TABLE: rows})
        stores = self._stores(wal, self.stores.objects)
        recover(stores)
        damage = [one for one in verify_all(stores).findings if one.kind != "bucket.orphan"]
        self.require("a recovery leaves no damage", not damage, damage)
        model, again = Model(self, stores, DEDUPE_MS), Process(stores)
        for number in range(self.lanes):
            model.recover(("Tx", number), again.api)
        wal.heard = model.heard
        return again, model

    def _go_on(self, process: Process, model: Model) -> None:
        self._rest(process, model)
        for _ in range(4):
            self.clock.advance(0.7)
            with suppress(InvalidRequest):
                process.api.push(NS, "Tx", self._events())
        self._rest(process, model)

    def _judge(self) -> None:
        self.model.at_rest()
