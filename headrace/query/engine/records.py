"""Records of a stream that are published, wherever they stand: for hits, and for what an index can't decide."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from headrace.errors import Damaged
from headrace.index.fetching import Routine
from headrace.query.engine.sources import Range, Snapshot
from headrace.segment import scattered
from headrace.segment.descriptor import Segment


def fetch(snapshot: Snapshot, offsets: Sequence[int]) -> Routine[dict[int, bytes]]:
    """The data of published records, by offset, in the order of offsets; one round.

    Args:
        offsets: ascending.

    Raises:
        Damaged: one of them stands in no segment, or an object is not what the manifest says.
    """
    wanted: list[tuple[Segment, Sequence[int]]] = []
    for part in snapshot.parts:
        at, end = bisect_left(offsets, part.first), bisect_left(offsets, part.published)
        while at < end:
            # Segments are found one after another from the first wanted record on; those between are skipped.
            found = snapshot.segments_in(part, Range(offsets[at], offsets[at] + 1))[0].segment
            stop = bisect_left(offsets, found.end_offset, at, end)
            wanted.append((found, offsets[at:stop]))
            at = stop
    if not wanted:
        return {}
    records = yield from scattered.read(wanted)
    if len(records) != len(offsets):
        missing = sorted(set(offsets) - set(records))
        raise Damaged(f"records stand in no segment: stream={snapshot.name} offsets={missing[:5]}")
    return records
