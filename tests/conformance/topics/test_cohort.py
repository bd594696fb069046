"""The coalescing window of claims, `claim_jitter_ms` (§ 10.2)."""

from __future__ import annotations

import time
from functools import partial

from tests.conformance.topics.client import Server, Topic, answered, at_once

WINDOW = 500


def shares(queue: Topic, most: tuple[int, ...]) -> list[list[int]]:
    """Claims for several workers at once; returns the seqs that each gets."""
    return at_once([partial(queue.seqs, f"w{n}", max=jobs) for n, jobs in enumerate(most)])


def test_jobs_are_dealt_evenly(server: Server) -> None:
    queue = server.queue(*range(9), claim_jitter_ms=WINDOW)
    dealt = shares(queue, (10, 10, 10))
    assert [len(seqs) for seqs in dealt] == [3, 3, 3]
    assert sorted(seq for seqs in dealt for seq in seqs) == list(range(1, 10))
    assert all(seqs == sorted(seqs) for seqs in dealt)
    assert queue.counters() == {"ready": 0, "in_flight": 9, "dead_lettered": 0}


def test_nobody_gets_more_than_asked(server: Server) -> None:
    queue = server.queue(*range(8), claim_jitter_ms=WINDOW)
    assert sorted(len(seqs) for seqs in shares(queue, (2, 10))) == [2, 6]
    queue = server.queue(*range(8), claim_jitter_ms=WINDOW)
    assert [len(seqs) for seqs in shares(queue, (1, 2))] == [1, 2]
    assert queue.counters()["ready"] == 5


def test_a_job_for_more_workers_than_jobs(server: Server) -> None:
    queue = server.queue("only", claim_jitter_ms=WINDOW)
    assert sorted(len(seqs) for seqs in shares(queue, (5, 5, 5))) == [0, 0, 1]


def test_a_claim_waits_for_its_window(server: Server) -> None:
    queue = server.queue("a", claim_jitter_ms=WINDOW)
    started = time.monotonic()
    assert queue.seqs(max=5) == [1]
    assert time.monotonic() - started >= WINDOW / 1000 * 0.8
    started = time.monotonic()
    assert queue.seqs(max=5) == []
    assert time.monotonic() - started < 10


def test_without_a_window_the_first_worker_takes_all(server: Server) -> None:
    queue = server.queue(*range(5))
    assert queue.seqs("a", max=10) == [1, 2, 3, 4, 5]
    assert queue.seqs("b", max=10) == []


def test_members_of_a_cohort_ack_what_they_got(server: Server) -> None:
    queue = server.queue(*range(6), claim_jitter_ms=WINDOW)
    for n, seqs in enumerate(shares(queue, (3, 3))):
        answer = answered(queue.ack(seqs, f"w{n}"))
        assert (answer["acked"], answer["skipped"]) == (3, [])
    assert queue.now()["count"] == 0
