"""The deployment: shared stores, processes, the stream, the queue, and a model that watches what takes effect."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from functions.queue import Message, delay_s
from headrace import clock
from headrace.batch import EMPTY, Batch, decode_frames
from headrace.memory import memory_stores
from headrace.settings import Settings
from headrace.streams.values import AppendRequest, CreateRequest
from headrace.tables.catalog import Row
from headrace.tables.memory import MemoryCatalog
from headrace.wal import TooLate
from headrace.wal.state import Entry
from tests.simulation.faults import Dice
from tests.simulation.followers import Followers
from tests.simulation.laws import Judge
from tests.simulation.limits import Limits
from tests.simulation.model import LawBroken, Model
from tests.simulation.plan import SECOND, Op, Plan
from tests.simulation.process import EPOCH_MS, Process
from tests.simulation.scheduler import Aborted, Actor, Scheduler
from tests.simulation.tables import Backups
from tests.simulation.topics import Topics
from tests.simulation.waiting import Event

if TYPE_CHECKING:
    from tests.simulation.mutant import Mutant

# A twelfth of the defaults, so that a run of minutes sees entries trimmed.
SETTINGS = Settings(
    state_age_ms=5_000,
    append_timeout_ms=2_000,
    request_timeout_ms=3_000,
    spill_bytes=150,
    seal_bytes=1_500,
    seal_records=12,
    seal_age_ms=10_000,
    trim_age_ms=20_000,
    merge_segments=2,
    merge_age_ms=3_000,
    merge_retire_ms=20_000,
)

MOST_CALLS = 40_000  # many times what a run needs
_ROWS = ("commit", "mark_ended", "set_hints", "put", "remove")  # calls that change rows of the catalog
_Call = tuple[str, tuple[Any, ...], dict[str, Any]]


class World:
    """Everything that one run has."""

    def __init__(
        self, plan: Plan, scheduler: Scheduler, mutant: Mutant | None = None, *, tracing: bool = False
    ) -> None:
        self.plan = plan
        self.limits = Limits(self)
        self.settings = replace(SETTINGS, max_topics=self.limits.most_topics, max_total_bytes=self.limits.most_bytes)
        self.tracing = tracing
        self.lines: list[str] = []
        self.calm = False  # no faults, no waiting
        self.struck: list[tuple[int, int]] = []  # operation and call of each fault, in order
        self.met: Counter[tuple[str, str]] = Counter()
        self.checked: Counter[str] = Counter()
        self.scheduler = scheduler
        self.ops: dict[int, Running] = {}
        self.calls = 0
        self._random = random.Random(f"world:{plan.seed}")
        stores = memory_stores(SETTINGS)
        self.objects = stores.objects
        self.queue = _Queue(self)
        self.raw: dict[str, Any] = {
            **{
                port: getattr(stores, port)
                for port in ("wal", "catalog", "watermarks", "producers", "follows", "sessions", "objects")
            },
            "queue": self.queue,
        }
        if mutant is not None:
            mutant.adapt(self.raw)
        self.stream: dict[str, list[Entry]] = {}  # events that nobody has taken yet, by log
        self.backups = Backups(plan, self.raw)
        self.peace_until = 0  # no disaster comes before
        self.outage: Event | None = None  # from a disaster until its recovery is over
        self._messages = 0
        self._underway: dict[int, _Call] = {}  # calls that the network still holds
        self._catalogs: list[tuple[int, dict[tuple[str, str], Row]]] = []
        self.model = Model(self.broken, self._request_of, self.payload_of, Topics(self))
        self.judge = Judge(self)
        self.followers = Followers(self)
        self.memories: dict[str, Any] = {}  # snapshots of process memory
        self.ahead_ms = 0  # how far a clock was ahead
        self.producers: dict[tuple[str, int], tuple[int, int]] = {}
        self.leases: dict[tuple[str, str], list[tuple[int, str]]] = {}  # what workers were given, by queue and worker
        self.slots = {slot: Process(self, slot, kind) for slot, kind in plan.slots}

    # Time, names, chance.

    @property
    def true_ms(self) -> int:
        """Wall clock without an error."""
        return EPOCH_MS + self.scheduler.now // 1000

    @property
    def latest_ms(self) -> int:
        """The latest time that a process may take for now."""
        return self.true_ms + max(self.ahead_ms, 2 * (self.plan.weather.skew_ms + clock._OFF_MS))

    def draw_skew(self) -> int:
        """Returns how far a clock is off, milliseconds."""
        bound = self.plan.weather.skew_ms
        return self._random.randint(-bound, bound)

    def dice(self, actor: Actor) -> Dice:
        """Returns the randomness of the operation that an actor runs."""
        return self.running(actor).dice

    def running(self, actor: Actor | None = None) -> Running:
        """Returns what an actor (the current one) runs."""
        found: Running = (actor or self.scheduler.current).op  # type: ignore[union-attr]
        return found

    def new_log_id(self) -> str:
        """Ids name the operation that made them, so that they stay when others are left out."""
        running = self.running()
        running.ids += 1
        return f"{running.op.id:028x}{running.ids:04x}"

    def new_request_id(self) -> str:
        """Returns an id that names the operation that made it, as those of `new_log_id` do."""
        running = self.running()
        running.ids += 1
        return f"{running.op.id}.{running.ids}"

    def replace(self, process: Process) -> None:
        """A process is gone: another takes its slot."""
        self.slots[process.slot] = Process(self, process.slot, process.kind)

    # What takes effect.

    def effect(self, call: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Lets a store call take effect now."""
        port, _, method = call.partition(".")
        self.backups.pass_by(self.scheduler.now)
        self.calls += 1
        if self.calls > MOST_CALLS:
            self.broken("nothing goes on for ever", f"{self.calls} store calls, still at {call}")
        before = getattr(self.judge, f"before_{port}_{method}", None)
        if before is not None:
            before(*args, **kwargs)
        answer = TooLate() if self._is_late(call, args) else getattr(self.raw[port], method)(*args, **kwargs)
        after = getattr(self.judge, f"after_{port}_{method}", None)
        if after is not None:
            try:
                after(answer, *args, **kwargs)
            except Exception as exc:  # a defect of the model: the engine must not take it for a store's error
                self.scheduler.fail(exc)
                raise Aborted from exc
        if port in ("wal", "catalog", "sessions") and method in _ROWS:
            self._catalogs.append((self.scheduler.now, dict(self.raw["catalog"].rows)))
            self.limits.follow()
        return iter(answer) if method == "list" else answer

    def _is_late(self, call: str, args: tuple[Any, ...]) -> bool:
        """Whether the store refuses a commit because of the time with which it is signed."""
        return call == "wal.commit" and self.true_ms - args[2] > self.plan.weather.signature_ms

    def later(self, call: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A store call takes effect some time from now, whatever became of its sender."""
        actor = self.scheduler.current
        assert actor is not None
        dice = self.dice(actor)
        delay = int(dice.roll() ** 3 * 2 * SECOND) if dice.roll() < 0.7 else dice.long()
        if self.tracing:
            self.trace(f"   will arrive in {delay / 1e6:.3f} s")
        number = self._messages = self._messages + 1
        self._underway[number] = (call, args, kwargs)

        def arrive() -> None:
            if self._underway.pop(number, None) is None:
                return
            if self.tracing:
                self.trace(f"arrives late: {call}{self.show(args, kwargs)}", who="network")
            self.effect(call, args, kwargs)

        self.scheduler.at(self.scheduler.now + delay, arrive)

    def settle_network(self, dice: Dice) -> None:
        """Every call that is still underway arrives now, or never."""
        while self._underway:
            call, args, kwargs = self._underway.pop(min(self._underway))
            arrives = dice.roll() < 0.5
            if self.tracing:
                self.trace(f"   {'arrives' if arrives else 'lost'}: {call}{self.show(args, kwargs)}")
            if arrives:
                self.effect(call, args, kwargs)

    def tables_replaced(self, *, wal: bool) -> None:
        """Other tables are in the place of those before: what was remembered of these is void."""
        self._catalogs = [(0, dict(self.raw["catalog"].rows))]
        self.memories.clear()
        self.limits.follow()
        if wal:
            self.stream.clear()  # a new table has a new stream

    def wait_until_up(self) -> None:
        """Nobody but the operator does anything between a disaster and the end of the recovery."""
        while self.outage is not None:
            self.outage.wait()

    def part(self, call: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns the arguments of a batch call that is done in part."""
        actor = self.scheduler.current
        assert actor is not None
        dice = self.dice(actor)
        where = 1 if call == "wal.remove" else 0
        some = [one for one in args[where] if dice.roll() < 0.5]
        return (*args[:where], some, *args[where + 1 :])

    def stale(self, call: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns what an index said a moment ago (or long ago)."""
        actor = self.scheduler.current
        assert actor is not None
        dice = self.dice(actor)
        then = self.scheduler.now - (int(dice.roll() * 3 * SECOND) if dice.roll() < 0.9 else dice.long())
        old = MemoryCatalog()
        for when, rows in self._catalogs:
            if when > then:
                break
            old.rows = rows
        found: list[Row] = getattr(old, call.partition(".")[2])(*args, **kwargs)
        if call != "catalog.due":
            return found
        rows = self.raw["catalog"].rows  # only which rows it finds is old
        now = [rows[row.surface, row.name] for row in found if (row.surface, row.name) in rows]
        return [row for row in now if row.deadline_ms is not None and row.deadline_ms <= args[0]]

    def broken(self, law: str, text: str) -> None:
        """A law is broken: the run is over."""
        if self.tracing:
            self.trace(f"BROKEN {law}: {text}")
        self.scheduler.fail(LawBroken(law, text))
        raise Aborted

    def _request_of(self, request_id: str) -> AppendRequest | CreateRequest:
        request: AppendRequest | CreateRequest = self.ops[int(request_id.partition(".")[0])].request
        return request

    def payload_of(self, entry: Entry) -> Batch:
        """Returns the records of an entry, from what is in the bucket."""
        if not entry.count:
            return EMPTY
        frames = entry.payload
        if frames is None:
            frames = self.objects._objects.get(entry.payload_key or "")
            if frames is None:
                self.broken("whole batches", f"entry names a payload that is not there: {entry.payload_key}")
                return EMPTY
        return decode_frames(frames, "simulation")

    # Traces.

    def trace(self, text: str, who: str = "") -> None:
        """A line of the trace."""
        name = who or (self.scheduler.current.name if self.scheduler.current else "-")
        self.lines.append(f"{self.scheduler.now / 1e6:12.6f} {name:9} {text}")

    @staticmethod
    def show(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Arguments, short."""
        shown = [_short(one) for one in args] + [f"{name}={_short(one)}" for name, one in kwargs.items()]
        return f"({', '.join(shown)})"


class Running:
    """An operation that runs, or has run."""

    def __init__(self, op: Op, dice: Dice) -> None:
        self.op = op
        self.kind = op.kind
        self.dice = dice
        self.ids = 0
        self.request: Any = None
        self.start = 0
        self.outcome = "unknown"
        self.text = ""


class _Queue:
    """The delayed queue, on the true time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.waiting: list[tuple[int, Message]] = []

    def send(self, messages: list[Message], now_ms: int) -> None:
        """Keeps messages."""
        for message in messages:
            self.put(message, self._world.true_ms + delay_s(message, now_ms) * 1000)

    def put(self, message: Message, when_ms: int) -> None:
        """Keeps a message until a moment."""
        self.waiting.append((when_ms, message))

    def receive(self, limit: int) -> list[Message]:
        """Takes messages whose time has come."""
        due = [(when, at) for at, (when, _) in enumerate(self.waiting) if when <= self._world.true_ms]
        taken = sorted(due)[:limit]
        messages = [self.waiting[at][1] for _, at in taken]
        for at in sorted((at for _, at in taken), reverse=True):
            del self.waiting[at]
        return messages


def _short(value: Any) -> str:
    if isinstance(value, Entry):
        ids = ",".join(value.request_ids)
        return f"{value.kind} {value.log_id[-8:]}@{value.offset}+{value.slot % 10**9} n={value.count} ids={ids}"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, Row):
        return f"row {value.name}={value.log_id[-8:]}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_short(one) for one in value)}]"
    if isinstance(value, Message):
        return f"{value.verb} {value.log_id[-8:]}{' force' if value.force else ''}"
    if isinstance(value, msgspec.Struct):
        return repr(value)
    return str(value).replace("0000000000000000000000", "")
