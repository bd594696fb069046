"""Jobs that were delivered too often (§ 10.6, `max_deliveries`, `dead_letter`)."""

from __future__ import annotations

import pytest

from tests.conformance.topics.client import Server, Topic, answered, eventually


def exhaust(queue: Topic, deliveries: int = 2) -> None:
    """Claims and nacks the first job as often as it may be delivered."""
    for delivery in range(1, deliveries + 1):
        [job] = queue.jobs()
        assert (job["$seq"], job["deliveries"]) == (1, delivery)
        answered(queue.nack([1]))


def test_a_job_that_fails_too_often_is_moved(server: Server) -> None:
    dead = server.unused()
    queue = server.queue(max_deliveries=2, dead_letter=dead.name)
    queue.filled({"n": 1}, tag="t", meta={"trace": "z"})
    queue.filled("next")
    exhaust(queue)
    assert not dead.exists()
    # The claim that would be the third delivery goes on to the next job.
    assert queue.seqs() == [2]
    [record] = dead.page(include_tags=True)["records"]
    assert (record["$seq"], record["$tag"], record["data"]) == (1, "t", {"n": 1})
    assert record["meta"] == {
        "trace": "z",
        "$dead_letter_from": queue.name,
        "$dead_letter_deliveries": "2",
        "$dead_letter_src_seq": "1",
    }
    state = queue.now()
    assert (state["count"], state["queue"]) == (1, {"ready": 0, "in_flight": 1, "dead_lettered": 1})
    assert queue.data() == ["next"]
    assert queue.page()["tombstone"] is None
    assert answered(queue.ack([1]))["skipped"] == [1]


def test_a_lease_that_expires_is_a_delivery(server: Server) -> None:
    dead = server.unused()
    queue = server.queue("job", max_deliveries=1, dead_letter=dead.name)
    queue.jobs(lease_ms=100)
    eventually(queue.counters, lambda counters: counters["in_flight"] == 0, within_s=10)
    assert queue.jobs() == []
    assert dead.data() == ["job"]
    assert queue.counters() == {"ready": 0, "in_flight": 0, "dead_lettered": 1}


def test_many_jobs_are_moved_once_each(server: Server) -> None:
    dead = server.topic()
    queue = server.queue(*range(12), max_deliveries=1, dead_letter=dead.name)
    queue.jobs(max=12)
    answered(queue.nack(list(range(1, 13))))
    queue.filled("fresh")
    assert queue.seqs(max=20) == [13]
    assert sorted(map(str, dead.data())) == sorted(map(str, range(12)))
    assert queue.counters() == {"ready": 0, "in_flight": 1, "dead_lettered": 12}


def test_the_dead_letter_topic_may_be_a_queue(server: Server) -> None:
    dead = server.queue()
    queue = server.queue("job", max_deliveries=1, dead_letter=dead.name)
    exhaust(queue, 1)
    assert queue.jobs() == []
    [job] = dead.jobs()
    assert (job["data"], job["deliveries"], job["meta"]["$dead_letter_from"]) == ("job", 1, queue.name)


@pytest.mark.parametrize("config", [{"max_deliveries": 1}, {"dead_letter": "never-made"}], ids=repr)
def test_with_one_setting_alone_a_job_is_reclaimed_for_ever(server: Server, config: dict[str, object]) -> None:
    queue = server.queue("job", **config)
    exhaust(queue, 5)
    assert queue.counters() == {"ready": 1, "in_flight": 0, "dead_lettered": 0}


def test_nothing_is_created_where_auto_create_forbids_it(server: Server) -> None:
    dead = server.unused()
    queue = server.queue("job", max_deliveries=1, dead_letter=dead.name, auto_create=False)
    exhaust(queue, 1)
    queue.jobs()
    assert not dead.exists()
    assert queue.now()["count"] == 1
    assert queue.counters()["dead_lettered"] == 0


def test_settings_hold_from_now_on(server: Server) -> None:
    dead = server.unused()
    queue = server.queue("job")
    exhaust(queue, 3)
    answered(queue.put(type="queue", max_deliveries=3, dead_letter=dead.name))
    assert queue.jobs() == []
    assert dead.data() == ["job"]


def test_a_full_dead_letter_topic_loses_no_job(server: Server) -> None:
    dead = server.topic(cap_records=1, discard="reject")
    dead.filled("full")
    queue = server.queue("job", max_deliveries=1, dead_letter=dead.name)
    exhaust(queue, 1)
    queue.jobs()
    assert (queue.now()["count"], queue.counters()["dead_lettered"]) == (1, 0)
    answered(dead.erase(before_seq=2))
    eventually(lambda: (queue.jobs(lease_ms=100), dead.data())[1], lambda data: data == ["job"], within_s=10)
    assert queue.counters()["dead_lettered"] == 1
