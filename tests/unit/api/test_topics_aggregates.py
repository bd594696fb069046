"""Aggregates of topics and timings of queues over HTTP, wherever the records are: in the tail, in segments, in runs."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.access import parse
from functions.api.context import assemble
from headrace import instants
from headrace.memory import memory_stores
from headrace.queues.timings import COUNTERS
from headrace.topics.values import LEASES
from tests.support import index_runs
from tests.support.clocks import ManualClock
from tests.support.examples import examples
from tests.unit.api.asgi import QUIET, Server
from tests.unit.api.topics import ROOT, T, append, ask, code
from tests.unit.queues.test_timings import bucket

EVER = {"from": "2000-01-01T00:00:00Z", "to": "2100-01-01T00:00:00Z", "interval": "1d"}
INTERVALS_MS = {"1m": 60_000, "5m": 300_000, "1h": 3_600_000, "1d": 86_400_000}
SALES = {
    "fields": {
        "shop": {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "/shop"}], "exact": True},
        "amount": {
            "kind": "integer",
            "bindings": [{"version": 1, "jsonPointer": "/amount"}],
            "column": True,
            "aggregatable": True,
        },
    },
    "rollups": {
        "sales": {
            "dimensions": ["shop"],
            "intervals": ["1m", "1d"],
            "measures": {"orders": {"kind": "count"}, "amount": {"kind": "summary", "field": "amount"}},
        }
    },
}


@pytest.fixture
def server() -> Server:
    return Server()


def aggregate(server: Server, **asked: Any) -> Any:
    """Adds up the sales; the answer's JSON."""
    answer = ask(server, "POST", T + "/aggregate", {"rollup": "sales", **EVER, **asked})
    assert answer.status == 200, answer.body
    return answer.json


def sales(server: Server, **asked: Any) -> dict[str | None, tuple[int, int]]:
    """Returns the number and the sum of sales by shop."""
    found: Counter[tuple[str | None, str]] = Counter()
    for one in aggregate(server, group_by=["shop"], **asked)["buckets"]:
        for group in one["groups"]:
            measures = group["measures"]
            found[group["key"]["shop"], "orders"] += measures["orders"]["count"]
            found[group["key"]["shop"], "amount"] += measures["amount"]["sum"] or 0
    return {shop: (found[shop, "orders"], found[shop, "amount"]) for shop, _ in found}


def sell(server: Server) -> None:
    """Appends four sales, and a record that is none."""
    ask(server, "PUT", T + "/search", SALES)
    rows = [("north", 3), ("south", 5), ("north", 7), ("south", 11)]
    append(server, *({"shop": shop, "amount": amount} for shop, amount in rows), "note")


def publish(server: Server, which: Any = "jobs", *, is_indexed: bool = True) -> None:
    """Moves the records of a log to segments and, perhaps, to runs."""
    topics = server.parts.topics()
    if index_runs.sealed(server.stores, topics, which) and is_indexed:
        index_runs.index(server.stores, topics, which)
    topics.forget()


def test_live_records_are_added_up_wherever_they_are(server: Server) -> None:
    append(server, "first", config={"type": "log"})
    sell(server)
    everything = {"north": (2, 10), "south": (2, 16), None: (2, 0)}
    for step in range(3):
        answer = aggregate(server)
        assert sales(server) == everything
        assert (answer["topic"], answer["rollup"], answer["interval"]) == ("jobs", "sales", "1d")
        coverage = answer["coverage"]
        assert (coverage["complete"], coverage["head_seq"], coverage["visible_through_seq"]) == (True, 6, 6)
        assert (coverage["scanned_tail_docs"] > 0, coverage["used_rollups"]) == (step == 0, step == 2)
        assert answer["performance"]["aggregate_ms"] > 0
        publish(server, is_indexed=step > 0)
    assert "plan" in aggregate(server, explain=True)["explain"]
    assert sales(server, q="amount:>=5") == {"north": (1, 7), "south": (2, 16)}


def test_removed_records_are_not_added_up_though_groups_of_runs_have_them(server: Server) -> None:
    append(server, "first")
    sell(server)
    for step in range(3):
        assert sales(server) == {"north": (2, 10), "south": (2, 16), None: (2, 0)}
        publish(server, is_indexed=step > 0)
    assert aggregate(server)["coverage"]["used_rollups"]
    assert ask(server, "POST", T + "/delete", {"before_seq": 4}).json["deleted"] == 3
    answer = aggregate(server)
    assert sales(server) == {"north": (1, 7), "south": (1, 11), None: (1, 0)}
    assert (answer["coverage"]["used_rollups"], answer["coverage"]["complete"]) == (False, True)


def test_jobs_are_added_up_until_they_are_done(server: Server) -> None:
    ask(server, "PUT", T, {"type": "queue"})
    sell(server)
    publish(server)
    ask(server, "POST", T + "/claim", {"node": "w", "max": 2})
    assert sales(server) == {"north": (2, 10), "south": (2, 16), None: (1, 0)}
    ask(server, "POST", T + "/ack", {"node": "w", "seqs": [1]})
    assert sales(server) == {"north": (1, 7), "south": (2, 16), None: (1, 0)}


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ([], "object"),
        ({"rollup": "other", **EVER}, "rollup"),
        ({"rollup": "sales", **EVER, "interval": "7m"}, "interval"),
        ({"rollup": "sales", **EVER, "to": EVER["from"]}, "after from"),
        ({"rollup": "sales", **EVER, "q": "nothing:1"}, "nothing"),
    ],
)
def test_what_is_no_aggregate_is_refused(server: Server, body: Any, where: str) -> None:
    sell(server)
    append(server, 1)
    ask(server, "PUT", T + "/search", SALES)
    answer = ask(server, "POST", T + "/aggregate", body)
    assert code(answer) == (400, "invalid_request")
    assert where in answer.json["error"]["message"]


def test_a_topic_without_rollups_and_one_that_is_absent(server: Server) -> None:
    append(server, 1)
    assert code(ask(server, "POST", T + "/aggregate", {"rollup": "sales", **EVER})) == (400, "invalid_request")
    assert code(ask(server, "POST", f"{ROOT}/absent/aggregate", {"rollup": "sales", **EVER})) == (
        404,
        "topic_not_found",
    )


def test_timings_are_those_of_queues(server: Server) -> None:
    append(server, 1)
    assert code(ask(server, "POST", T + "/timings", EVER)) == (409, "not_a_queue")
    assert code(ask(server, "POST", f"{ROOT}/absent/timings", EVER)) == (404, "topic_not_found")
    ask(server, "PUT", f"{ROOT}/queue", {"type": "queue"})
    assert ask(server, "POST", f"{ROOT}/queue/timings", EVER).json["buckets"] == []
    for body in ([], {}, {**EVER, "interval": "2m"}, {**EVER, "from": None}):
        assert code(ask(server, "POST", f"{ROOT}/queue/timings", body)) == (400, "invalid_request")


class Worker:
    """A queue that is worked on over HTTP with a clock that a test moves; and what its answers say should be measured."""

    def __init__(self, seed: int) -> None:
        self.random, self.clock = Random(seed), ManualClock()
        stores = memory_stores(QUIET, self.clock)
        self.server = Server(parts=assemble(stores, parse("", "*")))
        self.server.stores = stores
        self.held: dict[int, tuple[str, int, int, int]] = {}  # node, deadline, claimed, deliveries
        self.measured: list[tuple[int, str, int]] = []
        ask(self.server, "PUT", f"{ROOT}/dead", {})
        config = {"type": "queue", "lease_ms": 5000, "max_deliveries": 3, "dead_letter": "dead"}
        assert ask(self.server, "PUT", T, config).status == 201

    def step(self) -> None:
        """Does something."""
        steps = (self.append, self.wait, self.claim, self.ack, self.nack, self.extend, self.seal, self.index)
        self.random.choices(steps, (4, 4, 6, 4, 2, 1, 0.5, 0.5))[0]()

    def append(self) -> None:
        """Appends jobs."""
        append(self.server, *range(self.random.randint(1, 4)))

    def wait(self) -> None:
        """Lets time pass."""
        self.clock.advance(self.random.choice([0.02, 1.3, 3, 70]))

    def seal(self) -> None:
        """Publishes the lease log."""
        publish(self.server, ("jobs", LEASES), is_indexed=False)

    def index(self) -> None:
        """Publishes and indexes the lease log."""
        publish(self.server, ("jobs", LEASES))

    def note(self, what: str, *values: int) -> None:
        """Notes values that are measured now."""
        self.measured += [(self.clock.now_ms(), what, value) for value in values]

    def pass_time(self) -> None:
        """Notes the leases that have ended; an event was written."""
        for seq in [seq for seq, held in self.held.items() if held[1] < self.clock.now_ms()]:
            del self.held[seq]
            self.note("expired", 1)

    def claim(self) -> None:
        """Claims jobs; those that were delivered too often are dead then."""
        dead = self.dead()
        node, now_ms = self.random.choice("ab"), self.clock.now_ms()
        answer = ask(self.server, "POST", T + "/claim", {"node": node, "max": self.random.randint(1, 5)}).json
        moved = self.dead() - dead
        if answer["claimed"] or moved:
            self.pass_time()
        for job in answer["claimed"]:
            is_first = job["deliveries"] == 1
            self.note("wait" if is_first else "redelivered", now_ms - job["$ts"] if is_first else 1)
            self.held[job["$seq"]] = (node, job["deadline"], now_ms, job["deliveries"])
        self.note("dead", *[1] * moved)

    def dead(self) -> int:
        """Returns how many jobs are dead."""
        found: int = ask(self.server, "GET", f"{ROOT}/dead").json["head_seq"]
        return found

    def _some(self) -> tuple[str, list[int]]:
        """Returns a worker and some jobs that it holds."""
        node, now_ms = self.random.choice("ab"), self.clock.now_ms()
        seqs = [seq for seq, (holder, deadline, _, _) in self.held.items() if holder == node and deadline >= now_ms]
        return node, self.random.sample(seqs, self.random.randint(0, len(seqs)))

    def _settle(self, verb: str, done: str, **body: int) -> list[int]:
        node, seqs = self._some()
        if not seqs:
            return []
        answer = ask(self.server, "POST", f"{T}/{verb}", {"node": node, "seqs": seqs, **body})
        assert answer.json[done] == len(seqs), answer.body
        self.pass_time()
        return seqs

    def ack(self) -> None:
        """Acks jobs."""
        for seq in self._settle("ack", "acked"):
            _, _, claimed_ms, deliveries = self.held.pop(seq)
            self.note("run", self.clock.now_ms() - claimed_ms)
            self.note("attempts", deliveries)

    def nack(self) -> None:
        """Gives jobs back."""
        for seq in self._settle("nack", "nacked", delay_ms=self.random.choice([0, 2000])):
            del self.held[seq]
            self.note("nacked", 1)

    def extend(self) -> None:
        """Extends leases."""
        for seq in self._settle("extend", "extended", lease_ms=80_000):
            node, _, claimed_ms, deliveries = self.held[seq]
            self.held[seq] = (node, self.clock.now_ms() + 80_000, claimed_ms, deliveries)

    def check(self, interval: str) -> Any:
        """Checks that the timings of each interval are what was noted. Returns the answer's coverage."""
        length = INTERVALS_MS[interval]
        times = [at for at, _, _ in self.measured]
        body = {"from": min(times), "to": max(times) + 1, "interval": interval}
        answer = ask(self.server, "POST", T + "/timings", body)
        assert answer.status == 200, answer.body
        assert answer.json["coverage"]["complete"]
        assert answer.json["from"] == instants.render(min(times) // length * length)
        assert answer.json["to"] == instants.render(-(-(max(times) + 1) // length) * length)
        buckets = {instants.parse_ms(one["start"]): one for one in answer.json["buckets"]}
        for start in {at // length * length for at in times}:
            values: dict[str, list[int]] = {}
            for at, what, value in self.measured:
                if at // length * length == start:
                    values.setdefault(what, []).append(value)
            found = buckets.pop(start)
            assert instants.parse_ms(found["end"]) == start + length
            assert {name: found[name] for name in COUNTERS} == {name: sum(values.get(name, [])) for name in COUNTERS}
            assert found["claimed"] == len(values.get("wait", [])) + len(values.get("redelivered", []))
            assert found["acked"] == len(values.get("run", []))
            for name in ("wait", "run", "attempts"):
                shown = found[name if name == "attempts" else f"{name}_ms"]
                assert shown["count"] == len(values.get(name, []))
                if name in values:
                    assert (shown["sum"], shown["min"], shown["max"]) == (
                        sum(values[name]),
                        min(values[name]),
                        max(values[name]),
                    )
                    assert shown["histogram"] == Counter(map(bucket, values[name]))
        assert all(one["claimed"] == one["acked"] == one["expired"] == 0 for one in buckets.values())
        return answer.json["coverage"]


@examples(25)
@given(st.integers(0, 2**32))
def test_timings_are_what_workers_saw(seed: int) -> None:
    worker = Worker(seed)
    for _ in range(40):
        worker.step()
    worker.append()
    worker.claim()
    for stage in (lambda: None, worker.seal, worker.index):
        stage()
        for interval in INTERVALS_MS:
            coverage = worker.check(interval)
    assert coverage["index_families_used"] == ["agg"]
    assert coverage["scanned_tail_docs"] == coverage["scanned_segments"] == 0


def test_timings_of_old_events_are_gone_and_those_after_are_whole() -> None:
    worker = Worker(7)

    def work() -> tuple[int, int]:
        """Does some steps, and returns when they began and ended."""
        worker.measured.clear()
        began = worker.clock.now_ms()
        for _ in range(30):
            worker.step()
        worker.append()
        worker.claim()
        worker.index()
        return began, worker.clock.now_ms()

    def count(began: int, ended: int) -> int:
        body = {"from": began, "to": ended + 1, "interval": "1d"}
        answer = ask(worker.server, "POST", T + "/timings", body).json
        assert answer["coverage"]["complete"]
        return sum(bucket["claimed"] for bucket in answer["buckets"])

    first = work()
    worker.check("1d")
    assert count(*first) > 0
    for _ in range(2):
        worker.clock.advance(31 * 86_400)
        later = work()
    head = worker.server.parts.topics().head(("jobs", LEASES))
    assert 0 < head.state.floor < head.state.next_offset
    assert count(*first) == 0
    for interval in INTERVALS_MS:
        worker.check(interval)
    claims = sum(what in ("wait", "redelivered") for _, what, _ in worker.measured)
    assert claims == count(*later) < count(first[0], later[1])
