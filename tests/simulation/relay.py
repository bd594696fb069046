"""Routers under every order of store calls: processes that write, delete, put and remove routers, and relays that take
steps, over stores in memory. Which goes on is drawn at each store call, as are calls that fail, answers that are
lost, and deaths.

    uv run python -m tests.simulation.relay --seeds 2000

At rest the laws are judged: a destination is the filtered rest of its source, once and in order; a topic has one source;
routers, their rows and the numbers of followers agree; no cycle is closed unless that was asked for; hops end.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from headrace.batch import decode_frames
from headrace.errors import HeadraceError, StoreError, StoreTimeout
from headrace.routers import put
from headrace.routers.values import ROUTER
from headrace.tables.follows import Follow
from headrace.tables.parts import Part, PutPart
from headrace.topics import decide, feeds
from headrace.topics.values import Feed, Match, topic_of
from tests.simulation.coroutines import Coroutine
from tests.simulation.mutant import Mutant
from tests.unit.routers.world import Process, World

KEPT = Match("x:", is_prefix=True)
TOPICS = ("a", "b", "c", "d", "e", "f", "g", "p", "q", "r", "s")
VISITS = 60  # after which a router that still is not at rest never comes to it


class Died(BaseException):
    """The process is gone."""


class Broken(AssertionError):
    """A law does not hold."""


class Port:
    """A store: before each call others may go on, and a call may fail, or its answer be lost, or its process die."""

    def __init__(self, target: Any, simulation: Simulation) -> None:
        self._target, self._simulation = target, simulation

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)
        if not callable(method):
            return method

        def call(*args: Any, **kwargs: Any) -> Any:
            fate = self._simulation.pause()
            if fate in ("fails", "dies"):
                raise StoreTimeout(name) if fate == "fails" else Died
            answer = method(*args, **kwargs)
            if fate in ("lost", "dies after"):
                raise StoreTimeout(name) if fate == "lost" else Died
            return answer

        return call


class Simulation:
    """One run by a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"relay {seed}")
        self.world = World()
        self.calm = True
        self._main = Coroutine()
        self._actors: dict[Coroutine, list[Callable[[Process], object]]] = {}
        self._current = self._main
        self._thread = threading.get_ident()
        self._unknown: list[BaseException] = []
        self._ids = iter(range(1_000_000))
        self.checked: Counter[str] = Counter()

    # The order of things.

    def pause(self) -> str:
        """Lets another actor go on, perhaps; returns what becomes of the call."""
        if self.calm or threading.get_ident() != self._thread:
            return ""
        me = self._current
        self._go(self._next(), me)
        roll = self.random.random()
        fates = ((0.01, "fails"), (0.03, "lost"), (0.035, "dies"), (0.04, "dies after"))
        return next((fate for limit, fate in fates if roll < limit), "")

    def _next(self) -> Coroutine:
        return self.random.choice(list(self._actors)) if self._actors else self._main

    def _go(self, other: Coroutine, me: Coroutine) -> None:
        self._current = other
        me.hand_to(other)
        self._thread = threading.get_ident()

    def run(self) -> None:
        """Runs all actors to their ends, then settles, and judges."""
        self._prepare()
        for plan in self._plans():
            self._start(plan)
        self.calm = False
        self._go(self._next(), self._main)
        self.calm = True
        if self._unknown:
            raise Broken(f"unexpected: {self._unknown[0]!r}") from self._unknown[0]
        process = self.world.process()
        self._settle(process)
        self._judge(process)

    def _start(self, plan: list[Callable[[Process], object]]) -> None:
        def body() -> Coroutine:
            self._thread = threading.get_ident()
            process = self._process()
            for step in plan:
                try:
                    step(process)
                except Died:
                    process = self._process()
                except (HeadraceError, StoreError):
                    pass  # refused, or of unknown outcome
                except BaseException as exc:  # noqa: BLE001 - the run reports it
                    self._unknown.append(exc)
            del self._actors[coroutine]
            self._current = self._next()
            return self._current

        coroutine = Coroutine(body)
        self._actors[coroutine] = plan

    def _process(self) -> Process:
        stores = self.world.stores
        ports = {name: Port(getattr(stores, name), self) for name in ("wal", "catalog", "follows", "sessions")}
        return Process(replace(stores, **ports))

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

    def _settle(self, process: Process) -> None:
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
        raise Broken("hops end: it never comes to rest")

    # The laws.

    def _require(self, law: str, holds: bool, *said: object) -> None:
        self.checked[law] += 1
        if not holds:
            raise Broken(f"{law}: {said}")

    def _judge(self, process: Process) -> None:
        fed = {topic: topic_of(process.topics.head(topic).state).fed_by for topic in TOPICS}
        for topic, feeds_of in fed.items():
            self._require("a topic has one source", len({one.source for one in feeds_of}) <= 1, topic, feeds_of)
            for feed in feeds_of:
                self._copied(process, topic, feed)
        self._same_rows(process, fed)
        plain = {(one.source, topic) for topic, found in fed.items() for one in found if not one.routing.allow_cycle}
        for start in TOPICS:
            reached, more = set[str](), {start}
            while more:
                more = {dest for source, dest in plain if source in more} - reached
                reached |= more
            self._require("no cycle is closed unasked", start not in reached, start, plain)
        hops = [record.hops for topic in TOPICS for record in process.page(topic).records]
        self._require("hops end", max(hops, default=0) <= 8, hops)

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
            self._require(law, len(set(got)) == len(got), dest, got)  # it was removed and put again, perhaps
            return
        at = [place.get(data, -1) for data in got]
        self._require(law, at == sorted(set(at)) and -1 not in at, dest, got, wanted)
        missing = [data for data, lives in wanted[at[0] if at else len(wanted) :] if lives and data not in got]
        self._require(law, not missing, dest, "never copied", missing)
        if dest == "d":  # its router was there from the beginning
            self._require(law, all(data in got for data, lives in wanted if lives), dest, got, wanted)

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
        self._require(law, [one[:2] for one in known] == rows, known, rows)
        listed = sorted((one.name, one.source, one.dest) for one in process.routers.routers(limit=1000)[0])
        self._require(law, known == listed, known, listed)
        for topic in TOPICS:
            count = sum(source == topic for _, source, _ in known)
            state = process.topics.head(topic).state
            self._require(law, state.followers == count, topic, state.followers, count)


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
    (
        Mutant(
            "a step from an old cursor", "a record is copied twice", (decide.Appends, "_forward", _forward_whatever)
        ),
        8,
    ),
    (Mutant("fan-in on cached state", "two sources of one topic", (put.Putting, "_check", _check_once)), 32),
    (Mutant("graph without a guard", "two puts close a cycle", (put.Putting, "_put_graph", _put_own_graph)), 68),
    (Mutant("hops are not counted", "a cycle never ends", (feeds, "copies", _copies_without_hops)), 1),
)
"""Each with a seed by which it dies."""


def kills(mutant: Mutant, seed: int) -> str:
    """Returns which law a mutant breaks by a seed; empty if it breaks none."""
    with mutant.active():
        try:
            Simulation(seed).run()
        except Broken as exc:
            return str(exc)
    return ""


def main() -> int:
    """Runs seeds, and says which break a law; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.relay", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--mutants", action="store_true", help="find a seed by which each mutant dies")
    given = parser.parse_args()
    if given.mutants:
        for mutant, _ in MUTANTS:
            died = next((seed for seed in range(given.first, given.first + given.seeds) if kills(mutant, seed)), None)
            print(f"{mutant.name}: {died}")
        return 0
    checked: Counter[str] = Counter()
    for seed in range(given.first, given.first + given.seeds):
        simulation = Simulation(seed)
        try:
            simulation.run()
        except Broken as exc:
            print(f"seed {seed}: {exc}")
            return 1
        checked += simulation.checked
    print(f"{given.seeds} seeds: " + ", ".join(f"{law} {count:,}" for law, count in sorted(checked.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
