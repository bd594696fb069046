"""Runs routers and watches on the emulator under HTTP faults and kills, and says whether every law held. Exit code 1 if one
did not.

    uv run python -m tests.chaos.relay --records 20000 --kills 100

Producers append to topics, each batch under an idempotency key until it is acknowledged. One router copies a topic whole,
the other what a filter lets through, exactly once. One topic has a cap, and one a TTL. Watchers follow topics, as `headrace
watch` does: half of them so many that topics ring a bell, the others few, and one all from their beginning when the load is
over. API processes, functions (the relay among them) and the dispatcher are killed all the while.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from cli.client import RetryPolicy, open_client
from cli.commands.watch import Frame, Session, follow
from cli.sse import Event, EventParser
from headrace.watch.values import FEW
from tests.chaos import injector
from tests.chaos.client import JSON, NOTHING_WRITTEN, PATIENCE_S, UNKNOWN, Answer, Impatient
from tests.chaos.killer import Killer
from tests.chaos.load import Common, Worker
from tests.chaos.relay_laws import KEPT, Cut, Push, Record, Relayed, Route, Sent, judge
from tests.chaos.rest import come_to_rest
from tests.chaos.run import Options, Outcome, command, faulty_server
from tests.support.emulated_cloud import DevServer

_HEADERS = {"Content-Type": JSON}
WHOLE, FILTERED, CAPPED, EXPIRING = "whole", "filtered", "capped", "expiring"
ROUTES = (Route(WHOLE, "copy", ""), Route(FILTERED, "kept", KEPT))
FEW_TOPICS = (WHOLE, FILTERED, CAPPED, EXPIRING, "copy", "kept")
SPARE = ("spare-0", "spare-1", "spare-2")
TOPICS = (*FEW_TOPICS, *SPARE)  # more than a stream reads one by one: they ring
CUTS = {CAPPED: Cut(cap_records=50), EXPIRING: Cut(ttl_ms=3_000)}
QUIET_S = 90.0  # how long a watcher may be sent nothing before that counts as stuck


@dataclass(frozen=True)
class RelayOptions(Options):
    """What to run: until so many records are appended and so many processes killed, or the time is over."""

    records: int = 20_000
    producers: int = 8
    watchers: int = 4


class Person(Worker):
    """A client of topics."""

    prefix = "/v0/topics/"

    def __init__(self, common: Common, name: str, relayed: Relayed, options: RelayOptions) -> None:
        super().__init__(common, name)
        self.relayed, self.options = relayed, options

    def ask(self, path: str, body: dict[str, object]) -> Answer:
        """Repeats a request until it is answered. Raises `Impatient` if that takes too long."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            answer = self.client.send("POST", path, _HEADERS, orjson.dumps(body))
            if answer.status in (200, 201):
                return answer
            if answer.status not in NOTHING_WRITTEN | UNKNOWN:
                self.client.surprise("POST", path, answer)
                break
            self.client.wait()
        raise Impatient(f"{path}: {answer.status} {answer.body[:200]!r}")


class Founder(Person):
    """Creates the topics."""

    def work(self) -> None:
        for topic in (WHOLE, FILTERED, CAPPED, EXPIRING, *SPARE):
            config = CUTS[topic]._asdict() if topic in CUTS else {}
            self.client.until({200, 201}, "PUT", topic, _HEADERS, orjson.dumps(config))


class Router(Person):
    """Creates the routers; later waits until they have caught up."""

    prefix = "/v0/routers/"

    def __init__(self, common: Common, name: str, relayed: Relayed, options: RelayOptions, *, waits: bool) -> None:
        super().__init__(common, name, relayed, options)
        self._waits = waits

    def work(self) -> None:
        if not self._waits:
            self._create()
            return
        deadline = time.monotonic() + self.options.rest_s
        while time.monotonic() < deadline and any(self._lag(route.dest) for route in ROUTES):
            self.client.wait()

    def _lag(self, router: str) -> int:
        return int(orjson.loads(self.client.until({200}, "GET", router, {}).body)["lag"])

    def _create(self) -> None:
        for route in ROUTES:
            chosen = ["tag", "Glob", f"{route.prefix}*"] if route.prefix else None
            guarantee = "exactly_once" if route.prefix else "at_least_once"
            body = {"source": route.source, "dest": route.dest, "filter": chosen, "guarantee": guarantee}
            self.client.until({200, 201}, "PUT", route.dest, _HEADERS, orjson.dumps(body))


class Producer(Person):
    """Appends its share of the records."""

    def work(self) -> None:
        share, pushed = self.options.records // self.options.producers, 0
        while pushed < share and not self.common.stop.is_set():
            # First what is sure to be cut: three producers fill the capped topic beyond its cap.
            count = min(self.random.randint(1, 20) if pushed else 20, share - pushed)
            ids = tuple(f"{self.name}-{number}" for number in range(pushed, pushed + count))
            topics = (WHOLE, FILTERED, FILTERED, CAPPED, EXPIRING, self.random.choice(SPARE))
            topic = self.random.choice(topics) if pushed else CAPPED
            records = [{"data": {"id": one}, "tag": self._tag()} for one in ids]
            begun_ms = now_ms()
            answer = self.ask(topic, {"records": records, "idempotency_key": ids[0]})
            self.relayed.pushes.append(Push(topic, ids, orjson.loads(answer.body)["first_seq"], begun_ms))
            pushed += count
            self.common.stop.wait(self.random.random() * 2 * self.common.pause_s)

    def _tag(self) -> str:
        return f"{KEPT}a" if self.random.random() < 0.6 else "drop"


class Ended(Exception):
    """The watch is over."""


class Watching(Session):
    """A session that ends with the run: the server sends something each second."""

    ended: threading.Event

    def events(self) -> Iterator[Event]:
        headers = {"accept": "text/event-stream", **({"last-event-id": self.last_id} if self.last_id else {})}
        parser = EventParser()
        with self.client.stream(self.url, what=self.what, headers=headers) as answer:
            for chunk in answer.iter_bytes():
                if self.ended.is_set():
                    raise Ended
                yield from parser.feed(chunk)


class Watcher(Person):
    """Watches topics until it was sent what they have at rest. `heard_s`: when it was last sent something."""

    heard_s = 0.0

    def __init__(
        self, common: Common, name: str, relayed: Relayed, options: RelayOptions, topics: tuple[str, ...]
    ) -> None:
        super().__init__(common, name, relayed, options)
        self.topics = relayed.follows[name] = topics

    def work(self) -> None:
        sent = self.relayed.watched[self.name]
        client = open_client(self.common.url, None, policy=RetryPolicy(tries=1_000_000, tries_after_500=1_000))
        client.sleep = self._sleep
        start: dict[str, object] = {"from_seq": 0}
        options = {"include_tags": True, "heartbeat_ms": 1000}
        session = Watching(client, self.common.url, options, dict.fromkeys(self.topics, start), lenient=False)
        session.ended = self.common.written
        self.heard_s = time.monotonic()
        try:
            for frame in follow(session):
                self.heard_s = time.monotonic()
                if frame.kind in ("record", "tombstone"):
                    sent.append(noted(frame, session.seqs.get(frame.topic, 0)))
        except Ended:
            pass
        finally:
            client.http.close()

    def _sleep(self, seconds: float) -> None:
        if self.common.written.wait(min(seconds, 2.0)):
            raise Ended

    def has_seen(self, heads: dict[str, int]) -> bool:
        """Returns whether it was sent something up to the end of each topic."""
        reached = Counter[str]()
        for one in list(self.relayed.watched[self.name]):
            reached[one.topic] = max(reached[one.topic], one.last)
        return all(reached[topic] >= heads[topic] for topic in self.topics)


def now_ms() -> int:
    """Returns the time, which is that of the emulator's processes, too."""
    return time.time_ns() // 1_000_000


def noted(frame: Frame, place: int) -> Sent:
    """Returns what a frame tells of a topic."""
    data: dict[str, Any] = orjson.loads(frame.data)
    if frame.kind == "tombstone":
        return Sent(frame.topic, place, data["gap_from"], data["gap_to"], is_gap=True, noted_ms=now_ms())
    records = tuple(Record(one["$seq"], one["data"]["id"], one.get("$tag", "")) for one in data["records"])
    return Sent(frame.topic, place, data["from_seq"] + 1, data["to_seq"], records)


class Looker(Person):
    """Reads all topics."""

    def work(self) -> None:
        for topic in TOPICS:
            records, cursor, caught_up = list[Record](), 0, False
            while not caught_up:
                answer = self.ask(f"{topic}/diff", {"from_seq": cursor, "limit": 1000, "include_tags": True})
                page = orjson.loads(answer.body)
                records += [Record(one["$seq"], one["data"]["id"], one.get("$tag", "")) for one in page["records"]]
                cursor, caught_up = page["next_from_seq"], page["caught_up"]
            self.relayed.topics[topic], self.relayed.heads[topic] = records, cursor


@dataclass
class RelayReport(Outcome):
    """What came of it."""

    relayed: Relayed = field(default_factory=Relayed)

    @property
    def pushed(self) -> int:
        """The records whose append was acknowledged."""
        return sum(len(push.ids) for push in self.relayed.pushes)

    def problems(self) -> list[str]:
        """Returns every violation of a law and whatever else went wrong; empty if nothing did."""
        found = self.broken()
        wanted = self.options.records // self.options.producers * self.options.producers
        if self.pushed < wanted or self.kills.total() < self.options.kills:
            found.append(f"the load ended early: pushed={self.pushed} kills={self.kills.total()}")
        return found

    def text(self) -> str:
        """Returns the report as text for people."""
        relayed = self.relayed
        answers = Counter({f"{method} {status or 'broken'}": n for (method, status), n in self.answers.items()})
        frames = sum(map(len, relayed.watched.values()))
        shown = sum(len(one.records) for sent in relayed.watched.values() for one in sent)
        gaps = sum(one.is_gap for sent in relayed.watched.values() for one in sent)
        bells = sum(len(topics) > FEW for topics in relayed.follows.values())
        copied = ", ".join(f"{route.dest} {relayed.heads.get(route.dest, 0):,}" for route in ROUTES)
        lines = [
            f"{self.load_s:.0f} s under load, {self.rest.seconds:.0f} s until rest",
            f"records: {self.pushed:,} appended; copied: {copied}",
            f"watchers: {len(relayed.watched)}, {bells} of many topics",
            f"they were sent {frames:,} frames with {shown:,} records, and {gaps:,} gaps",
            f"kills: {self.kills.total()}: {', '.join(f'{kind} {n}' for kind, n in sorted(self.kills.items()))}",
            f"answers: {', '.join(f'{what} {n:,}' for what, n in sorted(answers.items()))}",
            f"faults: {self.faults.total():,}",
            "laws:",
            *(f"  {'held  ' if not v.count else 'BROKEN'} {v.checked:>9,}  {n}" for n, v in self.verdicts.items()),
        ]
        problems = self.problems()
        lines += ["every law held"] if not problems else [f"{len(problems)} problems:", *problems[:30]]
        return "\n".join(lines)


def run(options: RelayOptions) -> RelayReport:
    """Runs it. Never raises for what the engine does; `RelayReport.problems` says it."""
    report = RelayReport(options)
    with faulty_server(options, report) as (server, folder):
        _load(server, report, folder)
    return report


def _load(server: DevServer, report: RelayReport, folder: Path) -> None:
    options, relayed = report.options, report.relayed
    relayed.routes, relayed.cuts = list(ROUTES), CUTS
    common = Common(server.url, options.seed, options.write_pause_s)
    before = [Founder(common, "founder", relayed, options), Router(common, "router", relayed, options, waits=False)]
    for one in before:
        one.start()
        one.join()
    producers = [Producer(common, f"p{number}", relayed, options) for number in range(options.producers)]
    watchers = [
        Watcher(common, f"v{number}", relayed, options, FEW_TOPICS if number % 2 else TOPICS)
        for number in range(options.watchers)
    ]
    done = 0.0
    killer = Killer(server, common.random("killer"), options.kills, options.kill_pause_s, lambda: done, common.stop)
    everybody: list[Person] = [*before, *producers, *watchers]
    started = time.monotonic()
    for thread in [*watchers, *producers, killer]:
        thread.start()
    while time.monotonic() - started < options.limit_s and not server.has_ended:
        done = min(1.0, report.pushed / options.records)
        is_pushed = not any(one.is_alive() for one in producers)
        if (is_pushed and killer.done.total() >= options.kills) or any(one.error for one in everybody):
            break
        time.sleep(0.5)  # between two looks: the threads do the work
    common.stop.set()
    (folder / injector.CALM).touch()
    killer.join(60)  # a whole server may be starting again
    for one in producers:
        one.join(120)
    after = [Router(common, "waiter", relayed, options, waits=True), Looker(common, "looker", relayed, options)]
    everybody += after
    for one in after:
        one.start()
        one.join(options.rest_s + PATIENCE_S)
    watchers.append(Watcher(common, "latecomer", relayed, options, TOPICS))
    watchers[-1].start()
    _let_watchers_catch_up(watchers, relayed, options.rest_s)
    common.written.set()
    for one in watchers:
        one.join(PATIENCE_S)
    everybody.append(watchers[-1])
    report.load_s = time.monotonic() - started
    report.errors += [f"{one.name} did not end" for one in everybody if one.is_alive()]
    report.errors += [f"{one.name}: {one.error!r}" for one in everybody if one.error is not None]
    report.errors += common.history.surprises
    report.kills, report.answers = killer.done, sum(common.answers, Counter())
    if not server.has_ended:
        report.rest = come_to_rest(server, options.rest_s, options.merge_limits, lambda _: None)
    report.verdicts = judge(relayed)


def _let_watchers_catch_up(watchers: list[Watcher], relayed: Relayed, limit_s: float) -> None:
    """Waits until all watchers were sent the ends of all topics, or nothing more comes."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and not all(one.has_seen(relayed.heads) for one in watchers):
        if all(time.monotonic() - one.heard_s > QUIET_S for one in watchers):
            return
        time.sleep(0.5)  # between two looks


def main() -> int:
    """Runs what the command line asks for; returns the exit status."""
    names = ("records", "kills", "producers", "watchers", "api_processes", "seed", "faults", "limit_s")
    return command("tests.chaos.relay", __doc__, RelayOptions, names, run)


if __name__ == "__main__":
    sys.exit(main())
