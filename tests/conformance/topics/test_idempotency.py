"""Idempotency keys of writes (§ 0.8)."""

from __future__ import annotations

import pytest

from tests.conformance.topics.client import Server, Topic, answered, at_once, eventually, refused


def test_a_repeat_gets_the_first_answer_and_appends_nothing(topic: Topic) -> None:
    topic.filled("zero")
    first = answered(topic.append("a", "b", idempotency_key="k"))
    topic.filled("between")
    for data in (("a", "b"), ("other",)):
        again = answered(topic.append(*data, idempotency_key="k"))
        assert (again["deduped"], again["created"]) == (True, False)
        assert (again["seqs"], again["first_seq"], again["last_seq"]) == ([2, 3], 2, 3)
        assert again["count"] == 2
    assert (first["deduped"], first["seqs"]) == (False, [2, 3])
    assert topic.data() == ["zero", "a", "b", "between"]


def test_a_repeat_of_a_write_that_created(server: Server) -> None:
    topic = server.unused()
    assert answered(topic.append("a", idempotency_key="k"), 201)["created"] is True
    again = answered(topic.append("a", idempotency_key="k"))
    assert (again["created"], again["deduped"], again["seqs"]) == (False, True, [1])


def test_a_key_may_be_a_header_and_the_body_wins(topic: Topic) -> None:
    body = {"records": [{"data": "a"}]}
    header = {"Idempotency-Key": "h"}
    assert answered(topic.send("POST", "", body, header))["deduped"] is False
    assert answered(topic.send("POST", "", body, header))["deduped"] is True
    assert answered(topic.append("a", idempotency_key="h"))["deduped"] is True
    assert answered(topic.send("POST", "", {**body, "idempotency_key": "b"}, header))["deduped"] is False
    assert answered(topic.append("a", idempotency_key="b"))["seqs"] == [2]
    assert topic.now()["head_seq"] == 2


def test_without_a_key_each_write_appends(topic: Topic) -> None:
    assert [answered(topic.append("a"))["seqs"] for _ in range(3)] == [[1], [2], [3]]


def test_a_key_belongs_to_one_topic_and_keys_are_exact(server: Server) -> None:
    one, other = server.topic(), server.topic()
    for topic in (one, other):
        for key in ("k", "K", "k ", "k" * 256, "é"):
            assert answered(topic.append("a", idempotency_key=key))["deduped"] is False


def test_a_key_has_at_most_256_characters(topic: Topic) -> None:
    refused(topic.append("a", idempotency_key="k" * 257), 400, "invalid_request")
    answered(topic.append("a", idempotency_key="é" * 256))
    assert topic.now()["head_seq"] == 1


def test_writes_at_once_with_one_key_append_once(topic: Topic) -> None:
    answers = [answered(answer) for answer in at_once([lambda: topic.append("a", "b", idempotency_key="k")] * 8)]
    assert {tuple(answer["seqs"]) for answer in answers} == {(1, 2)}
    assert sorted(answer["deduped"] for answer in answers) == [False] + [True] * 7
    assert topic.data() == ["a", "b"]


def test_creating_writes_at_once_with_one_key_append_once(server: Server) -> None:
    topic = server.unused()
    answers = at_once([lambda: topic.append("a", idempotency_key="k")] * 5)
    assert {tuple(answer.json()["seqs"]) for answer in answers} == {(1,)}
    assert sorted(answer.status_code for answer in answers) == [200] * 4 + [201]
    assert topic.data() == ["a"]


def test_a_failed_write_burns_no_key(server: Server) -> None:
    topic = server.topic(cap_records=1, discard="reject")
    topic.filled("first")
    refused(topic.append("a", idempotency_key="full"), 422, "topic_full")
    refused(topic.write([{}], idempotency_key="bad"), 400, "invalid_request")
    answered(topic.put(discard="reject"))
    for key in ("full", "bad"):
        assert answered(topic.append("a", idempotency_key=key))["deduped"] is False
    absent = server.unused()
    refused(absent.append("a", idempotency_key="k", create=False), 404, "topic_not_found")
    assert answered(absent.append("a", idempotency_key="k"), 201)["deduped"] is False


def test_a_key_is_forgotten_after_its_window_which_does_not_slide(server: Server) -> None:
    topic = server.topic(idempotency_window_ms=400)
    answered(topic.append("a", idempotency_key="k"))
    assert answered(topic.append("a", idempotency_key="k"))["deduped"] is True
    # Each of these repeats would prolong the window if it could slide.
    later = eventually(
        lambda: answered(topic.append("a", idempotency_key="k")), lambda answer: not answer["deduped"], within_s=5
    )
    assert later["seqs"] == [2]
    assert answered(topic.append("a", idempotency_key="k"))["seqs"] == [2]


def test_a_repeat_is_known_although_its_records_are_gone(topic: Topic) -> None:
    answered(topic.append("a", idempotency_key="k"))
    answered(topic.erase(before_seq=2))
    again = answered(topic.append("a", idempotency_key="k"))
    assert (again["deduped"], again["seqs"]) == (True, [1])
    assert topic.data() == []


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_jobs_are_written_once_too(server: Server, kind: str) -> None:
    topic = server.topic(type=kind)
    for _ in range(2):
        answered(topic.append("job", idempotency_key="k"))
    assert topic.now()["count"] == 1
