"""What the verbs of topics cost in AWS calls, counted as they leave the clients: the table of the design, verb by verb."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.batch import Batch
from headrace.settings import Settings
from headrace.topics.errors import TopicFull
from headrace.topics.values import TOPICS, Match, WriteRequest
from headrace.topics.verbs import Topics
from tests.support.counting import counted_stores
from tests.unit.log.test_costs import Deployment
from tests.unit.topics.world import put, read, write


@pytest.fixture(scope="module")
def aws() -> Iterator[Deployment]:
    settings = Settings(append_timeout_ms=60_000, request_timeout_ms=60_000)  # the machine may be busy
    with counted_stores(settings=settings, surfaces=(TOPICS,), counted=frozenset({TOPICS})) as counted:
        yield Deployment(*counted)


def warm(aws: Deployment, name: str, **config: object) -> Topics:
    """A process that has just written a record to a topic."""
    topics = Topics(aws.stores)
    put(topics, name, **config)
    write(topics, name, b"1")
    return topics


def test_a_warm_append_is_one_write(aws: Deployment) -> None:
    for name, config in (("plain", {}), ("capped", {"cap_records": 2}), ("timed", {"ttl_ms": 5000, "cap_bytes": 2})):
        topics = warm(aws, name, **config)
        for _ in range(3):
            with aws.calls.during() as made:
                write(topics, name, b"1", b"2", tag="t", node="n")
            assert dict(made) == {"PutItem": 1}


def test_a_keyed_append_is_one_transaction_and_a_repeat_looks(aws: Deployment) -> None:
    topics = warm(aws, "keyed")
    items: list[int] = []
    aws.calls.intercept = lambda _, request: items.append(len(json.loads(request.body)["TransactItems"]))
    with aws.calls.during() as made:
        assert not write(topics, "keyed", b"1", key="k").deduped
    aws.calls.intercept = None
    assert (dict(made), items) == ({"TransactWriteItems": 1}, [3]), (
        "entry, key, and the condition that it is not published"
    )
    with aws.calls.during() as made:
        repeat = write(topics, "keyed", b"1", key="k")
    assert dict(made) == {"TransactWriteItems": 1, "GetItem": 1, "Query": 1}
    assert (repeat.deduped, repeat.tries) == (True, 0), "it competed with nobody"
    with aws.calls.during() as made:
        assert not write(topics, "keyed", b"2").deduped
    assert dict(made) == {"PutItem": 1}, "nobody else writes, so it need not look first"


def test_creating_by_a_write_or_put(aws: Deployment) -> None:
    topics = Topics(aws.stores)
    with aws.calls.during() as made:
        assert write(topics, "new", b"1").created
    assert dict(made) == {"GetItem": 2, "TransactWriteItems": 1}
    with aws.calls.during() as made:
        assert put(topics, "newer")
    assert dict(made) == {"GetItem": 1, "TransactWriteItems": 1}
    with aws.calls.during() as made:
        assert put(topics, "queue", type="queue")
    assert dict(made) == {"GetItem": 1, "TransactWriteItems": 1}


def test_the_same_put_writes_nothing(aws: Deployment) -> None:
    topics = warm(aws, "same", cap_records=3)
    with aws.calls.during() as made:
        assert not put(topics, "same", cap_records=3)
    assert dict(made) == {"Query": 1}
    with aws.calls.during() as made:
        assert not put(topics, "same", cap_records=4)
    assert made["PutItem"] == 1


def test_a_diff_at_the_tail_is_one_query(aws: Deployment) -> None:
    topics = warm(aws, "read", ttl_ms=60_000)
    for _ in range(30):
        write(topics, "read", b"1", b"2")
    read(topics, "read", 61)  # this process has touched the read clock
    for cursor, count, queries in ((61, 0, 1), (59, 2, 1), (0, 61, 2)):
        with aws.calls.during() as made:
            assert len(read(topics, "read", cursor).records) == count
        assert dict(made) == {"Query": queries}
    cold = Topics(aws.stores)
    with aws.calls.during() as made:
        assert read(cold, "read", 61).caught_up
    assert dict(made) == {"GetItem": 1, "Query": 1, "UpdateItem": 1}


def test_a_view_reads_the_newest_entry_and_the_read_clock(aws: Deployment) -> None:
    topics = warm(aws, "viewed")
    topics.view("viewed")
    with aws.calls.during() as made:
        topics.view("viewed")
    assert dict(made) == {"Query": 1, "BatchGetItem": 1}


def test_a_list_is_a_query_for_each_topic(aws: Deployment) -> None:
    topics = Topics(aws.stores)
    for number in range(3):
        write(topics, f"list:{number}", b"1")
    with aws.calls.during() as made:
        assert len(topics.topics(["list:"], limit=10)[0]) == 3
    assert dict(made) == {"Query": 16 + 3, "BatchGetItem": 1}


def test_deletes_are_one_write(aws: Deployment) -> None:
    topics = warm(aws, "erased")
    topics.append("erased", WriteRequest(records=Batch.of([b"1"] * 20, key=["a", "b"] * 10)))
    with aws.calls.during() as made:
        assert topics.erase("erased", None, Match("a")).deleted == 10
    assert made["PutItem"] == 1
    with aws.calls.during() as made:
        assert topics.erase("erased", 10**9, None).deleted == 11
    assert made["PutItem"] == 1
    with aws.calls.during() as made:
        assert topics.erase("erased", 10**9, None).deleted == 0
    assert made["PutItem"] == 0
    with aws.calls.during() as made:
        assert topics.remove("erased")
    assert dict(made) == {"GetItem": 1, "Query": 1, "PutItem": 1, "TransactWriteItems": 1}


def test_the_next_delete_by_tag_reads_no_payload_again(aws: Deployment) -> None:
    topics = warm(aws, "tagged")
    for number in range(4):
        noise = [hashlib.sha512(b"%d" % (1000 * number + at)).digest() for at in range(1000)]
        topics.append("tagged", WriteRequest(records=Batch.of(noise, key=[f"t{at % 8}" for at in range(1000)])))
    read: list[str] = []

    def note(operation: str, request: Any) -> None:
        if operation == "GetObject":
            read.append(request.url.split("/")[5])

    aws.calls.intercept = note
    assert topics.erase("tagged", None, Match("t0")).deleted == 500
    assert read.count("wal") == 4, "the payloads"
    read.clear()
    assert topics.erase("tagged", 2, Match("t1")).deleted == 0
    with aws.calls.during() as made:
        assert topics.erase("tagged", None, Match("t2", is_prefix=True)).deleted == 500
    aws.calls.intercept = None
    assert made["Query"] == 2, "where the end is: nor any entry before it"
    assert read.count("wal") == 0
    assert read.count("dead") == 2, "the removed records: a root and a page"


def test_a_refusal_looks_once_and_writes_nothing(aws: Deployment) -> None:
    topics = warm(aws, "full", cap_records=1, discard="reject")
    with aws.calls.during() as made, pytest.raises(TopicFull):
        write(topics, "full", b"1")
    assert dict(made) == {"GetItem": 1, "Query": 1}


@pytest.mark.parametrize("match", [None, Match("t")], ids=["any", "tagged"])
def test_a_delete_of_scattered_seqs_reads_them_together(aws: Deployment, match: Match | None) -> None:
    name = f"scattered-{match is None}"
    topics = warm(aws, name)
    for _ in range(30):
        write(topics, name, b"1", b"2", tag="t")
    with aws.calls.during() as made:
        assert Topics(aws.stores).erase(name, None, match, range(2, 62, 2)).deleted == 30
    assert made["PutItem"] == 1
    assert made["Query"] + made["GetItem"] + made["GetObject"] <= 10, dict(made)
