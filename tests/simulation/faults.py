"""Which fault a store call meets. Decided by the seed, the operation and the number of the call in it."""

from __future__ import annotations

import random
from collections import Counter

from tests.simulation.plan import (
    ANY,
    ANYWHERE,
    HEALER,
    ON_BATCHES,
    ON_CREATE,
    ON_INDEXES,
    ON_WRITES,
    RECOVERY,
    SECOND,
    STAGED,
    Plan,
    Scripted,
)

READS = (
    "wal.newest",
    "wal.read",
    "catalog.get",
    "watermarks.get",
    "watermarks.note",
    "watermarks.usage",
    "producers.get",
    "objects.get",
    "objects.get_range",
    "objects.get_ranges",
    "objects.list",
    "wal.unpurged",
    "sessions.expired",
    "sessions.clocks",
    "producers.key",
    "follows.get",
    "sessions.counts",
)
INDEXES = ("catalog.living", "catalog.part", "catalog.due")
WRITES = (
    "wal.commit",
    "wal.remove_dead",
    "wal.purged",
    "catalog.mark_ended",
    "catalog.set_hints",
    "catalog.put",
    "catalog.remove",
    "watermarks.publish",
    "watermarks.touch",
    "watermarks.set_note",
    "watermarks.drop_note",
    "producers.purge",
    "follows.put",
    "follows.remove",
    "follows.purge",
    "sessions.purge",
    "sessions.commit",
    "sessions.touch",
    "objects.put",
)
BATCHES = ("wal.remove", "objects.delete", "queue.send")

_READ_BY_RECOVERY = (
    "wal.newest",
    "wal.read",
    "catalog.get",
    "watermarks.get",
    "watermarks.usage",
    "objects.get",
    "objects.list",
    "catalog.every",
    "sessions.counts",
    "follows.of",
)
_WRITTEN_BY_RECOVERY = (
    "wal.commit",
    "catalog.mark_ended",
    "watermarks.publish",
    "producers.purge",
    "sessions.commit",
)

POSSIBLE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(READS, ANYWHERE),
    **dict.fromkeys(INDEXES, ANYWHERE + ON_INDEXES),
    **dict.fromkeys(WRITES, ANYWHERE + ON_WRITES),
    **dict.fromkeys(BATCHES, ANYWHERE + ON_WRITES + ON_BATCHES),
    "objects.create": ANYWHERE + ON_WRITES + ON_CREATE,
    **{f"{RECOVERY} {call}": ANYWHERE for call in _READ_BY_RECOVERY},
    **{f"{RECOVERY} {call}": ANYWHERE + ON_WRITES for call in _WRITTEN_BY_RECOVERY},
    f"{RECOVERY} objects.create": ANYWHERE + ON_WRITES + ON_CREATE,
}
# Calls that few operations make meet faults more often, so that each pair is exercised.
_RARE = {
    "wal.remove_dead": 95.0,
    "wal.purged": 4.0,
    **dict.fromkeys(("producers.key", "sessions.commit", "sessions.counts"), 40.0),
    "catalog.set_hints": 95.0,
    **dict.fromkeys(("follows.get", "follows.put", "follows.remove"), 8.0),
    **dict.fromkeys(("sessions.clocks", "sessions.touch"), 3.0),
    **dict.fromkeys(("watermarks.touch", "catalog.put", "catalog.remove"), 15.0),
    **dict.fromkeys((*INDEXES, "sessions.expired", "watermarks.drop_note"), 4.0),
    **dict.fromkeys(("producers.purge", "follows.purge", "sessions.purge"), 4.0),
    "objects.get_ranges": 4.0,
    **dict.fromkeys(("wal.commit", "wal.remove", "objects.list", "objects.delete", "objects.create"), 3.0),
    **dict.fromkeys(("catalog.mark_ended", "watermarks.get", "watermarks.usage"), 3.0),
    # A recovery reads much before it writes anything: most of its runs should come so far.
    **{f"{RECOVERY} {call}": 0.7 for call in _READ_BY_RECOVERY},
    **{f"{RECOVERY} {call}": 12.0 for call in _WRITTEN_BY_RECOVERY},
    f"{RECOVERY} objects.list": 1.0,
    f"{RECOVERY} watermarks.usage": 3.0,
    f"{RECOVERY} sessions.counts": 3.0,
    f"{RECOVERY} sessions.commit": 95.0,
    f"{RECOVERY} producers.purge": 4.0,
    f"{RECOVERY} objects.create": 6.0,
    f"{RECOVERY} wal.commit": 4.0,
    f"{RECOVERY} catalog.mark_ended": 95.0,
}
_LIKELIEST = 0.6
_LIKELIER = dict.fromkeys(  # rare, even so
    (f"{RECOVERY} catalog.mark_ended", f"{RECOVERY} sessions.commit", "wal.remove_dead", "catalog.set_hints"), 0.95
)
# The operations of a stage: nothing is left to chance. With this number, both clocks of a suspended host stand still.
_MIDDLING = 0.45
_STAGED_LATENCY = 1_000
# On a commit, these are where the protocol's hazards are.
_TELLING = ("pause_before", "suspend_before", "lost_answer", "arrives_later", "arrives_twice")


class Dice:
    """The randomness of one operation."""

    def __init__(self, plan: Plan, op_id: int) -> None:
        self._random = random.Random(f"op:{plan.seed}:{op_id}")
        self._plan = plan
        self._op_id = op_id
        self._calls = 0
        self.roll = self._random.random
        self._script: dict[tuple[str, int], Scripted] | None = None
        self._hold = 0
        if STAGED <= op_id < HEALER:
            self.roll = lambda: _MIDDLING
            self._script = {(one.call, one.number): one for one in plan.script if one.op_id == op_id}
            self._seen: Counter[str] = Counter()

    def latency(self) -> int:
        """Returns how long half a store call takes, in microseconds."""
        if self._script is not None:
            return _STAGED_LATENCY
        roll = self.roll()
        if self.roll() < self._plan.weather.slow:
            return int(roll * 2 * SECOND)
        return 200 + int(roll**3 * 20_000)

    def fault(self, call: str) -> tuple[int, str | None]:
        """Returns the number of this call, and the fault that it meets."""
        self._calls += 1
        if self._script is not None:
            return self._calls, self._scripted(call)
        struck, which = self.roll(), self.roll()
        weather = self._plan.weather
        chance = min(_LIKELIER.get(call, _LIKELIEST), weather.rate * _RARE.get(call, 1))
        if struck >= chance or (self._op_id, self._calls) in self._plan.calm:
            return self._calls, None
        kinds = [kind for kind in POSSIBLE[call] if kind in weather.kinds]
        if call.endswith("wal.commit"):
            kinds += [kind for kind in kinds if kind in _TELLING] * 2
        return self._calls, kinds[int(which * len(kinds))] if kinds else None

    def _scripted(self, call: str) -> str | None:
        assert self._script is not None
        self._seen[call] += 1
        scripted = self._script.get((call, self._seen[call]))
        if scripted is None or (self._op_id, self._calls) in self._plan.calm:
            return None
        self._hold = scripted.hold
        return self._random.choice(POSSIBLE[call]) if scripted.kind == ANY else scripted.kind

    def long(self) -> int:
        """Returns a long time: seconds mostly, sometimes hours."""
        if self._script is not None:
            return self._hold
        roll, where = self.roll(), self.roll()
        low, high = (1, 10) if roll < 0.4 else (10, 120) if roll < 0.9 else (120, 7200)
        return int((low + (high - low) * where**2) * SECOND)


def table(met: Counter[tuple[str, str]]) -> str:
    """Returns how often each fault met each call."""
    kinds = list(dict.fromkeys(kind for row in POSSIBLE.values() for kind in row))
    lines = [f"{'store call':30}" + "".join(f"{kind:>15}" for kind in kinds)]
    for call, possible in POSSIBLE.items():
        cells = (f"{met[call, kind] if kind in possible else '-':>15}" for kind in kinds)
        lines.append(f"{call:30}" + "".join(cells))
    return "\n".join(lines)


def least(met: Counter[tuple[str, str]]) -> tuple[int, str, str]:
    """Returns the pair that was exercised least, after its count."""
    return min((met[call, kind], call, kind) for call, kinds in POSSIBLE.items() for kind in kinds)
