"""One seed, from plan to verdict."""

from __future__ import annotations

import gc
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from emr_jobs import stores
from functions import worker
from functions.sealer import purge, seal, trim
from headrace import clock
from headrace.log import commit, context, join, marks, seam
from headrace.log import join as tail
from headrace.manifest import manifest, merging, store
from headrace.queues import dead_letter, forget, ledger
from headrace.queues import verbs as queues
from headrace.recovery import bucket, survey
from headrace.tables import unborn
from headrace.tables.unborn import UNBORN
from headrace.topics import erase, live, quota, removed
from headrace.topics import verbs as topics
from headrace.wal import memory as wal_memory
from tests.simulation import operations, outside
from tests.simulation.aftermath import verified
from tests.simulation.faults import Dice
from tests.simulation.model import LawBroken
from tests.simulation.mutant import Mutant
from tests.simulation.plan import HEALER, Op, Plan
from tests.simulation.scheduler import Deadlock, Scheduler
from tests.simulation.waiting import SimulatedThreading
from tests.simulation.world import Running, World

HEALING_ROUNDS = 14


@dataclass
class Verdict:
    """How a run ended: the law that was broken, if one was, and what was exercised."""

    plan: Plan
    law: str = ""
    text: str = ""
    met: Counter[tuple[str, str]] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    started: frozenset[int] = frozenset()
    struck: tuple[tuple[int, int], ...] = ()


class _InTurn:
    """Stands for a thread pool: one after the other."""

    def __init__(self, workers: int) -> None:
        pass

    def __enter__(self) -> _InTurn:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def map(self, call: Any, items: Any) -> Iterator[Any]:
        """As the pool."""
        return map(call, items)


_threading = SimulatedThreading()
_jitter: list[Any] = [None]
# Sizes and pauses at which the engine pages, folds and forgets, made small enough to happen in a short run.
_SMALL: tuple[tuple[Any, str, Any], ...] = (
    (context, "threading", _threading),
    (commit._log, "disabled", True),
    (seal, "ThreadPoolExecutor", _InTurn),
    (seam, "PRODUCERS_IN_STATE", 2),
    (tail, "RECENT", 3),
    (tail, "_FEWEST", 2),
    (join, "_PAGE", 3),
    (manifest, "PAGE_SEGMENTS", 3),
    (manifest, "FAN_OUT", 2),
    (trim, "KEPT_MS", 7_200_000),  # as long as a process sleeps, but in a stage
    (bucket, "KEPT_MS", 7_200_000),
    (store, "KEPT_MS", 7_200_000),
    (wal_memory, "_PAGE_BYTES", 1800),
    (seal, "MAX_ROUNDS", 3),
    (purge, "PAGE_OBJECTS", 5),
    (trim, "_PAYLOADS", 2),
    (worker, "AUDIT_ROWS", 2),
    (worker, "AUDITORS", clock.Threads(1, "audit")),
    (commit, "_WRITERS", clock.Threads(1, "objects")),
    (worker, "_APART_MS", 0),
    (trim, "_DAY_MS", 3_600_000),
    (merging, "PUBLISH_MS", 1_800_000),
    (merging, "ABANDONED_MS", 3_600_000),
    (stores.retry, "__kwdefaults__", {"sleep": lambda seconds: _threading.scheduler.sleep(int(seconds * 1e6))}),
    (survey, "_PAGE", 2),
    (unborn, "DUE_MS", 60_000),  # as long as a process often sleeps
    (queues._log, "disabled", True),
    (live, "INLINE_BYTES", 16),
    (live, "MAX_MARKS", 4),
    (marks, "MAX_MARKS", 4),
    (quota, "LEAST", 40),
    (erase, "_PART", 5),
    (removed, "PAGE_RUNS", 2),
    (topics, "_EXAMINED", 10),
    (ledger, "INLINE_BYTES", 120),
    (ledger, "MAX_EVENTS", 4),
    (ledger, "KEPT_MS", 300_000),
    (forget, "JOBS", 4),
    (forget, "CAPPED_JOBS", 2),
    (dead_letter, "MOST", 2),
    (clock.Budget.__init__, "__defaults__", (lambda: _jitter[0](),)),
)


@contextmanager
def small_engine() -> Iterator[None]:
    """Gives the engine small pages, simulated locks and seeded jitter for as long as the block lasts. Cycles are collected
    after it: a run makes few.
    """
    collects = gc.isenabled()
    gc.disable()
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in _SMALL]
    for owner, name, value in _SMALL:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
        if collects:
            gc.enable()


def run(plan: Plan, mutant: Mutant | None = None, *, tracing: bool = False) -> Verdict:
    """Runs a plan."""
    with small_engine():
        if mutant is None:
            return _run(plan, None, tracing)
        with mutant.active():
            return _run(plan, mutant, tracing)


def _run(plan: Plan, mutant: Mutant | None, tracing: bool) -> Verdict:
    scheduler = _threading.scheduler = Scheduler()
    world = World(plan, scheduler, mutant, tracing=tracing)
    _jitter[0] = lambda: world.running().dice.roll()
    by_actor: dict[str, list[Op]] = {}
    for op in plan.ops:
        by_actor.setdefault(op.actor, []).append(op)
    for name, ops in by_actor.items():
        scheduler.start(name, lambda ops=ops: _work(world, ops))  # type: ignore[misc]
    verdict = Verdict(plan)
    try:
        scheduler.run()
        scheduler.actors.clear()
        scheduler.start("healer", lambda: _heal(world))
        scheduler.run()
    except LawBroken as exc:
        verdict.law, verdict.text = exc.law, str(exc)
    except Deadlock as exc:
        verdict.law, verdict.text = "nobody waits for ever", str(exc)
    except Exception as exc:  # noqa: BLE001 - a defect of the simulation, or of what it drives: both are findings
        verdict.law, verdict.text = "no unexpected error", repr(exc)
        if tracing:
            world.lines += traceback.format_exc().splitlines()
    verdict.met, verdict.checked, verdict.lines = world.met, world.checked, world.lines
    verdict.started, verdict.struck = frozenset(world.ops), tuple(world.struck)
    verdict.happened = Counter(f"{one.kind}: {one.outcome.partition('(')[0]}" for one in world.ops.values())
    verdict.happened["dead items"] = len(world.model.dead)
    return verdict


def _work(world: World, ops: list[Op]) -> None:
    for op in ops:
        world.scheduler.sleep(max(0, op.at - world.scheduler.now))
        world.wait_until_up()
        operations.run(world, op)


def _heal(world: World) -> None:
    """Faults end. Without any hand, everything must come to rest: sealed, trimmed, purged, readable."""
    world.calm = True
    for process in world.slots.values():  # which have heard of a table since
        process.clock.follow(process.clock.wall_ms(), world.true_ms)
    scheduler: Scheduler = world.scheduler
    scheduler.sleep(max(0, _latest_ms(world) - world.true_ms) * 1000)
    number = HEALER
    for turn in range(HEALING_ROUNDS):
        kinds = ["sweep", *(["audit"] if turn % 3 == 0 else [])]
        for kind in kinds:
            number += 1
            operations.run(world, _op(number, kind))
        for _ in range(300):
            if not any(world.stream.values()) and not _due(world):
                break
            number += 2
            operations.run(world, _op(number - 1, "stream"))
            operations.run(world, _op(number, "queue"))
        scheduler.sleep(16_000_000)
    number += 1
    running = Running(_op(number, "check", "outside"), Dice(world.plan, number))
    world.ops[number] = running
    scheduler.current.op = running  # type: ignore[union-attr]
    outside.check_all(world, running)
    world.judge.at_rest()
    model = world.model
    verified(world, but=model.refused | model.left_alone, unfound=model.forks_left_alone)


def _latest_ms(world: World) -> int:
    """Returns the latest time that says when work begins. It may be ahead as far as a host once stood still: a clock that
    followed the tables, and was then set right, is believed until the next answer.
    """
    ends = [entry.committed_ms for entry in world.raw["wal"]._entries.values()]
    rows = world.raw["catalog"].rows.values()
    return max([*ends, *(row.deadline_ms for row in rows if row.surface == UNBORN)], default=0)


def _due(world: World) -> bool:
    return any(when <= world.true_ms for when, _ in world.queue.waiting)


def _op(number: int, kind: str, slot: str = "sealer0") -> Op:
    return Op(number, slot, "healer", 0, kind, "", (0.5,) * 6)
