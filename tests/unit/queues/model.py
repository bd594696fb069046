"""A queue as a dict of jobs, each with what anyone may know of it; slow and plain."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from headrace.queues import events
from headrace.queues.events import AnyEvent
from headrace.queues.projection import JOIN_MS
from headrace.topics.runs import Runs


@dataclass
class Job:
    """One job: `state` is fresh, leased, back or done."""

    state: str = "fresh"
    deliveries: int = 0
    claim: str = ""
    node: str = ""
    connection: str = ""
    until_ms: int = 0
    ready_ms: int = 0
    appended_ms: int = 0
    claimed_ms: int = 0
    has_expired: bool = False  # its lease did, and no event came since


@dataclass
class Model:
    """The jobs of a queue by offset, and its open joins; and what was to be measured, with the time of the event."""

    now_ms: int = 0
    jobs: dict[int, Job] = field(default_factory=dict)
    joins: list[events.Join] = field(default_factory=list)
    acked: int = 0
    dead: int = 0
    measured: list[tuple[int, str, int]] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The offset after the last job."""
        return len(self.jobs)

    def produce(self, count: int) -> None:
        """Adds fresh jobs."""
        for _ in range(count):
            self.jobs[self.end] = Job(appended_ms=self.now_ms)

    def pass_time(self, now_ms: int) -> None:
        """Moves the time, never back: leases end."""
        self.now_ms = max(self.now_ms, now_ms)
        for job in self.jobs.values():
            if job.state == "leased" and job.until_ms < self.now_ms:
                job.state, job.ready_ms, job.has_expired = "back", 0, True
        self.joins = [join for join in self.joins if join.closes + JOIN_MS >= self.now_ms]

    def claimable(self) -> list[int]:
        """Returns the offsets of the jobs that can be claimed: those that were given back first."""
        back = [at for at, job in self.jobs.items() if job.state == "back" and job.ready_ms <= self.now_ms]
        back.sort(key=lambda at: (self.jobs[at].deliveries, at))
        return back + [at for at, job in self.jobs.items() if job.state == "fresh"]

    def held(self, node: str) -> list[int]:
        """Returns the offsets of the jobs that a worker holds."""
        return [at for at, job in self.jobs.items() if job.state == "leased" and job.node == node]

    def count(self, state: str) -> int:
        """Counts jobs; `ready` and `delayed` divide those that were given back, `ready` has the fresh ones, too."""
        if state == "ready":
            return len(self.claimable())
        if state == "delayed":
            return sum(job.state == "back" and job.ready_ms > self.now_ms for job in self.jobs.values())
        if state == "live":
            return sum(job.state != "done" for job in self.jobs.values())
        return sum(job.state == state for job in self.jobs.values())

    def apply(self, event: AnyEvent) -> None:
        """Applies an event that this model has chosen, so it is one that can happen."""
        if event.lost is not None:
            self.jobs = {at: job for at, job in self.jobs.items() if at < event.lost.end}
        self.pass_time(event.at)
        for at in range(event.floor):
            self.jobs[at].state = "done"
        for job in self.jobs.values():
            if job.has_expired and job.state == "back":
                self._measure("expired", 1)
            job.has_expired = False
        match event:
            case events.Claim():
                self._lease(event)
                self._set(event.gone, "done")
            case events.Deal():
                for hand in event.hands:
                    self._lease(hand)
                self._set(event.gone, "done")
                self.joins = [join for join in self.joins if join.closes != event.closes]
            case events.Join():
                self.joins.append(event)
            case events.Ack():
                for at in offsets(event.jobs):
                    self._measure("run", self.now_ms - self.jobs[at].claimed_ms)
                    self._measure("attempts", self.jobs[at].deliveries)
                self.acked += self._set(event.jobs, "done")
            case events.Dead():
                self.dead += self._set(event.jobs, "done", measured="dead")
            case events.Remove():
                self._set(event.jobs, "done")
            case events.Nack():
                self._set(event.jobs, "back", event.ready_at, measured="nacked")
            case events.Release():
                self._set(event.jobs, "back", measured="released")
            case events.Extend():
                for at in offsets(event.jobs):
                    self.jobs[at].until_ms = event.until

    def _lease(self, hand: events.Claim | events.Dealt) -> None:
        for at in offsets(hand.jobs):
            job = self.jobs[at]
            if job.state == "fresh":
                self._measure("wait", self.now_ms - job.appended_ms)
            else:
                self._measure("redelivered", 1)
            job.state, job.deliveries, job.claimed_ms = "leased", job.deliveries + 1, self.now_ms
            job.claim, job.node, job.connection, job.until_ms = hand.id, hand.node, hand.connection, hand.until

    def _set(self, jobs: events.Flat, state: str, ready_ms: int = 0, measured: str = "") -> int:
        for at in offsets(jobs):
            self.jobs[at].state, self.jobs[at].ready_ms = state, ready_ms
            if measured:
                self._measure(measured, 1)
        return len(offsets(jobs))

    def _measure(self, what: str, value: int) -> None:
        self.measured.append((self.now_ms, what, value))


def offsets(jobs: events.Flat) -> list[int]:
    """Returns the offsets in runs."""
    return [at for first, end in Runs.of_flat(jobs) for at in range(first, end)]


def flat(jobs: list[int]) -> events.Flat:
    """Returns offsets as runs."""
    return Runs.of_offsets(jobs).flat()


def replay(found: list[AnyEvent], end: int, most: int) -> Model:
    """Applies the events of a queue with `end` jobs to a model, which must allow each of them.

    Args:
        most: how often a job may be delivered.
    """
    model = Model()
    model.produce(end)
    for number, event in enumerate(found):
        if number == 0:
            event = replace(event, lost=None)  # it tells of the jobs log's incarnation
        assert event.lost is None, "the jobs log was not recovered"
        assert event.at >= model.now_ms, "time went back"
        model.pass_time(event.at)
        for at in range(event.floor):
            model.jobs[at].state = "done"
        match event:
            case events.Claim() | events.Deal():
                hands = (event,) if isinstance(event, events.Claim) else event.hands
                claimable = set(model.claimable())
                for hand in hands:
                    assert claimable.issuperset(offsets(hand.jobs)), "a job that another holds, or that is done"
                    claimable -= set(offsets(hand.jobs))
                    assert all(model.jobs[at].deliveries < most for at in offsets(hand.jobs)), "once too often"
            case events.Ack() | events.Nack() | events.Extend() | events.Release():
                assert set(model.held(event.node)).issuperset(offsets(event.jobs)), "a job that the worker has not"
            case events.Dead():
                assert set(model.claimable()).issuperset(offsets(event.jobs))
                assert all(model.jobs[at].deliveries == most for at in offsets(event.jobs))
            case events.Remove():
                assert all(model.jobs[at].state != "done" for at in offsets(event.jobs))
        model.apply(event)
    return model
