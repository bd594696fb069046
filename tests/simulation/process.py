"""A process of the deployment: its own clock, its own memory, its own way to the stores."""

from __future__ import annotations

import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any

from functions.sealer.context import assemble
from functions.sealer.handler import Sealer
from headrace.clock import SystemClock, Threads
from headrace.log.stores import Stores
from headrace.queues.verbs import Queues
from headrace.streams.verbs import Streams
from headrace.surfaces import COUNTED, SURFACES, find_dead
from tests.simulation.plan import RECOVERY
from tests.simulation.ports import Port
from tests.simulation.scheduler import Actor, Killed

if TYPE_CHECKING:
    from tests.simulation.world import World

EPOCH_MS = 1_700_000_000_000


class ProcessClock(SystemClock):
    """A clock that is off by a bounded amount, may be set, loses time while its process or host is frozen, and follows the
    time that tables tell.
    """

    def __init__(self, world: World, skew_ms: int) -> None:
        super().__init__()
        self._world = world
        self.skew_ms = skew_ms
        self.behind = 0  # microseconds that the wall clock did not see
        self.lost = 0  # microseconds that the monotonic clock did not see

    def wall_ms(self) -> int:
        """Wall clock, as the machine has it."""
        return EPOCH_MS + (self._world.scheduler.now - self.behind) // 1000 + self.skew_ms

    def monotonic(self) -> float:
        """Seconds."""
        return (self._world.scheduler.now - self.lost) / 1e6

    def sleep(self, seconds: float) -> None:
        """Lets others run."""
        self._world.scheduler.sleep(int(seconds * 1e6))

    def set(self) -> None:
        """Somebody sets the clock: forward or back."""
        self.skew_ms = self._world.draw_skew()


class Process:
    """One incarnation of a process slot."""

    def __init__(self, world: World, slot: str, kind: str) -> None:
        self._world = world
        self.slot = slot
        self.host = int(slot[-1]) % 2 if slot[-1].isdigit() else -1  # the operator's is a machine of its own
        self.kind = kind
        self.prefix = f"{RECOVERY} " if kind == "operator" else ""  # its store calls are counted apart
        self.alive = True
        self.frozen_until = 0
        self.inside: list[Actor] = []  # actors that run a verb here now
        self.clock = ProcessClock(world, world.draw_skew())
        ports: dict[str, Any] = {
            name: Port(world, self, name)
            for name in ("wal", "catalog", "watermarks", "producers", "follows", "sessions", "objects")
        }
        self.stores = Stores(
            **ports,
            settings=world.settings,
            clock=self.clock,
            log_ids=world.new_log_id,
            request_ids=world.new_request_id,
            surfaces=SURFACES if world.plan.topics else ("streams",),
            counted=COUNTED if world.plan.topics else frozenset(),
            find_dead=find_dead,
        )
        queue: Any = Port(world, self, "queue")
        if kind == "sealer":
            self.parts = assemble(self.stores, queue)
            silent: Any = _Silent(world)
            self.dispatcher = Sealer(self.parts, silent)

    @cached_property
    def logs(self) -> Streams:
        """The verbs of streams."""
        return Streams(self.stores)

    @cached_property
    def topics(self) -> Queues:
        """The verbs of topics and queues."""
        topics = Queues(self.stores)
        topics._threads = Threads(1, "topics")
        return topics

    def enter(self, actor: Actor) -> None:
        """An actor begins a verb. Perhaps the host has set its wall clock right since it stood still."""
        self.inside.append(actor)
        if self.clock.behind and self._world.dice(actor).roll() < 0.5:
            self.clock.behind = 0
            # A clock that followed the tables, and is set right while a call is under way, is ahead until the next answer.
            self._world.ahead_ms = max(self._world.ahead_ms, self.clock.now_ms() - self._world.true_ms)
        actor.frozen_until = lambda: self.frozen_until

    def exit(self, actor: Actor) -> None:
        """It is over."""
        self.inside.remove(actor)
        actor.frozen_until = lambda: 0

    def crash(self) -> None:
        """Everything in memory is gone; a new process takes the slot. The caller raises `Killed` itself."""
        self.alive = False
        scheduler = self._world.scheduler
        for actor in self.inside:
            actor.frozen_until = lambda: 0
            if actor is not scheduler.current:
                actor.poison = Killed()
                scheduler.wake(actor)
        self._world.replace(self)

    def freeze(self) -> None:
        """Freezes this process for a long time. Half of the time its monotonic clock stops, too."""
        dice = self._world.running().dice
        self._freeze([self], dice.long(), stops_monotonic=dice.roll() < 0.5, stops_wall=False)

    def suspend(self) -> None:
        """Suspends the host of this process, with all its processes, for a long time: its monotonic clock, its wall clock,
        or both stand still.
        """
        dice = self._world.running().dice
        duration, roll = dice.long(), dice.roll()
        processes = [one for one in self._world.slots.values() if one.host == self.host] or [self]
        self._freeze(processes, duration, stops_monotonic=roll < 0.7, stops_wall=roll >= 0.4)

    def _freeze(self, processes: list[Process], duration: int, *, stops_monotonic: bool, stops_wall: bool) -> None:
        scheduler = self._world.scheduler
        until = scheduler.now + duration
        for process in processes:
            more = until - max(scheduler.now, process.frozen_until)
            if more > 0:
                process.frozen_until = until
                process.clock.lost += more * stops_monotonic
                process.clock.behind += more * stops_wall
        if self._world.tracing:
            still = [name for name, stops in (("monotonic", stops_monotonic), ("wall", stops_wall)) if stops]
            slots = ", ".join(process.slot for process in processes)
            self._world.trace(
                f"   frozen for {duration / 1e6:.1f} s: {slots}; stands still: {' '.join(still) or 'none'}"
            )
        scheduler.sleep(duration)


class _Silent:
    """Logger of the sealer. What it swallows, the laws hear of."""

    def __init__(self, world: World) -> None:
        self._world = world

    def info(self, event: str, **fields: Any) -> None:
        """As Logger."""

    def exception(self, event: str, **fields: Any) -> None:
        """As Logger."""
        self._world.judge.background(sys.exc_info()[1], str(fields.get("log_id", "")))

    def error(self, event: str, **fields: Any) -> None:
        """As Logger."""
        self._world.judge.background(fields["exc_info"], str(fields.get("log_id", "")))
