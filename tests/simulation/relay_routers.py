"""Routers under every order of store calls: processes that write, delete, put and remove routers, and relays that take
steps, over stores in memory. Which goes on is drawn at each store call, as are calls that fail, answers that are
lost, and deaths.

    uv run python -m tests.simulation.relay --world routers

At rest the laws are judged: a destination is the filtered rest of its source, once and in order; a topic has one source;
routers, their rows and the numbers of followers agree; no cycle is closed unless that was asked for; hops end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headrace.batch import decode_frames
from headrace.routers import put
from headrace.routers.values import ROUTER
from headrace.tables.follows import Follow
from headrace.tables.parts import Part, PutPart
from headrace.topics import decide, feeds
from headrace.topics.values import Feed, Match, topic_of
from tests.simulation.mutant import Mutant
from tests.simulation.relay_world import Broken, Simulation
from tests.unit.routers.world import Process, World

KEPT = Match("x:", is_prefix=True)
TOPICS = ("a", "b", "c", "d", "e", "f", "g", "p", "q", "r", "s")
VISITS = 60  # after which a router that still is not at rest never comes to it


class Routers(Simulation):
    """One run by a seed."""

    name = "relay"

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world = World()

    def process(self) -> Process:
        """Returns a process with a cold memory."""
        return Process(self.faulty(self.world.stores))

    # What happens.

    def _prepare(self) -> None:
        process = self.world.process()
        for topic in TOPICS:
            process.put(topic)
        process.route("a", "d", exactly_once=True)
        process.route("q", "r")
        process.route("s", "p")
        process.route("e", "f", allow_cycle=True)
        process.route("f", "e", allow_cycle=True)

    def _plans(self) -> Iterator[list[Callable[[Process], object]]]:
        yield [self._write] * 8 + [self._erase]
        yield [self._write] * 8
        yield self._shuffled([self._route("a", "b"), self._route("a", "g"), self._route("p", "q")])
        yield self._shuffled([self._route("c", "b"), self._route("g", "a"), self._route("r", "s"), self._remove])
        for _ in range(2):
            yield [self._visit] * 25

    def _shuffled(self, plan: list[Callable[[Process], object]]) -> list[Callable[[Process], object]]:
        self.random.shuffle(plan)
        return plan

    def _write(self, process: Process) -> None:
        topic = self.random.choice(("a", "a", "a", "c", "e"))
        count = self.random.randint(1, 3)
        ids = [b"%d" % next(self._ids) for _ in range(count)]
        process.write(topic, *ids, key=self.random.choice(("x:1", "y:1")))

    def _erase(self, process: Process) -> None:
        process.topics.erase("a", None, Match(self.random.choice(("x:", "y:")), is_prefix=True))

    def _route(self, source: str, dest: str) -> Callable[[Process], object]:
        chosen: dict[str, Any] = {"filter": KEPT} if dest == "b" else {}
        return lambda process: process.route(source, dest, **chosen)

    def _remove(self, process: Process) -> None:
        process.routers.remove("a->g")

    def _visit(self, process: Process) -> None:
        rows = self._rows()
        if rows:
            process.stepper.visit(self.random.choice(rows))  # as it was when it was read

    def _rows(self) -> list[Follow]:
        logs = [self.world.stores.catalog.get("topics", name) for name in TOPICS]
        found = [row for log in logs if log is not None for row in self.world.stores.follows.of(log.log_id, ROUTER)]
        return [row for row in found if row.stays]

    def _settle(self) -> None:
        process = self.world.process()
        waiting = self._rows()
        for _ in range(VISITS):
            again = [row for row in waiting if process.stepper.visit(row) is not None]
            moved = self._rows()
            if not again and all(process.stepper.visit(row) is None for row in moved) and self._rows() == moved:
                heads = [process.topics.head(topic).state.next_offset for topic in TOPICS]
                for row in moved:
                    process.stepper.visit(row)
                if heads == [process.topics.head(topic).state.next_offset for topic in TOPICS]:
                    return
            waiting = self._rows()
        raise Broken("hops end", "it never comes to rest")

    # The laws.

    def _judge(self) -> None:
        process = self.world.process()
        fed = {topic: topic_of(process.topics.head(topic).state).fed_by for topic in TOPICS}
        for topic, feeds_of in fed.items():
            self.require("a topic has one source", len({one.source for one in feeds_of}) <= 1, topic, feeds_of)
            for feed in feeds_of:
                self._copied(process, topic, feed)
        self._same_rows(process, fed)
        plain = {(one.source, topic) for topic, found in fed.items() for one in found if not one.routing.allow_cycle}
        for start in TOPICS:
            reached, more = set[str](), {start}
            while more:
                more = {dest for source, dest in plain if source in more} - reached
                reached |= more
            self.require("no cycle is closed unasked", start not in reached, start, plain)
        hops = [record.hops for topic in TOPICS for record in process.page(topic).records]
        self.require("hops end", max(hops, default=0) <= 8, hops)

    def _copied(self, process: Process, dest: str, feed: Feed) -> None:
        law = "a destination is the filtered rest of its source, once, in order"
        if {feed.source, dest} == {"e", "f"}:
            return  # each is fed by the other
        own = {record.offset for record in process.page(feed.source).records}
        wanted = [
            (record.data, record.offset in own)
            for record in self._all(process, feed.source)
            if feed.routing.passes(record)
        ]
        place = {data: at for at, (data, _) in enumerate(wanted)}
        got = [record.data for record in self._all(process, dest) if record.hops]
        if dest == "g" or len({one.source for one in topic_of(process.topics.head(dest).state).fed_by}) > 1:
            self.require(law, len(set(got)) == len(got), dest, got)  # it was removed and put again, perhaps
            return
        at = [place.get(data, -1) for data in got]
        self.require(law, at == sorted(set(at)) and -1 not in at, dest, got, wanted)
        missing = [data for data, lives in wanted[at[0] if at else len(wanted) :] if lives and data not in got]
        self.require(law, not missing, dest, "never copied", missing)
        if dest == "d":  # its router was there from the beginning
            self.require(law, all(data in got for data, lives in wanted if lives), dest, got, wanted)

    def _all(self, process: Process, topic: str) -> list[Any]:
        """Returns all records that a topic ever had."""
        entries = self.world.stores.wal.read(process.topics.head(topic).log_id).entries
        return [
            record
            for entry in entries
            if entry.count and entry.payload is not None
            for record in decode_frames(entry.payload, topic).records(entry.offset)
        ]

    def _same_rows(self, process: Process, fed: dict[str, tuple[Feed, ...]]) -> None:
        law = "routers are their rows"
        known = sorted((one.router, one.source, dest) for dest, found in fed.items() for one in found)
        names = {process.topics.head(topic).log_id: topic for topic in TOPICS}
        rows = sorted((row.id, names[row.log_id]) for row in self._rows())
        self.require(law, [one[:2] for one in known] == rows, known, rows)
        listed = sorted((one.name, one.source, one.dest) for one in process.routers.routers(limit=1000)[0])
        self.require(law, known == listed, known, listed)
        for topic in TOPICS:
            count = sum(source == topic for _, source, _ in known)
            state = process.topics.head(topic).state
            self.require(law, state.followers == count, topic, state.followers, count)


# Mutants.


def _forward_whatever(self: Any, number: int, step: Any) -> Any:
    """A step takes the cursor as it is now, for records that it read from an older one."""
    feed = feeds.feed_in(topic_of(self._state).fed_by, step.feed.router)
    return _forward(self, number, step if feed is None else step._replace(feed=feed))


def _check_once(self: Any, found: Any) -> None:
    """What feeds the destination is what the first look has shown, also if another was first."""
    self.first_feeds = getattr(self, "first_feeds", found)
    _check(self, self.first_feeds)


def _put_own_graph(self: Any) -> PutPart:
    """No version of the graph joins the commit: it guards a row that nobody else has."""
    return PutPart(Part(put.GRAPH, f"{self._request.name} {id(self)}"), None)


def _copies_without_hops(feed: Any, records: Any, incarnation: int) -> Any:
    return _copies(feed, [record._replace(hops=0) for record in records], incarnation)


_forward, _check, _copies = decide.Appends._forward, put.Putting._check, feeds.copies

MUTANTS = (
    Mutant(
        "a step from an old cursor",
        "two relays take one step",
        (decide.Appends, "_forward", _forward_whatever),
        world="routers",
    ),
    Mutant(
        "fan-in on cached state", "two sources of one topic", (put.Putting, "_check", _check_once), world="routers"
    ),
    Mutant(
        "graph without a guard",
        "two puts close a cycle",
        (put.Putting, "_put_graph", _put_own_graph),
        world="routers",
    ),
    Mutant("hops are not counted", "a cycle never ends", (feeds, "copies", _copies_without_hops), world="routers"),
)
