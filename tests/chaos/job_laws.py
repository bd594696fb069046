"""What happened to jobs, and the laws of it. Pure: each says what contradicts it, and how often it looked."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tests.chaos.laws import Verdict

PLAIN, DYING, GRAVE = "jobs", "jobs-that-die", "jobs-that-died"
MAX_DELIVERIES = 3


class Push(NamedTuple):
    """A batch that was acknowledged: its jobs, and the seq of the first."""

    queue: str
    ids: tuple[str, ...]
    first_seq: int


class Delivery(NamedTuple):
    """A job as a worker got it, from before its claim was sent to after it was answered (monotonic seconds). `deadline_ms`
    is the server's, as extended; `claimed_ms` is when the server leased it.
    """

    queue: str
    seq: int
    id: str
    lease_id: str
    number: int
    claimed_ms: int
    deadline_ms: int
    started: float
    ended: float


class Settlement(NamedTuple):
    """An ack or nack of one delivery. `outcome`: done, skipped, or unknown (a try that got no answer may have done it)."""

    verb: str
    queue: str
    seq: int
    lease_id: str
    outcome: str
    started: float
    ended: float


@dataclass
class Jobs:
    """Everything that happened to jobs. `lost_claims`: claims whose answer was lost, by queue."""

    pushes: list[Push] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    settlements: list[Settlement] = field(default_factory=list)
    lost_claims: Counter[str] = field(default_factory=Counter)
    buried: list[str] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    settled: threading.Event = field(default_factory=threading.Event)

    def done(self) -> set[str]:
        """Returns the ids of jobs whose ack was answered, or may have been."""
        at = {(one.queue, one.seq): one.id for one in self.deliveries}
        acks = (one for one in self.settlements if one.verb == "ack" and one.outcome != "skipped")
        return {at[one.queue, one.seq] for one in acks}


def every_job_is_done_or_buried(jobs: Jobs) -> Verdict:
    """Checks that what was acknowledged as pushed was acked, or is in the dead-letter topic, and that nothing is left."""
    verdict, done, buried = Verdict(), jobs.done(), set(jobs.buried)
    for push in jobs.pushes:
        for one in push.ids:
            verdict.require(one in done or one in buried, "lost", push.queue, one)
    for queue, count in jobs.left.items():
        verdict.require(count == 0, "left", queue, count)
    return verdict


def a_job_is_pushed_once(jobs: Jobs) -> Verdict:
    """Checks that a job has one seq, the one that its push was answered with."""
    verdict = Verdict()
    seqs = {one: push.first_seq + at for push in jobs.pushes for at, one in enumerate(push.ids)}
    for delivery in jobs.deliveries:
        verdict.require(seqs.get(delivery.id) == delivery.seq, delivery, seqs.get(delivery.id))
    return verdict


def an_acked_job_is_never_delivered_again(jobs: Jobs) -> Verdict:
    """Checks that no claim that was sent after an ack had been answered returned the job."""
    verdict = Verdict()
    acked = {
        (one.queue, one.seq): one.ended for one in jobs.settlements if one.verb == "ack" and one.outcome == "done"
    }
    for one in jobs.deliveries:
        ended = acked.get((one.queue, one.seq))
        verdict.require(ended is None or one.started < ended, "acked and delivered", one, ended)
    return verdict


def a_job_is_acked_once(jobs: Jobs) -> Verdict:
    """Checks that at most one lease acked a job."""
    verdict = Verdict()
    leases: dict[tuple[str, int], set[str]] = defaultdict(set)
    for one in jobs.settlements:
        if one.verb == "ack" and one.outcome == "done":
            leases[one.queue, one.seq].add(one.lease_id)
    for job, found in leases.items():
        verdict.require(len(found) == 1, job, found)
    return verdict


def a_redelivery_follows_a_lease_that_ended(jobs: Jobs) -> Verdict:
    """Checks that a job is leased again only after its lease's deadline, or a nack; that deliveries are counted up; and
    that those that nobody saw are no more than the claims whose answer was lost.
    """
    verdict = Verdict()
    nacked: dict[tuple[str, int, str], float] = {
        (one.queue, one.seq, one.lease_id): one.started
        for one in jobs.settlements
        if one.verb == "nack" and one.outcome != "skipped"
    }
    leases: dict[tuple[str, int], dict[str, Delivery]] = defaultdict(dict)
    for one in jobs.deliveries:  # extended ones come last
        leases[one.queue, one.seq][one.lease_id] = one
    for (queue, seq), found in leases.items():
        ordered = sorted(found.values(), key=lambda one: one.number)
        for first, second in pairwise(ordered):
            verdict.require(first.number < second.number, "counted twice", first, second)
            nack = nacked.get((queue, seq, first.lease_id))
            has_ended = second.claimed_ms >= first.deadline_ms or (nack is not None and nack < second.ended)
            verdict.require(has_ended, "leased twice", first, second)
        unseen = ordered[-1].number - len(ordered)
        verdict.require(unseen <= jobs.lost_claims[queue], "unseen deliveries", queue, seq, unseen)
    return verdict


def a_job_is_buried_once_and_only_if_it_may(jobs: Jobs) -> Verdict:
    """Checks that a job is in the dead-letter topic at most once, only after as many deliveries as it may have, and never
    if it was acked.
    """
    verdict = Verdict()
    acked = {(one.queue, one.seq) for one in jobs.settlements if one.verb == "ack" and one.outcome == "done"}
    at = {one.id: (one.queue, one.seq) for one in jobs.deliveries}
    for job, times in Counter(jobs.buried).items():
        verdict.require(times == 1, "buried", times, "times", job)
        verdict.require(at.get(job) not in acked, "acked and buried", job)
    for one in jobs.deliveries:
        verdict.require(one.queue != DYING or one.number <= MAX_DELIVERIES, "delivered too often", one)
    return verdict


LAWS: tuple[Callable[[Jobs], Verdict], ...] = (
    every_job_is_done_or_buried,
    a_job_is_pushed_once,
    an_acked_job_is_never_delivered_again,
    a_job_is_acked_once,
    a_redelivery_follows_a_lease_that_ended,
    a_job_is_buried_once_and_only_if_it_may,
)


def judge(jobs: Jobs) -> dict[str, Verdict]:
    """Returns the verdict of each law."""
    return {law.__name__: law(jobs) for law in LAWS}
