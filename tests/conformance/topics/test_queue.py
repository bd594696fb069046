"""Queues: claim, ack, nack and extend (§ 10.1 to 10.7)."""

from __future__ import annotations

import re
import time
from functools import partial
from typing import Any

import pytest

from tests.conformance.topics.client import JSON, Server, Topic, answered, at_once, eventually, refused

SHORT = 100  # the shortest lease


def reclaimed(queue: Topic, node: str = "other") -> list[dict[str, Any]]:
    """Waits until every lease has expired and claims a job; returns it."""
    eventually(queue.counters, lambda counters: counters["in_flight"] == 0, within_s=10)
    return queue.jobs(node)


def test_other_topics_refuse_the_verbs_of_queues(server: Server) -> None:
    log, absent = server.topic(), server.unused()
    for topic, status, code in ((log, 409, "not_a_queue"), (absent, 404, "topic_not_found")):
        refused(topic.claim(), status, code)
        refused(topic.ack([1]), status, code)
        refused(topic.nack([1]), status, code)
        refused(topic.extend([1], lease_ms=1000), status, code)
        refused(topic.send("GET", "/leases"), status, code)
    assert not absent.exists()


def test_the_answer_to_a_claim(server: Server) -> None:
    queue = server.queue(lease_ms=5000)
    queue.filled({"type": "resize"}, tag="tenant:1", meta={"trace": "z9"}, node="producer")
    queue.filled("plain", "more")
    before = time.time() * 1000
    answer = answered(queue.claim(max=2))
    assert set(answer) == {"topic", "claimed", "count", "ready", "performance"}
    assert (answer["topic"], answer["count"], answer["ready"]) == (queue.name, 2, 1)
    full, plain = answer["claimed"]
    assert set(plain) == {"$seq", "lease_id", "deadline", "$ts", "deliveries", "data"}
    assert set(full) - {"$node"} == set(plain) | {"$tag", "meta"}
    assert (full["$seq"], full["$tag"], full["meta"], full["data"]) == (
        1,
        "tenant:1",
        {"trace": "z9"},
        {"type": "resize"},
    )
    assert (plain["$seq"], plain["data"], plain["deliveries"]) == (2, "plain", 1)
    assert re.fullmatch("lease_[0-9a-f]+", full["lease_id"])
    assert full["lease_id"] != plain["lease_id"]
    assert before + 5000 - 2500 < full["deadline"] == plain["deadline"] < time.time() * 1000 + 5000 + 2500
    assert full["$ts"] <= plain["$ts"] <= full["deadline"]


def test_leases_are_listed_those_first_that_end_first(server: Server) -> None:
    """An addition to the contract."""
    queue = server.queue(*range(6), lease_ms=60_000)
    first, second = queue.jobs("a", max=2), queue.jobs("b", max=2, lease_ms=30_000)
    answered(queue.ack([2], "a"))

    def listed(**params: object) -> list[dict[str, Any]]:
        answer = answered(queue.send("GET", "/leases", None, None, **params))
        assert set(answer) == {"topic", "leases", "performance"}
        leases: list[dict[str, Any]] = answer["leases"]
        return leases

    leases = listed()
    assert [(one["$seq"], one["node"], one["deliveries"]) for one in leases] == [
        (3, "b", 1),
        (4, "b", 1),
        (1, "a", 1),
    ]
    assert [one["deadline"] for one in leases] == [second[0]["deadline"]] * 2 + [first[0]["deadline"]]
    assert all(set(one) == {"$seq", "node", "claimed_ts", "deadline", "deliveries"} for one in leases)
    assert all(0 < one["claimed_ts"] <= one["deadline"] - 30_000 for one in leases)
    assert listed(limit=1) == listed(limit=0) == leases[:1]
    assert listed(node="a") == leases[2:]
    assert listed(node="nobody") == []
    refused(queue.send("GET", "/leases", None, None, limit="all"), 400, "invalid_request")


def test_a_claim_takes_one_job_unless_asked(queue: Topic) -> None:
    assert [queue.seqs() for _ in range(3)] == [[1], [2], [3]]


def test_a_claim_may_get_fewer_jobs_and_none(queue: Topic) -> None:
    assert queue.seqs(max=100) == [1, 2, 3, 4, 5]
    answer = answered(queue.claim(max=100))
    assert (answer["claimed"], answer["count"], answer["ready"]) == ([], 0, 0)
    assert answered(queue.claim(max=10**6))["count"] == 0


def test_a_claim_is_clamped_to_a_thousand_jobs(server: Server) -> None:
    queue = server.queue(*range(1100))
    assert queue.seqs(max=5000) == list(range(1, 1001))
    assert queue.seqs(max=5000) == list(range(1001, 1101))


def test_each_job_is_leased_to_one_worker(server: Server) -> None:
    queue = server.queue(*range(60))

    def claim(node: str) -> list[int]:
        return [seq for _ in range(4) for seq in queue.seqs(node, max=3)]

    answers = at_once([partial(claim, f"w{n}") for n in range(5)])
    assert sorted(seq for seqs in answers for seq in seqs) == list(range(1, 61))
    assert queue.counters() == {"ready": 0, "in_flight": 60, "dead_lettered": 0}


def test_workers_together_finish_every_job_once(server: Server) -> None:
    queue = server.queue(*range(40))

    def work(node: str) -> list[int]:
        done: list[int] = []
        while seqs := queue.seqs(node, max=4):
            answer = answered(queue.ack(seqs, node))
            assert (answer["acked"], answer["skipped"]) == (len(seqs), [])
            done += seqs
        return done

    done = at_once([partial(work, f"w{n}") for n in range(4)])
    assert sorted(seq for seqs in done for seq in seqs) == list(range(1, 41))
    state = queue.now()
    assert (state["count"], state["queue"]) == (0, {"ready": 0, "in_flight": 0, "dead_lettered": 0})


def test_a_lease_expires(queue: Topic) -> None:
    [first] = queue.jobs("a", lease_ms=SHORT)
    [again] = reclaimed(queue)
    assert again["$seq"] == first["$seq"]
    assert (first["deliveries"], again["deliveries"], again["data"]) == (1, 2, 1)
    assert again["lease_id"] != first["lease_id"]


def test_reclaimed_jobs_come_before_fresh_ones_and_answers_ascend(queue: Topic) -> None:
    assert queue.seqs("a", max=2) == [1, 2]
    assert queue.seqs("b", max=1) == [3]
    answered(queue.nack([3], "b"))
    answered(queue.nack([1], "a"))
    jobs = queue.jobs("c", max=3)
    assert [(job["$seq"], job["deliveries"]) for job in jobs] == [(1, 2), (3, 2), (4, 1)]


def test_an_expired_lease_goes_before_fresh_jobs(queue: Topic) -> None:
    queue.jobs("a", lease_ms=SHORT)
    eventually(queue.counters, lambda counters: counters == {"ready": 5, "in_flight": 0, "dead_lettered": 0})
    assert queue.seqs("b", max=2) == [1, 2]


def test_leases_have_a_length_by_the_claim_or_the_topic_and_are_clamped(server: Server) -> None:
    queue = server.queue(1, 2, 3, 4, lease_ms=60_000)

    def length(**members: int) -> float:
        asked = time.time() * 1000
        return float(queue.jobs("w", **members)[0]["deadline"] - asked)

    assert abs(length() - 60_000) < 5000
    assert abs(length(lease_ms=20_000) - 20_000) < 5000
    assert abs(length(lease_ms=10**12) - 86_400_000) < 5000
    answered(queue.put(type="queue", lease_ms=40_000))
    assert abs(length() - 40_000) < 5000
    queue.filled(5)
    [short] = queue.jobs(lease_ms=1)
    assert short["deadline"] - short["$ts"] >= SHORT


BAD_CLAIMS = [
    {},
    {"node": 7},
    {"node": "n" * 129},
    {"node": "w", "max": 0},
    {"node": "w", "max": "all"},
    {"node": "w", "max": -1},
    {"node": "w", "max": 1.5},
    {"node": "w", "lease_ms": "long"},
    {"node": "w", "lease_ms": -5},
]


def test_a_bad_claim_is_refused_and_leases_nothing(queue: Topic) -> None:
    for body in BAD_CLAIMS:
        refused(queue.send("POST", "/claim", body), 400, "invalid_request")
    assert queue.counters() == {"ready": 5, "in_flight": 0, "dead_lettered": 0}


def test_an_ack_deletes_the_job(queue: Topic) -> None:
    queue.jobs(max=3)
    answer = answered(queue.ack([1, 3]))
    assert set(answer) == {"topic", "acked", "skipped", "ready", "in_flight", "performance"}
    assert (answer["topic"], answer["acked"], answer["skipped"]) == (queue.name, 2, [])
    assert (answer["ready"], answer["in_flight"]) == (2, 1)
    assert queue.data() == [2, 4, 5]
    state = queue.now()
    assert (state["count"], state["earliest_seq"], state["head_seq"]) == (3, 2, 5)
    assert queue.page()["tombstone"] is None


def test_an_acked_job_never_comes_back(server: Server) -> None:
    queue = server.queue(1, 2)
    [job] = queue.jobs()
    answered(queue.ack([job["$seq"]]))
    for _ in range(2):
        assert queue.seqs("w", lease_ms=SHORT) == [2]
        eventually(queue.counters, lambda counters: counters["in_flight"] == 0, within_s=10)


def test_an_ack_skips_what_its_worker_does_not_hold(queue: Topic) -> None:
    queue.jobs("a", max=2)
    queue.jobs("b", max=1)
    answer = answered(queue.ack([1, 3, 5, 99], "a"))
    assert (answer["acked"], sorted(answer["skipped"])) == (1, [3, 5, 99])
    again = answered(queue.ack([1, 2], "a"))
    assert (again["acked"], again["skipped"]) == (1, [1])
    assert queue.now()["count"] == 3


def test_a_late_ack_is_skipped_if_another_worker_has_the_job(queue: Topic) -> None:
    queue.jobs("slow", lease_ms=SHORT)
    [job] = reclaimed(queue, "fast")
    assert job["$seq"] == 1
    answer = answered(queue.ack([1], "slow"))
    assert (answer["acked"], answer["skipped"]) == (0, [1])
    assert answered(queue.ack([1], "fast"))["acked"] == 1


def test_an_ack_of_a_durable_queue_is_synced(server: Server) -> None:
    for durable in (True, False):
        queue = server.queue(1, durable=durable)
        queue.jobs()
        performance = answered(queue.ack([1]))["performance"]
        assert (performance.get("fsync_ms", 0) > 0) == durable


def test_a_lease_id_fences_an_ack(queue: Topic) -> None:
    [stale] = queue.jobs("w", lease_ms=SHORT)
    [job] = reclaimed(queue, "w")
    other = queue.jobs("w")[0]
    answer = answered(queue.ack([1, other["$seq"]], lease_ids=[stale["lease_id"], other["lease_id"]]))
    assert (answer["acked"], answer["skipped"]) == (1, [1])
    assert answered(queue.ack([1], lease_ids=[job["lease_id"]]))["acked"] == 1


def test_a_lease_id_fences_a_nack_and_an_extend(queue: Topic) -> None:
    [job] = queue.jobs()
    for lease_id, done in (("lease_00", 0), (job["lease_id"], 1)):
        assert answered(queue.extend([1], lease_ms=60_000, lease_ids=[lease_id]))["extended"] == done
    for lease_id, done in (("lease_00", 0), (job["lease_id"], 1)):
        assert answered(queue.nack([1], lease_ids=[lease_id]))["nacked"] == done


VERBS = {"ack": {}, "nack": {}, "extend": {"lease_ms": 1000}}


@pytest.mark.parametrize("verb", VERBS)
def test_seqs_are_a_list_of_at_most_a_thousand(queue: Topic, verb: str) -> None:
    queue.jobs(max=5)

    def send(**members: object) -> Any:
        return queue.send("POST", f"/{verb}", {"node": "w", **VERBS[verb], **members})

    refused(send(seqs=list(range(1, 1002))), 400, "batch_too_large")
    wrong: tuple[object, ...] = ([], None, "1", 1, ["1"], [1.5], [-1], {})
    for seqs in wrong:
        refused(send(seqs=seqs), 400, "invalid_request")
    refused(send(), 400, "invalid_request")
    for lease_ids in (["a"], [], "a", [1, 2]):
        refused(send(seqs=[1, 2], lease_ids=lease_ids), 400, "invalid_request")
    refused(queue.send("POST", f"/{verb}", {"seqs": [1], **VERBS[verb]}), 400, "invalid_request")
    assert queue.counters() == {"ready": 0, "in_flight": 5, "dead_lettered": 0}
    assert answered(send(seqs=list(range(6, 1006))))["skipped"] == list(range(6, 1006))


def test_a_nack_returns_the_job_at_once(queue: Topic) -> None:
    queue.jobs(max=2)
    answer = answered(queue.nack([1, 4]))
    assert set(answer) == {"topic", "nacked", "skipped", "ready", "in_flight", "performance"}
    assert (answer["nacked"], answer["skipped"], answer["ready"], answer["in_flight"]) == (1, [4], 4, 1)
    [job] = queue.jobs("other")
    assert (job["$seq"], job["deliveries"]) == (1, 2)
    assert answered(queue.nack([1]))["skipped"] == [1]


def test_a_delayed_nack_hides_the_job_for_a_while(queue: Topic) -> None:
    queue.jobs()
    answer = answered(queue.nack([1], delay_ms=700))
    assert (answer["nacked"], answer["ready"], answer["in_flight"]) == (1, 4, 0)
    state = queue.now()
    assert (state["count"], state["queue"]["ready"], state["queue"]["in_flight"]) == (5, 4, 0)
    assert queue.seqs("b", max=5) == [2, 3, 4, 5]
    eventually(queue.counters, lambda counters: counters["ready"] == 1, within_s=10)
    assert [(job["$seq"], job["deliveries"]) for job in queue.jobs("b")] == [(1, 2)]


def test_a_delay_is_clamped(queue: Topic) -> None:
    queue.jobs()
    assert answered(queue.nack([1], delay_ms=10**15))["nacked"] == 1
    assert queue.counters()["ready"] == 4
    queue.jobs()
    for delay in (-1, "soon", 1.5):
        refused(queue.nack([2], delay_ms=delay), 400, "invalid_request")


def test_an_extend_sets_the_deadline_from_now(queue: Topic) -> None:
    [job] = queue.jobs(lease_ms=60_000)
    asked = time.time() * 1000
    answer = answered(queue.extend([1, 4], lease_ms=20_000))
    assert set(answer) == {"topic", "extended", "skipped", "deadlines", "performance"}
    assert (answer["extended"], answer["skipped"], set(answer["deadlines"])) == (1, [4], {"1"})
    assert abs(answer["deadlines"]["1"] - asked - 20_000) < 5000
    assert answered(queue.ack([1], lease_ids=[job["lease_id"]]))["acked"] == 1


def test_an_extended_lease_outlives_its_first_deadline(queue: Topic) -> None:
    [job] = queue.jobs("w", lease_ms=1000)
    answered(queue.extend([1], "w", lease_ms=60_000))
    eventually(lambda: time.time() * 1000, lambda now: now > job["deadline"] + 300)
    assert queue.seqs("b", max=5) == [2, 3, 4, 5]
    assert answered(queue.ack([1]))["acked"] == 1


def test_an_extend_counts_no_delivery(queue: Topic) -> None:
    queue.jobs()
    answered(queue.extend([1], lease_ms=SHORT))
    [job] = reclaimed(queue)
    assert (job["$seq"], job["deliveries"]) == (1, 2)


def test_an_extend_is_clamped(queue: Topic) -> None:
    queue.jobs()
    asked = time.time() * 1000
    long = answered(queue.extend([1], lease_ms=10**12))["deadlines"]["1"]
    assert abs(long - asked - 86_400_000) < 5000
    short = answered(queue.extend([1], lease_ms=0))["deadlines"]["1"]
    assert short < asked + 10_000


def test_a_lost_lease_cannot_be_extended(queue: Topic) -> None:
    queue.jobs("slow", lease_ms=SHORT)
    reclaimed(queue, "fast")
    answer = answered(queue.extend([1], "slow", lease_ms=1000))
    assert (answer["extended"], answer["skipped"], answer["deadlines"]) == (0, [1], {})


def test_an_extend_needs_a_length(queue: Topic) -> None:
    queue.jobs()
    for members in ({}, {"lease_ms": None}, {"lease_ms": "long"}, {"lease_ms": -1}):
        refused(queue.extend([1], **members), 400, "invalid_request")


def test_a_queue_is_read_without_being_claimed(queue: Topic) -> None:
    queue.jobs(max=2)
    assert queue.data() == [1, 2, 3, 4, 5]
    assert queue.counters() == {"ready": 3, "in_flight": 2, "dead_lettered": 0}
    assert queue.seqs(max=5) == [3, 4, 5]


def test_counters_add_up_to_the_live_jobs(queue: Topic) -> None:
    queue.jobs(max=3)
    answered(queue.ack([1]))
    answered(queue.nack([2], delay_ms=60_000))
    state = queue.now()
    assert state["queue"] == {"ready": 2, "in_flight": 1, "dead_lettered": 0}
    assert state["count"] == 4


def test_deleted_jobs_are_not_claimed(server: Server) -> None:
    queue = server.queue()
    queue.filled("a", "b", tag="gone")
    queue.filled("c")
    queue.jobs("w")
    assert answered(queue.erase(match="gone"))["deleted"] == 2
    state = queue.now()
    assert (state["count"], state["queue"]) == (1, {"ready": 1, "in_flight": 0, "dead_lettered": 0})
    assert answered(queue.ack([1]))["skipped"] == [1]
    assert queue.seqs("b", max=5) == [3]
    assert answered(queue.erase(before_seq=4))["deleted"] == 1
    assert (queue.data(), queue.counters()["in_flight"]) == ([], 0)


def test_evicted_jobs_are_not_claimed(server: Server) -> None:
    queue = server.queue(cap_records=2)
    for n in range(5):
        queue.filled(n)
    assert queue.counters()["ready"] == 2
    assert queue.seqs(max=5) == [4, 5]


def test_expired_jobs_are_not_claimed(server: Server) -> None:
    queue = server.queue(1, 2, ttl_ms=400)
    state = eventually(queue.now, lambda state: state["count"] == 0, within_s=10)
    assert state["queue"] == {"ready": 0, "in_flight": 0, "dead_lettered": 0}
    queue.filled(3)
    assert queue.seqs(max=5) == [3]


def test_a_full_queue_refuses_until_jobs_are_done(server: Server) -> None:
    queue = server.queue(1, 2, cap_records=2, discard="reject")
    refused(queue.append(3), 422, "topic_full")
    queue.jobs()
    refused(queue.append(3), 422, "topic_full")
    answered(queue.ack([1]))
    assert answered(queue.append(3))["seqs"] == [3]
    assert queue.seqs(max=5) == [2, 3]


def test_a_queue_with_settled_jobs_is_not_empty_until_the_last(server: Server) -> None:
    queue = server.queue(1, 2)
    queue.jobs(max=2)
    answered(queue.ack([1]))
    refused(queue.remove(if_empty=True), 409, "topic_not_empty")
    answered(queue.ack([2]))
    assert answered(queue.remove(if_empty=True))["deleted"] is True


def test_jobs_survive_sealing(server: Server) -> None:
    queue = server.queue(*range(50))
    queue.jobs(max=10)
    answered(queue.ack(list(range(1, 6))))
    answered(queue.nack([7]))
    first = time.monotonic()
    eventually(lambda: (queue.counters(), time.monotonic() - first)[1], lambda took: took > 2.5)
    assert queue.counters() == {"ready": 41, "in_flight": 4, "dead_lettered": 0}
    assert queue.now()["count"] == 45
    assert queue.data() == list(range(5, 50))
    assert queue.seqs("b", max=3) == [7, 11, 12]
    assert answered(queue.ack([6, 8, 9, 10]))["acked"] == 4


def test_queue_verbs_need_a_json_object(queue: Topic) -> None:
    for verb in ("claim", "ack", "nack", "extend"):
        for body in (b"", b"[]", b"{", b"null"):
            refused(queue.send("POST", f"/{verb}", body, JSON), 400, "invalid_request")
    assert queue.counters()["ready"] == 5
