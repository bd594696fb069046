"""The laws of what is counted over all processes: how many topics there are, and how many bytes they have reserved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.tables.counters import TOTAL_BYTES
from headrace.topics.values import TOPICS, topic_of

if TYPE_CHECKING:
    from tests.simulation.world import World

FEW_TOPICS, FEW_BYTES = 2, 400  # the limits in some runs
MANY_TOPICS, UNLIMITED = 100, 2**60


class Limits:
    """Follows the counters."""

    def __init__(self, world: World) -> None:
        seed = world.plan.seed
        self.most_topics = FEW_TOPICS if seed % 4 == 0 else MANY_TOPICS
        self.most_bytes = FEW_BYTES if seed % 4 == 2 else 0
        self._world = world
        self._most = {TOPICS: self.most_topics, TOTAL_BYTES: self.most_bytes or UNLIMITED}
        self._held = [(0, 0)]  # bytes, each with the step from which on they were reserved

    def _counted(self, what: str) -> int:
        return sum(self._world.raw["sessions"].counts(what))

    def follow(self) -> None:
        """Tables have changed."""
        held = self._counted(TOTAL_BYTES)
        if held != self._held[-1][1]:
            self._held.append((self._world.scheduler.step(), held))

    def judge(self) -> None:
        """Something was counted, and nobody recovers: it may be there."""
        world, law = self._world, "a limit is kept"
        world.checked[law] += 1
        for what, most in self._most.items():
            if self._counted(what) > most:
                world.broken(law, f"{what}: {self._counted(what)} counted, {most} may be")

    def recovered(self) -> None:
        """A recovery brings back all that was published, also beyond a limit: no names that had the place of others are
        taken away for it. The shards have even parts of what it found; so that many may be there again, and no more, since
        none rises above the higher one of that part and its part of the limit.
        """
        self._most = {what: max(most, self._counted(what)) for what, most in self._most.items()}

    def had_room(self, size: int, start: int) -> bool:
        """Returns whether there was room for so many more bytes at any moment since a step."""
        first = max(number for number, (at, _) in enumerate(self._held) if at <= start)
        return max(held for _, held in self._held[first:]) + size <= self.most_bytes

    def at_rest(self) -> None:
        """The counters say what the topics that live say."""
        world, law = self._world, "counters equal the names that live"
        world.checked[law] += 1
        living = [
            one
            for one in world.model.logs.values()
            if one.config.surface == TOPICS
            and not one.config.role
            and not one.now.ended
            and world.model.is_named(one)
        ]
        reserved = sum(topic_of(one.tip.state).reserved for one in living)
        for what, right in ((TOPICS, len(living)), (TOTAL_BYTES, reserved)):
            if self._counted(what) != right:
                world.broken(law, f"{what}: {self._counted(what)} counted, is {right}")
