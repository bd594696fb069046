"""What must be read to know the live records of a topic: the removed ones that are not in the state, and when a record
was appended.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache

import msgspec
from msgspec.structs import replace

from headrace.batch import Batch
from headrace.log.marks import MAX_MARKS
from headrace.log.seam import Ids, NamedObject, Rows
from headrace.objects import keys
from headrace.tables.catalog import Row
from headrace.topics import retention
from headrace.topics.removed import EMPTY, Offsets, Page, Removed, Root
from headrace.topics.retention import INLINE_BYTES
from headrace.topics.runs import NONE, Runs
from headrace.topics.values import RemovedRef, TopicState, topic_of
from headrace.wal.state import LogState

_MEASURED_RECORDS = 10_000  # a topic that has no more, nor more bytes, gets exact marks with its first cap or TTL
_MEASURED_BYTES = 8 * 1024 * 1024

Gone = Callable[[], Offsets]
"""A function that returns the removed records above a topic's floor, and reads what it must only when it is called."""


def size_of(records: Batch) -> int:
    """Returns the bytes that records count: their data and meta."""
    if isinstance(records.meta, list):
        return len(records.data) + sum(map(len, filter(None, records.meta)))
    return len(records.data) + len(records.meta or b"") * len(records)


def removed_of(log_id: str, state: LogState, rows: Rows) -> Gone:
    """Returns the removed records above a topic's floor, to be read when they are asked for."""
    topic = topic_of(state)

    @cache
    def read() -> Offsets:
        inline = Runs.of_flat(topic.removed)
        return inline if topic.base is None or topic.base.end <= state.floor else _paged(log_id, topic, rows)

    return read


def _paged(log_id: str, topic: TopicState, rows: Rows) -> Removed:
    def load(page: Page) -> Runs:
        return rows.object(keys.removed_page(log_id, page.number, page.nonce), Runs.decode)

    base = topic.base
    root = rows.object(keys.removed(log_id, base.number, base.nonce), Root.decode) if base is not None else EMPTY
    return Removed(root, load, Runs.of_flat(topic.removed))


def pack(log_id: str, state: LogState, rows: Rows, ids: Ids) -> tuple[LogState, tuple[NamedObject, ...]]:
    """Returns the state with its removed runs in pages if they are too long for it; and the new pages, and their root."""
    topic = topic_of(state)
    is_short = len(topic.removed) <= INLINE_BYTES // 2  # a number and its comma take two bytes or more
    if is_short and len(msgspec.json.encode(topic.removed)) <= INLINE_BYTES:
        return state, ()
    number = topic.base.number + 1 if topic.base is not None else 1
    root, pages = _paged(log_id, topic, rows).pack(state.floor, number, ids.nonce)
    data = root.encode()
    ref = RemovedRef(number, ids.nonce(data), root.below[-1], max(root.ends, default=0))
    packed = replace(state, extension=replace(topic, removed=(), base=ref))
    objects = [NamedObject(keys.removed_page(log_id, number, page.nonce), page_data) for page, page_data in pages]
    return packed, (*objects, NamedObject(keys.removed(log_id, number, ref.nonce), data))


def expire(
    state: LogState,
    now_ms: int,
    time_of: Callable[[int], int],
    removed: Gone,
    hidden: Callable[[], Runs] = lambda: NONE,
    wanted: int = 0,
) -> LogState:
    """Returns the state without the records that have expired, exactly.

    Args:
        time_of: returns the append time of a record. It is asked about one; if that has expired, about as many more as the
            number of records in a mark has binary digits.
        removed, hidden: as in `retention.enforce_caps`.
        wanted: an offset: if the first live record is in a mark that ends before it, then only whole marks expire.
    """
    cutoff = retention.cutoff_ms(state, now_ms)

    def find(first: int, end: int) -> int:
        assert cutoff is not None, "there is a TTL"
        if end <= wanted or time_of(first) >= cutoff:
            return first
        return first + bisect_left(range(first, end - 1), cutoff, key=time_of)

    return retention.expire(state, cutoff, removed, find, hidden)


def times_of(row: Row, rows: Rows) -> Callable[[int], int]:
    """Returns a function that returns the append time of a record."""

    def time_of(offset: int) -> int:
        page = rows.page(row, offset, 1, 1)
        return page[0].time_ms if page and page[0].offset == offset else 0  # it was dropped: as if expired long ago

    return time_of


def mark(row: Row, state: LogState, rows: Rows, removed: Gone) -> LogState:
    """Returns the state with marks, for a topic that gets its first cap or TTL. It reads the records of a small topic, and
    one record for each mark of others.
    """
    first, end = state.floor, state.next_offset
    if not topic_of(state).live:
        return state
    records: Sequence[int] = ()
    if end - first <= _MEASURED_RECORDS:
        page = rows.page(row, first, end - first, _MEASURED_BYTES)
        if len(page) == end - first:
            bounds = [(one, page[one - first - 1].time_ms) for one in _bounds(first, end)]
            records = [len(one.data) + len(one.meta or b"") for one in page]
            return retention.build_marks(state, bounds, removed(), records)
    bounds = [(one, rows.page(row, one - 1, 1, 1)[0].time_ms) for one in _bounds(first, end)]
    return retention.build_marks(state, bounds, removed())


def _bounds(first: int, end: int) -> list[int]:
    count = min(MAX_MARKS, end - first)
    return [first + (end - first) * number // count for number in range(1, count + 1)]
