"""Processes that watch topics, on stores in memory, and a relay that rings at once or when it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

from functions.metrics import Meter, RelayMetric
from functions.queue import MemoryQueue
from functions.relay.bells import Bells
from functions.relay.context import assemble
from functions.relay.followers import Hint
from headrace.memory import memory_stores
from headrace.settings import Settings
from headrace.topics.verbs import Topics
from headrace.wal.memory import MemoryWal
from headrace.wal.state import Entry
from headrace.watch.frames import Frame, Records
from headrace.watch.stream import Stream
from headrace.watch.values import Options, Start
from headrace.watch.verbs import Watches
from tests.support.clocks import ManualClock
from tests.unit.sealer.world import Hook, Watched
from tests.unit.topics.world import seqs

STREAM_MS = 60_000


class World:
    """Tables that several processes share."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.wal = MemoryWal()
        self.stores = memory_stores(Settings(metrics_interval_ms=0), self.clock, wal=self.wal)
        self._wids = (f"wid_{number}" for number in count())
        self._bells = Bells(assemble(self.stores, MemoryQueue(), Meter(RelayMetric, lambda _: None)))

    def process(self, hook: Hook | None = None) -> Process:
        """Returns a new process; `hook` is called before and after its calls to tables."""
        watched: dict[str, Any] = {}
        if hook is not None:
            watched = {name: Watched(getattr(self.stores, name), hook) for name in ("wal", "sessions", "follows")}
        return Process(self, Topics(replace(self.stores, **watched)), replace(self.stores, **watched))

    def relay(self, entry: Entry) -> bool:
        """Does what the relay does about an entry, if its stream has it. Returns whether a bell rings."""
        if not entry.state.is_followed(entry.committed_ms):
            return False
        follows = self.wal.follows.of(entry.log_id, "bell")
        for follow in follows:
            self._bells.visit(follow, Hint(entry.kind, entry.next_offset))
        return bool(follows)

    def relay_newest(self, topics: Topics, name: str) -> bool:
        """Does what the relay does about the newest entry of a topic."""
        newest = self.wal.newest(topics.head(name).log_id)
        assert newest is not None
        return self.relay(newest)


class Meanwhile:
    """A hook that does something once, before or after a given call to a table: at moment `at`, from `begin` on."""

    def __init__(self, at: int, act: Callable[[], Any]) -> None:
        self._left = 0
        self._at = at
        self._act = act
        self.done: Any = None

    def begin(self) -> None:
        """Begins to count."""
        self._left = self._at

    def end(self) -> None:
        """Counts no more."""
        self._left = 0

    def __call__(self, name: str, after: bool) -> None:
        """Counts a moment."""
        self._left -= 1
        if self._left == 0:
            self.done = self._act()


class Process:
    """A process: its topics and its watches."""

    def __init__(self, world: World, topics: Topics, stores: Any) -> None:
        self.world = world
        self.topics = topics
        self.watches = Watches(stores, topics, lambda: next(world._wids))

    def create(self, *names: str, starts: dict[str, Start] | None = None, limit: int = 0, **options: Any) -> str:
        """Creates a session, and returns its id."""
        found = starts or {name: Start() for name in names}
        return self.watches.create(found, Options(**options), "", limit=limit)[0]

    def open(self, wid: str, last_event_id: str = "") -> Stream:
        """Opens a stream."""
        return self.watches.open(wid, last_event_id, self.world.clock.now_ms() + STREAM_MS)


def drain(stream: Stream, numbers: list[int] | None = None) -> list[tuple[str, Frame, str]]:
    """Reads topics until nothing more is there, as a door does. Returns topic, frame and event id of what it sent."""
    due = dict.fromkeys(stream.living if numbers is None else numbers)
    found = []
    while due:
        for news in stream.read(list(due)[:16]):
            del due[news.number]
            assert news.error is None, news.error
            for frame in news.frames:
                found.append((stream.names[news.number], frame, stream.event_id(news, frame)))
                stream.sent(news, frame)
            stream.passed(news)
            if not news.is_drained:
                due[news.number] = None
    return found


def records(found: list[tuple[str, Frame, str]]) -> dict[str, list[int]]:
    """Returns the seqs of the records, by topic."""
    by_topic: dict[str, list[int]] = {}
    for name, frame, _ in found:
        if isinstance(frame, Records):
            by_topic.setdefault(name, []).extend(seqs(frame.records))
    return by_topic
