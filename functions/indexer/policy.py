"""What of a log is due, which tasks that gives, and when to look at it again. Pure.

Published records that no run of the plan in force covers are unindexed, whether they are new or the plan is. They are due
when enough segments of them wait, or the first of them has waited long enough. The newest come first, since searches ask
for them. Runs are compacted by tiers: `fanout` neighbours of one level become one of the next. Small segments of the log
itself are merged, as `headrace.manifest.merging` says, whether or not anything of it is indexed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from headrace.index.descriptors import Run
from headrace.index.job import Task
from headrace.index.manifest import IndexManifest, gaps
from headrace.manifest import merging
from headrace.manifest.merging import MergeLimits
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
    """What makes a log due, bounds a run or a merged segment, and lets objects go."""

    age_ms: int
    segments: int
    fanout: int
    jobs: int
    retire_age_ms: int
    merge: MergeLimits = MergeLimits(0, 0, 0, 0)


class Picture(NamedTuple):
    """What the stores say of a log.

    Attributes:
        content_type: of its records.
        plan: hash of the plan in force.
        definition: key of the definition that it comes from; empty without one.
        base_offset, end_offset: the published records that are the log's own.
        published_ms: when its end was published.
        manifest: the newest index manifest.
        unindexed: unindexed segments, ascending: the newest of them, enough to be due and for `MAX_BUILDS` tasks.
        open_page: segments that may be merged, ascending.
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


def unindexed_ranges(index: IndexManifest, plan: str, base_offset: int, end_offset: int) -> list[tuple[int, int]]:
    """Returns the ranges of published records that no run of the plan covers, ascending."""
    return gaps(index.of_plan(plan), base_offset, end_offset)


def enough(limits: IndexLimits) -> int:
    """Returns as many unindexed segments as a look at a log ever needs to know."""
    return MAX_BUILDS * limits.segments


def tasks(picture: Picture, since_ms: int, now_ms: int, limits: IndexLimits, new_id: Callable[[], str]) -> list[Task]:
    """Returns what is due, the most wanted first. `since_ms`: since when the first unindexed segment waits, as far as
    known.
    """
    wanted = list(_compactions(picture, limits, new_id))
    if _is_due(picture, since_ms, now_ms, limits):
        wanted = [*_builds(picture, limits, new_id), *wanted]
    return [*wanted, *_merges(picture, now_ms, limits, new_id)]


def next_look_ms(picture: Picture, since_ms: int, now_ms: int, limits: IndexLimits) -> int | None:
    """Returns when something of the log will be due; `now_ms` if something is; None if nothing will be."""
    if tasks(picture, since_ms, now_ms, limits, lambda: "") or expired(picture.manifest, now_ms, limits):
        return now_ms
    times = [
        _expires_ms(picture.manifest, retired.generation, retired.at_ms, limits)
        for retired in picture.manifest.retired
    ]
    if picture.unindexed:
        times.append((since_ms or picture.published_ms) + limits.age_ms)
    mergeable_ms = merging.due_ms(picture.open_page, limits.merge)
    if mergeable_ms is not None:
        times.append(mergeable_ms)
    return min(times, default=None)


def expired(index: IndexManifest, now_ms: int, limits: IndexLimits) -> list[Run]:
    """Returns the retired runs that no reader can hold any more."""
    return [
        retired.run
        for retired in index.retired
        if now_ms >= _expires_ms(index, retired.generation, retired.at_ms, limits)
    ]


def outdated(standing: Sequence[int], made_ms: Callable[[int], int], until_ms: int) -> list[int]:
    """Generations that a newer one replaced at `until_ms` or before, but for the first.

    Args:
        standing: ascending.
        made_ms: when a generation was made; asked for a few of them.
    """
    older = bisect_right(standing, until_ms, key=made_ms)
    return [generation for generation in standing[: max(0, older - 1)] if generation != 1]


def noted(row: Waiting | None, log_id: str, now_ms: int, due_ms: int) -> Waiting | None:
    """Returns the row of a log that will be due at `due_ms`; None if the present row says so already.

    A log that a job has in hand is looked at when that is over, and one that failed has to wait for its time. A row that
    is due is written again though nothing in it changes: a planner that saw the log before it was news may be about to
    drop it, and drops no row that was written since.
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
    """Returns the row after a job that made nothing for the log: later each time, and much later if the log is damaged."""
    failures = row.failures + 1
    doublings = min(failures - 1 + (5 if damaged else 0), 20)
    wait_ms = min(_LONGEST_BACKOFF_MS, _FIRST_BACKOFF_MS << doublings)
    return Waiting(row.log_id, now_ms + wait_ms, row.since_ms or now_ms, failures, "", reason[:500], row.version)


def together(rows: Sequence[Waiting]) -> list[Waiting]:
    """Returns the due rows that one job run may serve: a log that failed runs alone, so that no other fails with it."""
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
    for segments in merging.groups(picture.open_page, now_ms, limits.merge)[:MAX_MERGES]:
        yield Task(
            work="merge",
            log_id=picture.log_id,
            run_id=new_id(),
            level=0,
            plan="",
            first_offset=segments[0].first_offset,
            end_offset=segments[-1].end_offset,
            definition="",
            content_type=picture.content_type,
            segments=segments,
        )


def _tiers(runs: Sequence[Run], fanout: int) -> Iterator[list[Run]]:
    """Groups of `fanout` neighbours of one level, none of the highest."""
    for streak in _streaks(runs):
        for level, same in groupby(streak, key=lambda run: run.level):
            neighbours = list(same)
            if level < MAX_LEVEL:
                for at in range(0, len(neighbours) - fanout + 1, fanout):
                    yield neighbours[at : at + fanout]


def _smallest(runs: Sequence[Run], fanout: int) -> list[list[Run]]:
    """Returns the neighbours, whatever their levels, that cost least to merge; none if gaps part all runs."""
    windows = [
        streak[at : at + fanout]
        for streak in _streaks(runs)
        for at in range(len(streak) - fanout + 1)
        if max(run.level for run in streak[at : at + fanout]) < MAX_LEVEL
    ]
    cheapest = min(windows, key=lambda window: sum(sum(run.sizes.values()) for run in window), default=None)
    return [cheapest] if cheapest is not None else []


def _streaks(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Runs that follow each other without a gap."""
    streak: list[Run] = []
    for run in runs:
        if streak and streak[-1].end_offset != run.first_offset:
            yield streak
            streak = []
        streak.append(run)
    if streak:
        yield streak


def _expires_ms(index: IndexManifest, generation: int, at_ms: int, limits: IndexLimits) -> int:
    """Returns two generations and the retire age later; without a second generation, after a multiple of that age."""
    ages = 1 if index.generation - generation >= 2 else IDLE_RETIRE_AGES
    return at_ms + ages * limits.retire_age_ms
