"""The indexer's policy: what is due for a log, the tasks that follow, and when to look again. Does no I/O.

Published records that no run of the current plan covers are unindexed, whether the records are new or the plan is. They
are due when there are enough such segments, or when the first has waited long enough. The newest are indexed first,
since searches ask for them. Runs are compacted by tiers: `fanout` neighbours of one level become one of the next. Small
segments of the log itself are merged, and removed records are scrubbed from segments, by the rules of
`headrace.manifest.merging`, whether or not the log is indexed.

A run over a segment that is scrubbed holds terms of the removed records. So it is retired once the scrubbed segment is
published, and built again; until then no run is made from the old segment. A run below the log's floor is retired, and one
that reaches below it once a part of it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from headrace.index.descriptors import Run
from headrace.index.job import Task
from headrace.index.manifest import IndexManifest, gaps
from headrace.manifest import merging
from headrace.manifest.merging import MergeLimits, Scrub
from headrace.objects import keys
from headrace.segment.descriptor import Segment
from headrace.tables.jobs import Waiting

MAX_BUILDS = 8  # tasks of one log in one job run: then other logs have their turn
MAX_COMPACTIONS = 4
MAX_MERGES = 4
MAX_ACTIVE = 16  # runs of one plan; with more of them each query pays for it
MAX_LEVEL = 3  # with 16 segments and a fan-out of 8, some 300 million events
IDLE_RETIRE_AGES = 12  # an idle log has no further generations: then age alone decides
_LONGEST_BACKOFF_MS = 6 * 3600 * 1000
_FIRST_BACKOFF_MS = 30_000


class IndexLimits(NamedTuple):
    """The limits that decide when a log is due, how large a run or merged segment gets, and when objects are
    removed.
    """

    age_ms: int
    segments: int
    fanout: int
    jobs: int
    retire_age_ms: int
    merge: MergeLimits = MergeLimits(0, 0, 0, 0)


class Picture(NamedTuple):
    """The facts about a log on which the policy decides.

    Attributes:
        content_type: content type of its records.
        plan: hash of the current plan.
        definition: key of the definition that gives the plan (`headrace.definition.key_of`).
        base_offset, end_offset: range of the log's own published records, without those below its floor.
        published_ms: when its end was published, in epoch milliseconds.
        manifest: the newest index manifest.
        unindexed: the newest unindexed segments, ascending; enough for `MAX_BUILDS` tasks.
        open_page: segments that may be merged, ascending.
        scrubs: segments to be scrubbed, ascending, with their removed records.
    """

    log_id: str
    content_type: str
    plan: str
    definition: str
    base_offset: int
    end_offset: int
    published_ms: int
    manifest: IndexManifest
    unindexed: tuple[Segment, ...]
    open_page: tuple[Segment, ...] = ()
    scrubs: tuple[Scrub, ...] = ()


def unindexed_ranges(index: IndexManifest, plan: str, base_offset: int, end_offset: int) -> list[tuple[int, int]]:
    """Returns the ranges of offsets (first inclusive, end exclusive) from `base_offset` to `end_offset` that no run of
    the plan covers, ascending.
    """
    return gaps(index.of_plan(plan), base_offset, end_offset)


def enough(limits: IndexLimits) -> int:
    """Returns the number of unindexed segments beyond which a look at a log need not count: more than one job run
    takes.
    """
    return MAX_BUILDS * limits.segments


def tasks(picture: Picture, since_ms: int, now_ms: int, limits: IndexLimits, new_id: Callable[[], str]) -> list[Task]:
    """Returns the tasks that are due, in this order: builds of new index runs, compactions of runs, merges of small
    segments, scrubs. `since_ms` is the time since when the first unindexed segment has been waiting, if known, else 0.
    """
    scrubs = list(_scrubs(picture, new_id))
    wanted = list(_compactions(picture, limits, new_id))
    if _is_due(picture, since_ms, now_ms, limits):
        wanted = [*_builds(picture, limits, new_id), *wanted]
    wanted += _merges(picture, now_ms, limits, new_id)
    return [task for task in wanted if not any(_overlap(task, one) for one in scrubs)] + scrubs


def _overlap(one: Task, other: Task) -> bool:
    return one.first_offset < other.end_offset and other.first_offset < one.end_offset


def next_look_ms(picture: Picture, since_ms: int, now_ms: int, limits: IndexLimits) -> int | None:
    """Returns the time (epoch ms) at which something of the log will be due: `now_ms` if something is due already, None
    if nothing is or will be.
    """
    is_due = passed(picture, now_ms) or expired(picture.manifest, now_ms, limits)
    if is_due or tasks(picture, since_ms, now_ms, limits, lambda: ""):
        return now_ms
    times = [
        _expires_ms(picture.manifest, retired.generation, retired.at_ms, limits)
        for retired in picture.manifest.retired
    ]
    if picture.unindexed:
        times.append((since_ms or picture.published_ms) + limits.age_ms)
    mergeable_ms = merging.due_ms(picture.open_page, limits.merge)
    if mergeable_ms is not None:  # if it is past, a merge would put off a scrub: another day it does not
        times.append(mergeable_ms if mergeable_ms > now_ms else (now_ms // merging.DAY_MS + 1) * merging.DAY_MS)
    return min(times, default=None)


def passed(picture: Picture, now_ms: int) -> list[Run]:
    """Returns the runs that hold records below the log's floor, and are to be retired for that: a run whose records are all
    below; one of which enough are or, on the log's day of the week, any, unless it was planned that day.
    """
    floor = picture.base_offset

    def is_passed(run: Run) -> bool:
        below, size = floor - run.first_offset, run.end_offset - run.first_offset
        if below * merging.SHARE >= size:
            return True
        is_young = now_ms - (keys.made_ms(run.id) or 0) < merging.DAY_MS
        return below > 0 and not is_young and merging.is_day(picture.log_id, now_ms)

    return [run for run in picture.manifest.runs if is_passed(run)]


def expired(index: IndexManifest, now_ms: int, limits: IndexLimits) -> list[Run]:
    """Returns the retired (replaced) index runs that no reader can still use."""
    return [
        retired.run
        for retired in index.retired
        if now_ms >= _expires_ms(index, retired.generation, retired.at_ms, limits)
    ]


def noted(row: Waiting | None, log_id: str, now_ms: int, due_ms: int) -> Waiting | None:
    """Returns the row to write for a log that will be due at `due_ms`, or earlier if its row says so; None if nothing
    must be written.

    If a job is working on the log, or the log has failed, the time of the current row stays. A row that is already due
    is written again even if nothing changes: a planner that has read the log before the news may be about to drop the
    row, and it does not drop a row that was written since.
    """
    if row is None:
        return Waiting(log_id, due_ms, since_ms=now_ms)
    since_ms = row.since_ms or now_ms
    in_hand = bool(row.job_id)
    due_ms = row.due_ms if in_hand or row.failures else min(row.due_ms, due_ms)
    changed = Waiting(log_id, due_ms, since_ms, row.failures, row.job_id, row.reason, row.version)
    may_be_dropped = not in_hand and row.due_ms <= now_ms
    return changed if changed != row or may_be_dropped else None


def failed(row: Waiting, now_ms: int, reason: str, *, damaged: bool) -> Waiting:
    """Returns the row of a log after a job failed for it, due later by a wait that doubles with each failure: from 30
    seconds (16 minutes if the log's data is damaged) to 6 hours.
    """
    failures = row.failures + 1
    doublings = min(failures - 1 + (5 if damaged else 0), 20)
    wait_ms = min(_LONGEST_BACKOFF_MS, _FIRST_BACKOFF_MS << doublings)
    return Waiting(row.log_id, now_ms + wait_ms, row.since_ms or now_ms, failures, "", reason[:500], row.version)


def together(rows: Sequence[Waiting]) -> list[Waiting]:
    """Returns those due rows that one job run may serve: only the first if its log has failed before, otherwise all
    that have not failed. So no log fails because of another.
    """
    if rows and rows[0].failures:
        return [rows[0]]
    return [row for row in rows if not row.failures]


def _is_due(picture: Picture, since_ms: int, now_ms: int, limits: IndexLimits) -> bool:
    if not picture.unindexed:
        return False
    waited_ms = now_ms - (since_ms or picture.published_ms)
    return len(picture.unindexed) >= limits.segments or waited_ms >= limits.age_ms


def _builds(picture: Picture, limits: IndexLimits, new_id: Callable[[], str]) -> Iterator[Task]:
    spans: list[tuple[int, int, tuple[Segment, ...]]] = []
    for start, end in unindexed_ranges(picture.manifest, picture.plan, picture.base_offset, picture.end_offset):
        inside = [one for one in picture.unindexed if one.first_offset < end and start < one.end_offset]
        for at in range(len(inside), 0, -limits.segments):
            part = tuple(inside[max(0, at - limits.segments) : at])
            spans.append((max(start, part[0].first_offset), min(end, part[-1].end_offset), part))
    spans.sort(reverse=True, key=lambda span: span[0])
    for start, end, segments in spans[:MAX_BUILDS]:
        yield Task(
            work="build",
            log_id=picture.log_id,
            run_id=new_id(),
            level=0,
            plan=picture.plan,
            first_offset=start,
            end_offset=end,
            definition=picture.definition,
            content_type=picture.content_type,
            segments=segments,
        )


def _compactions(picture: Picture, limits: IndexLimits, new_id: Callable[[], str]) -> Iterator[Task]:
    runs = picture.manifest.of_plan(picture.plan)
    groups = list(_tiers(runs, limits.fanout))
    if not groups and len(runs) > MAX_ACTIVE:
        groups = _smallest(runs, limits.fanout)
    for inputs in groups[:MAX_COMPACTIONS]:
        yield Task(
            work="compact",
            log_id=picture.log_id,
            run_id=new_id(),
            level=max(run.level for run in inputs) + 1,
            plan=picture.plan,
            first_offset=inputs[0].first_offset,
            end_offset=inputs[-1].end_offset,
            definition=picture.definition,
            content_type=picture.content_type,
            inputs=tuple(inputs),
        )


def _merges(picture: Picture, now_ms: int, limits: IndexLimits, new_id: Callable[[], str]) -> Iterator[Task]:
    groups = merging.groups(picture.open_page, now_ms, limits.merge)
    for segments in [one for one in groups if not merging.holds_up(one, picture.log_id, now_ms)][:MAX_MERGES]:
        yield _merge(picture, new_id(), segments)


def _scrubs(picture: Picture, new_id: Callable[[], str]) -> Iterator[Task]:
    for segment, dead in picture.scrubs[:MAX_MERGES]:
        yield _merge(picture, new_id(), (segment,), dead)


def _merge(picture: Picture, run_id: str, segments: tuple[Segment, ...], dead: tuple[int, ...] = ()) -> Task:
    first, end = segments[0].first_offset, segments[-1].end_offset
    return Task(
        "merge", picture.log_id, run_id, 0, "", first, end, "", picture.content_type, segments=segments, dead=dead
    )


def _tiers(runs: Sequence[Run], fanout: int) -> Iterator[list[Run]]:
    """Yields groups of `fanout` neighbouring index runs of one level, which are to be compacted into one; none of the
    highest level.
    """
    for streak in _streaks(runs):
        for level, same in groupby(streak, key=lambda run: run.level):
            neighbours = list(same)
            if level < MAX_LEVEL:
                for at in range(0, len(neighbours) - fanout + 1, fanout):
                    yield neighbours[at : at + fanout]


def _smallest(runs: Sequence[Run], fanout: int) -> list[list[Run]]:
    """Returns the `fanout` neighbouring index runs, below the highest level, that have the fewest bytes, as the only
    group; no group if there are never so many without a gap.
    """
    windows = [
        streak[at : at + fanout]
        for streak in _streaks(runs)
        for at in range(len(streak) - fanout + 1)
        if max(run.level for run in streak[at : at + fanout]) < MAX_LEVEL
    ]
    cheapest = min(windows, key=lambda window: sum(sum(run.sizes.values()) for run in window), default=None)
    return [cheapest] if cheapest is not None else []


def _streaks(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Yields groups of runs that follow each other without a gap in their offsets; a run without neighbours is a group."""
    streak: list[Run] = []
    for run in runs:
        if streak and streak[-1].end_offset != run.first_offset:
            yield streak
            streak = []
        streak.append(run)
    if streak:
        yield streak


def _expires_ms(index: IndexManifest, generation: int, at_ms: int, limits: IndexLimits) -> int:
    """Returns the time (epoch ms) from which a retired run may be removed: the retire age after it was retired if two
    newer generations exist, otherwise 12 times that age.
    """
    ages = 1 if index.generation - generation >= 2 else IDLE_RETIRE_AGES
    return at_ms + ages * limits.retire_age_ms
