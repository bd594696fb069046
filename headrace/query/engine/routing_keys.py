"""Lists the distinct routing keys of a stream in the order of their UTF-8 bytes, page by page.

Keys are those with which records were stored. No definition changes them, so the family `lex` of any run can be used.
For segments that no run covers the key pages are read, for the tail its records. A page is exact over everything that
was read; what was left out, because there were too many segments for one request, is reported in the coverage.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from headrace.clock import within_deadline
from headrace.errors import Damaged, InvalidRequest
from headrace.index import fetching
from headrace.index.fetching import Ranges, Routine
from headrace.objects import ObjectMissing
from headrace.query.engine.context import Engine, fetch_key_pages
from headrace.query.engine.sources import Range, RunRange, SegmentRange, Snapshot
from headrace.segment.descriptor import Segment
from headrace.segment.keypage import KeyPage

_MAX_SEGMENTS = 64  # whose key pages one request reads; as measured, one takes 1 to 20 ms
_WAVE = 8  # key pages read at once; the deadline is checked between waves
_TIME_SHARE = 0.6  # share of a request's time that reading key pages may take


class KeysRequest(NamedTuple):
    """A request for up to `limit` keys above `after`; from the first key on if `after` is None."""

    limit: int
    after: str | None = None


class KeysCoverage(NamedTuple):
    """What a page of keys was computed from, and what was left out.

    Attributes:
        indexed_segments: number of published segments that runs cover.
        scanned_segments, missing_segments: of all other segments, the number of those whose keys were read, and of
            those left out.
        scanned_records, missing_records: number of unpublished records that were read, and of those left out.
    """

    indexed_segments: int
    scanned_segments: int
    missing_segments: int
    scanned_records: int
    missing_records: int

    @property
    def complete(self) -> bool:
        """Whether nothing was left out."""
        return not self.missing_segments and not self.missing_records


class KeysTiming(NamedTuple):
    """Seconds spent on GETs of runs, on other work with runs, on merging, on key pages and on the tail; and the number
    of runs.
    """

    runs_get_s: float
    runs_decode_s: float
    merge_s: float
    segments_s: float
    tail_s: float
    runs: int


class KeysPage(NamedTuple):
    """A page of routing keys.

    Attributes:
        keys: the keys, ascending.
        next_after: the key after which the next page begins; None if this is the last page.
    """

    keys: list[str]
    next_after: str | None
    coverage: KeysCoverage
    timing: KeysTiming


def routing_keys(engine: Engine, name: str, request: KeysRequest, budget_ms: int) -> KeysPage:
    """Returns a page of a stream's routing keys.

    Args:
        budget_ms: the time that the request may take; reading key pages takes at most a part of it.

    Raises:
        InvalidRequest: the schema declares no routing key.
        NotFound, Gone: as `Sources.snapshot`.
        Damaged: an object is missing or altered.
        DeadlineExceeded: the request took longer than `budget_ms`.
    """
    monotonic = engine.clock.monotonic
    with within_deadline(budget_ms):
        until = monotonic() + budget_ms * _TIME_SHARE / 1000
        snapshot = engine.sources.snapshot(name)
        if snapshot.definition.registry.routing_key is None:
            raise InvalidRequest("routing keys need a schema with routingKey")
        try:
            return _page(engine, snapshot, request, until)
        except (Damaged, ObjectMissing):
            # Perhaps a run was retired, or a segment merged, and removed since this process read of it.
            return _page(engine, engine.sources.snapshot(name, fresh=True), request, until)


def _page(engine: Engine, snapshot: Snapshot, request: KeysRequest, until: float) -> KeysPage:
    times = [engine.clock.monotonic()]
    ranges = engine.ranges.fetches()
    wanted = request.limit + 1  # one more, to know whether another page follows
    runs = whole_runs(snapshot)
    lists = fetching.run(fetching.gather([_of_run(engine, found, request.after, wanted) for found in runs]), ranges)
    runs_get_s = ranges.stats.wait_s
    times.append(engine.clock.monotonic())
    outside = snapshot.segments_outside(runs)
    of_segments = _of_segments(engine, outside, request.after, wanted, ranges, until)
    times.append(engine.clock.monotonic())
    records = list(snapshot.tail)
    of_tail = _above(sorted({record.key for record in records if record.key is not None}), request.after)
    times.append(engine.clock.monotonic())
    merged = list(islice(_distinct(heapq.merge(*lists, *of_segments, of_tail)), wanted))
    times.append(engine.clock.monotonic())
    coverage = KeysCoverage(
        indexed_segments=published_segments(snapshot) - len(outside),
        scanned_segments=len(of_segments),
        missing_segments=len(outside) - len(of_segments),
        scanned_records=len(records),
        missing_records=sum(part.unread.end - part.unread.first for part in snapshot.parts),
    )
    runs_s, segments_s, tail_s, merge_s = (after - before for before, after in pairwise(times))
    keys = merged[: request.limit]
    next_after = keys[-1] if len(merged) > len(keys) else None
    timing = KeysTiming(runs_get_s, max(0.0, runs_s - runs_get_s), merge_s, segments_s, tail_s, len(runs))
    return KeysPage(keys, next_after, coverage, timing)


def _of_run(engine: Engine, found: RunRange, after: str | None, limit: int) -> Routine[list[str]]:
    reader = yield from engine.runs.open(found.run)
    return (yield from reader.keys_after(after, limit))


def _of_segments(
    engine: Engine, outside: Sequence[SegmentRange], after: str | None, limit: int, ranges: Ranges, until: float
) -> list[list[str]]:
    """Returns keys of segments, newest segment first. Reads key pages, eight at a time, until the time is used up; at least
    the first eight.
    """
    newest = list(reversed(outside))[:_MAX_SEGMENTS]
    lists: list[list[str]] = []
    for at in range(0, len(newest), _WAVE):
        if lists and engine.clock.monotonic() >= until:
            break
        wave = newest[at : at + _WAVE]
        pages = read_key_pages(engine, ranges, [found.segment for found in wave])
        lists += [_keys_of(found, page, after, limit) for found, page in zip(wave, pages, strict=True)]
    return lists


def read_key_pages(engine: Engine, ranges: Ranges, segments: Sequence[Segment]) -> list[KeyPage]:
    """Returns the key page of each segment. Those that are not cached cost one round of parallel GETs.

    Raises:
        Damaged: a key page is missing, or differs from the one that was published.
    """
    try:
        pages = fetching.run(fetch_key_pages(engine, segments), ranges)
    except ObjectMissing as exc:
        raise Damaged(f"key page is missing: object={exc}") from exc
    return [pages[segment.key].page for segment in segments]


def _keys_of(found: SegmentRange, page: KeyPage, after: str | None, limit: int) -> list[str]:
    """Returns up to `limit` keys above `after` from the records in this part of a segment, ascending."""
    at = 0 if after is None else bisect.bisect_right(page.keys, after)
    first, end = found.first - found.segment.first_offset, found.end - found.segment.first_offset
    if end - first == found.segment.count:
        return page.keys[at : at + limit]
    keyed = islice(zip(page.keys, page.key_rows, strict=True), at, None)
    inside = (key for key, rows in keyed if _has_row(rows, first, end))
    return list(islice(inside, limit))


def _has_row(differences: Iterable[int], first: int, end: int) -> bool:
    """Returns whether one of the rows, stored as differences as in a key page, is in `[first, end)`."""
    row = 0
    for difference in differences:
        row += difference
        if row >= end:
            return False
        if row >= first:
            return True
    return False


def _above(keys: list[str], after: str | None) -> list[str]:
    return keys if after is None else keys[bisect.bisect_right(keys, after) :]


def _distinct(keys: Iterable[str]) -> Iterator[str]:
    previous: str | None = None
    for key in keys:
        if key != previous:
            yield key
            previous = key


def whole_runs(snapshot: Snapshot) -> list[RunRange]:
    """Returns the runs that lie completely in the stream. Other runs may have keys of records after a fork point."""
    parts = {part.log_id: part for part in snapshot.parts}
    return [
        found
        for found in snapshot.runs_of_any_plan()
        if parts[found.log_id].first <= found.run.first_offset and found.run.end_offset <= parts[found.log_id].end
    ]


def published_segments(snapshot: Snapshot) -> int:
    """Returns the number of published segments that hold the stream's records."""
    count = 0
    for part in snapshot.parts:
        if part.published > part.first:
            last = snapshot.segments_in(part, Range(part.published - 1, part.published))[-1]
            count += last.segment.number + 1  # a log's first record is in its segment 0
    return count
