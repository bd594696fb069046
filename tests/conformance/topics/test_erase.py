"""POST /v0/topics/:topic/delete: records removed by seq and by tag (§ 5)."""

from __future__ import annotations

import pytest

from tests.conformance.topics.client import Server, Topic, answered, at_once, eventually, refused


@pytest.fixture
def tagged(topic: Topic) -> Topic:
    """Returns a topic with tags a:1, a:2, b:1, none, a:1 for the records 1 to 5."""
    records = [{"data": n, "tag": tag} for n, tag in enumerate(("a:1", "a:2", "b:1"), 1)]
    answered(topic.write([*records, {"data": 4}, {"data": 5, "tag": "a:1"}]))
    return topic


def test_the_answer_to_a_delete(tagged: Topic) -> None:
    answer = answered(tagged.erase(before_seq=3))
    assert set(answer) == {"topic", "deleted", "earliest_seq", "head_seq", "count", "bytes", "performance"}
    assert (answer["topic"], answer["deleted"]) == (tagged.name, 2)
    assert (answer["earliest_seq"], answer["head_seq"], answer["count"]) == (3, 5, 3)
    state = tagged.now()
    assert {name: state[name] for name in ("earliest_seq", "head_seq", "count", "bytes")} == {
        name: answer[name] for name in ("earliest_seq", "head_seq", "count", "bytes")
    }


@pytest.mark.parametrize(("before", "left"), [(0, 5), (1, 5), (2, 4), (5, 1), (6, 0), (10**12, 0)])
def test_records_before_a_seq(tagged: Topic, before: int, left: int) -> None:
    answer = answered(tagged.erase(before_seq=before))
    assert (answer["deleted"], answer["count"], answer["earliest_seq"]) == (5 - left, left, 6 - left)
    assert tagged.data() == [1, 2, 3, 4, 5][5 - left :]


@pytest.mark.parametrize(
    ("match", "left"),
    [
        (["tag", "Eq", "a:1"], [2, 3, 4]),
        ("a:1", [2, 3, 4]),
        (["tag", "Glob", "a:*"], [3, 4]),
        (["tag", "Glob", "a:1*"], [2, 3, 4]),
        (["tag", "Eq", "a:"], [1, 2, 3, 4, 5]),
        (["tag", "Eq", "A:1"], [1, 2, 3, 4, 5]),
        (["tag", "Eq", "a:*"], [1, 2, 3, 4, 5]),
        ("a:*", [1, 2, 3, 4, 5]),
        (["tag", "Glob", "c*"], [1, 2, 3, 4, 5]),
    ],
    ids=repr,
)
def test_records_by_tag(tagged: Topic, match: object, left: list[int]) -> None:
    answer = answered(tagged.erase(match=match))
    assert (answer["deleted"], answer["count"]) == (5 - len(left), len(left))
    assert tagged.data() == left


@pytest.mark.parametrize(
    ("before", "match", "left"),
    [(5, "a:1", [2, 3, 4, 5]), (3, ["tag", "Glob", "a:*"], [3, 4, 5]), (1, "a:1", [1, 2, 3, 4, 5])],
)
def test_both_conditions_must_hold(tagged: Topic, before: int, match: object, left: list[int]) -> None:
    answer = answered(tagged.erase(before_seq=before, match=match))
    assert answer["deleted"] == 5 - len(left)
    assert tagged.data() == left


@pytest.mark.parametrize(
    ("seqs", "others", "left"),
    [
        ([2, 4, 4, 99], {}, [1, 3, 5]),
        ([1, 2, 3], {"before_seq": 3}, [3, 4, 5]),
        ([1, 2, 3], {"match": "a:1"}, [2, 3, 4, 5]),
        ([0], {}, [1, 2, 3, 4, 5]),
        ([0, 2, 5], {}, [1, 3, 4]),
        ([2**63 - 1], {}, [1, 2, 3, 4, 5]),
        ([], {}, [1, 2, 3, 4, 5]),
    ],
    ids=repr,
)
def test_records_by_their_seqs(tagged: Topic, seqs: list[int], others: dict[str, object], left: list[int]) -> None:
    """An addition to the contract."""
    before = tagged.now()["bytes"]
    answer = answered(tagged.erase(seqs=seqs, **others))
    assert (answer["deleted"], answer["count"]) == (5 - len(left), len(left))
    assert answer["bytes"] == before * len(left) // 5
    assert tagged.data() == left
    assert answered(tagged.erase(seqs=seqs, **others))["deleted"] == 0


def test_jobs_are_deleted_by_their_seqs(server: Server) -> None:
    queue = server.queue(1, 2, 3)
    queue.jobs(max=2)
    assert answered(queue.erase(seqs=[2]))["deleted"] == 1
    assert queue.data() == [1, 3]
    assert answered(queue.ack([1, 2]))["skipped"] == [2]


def test_a_delete_counts_what_it_removed_itself(tagged: Topic) -> None:
    counts = [
        answered(tagged.erase(**selector))["deleted"]
        for selector in (
            {"match": "a:1"},
            {"match": "a:1"},
            {"before_seq": 4},
            {"before_seq": 10},
            {"before_seq": 10},
        )
    ]
    assert counts == [2, 0, 2, 1, 0]
    state = tagged.now()
    assert (state["count"], state["bytes"], state["earliest_seq"], state["head_seq"]) == (0, 0, 6, 5)


def test_deletes_at_once_share_the_records(topic: Topic) -> None:
    topic.filled(*range(30), tag="x")
    topic.filled(*range(10), tag="y")
    calls = [lambda: topic.erase(match="x"), lambda: topic.erase(before_seq=36)] * 3
    assert sum(answered(answer)["deleted"] for answer in at_once(calls)) == 35
    state = topic.now()
    assert (state["count"], state["earliest_seq"]) == (5, 36)


def test_a_delete_is_no_filter_for_the_future(tagged: Topic) -> None:
    answered(tagged.erase(match=["tag", "Glob", "a:*"]))
    answered(tagged.erase(before_seq=10**9))
    tagged.filled("later", tag="a:1")
    assert tagged.data() == ["later"]
    assert tagged.now()["earliest_seq"] == 6


def test_a_delete_is_seen_by_every_reader_at_once(topic: Topic) -> None:
    for n in range(4):
        topic.filled(n, tag=f"t{n}")
        topic.page(n)
    for n in range(4):
        answered(topic.erase(match=f"t{n}"))
        for _ in range(3):
            assert topic.data() == list(range(n + 1, 4))
            assert topic.now()["count"] == 3 - n


def test_a_delete_is_silent(tagged: Topic) -> None:
    answered(tagged.erase(before_seq=3))
    answered(tagged.erase(match="b:1"))
    answered(tagged.erase(match=["tag", "Glob", "a:*"]))
    for cursor in range(6):
        page = tagged.page(cursor)
        assert page["tombstone"] is None, cursor
        assert (page["next_from_seq"], page["caught_up"]) == (5, True)
        assert [record["$seq"] for record in page["records"]] == ([4] if cursor < 4 else [])


def test_a_hole_moves_no_floor(tagged: Topic) -> None:
    assert answered(tagged.erase(match="b:1"))["earliest_seq"] == 1
    assert answered(tagged.erase(match="a:2"))["earliest_seq"] == 1
    # What is deleted at the front takes the holes behind it along.
    assert answered(tagged.erase(before_seq=2))["earliest_seq"] == 4


def test_a_topic_whose_records_are_all_deleted_is_read_through(topic: Topic) -> None:
    topic.filled(*range(20))
    answered(topic.erase(before_seq=21))
    page = topic.page(limit=3)
    assert (page["records"], page["next_from_seq"], page["caught_up"], page["tombstone"]) == ([], 20, True, None)


BAD = [
    {},
    {"before_seq": None},
    {"before_seq": "3"},
    {"before_seq": -1},
    {"before_seq": 1.5},
    {"match": ["tag", "Like", "a"]},
    {"match": ["tag", "Glob", "a"]},
    {"match": ["tag", "Glob", "*a"]},
    {"match": ["tag", "Glob", "a*b*"]},
    {"match": ["tag", "Eq"]},
    {"match": ["tag", "Eq", "a", "b"]},
    {"match": ["tag", "Eq", 1]},
    {"match": ["node", "Eq", "a"]},
    {"match": {"tag": "a"}},
    {"match": 7},
    {"before_seq": 3, "match": []},
    {"seqs": None},
    {"seqs": 3},
    {"seqs": ["3"]},
    {"seqs": [-1]},
]


def test_a_bad_delete_is_refused_and_removes_nothing(tagged: Topic) -> None:
    for body in BAD:
        refused(tagged.send("POST", "/delete", body), 400, "invalid_request")
    refused(tagged.erase(seqs=[1] * 1001), 400, "batch_too_large")
    assert tagged.now()["count"] == 5


def test_a_new_version_replaces_the_old_ones(topic: Topic) -> None:
    topic.filled("v1", tag="msg")
    topic.filled("other", tag="msg-2")
    newest = answered(topic.write([{"data": "v2", "tag": "msg"}]))["first_seq"]
    assert answered(topic.erase(match=["tag", "Eq", "msg"], before_seq=newest))["deleted"] == 1
    assert topic.data() == ["other", "v2"]


def test_sealed_records_are_deleted_for_good(server: Server) -> None:
    topic = server.topic()
    for n in range(45):
        topic.filled(n, tag="odd" if n % 2 else "even", meta={"n": n})
    assert answered(topic.erase(match="odd", before_seq=21))["deleted"] == 10
    expected = [n for n in range(45) if not (n % 2 and n < 20)]
    # Sealing goes on meanwhile: whatever holds the records, a reader sees the same.
    first = topic.page()["records"][0]["$ts"]
    eventually(
        lambda: (topic.data(), answered(topic.append("tick"))),
        lambda _: topic.page(limit=1000)["records"][-1]["$ts"] > first + 2500,
    )
    found = topic.data()
    assert found[: len(expected)] == expected
    assert set(found[len(expected) :]) == {"tick"}
    assert answered(topic.erase(match="odd"))["deleted"] == 12
    assert answered(topic.erase(match=["tag", "Glob", "e*"], before_seq=10))["deleted"] == 5
    left = [n for n in range(10, 45) if n % 2 == 0]
    assert topic.data()[: len(left)] == left
    assert topic.now()["earliest_seq"] == 11
