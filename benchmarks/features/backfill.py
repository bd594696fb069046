"""A back-fill by the real job, on Spark in a measured process, over segments in a folder; its rows must be those
that live folds made of the same events.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.features.events import EVENT, MIXED, data
from benchmarks.search.directory import DirectoryObjects
from benchmarks.search.spend import Spent, spend
from functions.queue import MemoryQueue
from functions.sealer.context import assemble
from functions.sealer.seal import seal
from headrace.features.backfill import Backfills
from headrace.features.documents import generation_of
from headrace.features.values import lane
from headrace.memory import memory_stores
from headrace.objects import keys
from headrace.settings import Settings
from tests.support.clocks import ManualClock
from tests.unit.features.backfilling import advance
from tests.unit.features.world import NS, World

PAGE = 1_000
SEALED_PAGES = 100
ENTITIES = 20_000
_FEW = 10
_ADVANCES = 6
Tell = Callable[[str], None]


class Run(NamedTuple):
    """A back-fill: how many events and rows it had, CPU seconds of the live fold, and what the job took."""

    events: int
    rows: int
    live_cpu_s: float
    spent: Spent


class BackfillFailed(Exception):
    """The job failed, or its rows are not those of the live table."""


def run(events: int, tell: Tell) -> Run:
    """Pushes and folds events, has the table back-filled, and compares all rows of both generations. Raises
    BackfillFailed.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-backfill-") as folder:
        clock = ManualClock()
        world = World(stores=memory_stores(Settings(bucket="b"), clock, objects=DirectoryObjects(Path(folder))))
        world.clock = clock
        world.register(EVENT, MIXED)
        live_cpu_s = fill(world, events, tell)
        live, before = rows_of(world), generation(world)
        backfills = Backfills(world.api)
        building = backfills.start(NS, "U")
        tell(f"{events:,} events are folded and sealed; the job runs")
        command = [sys.executable, "-m", "benchmarks.search.job", folder, keys.job_request(building.job_id)]
        spent = spend(command)
        if spent.status:
            raise BackfillFailed(f"the job failed: status={spent.status}")
        for _ in range(_ADVANCES):
            if not advance(world):
                break
        made = rows_of(world)
        if generation(world) == before:
            raise BackfillFailed("the table is still read in the generation before")
        if made != live:
            differing = [entity for entity in live.keys() | made.keys() if live.get(entity) != made.get(entity)]
            raise BackfillFailed(f"rows differ: live={len(live)} back-filled={len(made)} differ={differing[:3]}")
        return Run(events, len(made), live_cpu_s, spent)


def fill(world: World, events: int, tell: Tell) -> float:
    """Pushes events, folds them as they come, and seals them. Returns the CPU seconds of folds."""
    log_id, cpu_s = world.api.head(lane(NS, "Tx", 0)).log_id, 0.0
    sealer = assemble(world.stores, MemoryQueue())
    for first in range(0, events, PAGE):
        world.clock.advance(1)
        world.api.push(NS, "Tx", [data(number, ENTITIES) for number in range(first, min(first + PAGE, events))])
        began = time.process_time()
        world.fold()
        cpu_s += time.process_time() - began
        page = first // PAGE + 1
        if page % SEALED_PAGES == 0 or first + PAGE >= events:
            seal(sealer, log_id, force=True)
            tell(f"{page * PAGE:,} of {events:,} events are folded")
    return cpu_s


def generation(world: World) -> str:
    """Returns the generation of the table that is read."""
    head = world.api.head(lane(NS, "Tx", 0))
    return generation_of("U", world.api.pipelines_of(head, 0).last.tables["U"].generation, head)


def rows_of(world: World) -> dict[str, bytes]:
    """Returns the stored rows that are read, by entity."""
    head = world.api.head(lane(NS, "Tx", 0))
    return {row.key.entity: row.data for row in world.rows.rows(head.log_id, generation(world))}


def measure(events: int, tell: Tell) -> Iterator[dict[str, Any]]:
    """Yields what a job over ten events takes, which is its fixed cost, and then one over many."""
    fixed_cpu_s = None
    for one in (run(_FEW, tell), run(events, tell)):
        cpu_s = one.spent.cpu_s
        row = {
            "events": one.events,
            "rows": one.rows,
            "live_fold_cpu_s": round(one.live_cpu_s, 1),
            "job_cpu_s": round(cpu_s, 1),
            "wall_s": round(one.spent.wall_s, 1),
            "peak_mb": one.spent.peak_bytes // 1_000_000,
        }
        if fixed_cpu_s is None:
            fixed_cpu_s = cpu_s
        else:
            row["beyond_fixed_cpu_s"] = round(cpu_s - fixed_cpu_s, 1)
            row["per_million_cpu_s"] = round((cpu_s - fixed_cpu_s) * 1e6 / one.events, 1)
        yield row
