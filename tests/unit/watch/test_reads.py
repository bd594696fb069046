"""What a consumer that has everything reads while nothing happens, and what it sees all the same."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.memory import memory_stores
from headrace.topics.values import DiffRequest
from headrace.topics.verbs import Topics
from headrace.wal import Page
from headrace.wal.memory import MemoryWal
from tests.support.clocks import ManualClock
from tests.unit.topics.world import read, seqs, write


@pytest.fixture
def wal() -> MemoryWal:
    return MemoryWal()


def count_items(wal: MemoryWal, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list to which each query adds the number of items that it reads."""
    plain, items = wal.read, []

    def counted(*args: Any, **options: Any) -> Page:
        page = plain(*args, **options)
        items.append(len(page.entries))
        return page

    monkeypatch.setattr(wal, "read", counted)
    return items


def test_a_live_reader_reads_no_item_while_nothing_happens(wal: MemoryWal, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = Topics(memory_stores(wal=wal))
    write(topics, "t", b"1", b"2")
    read(topics, "t", 2)
    items = count_items(wal, monkeypatch)
    for _ in range(3):
        assert read(topics, "t", 2).caught_up
    assert items == [0, 0, 0]
    write(topics, "t", b"3")
    items.clear()
    assert seqs(read(topics, "t", 2).records) == [3]
    assert seqs(read(topics, "t", 1).records) == [2, 3], "the middle of the entry before"


def test_a_reader_sees_what_another_process_appends_in_one_query(
    wal: MemoryWal, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = Topics(memory_stores(wal=wal)), Topics(memory_stores(wal=wal))
    write(writer, "t", b"1")
    read(reader, "t")
    read(reader, "t", 1)
    write(writer, "t", b"2")
    items = count_items(wal, monkeypatch)
    assert seqs(read(reader, "t", 1).records) == [2]
    assert items == [1]


def test_a_log_that_vanished_is_noticed_in_time(wal: MemoryWal) -> None:
    """Its entries were purged, or a disaster took them: the reader asked only for what follows the newest one it knows."""
    clock = ManualClock()
    stores = memory_stores(wal=wal, clock=clock)
    topics = Topics(stores)
    write(topics, "t", b"1")
    log_id = topics.head("t").log_id
    read(topics, "t", 1)
    wal.remove(log_id, [entry.slot for entry in wal.read(log_id).entries])
    for _ in range(6):
        assert read(topics, "t", 1).caught_up, "as far as it knows"
        clock.advance(stores.settings.state_age_ms / 1000 / 5)
    with pytest.raises(Exception, match="log has no entry"):
        read(topics, "t", 1)


def test_a_read_of_many_topics_tells_each_result(wal: MemoryWal) -> None:
    topics = Topics(memory_stores(wal=wal))
    for number in range(20):
        write(topics, f"t{number}", *[b"1"] * number, b"0")
    names = [f"t{number}" for number in range(20)]
    found = topics.diffs([*((name, DiffRequest()) for name in names), ("none", DiffRequest())])
    assert [getattr(page, "head_seq", None) for page in found] == [*range(1, 21), None]
    assert [extent and extent.head_seq for extent in topics.extents([*names, "none"])] == [*range(1, 21), None]
