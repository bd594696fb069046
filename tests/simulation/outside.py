"""What no process does: looks at everything at once, and copies the memory of processes."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from headrace.clock import Bounded
from headrace.errors import HeadraceError, StoreError
from headrace.log.requests import At
from headrace.wal.state import Cursor
from tests.simulation import topic_operations
from tests.simulation.plan import TOPIC_NAMES
from tests.simulation.process import Process
from tests.simulation.world import Running, World


class Outside:
    """What no process does."""

    def __init__(self, world: World, running: Running) -> None:
        self._world = world
        self._running = running
        self._dice = running.op.dice

    def check(self) -> None:
        """Reads every stream to its end, in no time and without a fault: what would be left if all else stopped now?"""
        check_all(self._world, self._running)

    def snapshot(self) -> None:
        """Takes a picture of a process's memory."""
        api = [slot for slot in self._world.slots if slot.startswith("api")]
        slot = api[int(self._dice[0] * len(api))]
        process = self._world.slots[slot]
        pictures = process.logs._context.pictures
        self._world.memories[slot] = (
            _copy(pictures._pictures),
            _copy(pictures._manifests),
            _copy(pictures._touched),
            process.clock.monotonic(),
        )

    def restore(self) -> None:
        """An idle process goes on from a picture of another's memory: both remember the same."""
        world = self._world
        taken = list(world.memories)
        idle = [slot for slot, process in world.slots.items() if slot.startswith("api") and not process.inside]
        if not taken or not idle:
            return
        slot = idle[int(self._dice[0] * len(idle))]
        memory = world.memories[taken[int(self._dice[1] * len(taken))]]
        process = Process(world, slot, "api")
        pictures = process.logs._context.pictures
        pictures._pictures, pictures._manifests, pictures._touched = (_copy(one) for one in memory[:3])
        process.clock.lost = world.scheduler.now - int(memory[3] * 1e6)
        world.slots[slot] = process
        world.met["process", "memory cloned"] += 1


def _copy(cache: Bounded[Any, Any]) -> Bounded[Any, Any]:
    copied = copy.copy(cache)
    copied._values = cache._values.copy()
    return copied


def check_all(world: World, running: Running) -> None:
    """Every stream, whole, as a new process without faults reads it."""
    actor = world.scheduler.current
    assert actor is not None
    was, world.calm = world.calm, True
    try:
        for name in list(world.model.names):
            process = Process(world, "observer", "api")
            process.clock.skew_ms = 0
            running.op = replace(running.op, name=name)
            running.start = world.scheduler.step()
            running.text = ""
            at: int = 0
            if name in TOPIC_NAMES:
                topic_operations.read_all(world, process, running)
                continue
            try:
                while True:
                    page = process.logs.read(name, At(Cursor(None, at)), touch=False, max_records=7, max_bytes=10_000)
                    world.judge.read(running, page, at, None)
                    at = page.next
                    if page.up_to_date:
                        break
            except (HeadraceError, StoreError) as exc:
                world.judge.refused(running, exc)
    finally:
        world.calm = was
