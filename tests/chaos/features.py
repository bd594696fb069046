"""Runs feature tables on the emulator under kills and HTTP faults, and says whether every law held. Exit code 1 if one did
not.

    uv run python -m tests.chaos.features --rounds 20 --pushes 2000

In each round a new namespace gets pushes: single ones, batches, and such with dedupe values, which are repeated until they
are answered. Readers read rows, and a registration drops a table's state now and then, while API processes and the folder
are killed (SIGKILL). After it the logs are read, and every answer is compared with a naive computation over the prefix that
it names.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from headrace.features.documents import read_lane
from headrace.features.register import Registrations
from headrace.features.rows import parse_as_of
from headrace.features.values import lane as which_of
from headrace.log.stores import Stores
from tests.chaos import injector
from tests.chaos.client import JSON, NOTHING_WRITTEN, PATIENCE_S, UNKNOWN, Answer, Impatient
from tests.chaos.feature_laws import Log, Push, Read, Registered, Tables, judge
from tests.chaos.killer import Killer, feature_victims
from tests.chaos.laws import Verdict
from tests.chaos.load import Common, Worker
from tests.chaos.rest import come_to_rest, stores_of
from tests.chaos.run import Options, Outcome, command, faulty_server
from tests.support.emulated_cloud import DevServer
from tests.unit.features.oracle import Event, shape_of

_HEADERS = {"Content-Type": JSON}
_FIELDS = {"id": "str", "user": "str", "amount": "f64", "n": "i64", "once": "str"}
LANES = 3
ROOTS = {"U": "Tx", "All": "Tx", "Big": "Tx", "Half": "Tx", "C": "Click"}
USERS = [f"u{number}" for number in range(12)]
KEYS = {"U": USERS, "All": [""], "Big": USERS, "Half": [str(number) for number in range(5)], "C": USERS}
MOST = 8  # events of a batch
FOLDED_S = 60.0  # in which the folder must have folded everything when a round is over


def _event(name: str, **settings: Any) -> dict[str, Any]:
    schema = {"fields": _FIELDS, "optional_fields": ["once"]}
    return {"kind": "event", "name": name, "schema": schema, "dedupe_key": "once", **settings}


def _table(name: str, upstream: str, keys: list[str], *ops: dict[str, Any], **agg: tuple[str, dict[str, Any]]) -> Any:
    found = {feature: {"op": op, "params": params} for feature, (op, params) in agg.items()}
    return {
        "kind": "derivation",
        "name": name,
        "output_kind": "table",
        "upstreams": [upstream],
        "ops": [*ops, {"op": "group_by", "keys": keys, "agg": found}],
        "table_primary_key": keys,
    }


def nodes(turn: int) -> list[dict[str, Any]]:
    """Returns what is registered by the given turn: each drops the state of the table `Big`, and adds a feature to `U`."""
    more: dict[str, Any] = {f"more_{number}": ("lag", {"field": "n", "n": number}) for number in range(1, turn + 1)}
    return [
        _event("Tx"),
        _event("Click", lanes=LANES, lane_key="user"),
        _table(
            "U",
            "Tx",
            ["user"],
            c=("count", {}),
            s=("sum", {"field": "amount"}),
            m=("mean", {"field": "n", "window": "3s"}),
            x=("max", {"field": "amount", "window": "5s"}),
            d=("n_unique", {"field": "n"}),
            l=("last", {"field": "id"}),
            w=("sum", {"field": "amount", "where": "(n > 4)"}),
            k=("streak", {"where": "(n > 2)"}),
            e=("ewma", {"field": "amount", "half_life": "2s"}),
            t=("top_k", {"field": "n", "k": 3}),
            **more,
        ),
        _table("All", "Tx", [], c=("count", {}), s=("sum", {"field": "amount"}), v=("count", {"window": "4s"})),
        _table(
            "Big",
            "Tx",
            ["user"],
            {"op": "filter", "expr": "(amount > 20)"},
            s=("sum", {"field": "amount" if turn % 2 else "n"}),
            c=("count", {"window": "6s"}),
        ),
        {
            "kind": "derivation",
            "name": "Halves",
            "output_kind": "event",
            "upstreams": ["Tx"],
            "ops": [{"op": "map", "exprs": {"half": "(n / 2)"}}],
            "schema": {"fields": {}},
        },
        _table("Half", "Halves", ["half"], c=("count", {}), l=("last", {"field": "amount"})),
        _table("C", "Click", ["user"], c=("count", {}), l=("last_n", {"field": "id", "n": 3})),
    ]


@dataclass(frozen=True)
class FeatureOptions(Options):
    """What to run: rounds of so many pushes and kills."""

    rounds: int = 20
    pushes: int = 2_000
    pushers: int = 6
    readers: int = 2
    turns: int = 3
    kills: int = 8
    faults: float = 0.005
    kill_pause_s: float = 0.7
    limit_s: float = 7_200.0
    write_pause_s: float = 0.0


class Person(Worker):
    """A client of one namespace."""

    def __init__(self, common: Common, name: str, namespace: str, tables: Tables, options: FeatureOptions) -> None:
        super().__init__(common, f"{namespace} {name}")
        self.prefix = f"/features/{namespace}/"
        self.tables, self.options = tables, options

    def ask(self, path: str, body: object, *, repeats: frozenset[int] = NOTHING_WRITTEN | UNKNOWN) -> Answer:
        """Repeats a request until it is answered, or an answer comes that must not lead to a repeat."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            answer = self.client.send("POST", path, _HEADERS, orjson.dumps(body))
            if answer.status not in repeats:
                if answer.status != 200 and answer.status not in UNKNOWN:
                    self.client.surprise("POST", path, answer)
                return answer
            self.client.wait()
        raise Impatient(f"{path}: {answer.status} {answer.body[:200]!r}")


class Pusher(Person):
    """Pushes its share of the events."""

    def work(self) -> None:
        for number in range(self.options.pushes // self.options.pushers):
            if self.common.stop.is_set():
                return
            self._push(number)

    def _push(self, number: int) -> None:
        event, is_deduped = self.random.choice(("Tx", "Tx", "Click")), self.random.random() < 0.4
        count = self.random.choice((1, 1, 1, self.random.randint(2, MOST)))
        user = self.random.choice(USERS)  # a batch is of one lane
        ids = tuple(f"{self.name} {number}.{place}" for place in range(count))
        events = [
            {
                "id": one,
                "user": user if event == "Click" else self.random.choice(USERS),
                "amount": self.random.randrange(160) / 4,
                "n": self.random.randrange(10),
                **({"once": one} if is_deduped else {}),
            }
            for one in ids
        ]
        repeats = NOTHING_WRITTEN | (UNKNOWN if is_deduped else frozenset())
        started = time.monotonic()
        if count == 1:
            answer = self.ask("push", {"event": event, "data": events[0]}, repeats=repeats)
        else:
            answer = self.ask(f"push/{event}/batch", events, repeats=repeats)
        outcome = "acknowledged" if answer.status == 200 else "unknown" if answer.status in UNKNOWN else "refused"
        version = orjson.loads(answer.body)["registry_version"] if answer.status == 200 else 0
        self.tables.pushes.append(Push(ids, started, time.monotonic(), outcome, version))


class Reader(Person):
    """Reads rows, of one table or of several."""

    def work(self) -> None:
        while not self.common.stop.wait(0.1 * self.random.random()):
            tables = self.random.sample(list(KEYS), self.random.choice((1, 1, 3)))
            self.read([(table, self.random.choice(KEYS[table])) for table in tables])

    def read(self, asked: list[tuple[str, str]], **options: str) -> Read:
        """Reads rows, and notes the answer."""
        requests = [{"table": table, "key": key} for table, key in asked]
        started = time.monotonic()
        if len(requests) == 1:
            answer = self.ask("get", {**requests[0], **options})
            rows = [orjson.loads(answer.body)]
        else:
            answer = self.ask("batch_get", {"requests": requests, **options})
            rows = orjson.loads(answer.body)["results"]
        as_of = parse_as_of(answer.headers["headrace-as-of"])
        found = Read(started, time.monotonic(), as_of, tuple(asked), tuple(rows))
        if not options:
            self.tables.reads.append(found)
        return found


class Registrar(Person):
    """Registers the nodes, and drops a table's state each time that a part of the pushes is done."""

    def work(self) -> None:
        self.turn(0)
        for turn in range(1, self.options.turns + 1):
            while len(self.tables.pushes) * (self.options.turns + 1) < turn * self.options.pushes:
                if self.common.stop.wait(0.02):
                    return
            self.turn(turn)

    def turn(self, turn: int) -> None:
        """Registers what comes next."""
        started = time.monotonic()
        answer = self.ask("register", {"nodes": nodes(turn), "force": True})
        version = orjson.loads(answer.body)["registry_version"]
        self.tables.registered.append(Registered(version, started, time.monotonic()))


class Looker(Reader):
    """Reads every row from every process, when a round is over, and then again until the stored rows say the same."""

    def work(self) -> None:
        everything = [(table, key) for table, keys in KEYS.items() for key in keys]
        for _ in range(2 * self.options.api_processes):
            last = self.read(everything)
        deadline = time.monotonic() + FOLDED_S
        while not self._is_folded(everything, last):
            if time.monotonic() > deadline:
                raise Impatient("stored rows are not brought up to date")
            self.client.wait()

    def _is_folded(self, everything: list[tuple[str, str]], last: Read) -> bool:
        stored = self.read(everything, consistency="stale")
        fresh = self.read(everything)
        windowed = {"m", "x", "v"}  # they change with time alone, `c` of Big, too
        return all(
            {name: one[name] for name in one if name not in windowed and table != "Big"}
            == {name: other[name] for name in other if name not in windowed and table != "Big"}
            for (table, _), one, other in zip(everything, stored.rows, fresh.rows, strict=True)
        )


@dataclass
class FeatureReport(Outcome):
    """What came of it."""

    pushes: Counter[str] = field(default_factory=Counter)
    events: int = 0
    reads: int = 0
    registrations: int = 0
    rounds: int = 0

    def problems(self) -> list[str]:
        """Returns every violation of a law and whatever else went wrong; empty if nothing did."""
        found = self.broken()
        if self.rounds < self.options.rounds or self.kills.total() < self.options.kills * self.options.rounds:
            found.append(f"the load ended early: rounds={self.rounds} kills={self.kills.total()}")
        return found

    def add(self, tables: Tables) -> None:
        """Judges a round, and adds what it came to."""
        self.rounds += 1
        self.pushes.update(push.outcome for push in tables.pushes)
        self.events += sum(len(log.events) for log in tables.logs.values())
        self.reads += sum(len(read.rows) for read in tables.reads)
        self.registrations += len(tables.registered)
        for law, verdict in judge(tables).items():
            total = self.verdicts.setdefault(law, Verdict())
            total.checked += verdict.checked
            total.count += verdict.count
            total.broken += [f"round {self.rounds}: {one}" for one in verdict.broken]

    def text(self) -> str:
        """Returns the report as text for people."""
        answers = Counter({f"{method} {status or 'broken'}": n for (method, status), n in self.answers.items()})
        lines = [
            f"{self.rounds} rounds in {self.load_s:.0f} s, {self.rest.seconds:.0f} s until rest",
            f"pushes: {_counts(self.pushes)}, of {self.events:,} events",
            f"rows read: {self.reads:,}; registrations: {self.registrations:,}",
            f"kills: {self.kills.total()}: {_counts(self.kills)}",
            f"answers: {_counts(answers)}",
            f"faults: {self.faults.total():,}",
            "laws:",
            *(f"  {'held  ' if not v.count else 'BROKEN'} {v.checked:>9,}  {n}" for n, v in self.verdicts.items()),
        ]
        problems = self.problems()
        lines += ["every law held"] if not problems else [f"{len(problems)} problems:", *problems[:30]]
        return "\n".join(lines)


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{what} {count:,}" for what, count in sorted(counts.items()))


def run(options: FeatureOptions) -> FeatureReport:
    """Runs it. Never raises for what the engine does; `FeatureReport.problems` says it."""
    report = FeatureReport(options)
    with faulty_server(options, report) as (server, folder):
        run_rounds(server, report, folder)
        if not server.has_ended:
            report.rest = come_to_rest(server, options.rest_s, options.merge_limits, lambda _: None)
    return report


def run_rounds(server: DevServer, report: FeatureReport, folder: Path) -> None:
    """Runs the rounds on a server whose processes meet faults unless the file `calm` is in `folder`."""
    started, options = time.monotonic(), report.options
    for number in range(options.rounds):
        if report.errors or time.monotonic() - started > options.limit_s:
            break
        _round(server, report, folder, f"r{number}")
        print(f"{time.monotonic() - started:.0f} s: {number + 1} of {options.rounds} rounds", file=sys.stderr)
    report.load_s = time.monotonic() - started


def _round(server: DevServer, report: FeatureReport, folder: Path, namespace: str) -> None:
    options, tables = report.options, Tables(ROOTS)
    common = Common(server.url, options.seed, options.write_pause_s)
    calm = folder / injector.CALM
    calm.unlink(missing_ok=True)
    arguments = (namespace, tables, options)
    registrar = Registrar(common, "registrar", *arguments)
    registrar.start()
    while registrar.is_alive() and not tables.registered:
        time.sleep(0.01)  # until its first registration is answered
    pushers = [Pusher(common, f"p{number}", *arguments) for number in range(options.pushers)]
    readers = [Reader(common, f"v{number}", *arguments) for number in range(options.readers)]
    everybody: list[Person] = [registrar, *pushers, *readers]
    done = 0.0
    chance = common.random(f"{namespace} killer")
    killer = Killer(
        server, chance, options.kills, options.kill_pause_s, lambda: done, common.stop, victims=feature_victims
    )
    for thread in [*pushers, *readers, killer]:
        thread.start()
    while not server.has_ended and not any(one.error for one in everybody):
        done = min(1.0, len(tables.pushes) / options.pushes)
        if not any(one.is_alive() for one in pushers) and killer.done.total() >= options.kills:
            break
        time.sleep(0.1)  # between two looks: the threads do the work
    common.stop.set()
    calm.touch()
    killer.join(60)  # a whole server may be starting again
    for one in everybody:
        one.join(PATIENCE_S)
    looker = Looker(common, "looker", *arguments)
    everybody.append(looker)
    looker.start()
    looker.join(FOLDED_S + PATIENCE_S)
    report.errors += [f"{one.name} did not end" for one in everybody if one.is_alive()]
    report.errors += [f"{one.name}: {one.error!r}" for one in everybody if one.error is not None]
    report.errors += common.history.surprises
    report.kills += killer.done
    report.answers += sum(common.answers, Counter())
    if not server.has_ended:
        with stores_of(server.state) as stores:
            tables.logs = dict(_logs(stores, namespace))
        report.add(tables)


def _logs(stores: Stores, namespace: str) -> Iterator[tuple[tuple[str, int], Log]]:
    """Yields every lane of a namespace."""
    registrations = Registrations(stores)
    for event, lanes in (("Tx", 1), ("Click", LANES)):
        for number in range(lanes):
            which = which_of(namespace, event, number)
            head, found, at = registrations.head(which), list[Event](), 0
            while at < head.state.next_offset:
                page = registrations.records(which, at)
                found += [Event(one.offset, one.time_ms, orjson.loads(one.data)) for one in page.records]
                at = page.next
            spans = registrations.pipelines_of(head, 0).spans(0, at)
            shapes = [shape_of(since, pipeline.document) for since, _, pipeline in spans]
            last = registrations.definition_of(head).derive(read_lane).pipeline.document
            if not shapes or shapes[-1].version != last.version:
                shapes.append(shape_of(at, last))
            yield (event, number), Log(shapes, found)


def main() -> int:
    """Runs what the command line asks for; returns the exit status."""
    names = (
        "rounds",
        "pushes",
        "kills",
        "pushers",
        "readers",
        "turns",
        "api_processes",
        "seed",
        "faults",
        "limit_s",
    )
    return command("tests.chaos.features", __doc__, FeatureOptions, names, run)


if __name__ == "__main__":
    sys.exit(main())
