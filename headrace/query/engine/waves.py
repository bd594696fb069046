"""In which order the parts of a stream are looked at, and what is known of them before. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from headrace.index.descriptors import Descriptor, Run
from headrace.index.families import CHUNK_BITS
from headrace.query.engine.sources import LogPart, Range, RunRange, SegmentRange, Snapshot
from headrace.query.language.coverage import Omission
from headrace.query.language.query import And, Anywhere, Equals, Has, Node, Or

Unit = SegmentRange | LogPart | RunRange  # a log's part stands for its tail

_FIRST_STEP = 1 << CHUNK_BITS  # records: a page of a phrase of frequent words is full with them
_GROWTH = 8
_LEAST_TIME, _GREATEST_TIME = -(2**63), 2**63 - 1  # a run that says so may hold times beyond them


def grouped(units: Sequence[Unit], first_wave: int) -> list[list[Unit]]:
    """Steps of a search by offset: scans one by one, the first runs together, then all others."""
    waves: list[list[Unit]] = []
    taken = 0
    for unit in units:
        is_run = isinstance(unit, RunRange)
        joins = is_run and bool(waves) and isinstance(waves[-1][0], RunRange) and taken != first_wave
        taken += is_run
        if joins:
            waves[-1].append(unit)
        else:
            waves.append([unit])
    return waves


def paced(units: Iterable[Unit], *, descending: bool, after: int | None) -> list[list[Unit]]:
    """Steps of a search by offset that asks where words stand, which is much to read and to compare.

    Scans one by one; of runs first those pieces that hold the next `_FIRST_STEP` records, then each time `_GROWTH` times
    as many. So most pages are full after one step, and a phrase that nobody wrote costs few. Pieces end where chunks of
    postings do.

    Args:
        units: in the order of the search.
        after: the record that the page begins after.
    """
    waves: list[list[Unit]] = []
    size = room = _FIRST_STEP
    for unit in units:
        if not isinstance(unit, RunRange):
            waves.append([unit])
            continue
        rest = unit if after is None else _behind(unit, after, descending=descending)
        while rest.first < rest.end:
            if not room:
                size = room = size * _GROWTH
            piece, rest = _piece(rest, room, descending=descending)
            if room == size or not isinstance(waves[-1][0], RunRange):
                waves.append([])
            waves[-1].append(piece)
            room = max(0, room - (piece.end - piece.first))
    return waves


def _behind(found: RunRange, after: int, *, descending: bool) -> RunRange:
    """What of a run comes after a record."""
    if descending:
        return found._replace(end=min(found.end, after))
    return found._replace(first=max(found.first, after + 1))


def _piece(found: RunRange, records: int, *, descending: bool) -> tuple[RunRange, RunRange]:
    """The next piece of a run, of about so many records, and what is left of it."""
    if descending:
        cut = max(found.first, (found.end - records) >> CHUNK_BITS << CHUNK_BITS)
        return found._replace(first=cut), found._replace(end=cut)
    cut = min(found.end, -(-(found.first + records) >> CHUNK_BITS) << CHUNK_BITS)
    return found._replace(end=cut), found._replace(first=cut)


def begin_of(unit: Unit) -> int:
    """Offset of its first record."""
    return unit.published if isinstance(unit, LogPart) else unit.first


def end_of(unit: Unit) -> int:
    """Offset after its last record."""
    return unit.end


def omissions(snapshot: Snapshot, units: Iterable[Unit]) -> list[Omission]:
    """Units that no time was left for, ascending. A segment that stands in several of them is counted once.

    Costs up to two GETs for each run, of sealed pages of the manifest that were never seen.
    """
    found: list[Omission] = []
    counted: dict[str, int] = {}  # by log, the number of the last segment
    for unit in sorted(units, key=begin_of):
        if isinstance(unit, LogPart):
            records = unit.tail.records
            found.append(Omission(records[0].offset, unit.end, records[0].time_ms, is_published=False))
            continue
        first, last = _numbers(snapshot, unit)
        first = max(first, counted.get(unit.log_id, -1) + 1)
        counted[unit.log_id] = last
        time_ms = unit.run.min_time_ms if isinstance(unit, RunRange) else unit.segment.min_time_ms
        found.append(Omission(unit.first, unit.end, time_ms, is_published=True, segments=last + 1 - first))
    return found


def _numbers(snapshot: Snapshot, unit: RunRange | SegmentRange) -> tuple[int, int]:
    """The numbers of the segments in which a unit's first and last record stand."""
    if isinstance(unit, SegmentRange):
        return unit.segment.number, unit.segment.number
    part = snapshot.part_of(unit.first)
    first, last = (snapshot.segments_in(part, Range(at, at + 1))[0] for at in (unit.first, unit.end - 1))
    return first.segment.number, last.segment.number


def published(snapshot: Snapshot) -> int:
    """Segments of the stream. A fork takes only some of its ancestors': they are all counted."""
    return sum(part.manifest.segment_count for part in snapshot.parts if part.manifest is not None)


def bound_of(run_: Run, *, descending: bool, is_whole: bool) -> float:
    """A distance that no record of the run is before; `is_whole`: each of them has a time."""
    time = run_.greatest_timestamp if descending else run_.least_timestamp
    if descending and (not is_whole or time == _GREATEST_TIME):
        return -math.inf
    return -math.inf if time == _LEAST_TIME and not descending else distance(time, descending=descending)


def distance(time: int | None, *, descending: bool) -> float:
    """How far from the first hit a time is sorted: an absent one comes first descending, and last ascending."""
    if time is None:
        return -math.inf if descending else math.inf
    return -time if descending else time


def expected(node: Node, descriptor: Descriptor) -> float:
    """About how many records of a run match; too many where nothing is known."""
    size = descriptor.end_offset - descriptor.first_offset
    if isinstance(node, And):
        return min(expected(part, descriptor) for part in node.parts)
    if isinstance(node, Or):
        return sum(expected(part, descriptor) for part in node.parts)
    if isinstance(node, Anywhere):
        return sum(expected(part, descriptor) for part in node.options)
    if isinstance(node, Equals | Has):
        stats = descriptor.fields.get(node.field)
        if stats is None:
            return 0
        return stats.present / max(1, stats.distinct) if isinstance(node, Equals) else stats.present
    return size
