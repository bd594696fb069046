"""Queues and topics after disasters that left nothing but their rows."""

from __future__ import annotations

import pytest

from headrace.batch import Batch
from headrace.definition import COLUMNS
from headrace.memory import memory_stores
from headrace.queues.values import ClaimRequest
from headrace.queues.verbs import Queues
from headrace.recovery.recover import recover
from headrace.recovery.verify import verify_all
from headrace.topics.values import LEASES, TIMINGS, Configured, TopicConfig, WriteRequest
from headrace.wal.memory import MemoryWal


@pytest.mark.parametrize("config", [TopicConfig(cap_records=5), TopicConfig(type="queue", cap_records=5)])
def test_a_topic_of_which_only_its_row_is_left_keeps_its_type(config: TopicConfig) -> None:
    wal = MemoryWal()
    stores = memory_stores(wal=wal)
    queues = Queues(stores)
    queues.put("q", config)
    queues.append("q", WriteRequest(records=Batch.of([b"lost"])))
    wal._entries.clear()
    wal._slots.clear()
    assert {one.status for one in recover(stores).logs} == {"restored"}

    queues = Queues(stores)
    state = queues.head("q").state
    assert (queues.view("q").config, state.definition) == (TopicConfig(type=config.type), COLUMNS)
    if config.type == "queue":
        assert queues.head(("q", LEASES)).state.definition == TIMINGS
    assert queues.put("q", config) == Configured(False, config)
    queues.append("q", WriteRequest(records=Batch.of([b"1"], key="tag")))
    if config.type == "queue":
        assert [job.record.data for job in queues.claim("q", ClaimRequest("w", 9)).jobs] == [b"1"]
    assert verify_all(stores).clean
