"""Finds records by their keys, beginnings of keys, or offsets, and tells their sizes, without reading their data.

Of a segment its key page says everything. Index runs say which segments have no such record, if there are enough
segments for that to be worth it; a run that can't be read costs time, but never changes an answer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from headrace.batch import Batch
from headrace.definition import EMPTY
from headrace.log import prune
from headrace.log.prune import Ahead, Pruner
from headrace.log.read import Reader
from headrace.log.requests import JSON, Head, Selection
from headrace.log.view import RAW, Collector, View
from headrace.objects import Objects
from headrace.segment.columns import ColumnCache, Columns
from headrace.segment.descriptor import Segment
from headrace.wal.state import Entry, LogState, incarnation_of

_ROUND_BYTES = 16 * 1024 * 1024  # of payloads in the tail that one round reads
_ROUND_RECORDS = 100_000


class Tag(NamedTuple):
    """A condition on keys: equal to `text` or, with `is_prefix`, beginning with it."""

    text: str
    is_prefix: bool = False


def find(
    reader: Reader,
    pruner: Pruner,
    head: Head,
    first: int,
    end: int,
    tag: Tag | None = None,
    among: Sequence[int] | None = None,
) -> Iterator[tuple[int, int]]:
    """Yields the offset of each record of `[first, end)` that meets the condition, and the bytes of its data and meta;
    ascending. Leaves out what is below the floor, or not before the end, that `head` states.

    Args:
        among: the only offsets to look at, ascending; None for all. One read serves all that are in one segment.
    """
    position, stop = max(first, head.state.floor), min(end, head.state.next_offset)
    ahead = Ahead(position)
    while (position := _next(among, position, stop)) < stop:
        if tag is not None and tag.text and position >= ahead.end:
            ahead = _ask(reader, pruner, head.log_id, position, stop, tag)
        until = min(stop, ahead.end) if ahead.end > position else stop
        if ahead.offsets is not None and position < ahead.end:
            at = int(ahead.offsets.searchsorted(position))
            after = int(ahead.offsets[at]) if at < len(ahead.offsets) else until
            if after > position:
                position = after
                continue
        page = _Facts(reader.columns, head, min(until - position, _ROUND_RECORDS), tag, among)
        position = page.take_kept(position, until)
        if position < until:
            position = reader.fill_all(head.log_id, head.config, position, until, None, page)
        yield from page.found


def _next(among: Sequence[int] | None, position: int, stop: int) -> int:
    """Returns the first offset to look at from `position` on; `stop` if there is none before it."""
    if among is None:
        return position
    at = bisect_left(among, position)
    return min(among[at], stop) if at < len(among) else stop


def _ask(reader: Reader, pruner: Pruner, log_id: str, position: int, stop: int, tag: Tag) -> Ahead:
    """Returns which records from `position` on may meet the condition, as the log's runs say; `offsets` is None if they
    say nothing.
    """
    if len(reader.segments(log_id, position, stop)) < prune.KEYED_SEGMENTS:
        return Ahead(stop)
    view = View(EMPTY, Selection(tag.text), JSON)
    return pruner.ahead(log_id, position, stop, view, is_prefix=tag.is_prefix)


class _Facts(Collector):
    """A page being filled with offsets and sizes of the records that meet a condition; full after one segment,
    or where it needs no read to go on.
    """

    def __init__(
        self, columns: ColumnCache, head: Head, max_records: int, tag: Tag | None, among: Sequence[int] | None
    ) -> None:
        super().__init__(RAW, max_records, _ROUND_BYTES)
        self.found: list[tuple[int, int]] = []
        self._columns = columns
        self._head = head
        self._tag = tag
        self._among = among
        self._is_full = False

    @property
    def full(self) -> bool:
        """Whether a segment was looked at, or enough of the tail."""
        return self._is_full or self.size >= self.max_bytes

    def take_kept(self, position: int, end: int) -> int:
        """Adds those of the records `[position, end)` that meet the condition, as far as the columns of their entries are
        kept: then no entry is read. Returns the position after the last record looked at.
        """
        while position < end and (columns := self._columns.kept(self._name(position))) is not None:
            position += self._add(columns, position, position, min(end, position + len(columns.page.sizes)))
        return position

    def holds(self, entry: Entry) -> bool:
        """Returns whether the columns of an entry are kept."""
        return self._columns.kept(self._name(entry.offset, entry.state)) is not None

    def take_entry(self, entry: Entry, first: int, end: int, read: Callable[[], Batch]) -> int:
        """Adds those of the records `[first, end)` of an entry that meet the condition."""
        columns = self._columns.of_records(self._name(entry.offset, entry.state), read)
        self.size += sum(columns.page.sizes)
        self._is_full = self._columns.kept(self._name(end)) is not None
        return self._add(columns, entry.offset, first, end)

    def _name(self, offset: int, state: LogState | None = None) -> str:
        """Returns the name of the columns of an entry that begins at an offset. A log that was recovered can have another
        one there, with a state of a higher incarnation.
        """
        incarnation = incarnation_of(self._head.config, state or self._head.state)
        return f"{self._head.log_id} {incarnation} {offset}"

    def take_sealed(self, objects: Objects, segment: Segment, offset: int, max_records: int, _: int) -> int:
        """Adds those of `max_records` consecutive records of a segment that meet the condition."""
        self._is_full = True
        columns = self._columns.columns(objects, segment)
        return self._add(columns, segment.first_offset, offset, offset + max_records)

    def _add(self, columns: Columns, zero: int, first: int, end: int) -> int:
        """Adds records `[first, end)`, given the offset of the columns' first row. Returns their number."""
        wanted: Sequence[int] = range(first, end)
        if self._among is not None:
            wanted = self._among[bisect_left(self._among, first) : bisect_left(self._among, end)]
        if self._tag is not None and wanted:
            held = [zero + row for row in columns.rows(*self._tag) if first <= zero + row < end]
            wanted = held if self._among is None else sorted(set(held).intersection(wanted))
        sizes = columns.sizes(first - zero, end - zero) if wanted else []
        self.found += [(offset, sizes[offset - first]) for offset in wanted]
        return end - first
