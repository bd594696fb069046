"""The jobs' records for one decision: read in stretches, and kept while the decision is repeated.

Fresh jobs are read ahead, since each worker that takes one job would else read the whole batch that it came in. They serve
the next decisions of this process: a record never changes while its log keeps its incarnation. The more of them it uses
itself, the further it reads ahead next time; what other processes use is read in vain.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter

from headrace.batch import Record
from headrace.clock import Bounded
from headrace.errors import Overloaded
from headrace.log.seam import Look, Rows
from headrace.wal.state import incarnation_of

MAX_READS = 64  # stretches that one decision reads; jobs that were given back can lie anywhere
FEED_BYTES = 32 * 1024 * 1024  # that one decision reads: a group of claims answers from it
MOST_AHEAD = 1024  # jobs
AHEAD_BYTES = 512 * 1024
_FIRST_AHEAD = 32  # some 40 KB of entries in one query, if each has one job
_FIRST_BYTES = 64 * 1024
_REMEMBERED_BYTES = 16 * 1024 * 1024  # of jobs of one process
_OFFSET = attrgetter("offset")


class Page:
    """Jobs that were read at once: consecutive ones, but for those that were dropped meanwhile.

    Attributes:
        records: the jobs, ascending.
        used: how many of them this process has asked for.
    """

    def __init__(self, records: list[Record]) -> None:
        self.records = records
        self.used = 0
        self._last = -1

    def find(self, offset: int) -> Record | None:
        """Returns the job at an offset, which is then used; None if it is not in the page."""
        place = bisect_left(self.records, offset, key=_OFFSET)  # jobs that were dropped meanwhile are left out
        if place == len(self.records) or self.records[place].offset != offset:
            return None
        if offset > self._last:  # fresh jobs are asked for in their order
            self._last = offset
            self.used += 1
        return self.records[place]


class Ahead:
    """The fresh jobs that a process has read last, by jobs log. Thread-safe."""

    def __init__(self) -> None:
        self._pages: Bounded[tuple[str, int], Page] = Bounded(
            _REMEMBERED_BYTES, weigh=lambda page: sum(200 + size_of(record) for record in page.records)
        )

    def of(self, log: tuple[str, int]) -> Page:
        """Returns the jobs that were read last of a log, given its id and incarnation."""
        return self._pages.get(log) or Page([])

    def put(self, log: tuple[str, int], page: Page) -> None:
        """Notes jobs that were read."""
        self._pages.put(log, page)


class Feed:
    """Records of a jobs log, by offset.

    Attributes:
        log: the id and the incarnation of the log.
        left: bytes that may still be read.
    """

    def __init__(self, jobs: Look, cursor: int, ahead: Ahead) -> None:
        """Creates a feed with the jobs that were read ahead. Those from offset `cursor` on are fresh."""
        self.log = _identity(jobs)
        self._cursor = cursor
        self._ahead = ahead
        self._page = ahead.of(self.log)
        self._records: dict[int, Record] = {}
        self._reads = 0
        self.left = FEED_BYTES

    def is_of(self, jobs: Look) -> bool:
        """Returns whether the records are still those of the jobs log: it was neither created again nor recovered."""
        return self.log == _identity(jobs)

    def keep(self, records: Iterable[Record]) -> None:
        """Adds records of the log that were read before."""
        self._records.update({record.offset: record for record in records})

    def at(self, offset: int, wanted: int, jobs: Look, rows: Rows) -> Record | None:
        """Returns the record at an offset below the end of the log; None if this decision has read enough.

        Args:
            wanted: how many records, this one included, are likely to be needed.

        Raises:
            Overloaded: the record was dropped since the log was looked at.
        """
        record = self._records.get(offset)
        if record is None and (record := self._page.find(offset)) is not None:
            self._records[offset] = record  # for the answer: the page may be another by then
        if record is not None:
            return record
        if self._reads >= MAX_READS or self.left <= 0:
            return None
        self._reads += 1
        is_fresh = offset >= self._cursor
        planned = self._plan(offset, jobs) if is_fresh else 0
        count = max(1, min(max(wanted, planned), jobs.state.next_offset - offset))
        room = min(self.left, AHEAD_BYTES) if planned > wanted else self.left
        page = Page(rows.page(jobs.row, offset, count, room))
        self.left -= sum(map(size_of, page.records))
        if is_fresh:
            self._ahead.put(self.log, page)
            self._page = page
        else:
            self.keep(page.records)
        record = page.find(offset)
        if record is None:
            raise Overloaded("jobs of this queue were dropped meanwhile")
        self._records[offset] = record
        return record

    def _plan(self, offset: int, jobs: Look) -> int:
        """Returns how many fresh jobs are worth reading from an offset on: few that are small on average, or twice as many
        as this process has used of those before them.
        """
        mean = max(1, jobs.state.total_bytes // max(1, jobs.state.next_offset - jobs.row.config.base_offset))
        last, first = self._page, min(_FIRST_AHEAD, _FIRST_BYTES // mean)
        if last.records and last.records[-1].offset + 1 == offset:
            return max(first, min(2 * last.used, MOST_AHEAD, AHEAD_BYTES // mean))
        return first


def _identity(jobs: Look) -> tuple[str, int]:
    return jobs.log_id, incarnation_of(jobs.config, jobs.state)


def size_of(record: Record) -> int:
    """Returns the bytes of a record's data and meta."""
    return len(record.data) + len(record.meta or b"")
