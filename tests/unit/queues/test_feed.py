"""What a decision reads of the jobs log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.batch import Record
from headrace.errors import Overloaded
from headrace.log.requests import JSON
from headrace.log.seam import Look
from headrace.queues.feed import AHEAD_BYTES, MOST_AHEAD, Ahead, Feed
from headrace.tables.catalog import Row
from headrace.topics.values import TOPICS
from headrace.wal.state import LogConfig, LogState
from tests.support.clocks import ManualClock
from tests.unit.queues.world import World


def test_a_job_that_was_dropped_since_the_look_is_no_job_of_another_offset() -> None:
    jobs = Look(Row("log", LogConfig(TOPICS, "q", 0, JSON, 0)), LogState(next_offset=9))
    feed = Feed(jobs, 0, Ahead())

    class Rows:
        def page(self, *_: object) -> list[Record]:
            return [Record(3, 0, None, b"{}"), Record(7, 0, None, b"{}"), Record(8, 0, None, b"{}")]

    rows: Any = Rows()
    for offset in (2, 4, 5):  # the page is kept for the second, and read again
        with pytest.raises(Overloaded):
            feed.at(offset, 2, jobs, rows)
    for offset in (3, 7, 8):
        found = feed.at(offset, 1, jobs, rows)
        assert found is not None and found.offset == offset


class Page(list[Record]):
    """Records that were read at once; counts how often all of them are looked at."""

    passes = 0

    def __iter__(self) -> Iterator[Record]:
        self.passes += 1
        return super().__iter__()


class Jobs:
    """Jobs of equal size, and the stretches of them that were read."""

    def __init__(self, count: int, size: int) -> None:
        self.look = Look(
            Row("log", LogConfig(TOPICS, "q", 0, JSON, 0)), LogState(next_offset=count, total_bytes=count * size)
        )
        self.pages: list[Page] = []
        self._data = b"1" * size

    def page(self, _: Row, position: int, max_records: int, max_bytes: int) -> list[Record]:
        """Reads records."""
        count = min(max_records, -(-max_bytes // len(self._data)))
        self.pages.append(Page(Record(position + number, 0, None, self._data) for number in range(count)))
        return self.pages[-1]


def test_small_jobs_are_read_ahead_up_to_a_bound_and_no_decision_copies_them() -> None:
    jobs, ahead = Jobs(20_000, 1), Ahead()
    rows: Any = jobs
    for offset in range(20_000):
        feed = Feed(jobs.look, offset, ahead)
        assert feed.at(offset, 1, jobs.look, rows) is feed.at(offset, 1, jobs.look, rows)
    assert [len(page) for page in jobs.pages[:7]] == [32, 64, 128, 256, 512, MOST_AHEAD, MOST_AHEAD]
    assert max(map(len, jobs.pages)) == MOST_AHEAD and sum(map(len, jobs.pages)) == 20_000
    assert max(page.passes for page in jobs.pages) <= 2, "their bytes are counted when they are read"


def test_large_jobs_are_read_ahead_once_this_process_uses_them() -> None:
    jobs, ahead = Jobs(200, 90_000), Ahead()
    rows: Any = jobs
    for offset in range(60):
        Feed(jobs.look, offset, ahead).at(offset, 1, jobs.look, rows)
    assert [len(page) for page in jobs.pages[:5]] == [1, 2, 4, 5, 5]
    assert AHEAD_BYTES // 90_000 == 5
    jobs.pages.clear()
    Feed(jobs.look, 100, ahead).at(100, 1, jobs.look, rows)  # other processes took those between
    assert len(jobs.pages[0]) == 1


def test_eight_processes_read_large_jobs_about_once() -> None:
    world, clock = World(), ManualClock()
    processes = [world.process(clock) for _ in range(8)]
    processes[0].create()
    for _ in range(80):
        processes[0].produce(b"x" * 9_000 * 10)
    read: list[int] = []
    for process in processes:
        process.queues._context.reads = Counting(process.queues._context.reads, read)
    for _ in range(8):
        for process in processes:
            assert len(process.claim().jobs) == 1
    assert sum(read) <= 1.3 * 64 * 90_000, "each process loses one slot before it knows of the others"


class Counting:
    """Reads of records that note the bytes of each page."""

    def __init__(self, reads: Any, sizes: list[int]) -> None:
        self._reads = reads
        self._sizes = sizes

    def read_one(self, row: Row, position: int) -> bytes:
        """Reads one."""
        found: bytes = self._reads.read_one(row, position)
        return found

    def page(self, row: Row, position: int, max_records: int, max_bytes: int) -> list[Record]:
        """Reads several."""
        page: list[Record] = self._reads.page(row, position, max_records, max_bytes)
        self._sizes.append(sum(len(record.data) for record in page))
        return page
