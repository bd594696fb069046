"""What a queue costs in AWS calls, counted as they leave the clients. These are promises (docs/benchmarks.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from headrace.batch import Batch
from headrace.queues.values import ClaimRequest, SettleRequest
from headrace.queues.verbs import Queues
from headrace.topics.values import TOPICS, TopicConfig, WriteRequest
from tests.support.counting import Counted, counted_stores


class Deployment(Counted):
    """Stores on moto, the calls made to them, and processes that use them."""

    def queue(self, name: str, jobs: int) -> Queues:
        """Returns a process with a queue that it has created, whose jobs came one by one."""
        queues = self.cold()
        queues.put(name, TopicConfig(type="queue"))
        for number in range(jobs):
            queues.append(name, WriteRequest(records=Batch.of([b"%d" % number])))
        return queues

    def cold(self) -> Queues:
        """Returns a process that knows nothing."""
        return Queues(self.stores)


@pytest.fixture(scope="module")
def aws() -> Iterator[Deployment]:
    with counted_stores(surfaces=(TOPICS,)) as counted:
        yield Deployment(*counted)


def test_a_warm_claim_is_one_write_and_a_query_for_many_jobs(aws: Deployment) -> None:
    queues = aws.queue("warm", 130)
    queues.claim("warm", ClaimRequest("a"))
    for most in (1, 2, 16):
        with aws.calls.during() as made:
            assert len(queues.claim("warm", ClaimRequest("a", most)).jobs) == most
        assert dict(made) == {"PutItem": 1}
    with aws.calls.during() as made:
        for _ in range(100):
            (job,) = queues.claim("warm", ClaimRequest("a")).jobs
            queues.ack("warm", SettleRequest("a", (job.record.offset + 1,)))
    assert dict(made) == {"PutItem": 200, "Query": 2}, "12 jobs are known, then it reads 64 and the rest"


def test_a_batch_of_jobs_is_not_read_for_each_claim(aws: Deployment) -> None:
    queues = aws.queue("batch", 0)
    noise = [hashlib.sha512(b"%d" % number).digest() for number in range(1000)]
    queues.append("batch", WriteRequest(records=Batch.of(noise)))
    with aws.calls.during() as made:
        for _ in range(15):
            assert len(queues.claim("batch", ClaimRequest("a", 60)).jobs) == 60
    assert made["GetObject"] == 4, "60 jobs, then twice as many each time"


def test_processes_that_share_a_queue_look_before_they_write(aws: Deployment) -> None:
    processes = [aws.queue("shared", 60), aws.cold(), aws.cold()]
    for process in processes * 2:
        seq = process.claim("shared", ClaimRequest("a")).jobs[0].record.offset + 1
        process.ack("shared", SettleRequest("a", (seq,)))
    for process in processes:
        with aws.calls.during() as made:
            claimed = process.claim("shared", ClaimRequest("a"))
        assert (claimed.tries, dict(made)) == (1, {"Query": 1, "PutItem": 1})
    for _ in range(2):
        process.ack("shared", SettleRequest("a", (claimed.jobs[0].record.offset + 1,)))
        claimed = process.claim("shared", ClaimRequest("a"))
    with aws.calls.during() as made:
        process.ack("shared", SettleRequest("a", (claimed.jobs[0].record.offset + 1,)))
    assert dict(made) == {"PutItem": 1}, "nobody comes between any more"


def test_a_warm_settlement_is_one_write(aws: Deployment) -> None:
    queues = aws.queue("settled", 6)
    queues.claim("settled", ClaimRequest("a", 6))
    for verb, seq in ((queues.ack, 1), (queues.nack, 2), (queues.extend, 3)):
        with aws.calls.during() as made:
            assert verb("settled", SettleRequest("a", (seq,), lease_ms=1000)).done == (seq,)
        assert dict(made) == {"PutItem": 1}


def test_a_look_at_how_long_jobs_wait_is_one_query_and_the_read_of_a_job(aws: Deployment) -> None:
    queues = aws.queue("waiting", 3)
    with aws.calls.during() as made:
        assert queues.oldest_wait_ms("waiting") is not None
        assert queues.oldest_wait_ms("waiting") is None
    assert dict(made) == {"Query": 2}


def test_a_cold_claim_and_ack_add_reads_alone(aws: Deployment) -> None:
    aws.queue("cold", 4)
    with aws.calls.during() as made:
        assert len(aws.cold().claim("cold", ClaimRequest("a", 2)).jobs) == 2
    assert dict(made) == {"GetItem": 1, "Query": 3, "PutItem": 1}
    with aws.calls.during() as made:
        assert aws.cold().ack("cold", SettleRequest("a", (1,))).done == (1,)
    assert dict(made) == {"GetItem": 1, "Query": 2, "PutItem": 1}


def test_an_empty_claim_and_a_view_write_nothing(aws: Deployment) -> None:
    queues = aws.queue("empty", 0)
    for ask in (
        lambda: queues.claim("empty", ClaimRequest("a", 5)),
        lambda: queues.ack("empty", SettleRequest("a", (1,))),
        lambda: queues.release("empty", "a", "s"),
        lambda: queues.leases("empty", "a"),
    ):
        with aws.calls.during() as made:
            ask()
        assert set(made) <= {"GetItem", "Query"}
    for _ in range(2):  # a worker that asks again and again
        with aws.calls.during() as made:
            queues.claim("empty", ClaimRequest("a", 5))
        assert dict(made) == {"Query": 2}
    with aws.calls.during() as made:
        queues.view("empty", touch=False)
    assert dict(made) == {"Query": 2, "BatchGetItem": 1}


def test_a_dead_letter_is_one_transaction(aws: Deployment) -> None:
    queues = aws.cold()
    queues.put("dying", TopicConfig(type="queue", max_deliveries=1, dead_letter="dead"))
    queues.put("dead", TopicConfig())
    queues.append("dying", WriteRequest(records=Batch.of([b"1", b"2"])))
    queues.claim("dying", ClaimRequest("a", 2))
    queues.nack("dying", SettleRequest("a", (1, 2)))
    with aws.calls.during() as made:
        assert queues.claim("dying", ClaimRequest("a")).dead == 2
    assert made["TransactWriteItems"] == 1 and not made["PutItem"]
