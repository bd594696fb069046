"""The jobs' records for one decision: read in stretches, and kept while the decision is repeated."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.batch import Record
from headrace.errors import Overloaded
from headrace.log.seam import Look, Rows
from headrace.wal.state import incarnation_of

MAX_READS = 64  # stretches that one decision reads; jobs that were given back can lie anywhere
FEED_BYTES = 32 * 1024 * 1024  # that one decision reads: a group of claims answers from it


class Feed:
    """Records of a jobs log, by offset.

    Attributes:
        log: the id and the incarnation of the log.
        left: bytes that may still be read.
    """

    def __init__(self, jobs: Look) -> None:
        self.log = _identity(jobs)
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
        if record is not None:
            return record
        if self._reads >= MAX_READS or self.left <= 0:
            return None
        self._reads += 1
        count = max(1, min(wanted, jobs.state.next_offset - offset))
        page = rows.page(jobs.row, offset, count, self.left)
        self.left -= sum(map(size_of, page))
        self.keep(page)
        record = self._records.get(offset)
        if record is None:
            raise Overloaded("jobs of this queue were dropped meanwhile")
        return record


def _identity(jobs: Look) -> tuple[str, int]:
    return jobs.log_id, incarnation_of(jobs.config, jobs.state)


def size_of(record: Record) -> int:
    """Returns the bytes of a record's data and meta."""
    return len(record.data) + len(record.meta or b"")
