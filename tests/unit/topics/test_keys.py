"""Idempotency keys: one write counts, however often and by whichever process it is sent, whatever fails meanwhile."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from headrace.batch import Batch
from headrace.log.seam import Decision, Look
from headrace.memory import memory_stores
from headrace.settings import Settings
from headrace.tables.catalog import Row
from headrace.tables.producers import Key, PutKey
from headrace.topics.decide import Appends, key_digest
from headrace.topics.values import TOPICS, TopicConfig, TopicState, WriteRequest, Written
from headrace.topics.verbs import Topics
from headrace.wal.memory import MemoryWal
from headrace.wal.state import LogState
from tests.support.builders import JSON, NOW_MS, config
from tests.support.clocks import ManualClock
from tests.support.faults import Faulty
from tests.unit.topics.world import put, read, write

PATIENT = Settings(append_timeout_ms=60_000, request_timeout_ms=60_000)  # how busy the machine is says nothing


@pytest.mark.parametrize("processes", [1, 8])
@pytest.mark.parametrize("exists", [True, False])
def test_eight_writers_of_one_key_append_once(processes: int, exists: bool) -> None:
    stores = memory_stores(PATIENT)
    writers = [Topics(stores) for _ in range(processes)]
    if exists:
        put(writers[0], "t")
    begin = threading.Barrier(8)

    def send(number: int) -> Written:
        begin.wait()
        return write(writers[number % processes], "t", b"%d" % number, b"more", key="k")

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(send, range(8)))
    assert {(one.first_seq, one.last_seq) for one in answers} == {(1, 2)}
    assert sorted(one.deduped for one in answers) == [False] + [True] * 7
    assert sum(one.created for one in answers) == (0 if exists else 1)
    assert len(read(writers[0], "t").records) == 2


def test_many_keys_of_many_writers() -> None:
    stores = memory_stores(PATIENT)
    writers = [Topics(stores) for _ in range(3)]

    def send(number: int) -> tuple[int, Written]:
        return number % 20, write(writers[number % 3], "t", b"1", key=f"k{number % 20}")

    with ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(send, range(120)))
    seqs: dict[int, set[int]] = {}
    for key, written in answers:
        seqs.setdefault(key, set()).add(written.first_seq)
    assert sorted(seq for found in seqs.values() for seq in found) == list(range(1, 21)), "one seq for each key"
    assert sum(not written.deduped for _, written in answers) == 20


def test_a_lost_answer_leaves_one_write() -> None:
    clock, tables = ManualClock(), MemoryWal()
    stores = memory_stores(wal=tables, clock=clock)
    wal = Faulty(stores.wal)
    topics = Topics(replace(stores, wal=wal))
    put(topics, "t")
    write(topics, "t", b"0")
    wal.fail("commit", after=True)
    written = write(topics, "t", b"1", key="k")
    assert (written.first_seq, written.deduped) == (2, False)
    assert write(topics, "t", b"1", key="k").deduped
    assert topics.head("t").state.next_offset == 2


class Asked:
    """A request to be decided."""

    memo = None

    def __init__(self, request_id: str, key: str | None = "k") -> None:
        self.request_id = request_id
        self.request = WriteRequest(records=Batch.of([b"1", b"2"]), key=key)


class NoIds:
    """A commit before which another was refused."""

    def __init__(self, *refused: tuple[PutKey, Key]) -> None:
        self.refused = refused

    def log(self) -> str:
        raise AssertionError("nothing is created")

    def nonce(self, data: bytes) -> str:
        raise AssertionError("no object is written")


def decide(*asked: Asked, ids: NoIds | None = None) -> Decision:
    row = Row("log", config("t", surface=TOPICS, content_type=JSON))
    look = Look(row, LogState(next_offset=5, extension=TopicState(TopicConfig(idempotency_window_ms=1000))))
    no_rows: Any = None  # nothing is read
    return Appends(look, no_rows, NOW_MS, ids or NoIds()).decide(asked)


def refusal(request_id: str, until_ms: int, log_id: str = "log") -> tuple[PutKey, Key]:
    digest = key_digest(Asked("").request)
    assert digest is not None
    row = Key(1, 3, until_ms, request_id)
    return PutKey(log_id, digest, row, NOW_MS), row


def test_a_key_joins_the_commit_of_its_records() -> None:
    decision = decide(Asked("r1"), Asked("r2", key=None), Asked("r3", key="other"))
    assert [guard.key for guard in decision.guards] == [
        Key(5, 7, NOW_MS + 1000, "r1"),
        Key(9, 11, NOW_MS + 1000, "r3"),
    ]
    assert len({guard.digest for guard in decision.guards}) == 2
    assert decision.entries[0].requests == (0, 1, 2)


def test_two_of_one_group_share_the_answer() -> None:
    decision = decide(Asked("r1"), Asked("r2"))
    assert decision.answers == [Written(6, 7, 7), Written(6, 7, 7, deduped=True)]
    assert len(decision.guards) == 1
    assert decision.entries[0].requests == (0, 1), "the entry answers both: no fresh look is needed"
    assert decision.entries[0].state.next_offset == 7


def test_a_refused_key_tells_who_has_it() -> None:
    other = decide(Asked("r1"), ids=NoIds(refusal("r9", NOW_MS + 1)))
    assert other.answers == [Written(2, 3, 5, deduped=True)]
    assert not other.entries
    own = decide(Asked("r1"), ids=NoIds(refusal("r1", NOW_MS + 1)))
    assert own.answers == [Written(2, 3, 5)], "this very request has written before, and its answer was lost"
    free = decide(Asked("r1"), ids=NoIds(refusal("r9", NOW_MS)))
    assert free.answers == [Written(6, 7, 7)]
    again = decide(Asked("r1"), ids=NoIds(refusal("r9", NOW_MS + 1, log_id="before")))
    assert again.answers == [Written(6, 7, 7)], "the topic has been created again since the refusal"
