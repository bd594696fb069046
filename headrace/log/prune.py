"""Uses index runs to find out which published records a selecting read must look at.

A run is only a hint: every record that is shown was read and checked. So a run that can't be read costs time, but never
changes an answer. numpy and pyarrow are not imported before a read uses a run for the first time.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.errors import Damaged
from headrace.index import descriptors
from headrace.index.descriptors import Run
from headrace.index.fetching import RunCache
from headrace.index.manifest import IndexManifest, IndexManifests
from headrace.log.view import View
from headrace.manifest.manifest import Manifest
from headrace.manifest.store import ManifestStore
from headrace.objects import ObjectMissing
from headrace.segment.descriptor import Segment

if TYPE_CHECKING:  # see `headrace.index.fetching`
    from headrace.index.fetching import Routine

_log = logging.getLogger(__name__)

KEYED_SEGMENTS = 4  # key pages of fewer segments are read as soon as a run is opened
ROUND_BYTES = 16 * 1024 * 1024  # decoded, that one round of a pruned read fetches
FILTERED_BYTES = 1024 * 1024  # less payload than this is looked at as soon as a run is opened
AGE_S = 30.0  # maximum age of a cached index manifest; replaced runs are kept for minutes
LACKING_AGE_S = 5.0  # maximum age if it has no run for the requested records


class Ahead(NamedTuple):
    """The result of asking runs about the records below `end`: the ascending offsets of those that may be selected
    (numpy, int64); None if nothing is known.
    """

    end: int
    offsets: Any = None


class Pruner:
    """The reader of index runs that tells a read which records may be selected. Thread-safe."""

    def __init__(self, indexes: IndexManifests, cache: RunCache) -> None:
        self._indexes = indexes
        self._cache = cache

    def ahead(self, log_id: str, first: int, end: int, view: View, *, is_prefix: bool = False) -> Ahead:
        """Returns which of the published records `[first, end)`, or of the first part of them, may be selected, as the
        log's runs tell. With `is_prefix`, the view's key may be the beginning of theirs.

        Raises:
            StoreTimeout, StoreThrottled: a store did not answer.
        """
        plan = descriptors.hash_of(view.definition) if view.key is None else None
        broken: set[str] = set()
        for is_fresh in (False, True):
            found = self._manifest(log_id, first, plan, is_fresh=is_fresh)
            usable = [run for run in found.runs if plan in (None, run.plan) and run.id not in broken]
            reaching = [run for run in usable if run.first_offset <= first < run.end_offset]
            if not reaching:
                return Ahead(min([end, *(run.first_offset for run in usable if run.first_offset > first)]))
            run = max(reaching, key=lambda one: one.end_offset)
            run_end = min(run.end_offset, end)
            try:
                return Ahead(run_end, self._offsets(run, first, run_end, view, is_prefix=is_prefix))
            except (ObjectMissing, Damaged) as exc:
                _log.warning("a run can't be read: log_id=%s run=%s reason=%s", log_id, run.id, exc)
                broken.add(run.id)
        return Ahead(run_end)

    def _manifest(self, log_id: str, first: int, plan: str | None, *, is_fresh: bool) -> IndexManifest:
        """Returns a recent index manifest: the cached one if it is recent; if no run in it helps, it must be very
        recent; otherwise the newest.
        """
        known = None if is_fresh else self._indexes.recent(log_id, AGE_S)
        if known is not None:
            serves = any(
                run.first_offset <= first < run.end_offset and plan in (None, run.plan) for run in known.runs
            )
            if serves or self._indexes.recent(log_id, LACKING_AGE_S) is not None:
                return known
        return self._indexes.look(log_id)

    def _offsets(self, run: Run, first: int, end: int, view: View, *, is_prefix: bool) -> Any:
        from headrace.index import fetching
        from headrace.index.evaluate import select

        runs, ranges = self._cache.opened()
        condition = None
        if view.filter is not None and run.plan == descriptors.hash_of(view.definition):
            assert view.definition.search is not None, "a filter was parsed"
            condition = (view.filter, view.definition.search)

        def look() -> Routine[Any]:
            reader = yield from runs.open(run)
            return (yield from select(reader, first, end, view.key, condition, is_prefix=is_prefix))

        return fetching.run(look(), ranges.fetches())


def is_worth(segments: Iterable[Segment], view: View) -> bool:
    """Returns whether runs may save more than it costs to read them, given the segments that would be read
    otherwise.
    """
    if view.key is not None:
        return sum(1 for _ in islice(segments, KEYED_SEGMENTS)) == KEYED_SEGMENTS
    payload = 0
    for segment in segments:
        payload += segment.payload_bytes
        if payload >= FILTERED_BYTES:
            return True
    return False


def next_round(
    manifests: ManifestStore, manifest: Manifest, offsets: Any, room: int
) -> list[tuple[Segment, list[int]]]:
    """Returns the first of these offsets, by segment: at most `room` of them, and no further page once `ROUND_BYTES`
    are reached.
    """
    wanted: list[tuple[Segment, list[int]]] = []
    at = payload = 0
    while at < min(room, len(offsets)) and payload < ROUND_BYTES:
        segment = next(manifests.segments_from(manifest, int(offsets[at])))
        ends = list(accumulate(segment.pages.counts, initial=segment.first_offset))[1:]
        chosen: list[int] = []
        last_page = -1
        for offset in offsets[at : min(room, int(offsets.searchsorted(segment.end_offset)))].tolist():
            page = bisect_right(ends, offset)
            if page > last_page:
                if payload >= ROUND_BYTES:
                    break
                payload += segment.pages.payload[page]
                last_page = page
            chosen.append(offset)
        wanted.append((segment, chosen))
        at += len(chosen)
    return wanted
