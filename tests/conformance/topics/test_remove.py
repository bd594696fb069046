"""DELETE /v0/topics/:topic, and topics that are created again (§ 1.4)."""

from __future__ import annotations

import pytest

from tests.conformance.topics.client import Server, Topic, answered, at_once, refused


def test_a_deleted_topic_is_gone(topic: Topic) -> None:
    topic.filled("a", tag="x")
    answer = answered(topic.remove())
    assert set(answer) == {"topic", "deleted", "routers_removed", "performance"}
    assert (answer["topic"], answer["deleted"], answer["routers_removed"]) == (topic.name, True, [])
    for _ in range(3):
        refused(topic.state(), 404, "topic_not_found")
        refused(topic.diff(), 404, "topic_not_found")


def test_an_absent_topic_is_deleted_already(server: Server) -> None:
    for name in (server.unused(), server.unused()):
        for if_empty in (True, False):
            answer = answered(name.remove(if_empty=if_empty))
            assert (answer["deleted"], answer["routers_removed"]) == (False, [])


def test_one_of_many_deletes_at_once_deletes(topic: Topic) -> None:
    answers = [answered(answer)["deleted"] for answer in at_once([topic.remove] * 4)]
    assert sorted(answers) == [False, False, False, True]


def test_a_topic_with_records_is_kept_if_asked(topic: Topic) -> None:
    topic.filled("a", "b")
    refused(topic.remove(if_empty=True), 409, "topic_not_empty")
    assert topic.data() == ["a", "b"]
    answered(topic.erase(before_seq=3))
    assert answered(topic.remove(if_empty=True))["deleted"] is True
    assert not topic.exists()


def test_an_empty_topic_is_deleted_if_empty(topic: Topic) -> None:
    assert answered(topic.remove(if_empty=True))["deleted"] is True


def test_if_empty_is_true_or_false(topic: Topic) -> None:
    refused(topic.remove(if_empty="maybe"), 400, "invalid_request")
    assert topic.exists()


@pytest.mark.parametrize("is_lazy", [True, False], ids=["by a write", "by a PUT"])
def test_a_topic_that_is_created_again_remembers_nothing(server: Server, is_lazy: bool) -> None:
    topic = server.topic(cap_records=100, priority=3)
    answered(topic.append("a", "b", "c", idempotency_key="k"))
    answered(topic.erase(before_seq=2))
    answered(topic.remove())
    if not is_lazy:
        answered(topic.put(), 201)
        state = topic.now()
        assert (state["head_seq"], state["earliest_seq"], state["count"], state["bytes"]) == (0, 1, 0, 0)
    answer = answered(topic.append("new", idempotency_key="k"), 201 if is_lazy else 200)
    assert (answer["created"], answer["deduped"], answer["seqs"]) == (is_lazy, False, [1])
    assert topic.data() == ["new"]
    assert (topic.now()["config"]["cap_records"], topic.now()["config"]["priority"]) == (0, None)


def test_tags_of_a_deleted_topic_are_forgotten(topic: Topic) -> None:
    topic.filled("a", "b", tag="x")
    answered(topic.remove())
    topic.filled("c", tag="x")
    assert answered(topic.erase(match="x"))["deleted"] == 1


def test_a_reader_of_the_old_topic_learns_that_it_is_another(topic: Topic) -> None:
    topic.filled(*range(5))
    stale = topic.page()["next_from_seq"]
    answered(topic.remove())
    topic.filled("new")
    page = topic.page(stale)
    assert page["tombstone"]["reason"] == "recreated"
    assert (page["tombstone"]["gap_from"], page["tombstone"]["head_seq"]) == (1, 1)
    assert [record["data"] for record in page["records"]] == ["new"]
    assert (page["next_from_seq"], page["caught_up"]) == (1, True)


def test_the_next_topic_of_a_name_may_have_another_type(server: Server) -> None:
    topic = server.topic()
    answered(topic.remove())
    answered(topic.put(type="queue"), 201)
    topic.filled("job")
    assert topic.seqs() == [1]


def test_a_queue_that_is_created_again_has_no_leases(server: Server) -> None:
    queue = server.queue("a", "b", max_deliveries=1, dead_letter=server.unused().name)
    queue.jobs(max=2)
    answered(queue.nack([1, 2]))
    assert queue.jobs(max=2) == []
    assert queue.counters()["dead_lettered"] == 2
    answered(queue.remove())
    answered(queue.put(type="queue"), 201)
    assert queue.counters() == {"ready": 0, "in_flight": 0, "dead_lettered": 0}
    queue.filled("c")
    assert [(job["$seq"], job["deliveries"], job["data"]) for job in queue.jobs()] == [(1, 1, "c")]
