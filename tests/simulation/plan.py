"""What a seed stands for: a deployment, its weather, and a list of operations, as plain values.

Operations name what they want only in general ("a read somewhere in the middle"), so that a plan still makes sense when
operations are taken out of it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.stages import Stage

SECOND = 1_000_000  # microseconds

API = {
    "append": 40,
    "produce": 20,
    "close": 1,
    "create": 8,
    "fork": 5,
    "read": 20,
    "since": 3,
    "head": 5,
    "delete": 3,
    "list": 2,
    "forget": 1,
}
TOPIC = {
    "put": 3,
    "write": 14,
    "keyed": 8,
    "diff": 14,
    "erase": 5,
    "remove": 1,
    "view": 4,
}
QUEUE = {
    "put": 2,
    "write": 14,
    "keyed": 3,
    "claim": 16,
    "ack": 10,
    "nack": 5,
    "extend": 3,
    "release": 2,
    "erase": 3,
    "remove": 1,
    "view": 3,
    "diff": 3,
}
TOPIC_NAMES = ("t0", "t1", "q0", "q1", "dead")
SEALER = {
    "stream": 20,
    "queue": 12,
    "seal": 8,
    "trim": 8,
    "purge": 2,
    "sweep": 5,
    "audit": 2,
    "orphans": 2,
}
FOLLOW = {"follow": 3, "unfollow": 2}
FOLLOWING = (0, 0, 0.15)  # followers that come or go for each other operation
MERGING = (0, 0.1, 0.3)  # merges for each other operation
DEFINING = (0, 0.02, 0.1)  # changes of definitions for each other operation
OUTSIDE = {"check": 4, "snapshot": 1, "restore": 1}

ANYWHERE = (
    "crash_before",
    "crash_after",
    "timeout",
    "throttle",
    "pause_before",
    "pause_after",
    "suspend_before",
    "suspend_after",
    "clock_set",
)
ON_WRITES = ("lost_answer", "arrives_later", "arrives_twice")
ON_BATCHES = ("in_part",)
ON_CREATE = ("refused_own",)
ON_INDEXES = ("stale",)
ANY = "any"  # in a stage: one that the seed decides
KINDS = ANYWHERE + ON_WRITES + ON_BATCHES + ON_CREATE + ON_INDEXES

# A twelfth of 5 and of 15 minutes (see World.settings), and half of what is a day here: no commit is held up for longer.
SIGNATURE_MS = (25_000, 75_000, 1_800_000, 1_800_000, 1_800_000, 1_800_000)

RECOVERY = "recovery:"  # before the names of the store calls that a recovery makes
TABLES = ("wal", "catalog", "watermarks", "producers", "sessions", "follows")
STAGED = 800_000  # ids of operations of a stage, and above
HEALER = 1_000_000  # ids of operations after the plan's, and above
_STAGES = 0.25  # the share of runs that begin with one
_DISASTERS = 0.4  # the share of runs that have one
_TOPICS = 0.5  # the share of runs with topics and queues
_LEAST_OPERATIONS = 20  # a shorter run has nothing to lose
_SKEW_STEPS = 9  # how far apart the moments are to which the tables of one disaster go back


@dataclass(frozen=True)
class Op:
    """One operation. `dice` are numbers in [0, 1) that decide its details when it runs."""

    id: int
    slot: str
    actor: str
    at: int
    kind: str
    name: str
    dice: tuple[float, ...]


@dataclass(frozen=True)
class Scripted:
    """A fault that an operation of a stage meets: at its call number `number` (from 1) of those named `call`, and for
    `hold` microseconds.
    """

    op_id: int
    call: str
    number: int
    kind: str
    hold: int


@dataclass(frozen=True)
class Weather:
    """How much goes wrong in a run.

    Attributes:
        rate: probability of a fault at a store call.
        kinds: the faults that this run has.
        slow: probability of a slow call.
        skew_ms: how far a clock may be from the true time, either way.
        expiring: the share of streams that expire.
        signature_ms: how long after it was signed the store accepts a commit.
    """

    rate: float
    kinds: tuple[str, ...]
    slow: float
    skew_ms: int
    expiring: float
    signature_ms: int


@dataclass(frozen=True)
class Disaster:
    """Every process dies, and tables go back in time.

    Attributes:
        op_id: the operation that it is.
        tables: for each table that does not stay as it is, the moment (microseconds) to which it is restored; None: it
            is lost, and empty.
    """

    op_id: int
    tables: tuple[tuple[str, int | None], ...]

    @property
    def rewinds(self) -> bool:
        """A table is restored to an earlier time, which a recovery must be told."""
        return any(moment is not None for _, moment in self.tables)


@dataclass(frozen=True)
class Plan:
    """A run. `calm` names faults (operation, call) that are left out: a smaller plan. `script` has those of a stage."""

    seed: int
    weather: Weather
    slots: tuple[tuple[str, str], ...]  # name, kind
    ops: tuple[Op, ...]
    calm: frozenset[tuple[int, int]] = field(default_factory=frozenset)
    disasters: tuple[Disaster, ...] = ()
    script: tuple[Scripted, ...] = ()
    topics: bool = False

    def with_ops(self, ops: tuple[Op, ...]) -> Plan:
        """Returns the same run with fewer operations."""
        return replace(self, ops=ops)


def make(seed: int, operations: int) -> Plan:
    """Returns the plan of a seed."""
    dice = random.Random(f"plan:{seed}")
    weather = Weather(
        rate=dice.choice((0.0, 0.01, 0.03, 0.03, 0.06, 0.12)),
        kinds=tuple(kind for kind in KINDS if dice.random() < 0.6),
        slow=dice.choice((0.0, 0.02, 0.1)),
        skew_ms=dice.choice((0, 500, 2500)),
        expiring=dice.choice((0.1, 0.4, 0.4, 0.9)),
        signature_ms=dice.choice(SIGNATURE_MS),
    )
    slots: list[tuple[str, str]] = []
    actors: list[tuple[str, str, str]] = []
    for number in range(dice.choice((2, 2, 3))):
        width = dice.choice((1, 1, 1, 3))
        slots.append((f"api{number}", "api"))
        actors += [(f"api{number}", f"api{number}.{line}", "api") for line in range(width)]
    for number in range(2):
        slots.append((f"sealer{number}", "sealer"))
        actors.append((f"sealer{number}", f"sealer{number}", "sealer"))
    actors.append(("outside", "outside", "outside"))
    names = ["a", "b", "c", "d"][: dice.choice((1, 2, 3, 4))]
    weights = {
        group: {kind: weight * dice.choice((0.2, 1, 1, 3)) for kind, weight in kinds.items()}
        for group, kinds in (("api", API), ("sealer", SEALER), ("outside", OUTSIDE))
    }
    by_group = {group: [actor for actor in actors if actor[2] == group] for group in weights}
    pace = dice.choice((0.02, 0.1, 0.5))
    stage = _stage(seed, operations)
    ops: list[Op] = []
    at = stage.end if stage is not None else 0
    for number in range(operations):
        roll = dice.random()
        group = "api" if number < len(names) or roll < 0.62 else "sealer" if roll < 0.97 else "outside"
        slot, actor, _ = dice.choice(by_group[group])
        kinds = weights[group]
        kind = "create" if number < len(names) else dice.choices(list(kinds), list(kinds.values()))[0]
        name = names[number] if number < len(names) else dice.choice(names)
        ops.append(Op(number, slot, actor, at, kind, name, tuple(dice.random() for _ in range(6))))
        at += int(dice.expovariate(1 / pace) * SECOND)
        quiet = dice.random()
        if quiet < 0.04:
            at += int(dice.uniform(3, 60) * SECOND)
        elif quiet < 0.045:
            at += int(dice.uniform(600, 4000) * SECOND)
    ops += _definitions(seed, ops, by_group["api"])
    ops.sort(key=lambda op: op.at)
    disasters = _disasters(seed, ops)
    changed = _topics(seed, ops, len(names))
    has_topics, ops = changed is not ops, changed
    planned = (*ops, *disasters)
    merges = (*_merges(seed, planned), *_follows(seed, ops))
    fates = tuple(disasters.values())
    whole = Plan(seed, weather, tuple(slots), (*planned, *merges), disasters=fates, topics=has_topics)
    return whole if stage is None else _staged(whole, stage)


def _stage(seed: int, operations: int) -> Stage | None:
    """Some runs begin with one of the stages."""
    from tests.simulation import stages

    dice = random.Random(f"stage:{seed}")
    if operations < _LEAST_OPERATIONS or dice.random() >= _STAGES:
        return None
    return dice.choice(stages.ALL)()


def _staged(plan: Plan, stage: Stage) -> Plan:
    """Returns the plan with a stage before it. Its writers' calls may be held up long: the stores must not refuse them for
    that alone.
    """
    slots = dict(plan.slots) | {op.slot: op.slot[:-1] for op in stage.ops if op.slot != "operator"}
    weather = replace(plan.weather, signature_ms=max(SIGNATURE_MS))
    script = tuple(stage.faults)
    return replace(
        plan,
        weather=weather,
        slots=tuple(slots.items()),
        ops=(*stage.ops, *plan.ops),
        disasters=(*stage.disasters, *plan.disasters),
        script=script,
        topics=plan.topics or stage.has_topics,
    )


def _topics(seed: int, ops: list[Op], begun: int) -> list[Op]:
    """In some runs, most of what clients ask is asked of topics and queues."""
    dice = random.Random(f"topics:{seed}")
    if len(ops) < _LEAST_OPERATIONS or dice.random() >= _TOPICS:
        return ops
    names = dice.choice((("t0",), ("q0",), ("q0",), ("t0", "q0"), ("t0", "t1", "q0"), ("q0", "q1")))
    weights = {
        group: {kind: weight * dice.choice((0.3, 1, 1, 2)) for kind, weight in kinds.items()}
        for group, kinds in (("t", TOPIC), ("q", QUEUE))
    }
    share, made = dice.choice((0.7, 0.9)), []
    for op in ops:
        if op.id >= begun and op.actor.startswith("api") and op.kind != "define" and dice.random() < share:
            name = "dead" if "q0" in names and dice.random() < 0.04 else dice.choice(names)
            kinds = weights["q" if name.startswith("q") else "t"]
            op = replace(op, kind=dice.choices(list(kinds), list(kinds.values()))[0], name=name)
        made.append(op)
    return made


def _definitions(seed: int, ops: list[Op], actors: list[tuple[str, str, str]]) -> list[Op]:
    """Changes of definitions between the others, from dice of their own: the rest of a plan is as it is without them."""
    dice = random.Random(f"definitions:{seed}")
    made = []
    for number in range(int(len(ops) * dice.choice(DEFINING))):
        slot, actor, _ = dice.choice(actors)
        at = dice.choice(ops).at + int(dice.random() * SECOND)
        made.append(Op(len(ops) + number, slot, actor, at, "define", "", tuple(dice.random() for _ in range(6))))
    return made


def _merges(seed: int, ops: Sequence[Op]) -> list[Op]:
    """Merges beside the others, in the same way; by an actor of its own in a process of the sealer."""
    dice = random.Random(f"merges:{seed}")
    made = []
    for number in range(int(len(ops) * dice.choice(MERGING))):
        at = dice.choice(ops).at + int(dice.random() * SECOND)
        chances = tuple(dice.random() for _ in range(6))
        made.append(Op(len(ops) + number, "sealer1", "sealer1.merger", at, "merge", "", chances))
    return sorted(made, key=lambda op: op.at)


def _follows(seed: int, ops: Sequence[Op]) -> list[Op]:
    """In some runs, followers of what the others ask for come and go."""
    dice = random.Random(f"follows:{seed}")
    asked = [op for op in ops if op.actor.startswith("api") and op.name]
    made = []
    for number in range(int(len(ops) * dice.choice(FOLLOWING))):
        op = dice.choice(asked)
        kind = dice.choices(list(FOLLOW), list(FOLLOW.values()))[0]
        at = op.at + int(dice.random() * SECOND)
        chances = tuple(dice.random() for _ in range(6))
        made.append(Op(2 * len(ops) + number, op.slot, f"{op.slot}.follower", at, kind, op.name, chances))
    return sorted(made, key=lambda op: op.at)


def _disasters(seed: int, ops: list[Op]) -> dict[Op, Disaster]:
    """None in most runs; in some, one or two in the midst of the operations."""
    dice = random.Random(f"disasters:{seed}")
    if len(ops) < _LEAST_OPERATIONS or dice.random() >= _DISASTERS:
        return {}
    count = 2 if dice.random() < 0.25 else 1
    steps = sorted(int(len(ops) * dice.uniform(0.2, 0.95)) for _ in range(count))
    found: dict[Op, Disaster] = {}
    for number, step in enumerate(steps):
        chances = tuple(dice.random() for _ in range(6))
        op = Op(len(ops) + number, "operator", "operator", ops[step].at, "disaster", "", chances)
        found[op] = Disaster(op.id, tuple(_fates(dice, ops, step)))
    return found


def _fates(dice: random.Random, ops: list[Op], step: int) -> Iterator[tuple[str, int | None]]:
    """Of each table: restored near one moment, lost, or (left out) as it is."""
    kind = dice.choice(("lost", "restored", "restored", "mixed"))
    back = int(step * dice.random() ** 2)
    for table in TABLES:
        fate = dice.choice(("lost", "restored", "kept")) if kind == "mixed" else kind
        at = step - 1 - back + dice.randint(-_SKEW_STEPS, _SKEW_STEPS)
        at = max(0, min(step - 1, at))
        moment = ops[at].at + int((ops[at + 1].at - ops[at].at) * dice.random())
        if fate != "kept":
            yield table, None if fate == "lost" else moment
