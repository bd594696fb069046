"""A generation of a log's index manifest, as a value: which runs are read, and which no longer are but may be by somebody.

Rules of every generation (`check`): runs of one plan are disjoint, runs are in the order of their first offsets, no id
stands twice, retired runs included.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from headrace.errors import Damaged
from headrace.index.run import Run
from headrace.objects import packed

VERSION = 1


class Retired(msgspec.Struct, frozen=True):
    """A run that generation `generation`, made at `at_ms`, left out; its objects are still there."""

    run: Run
    generation: int
    at_ms: int


class IndexManifest(msgspec.Struct, frozen=True):
    """One generation.

    Attributes:
        generation: from 1 on, made without gaps; 0: nothing was published, and there is no such object.
        created_ms: when it was made.
        runs: those to read, ascending by first offset, then by plan.
        retired: oldest first.
    """

    version: int
    log_id: str
    generation: int
    created_ms: int
    runs: tuple[Run, ...] = ()
    retired: tuple[Retired, ...] = ()

    def of_plan(self, plan: str) -> tuple[Run, ...]:
        """The runs of one plan: disjoint, ascending."""
        return tuple(run for run in self.runs if run.plan == plan)


def empty(log_id: str) -> IndexManifest:
    """What a log has before its first generation."""
    return IndexManifest(VERSION, log_id, 0, 0)


def with_runs(manifest: IndexManifest, new: Sequence[Run], now_ms: int, *, plan: str) -> IndexManifest:
    """The next generation, with those of the new runs that fit; the very manifest given if none does.

    A run fits if its id is new, if it covers something, if every run of its plan that it touches lies in it and is of a
    lower level, and, unless it is of the plan in force, if runs of that one don't cover all of it. The runs in it are
    retired, and so is each run of another plan that runs of the plan in force now cover.

    Args:
        manifest: in force.
        new: runs whose descriptors exist; of two that don't fit together the first one counts.
        now_ms: the server's clock.
        plan: the plan in force.
    """
    kept = list(manifest.runs)
    left: list[Run] = []
    known = {run.id for run in kept} | {retired.run.id for retired in manifest.retired}
    added = False
    for run in new:
        inputs = [one for one in kept if one.plan == run.plan and _touches(one, run)]
        is_new = run.id not in known and run.first_offset < run.end_offset
        is_larger = all(_lies_in(one, run) and one.level < run.level for one in inputs)
        is_outdated = run.plan != plan and covers(_of_plan(kept, plan), run)
        if not (is_new and is_larger) or is_outdated:
            continue
        known.add(run.id)
        kept = [one for one in kept if one not in inputs]
        kept.append(run)
        left += inputs
        added = True
    if not added:
        return manifest
    current = _of_plan(kept, plan)
    outdated = [run for run in kept if run.plan != plan and covers(current, run)]
    kept = [run for run in kept if run not in outdated]
    published = {run.id for run in manifest.runs}
    generation = manifest.generation + 1
    retired = [Retired(run, generation, now_ms) for run in (*left, *outdated) if run.id in published]
    return replace(
        manifest,
        generation=generation,
        created_ms=now_ms,
        runs=tuple(sorted(kept, key=lambda run: (run.first_offset, run.plan))),
        retired=(*manifest.retired, *retired),
    )


def without(manifest: IndexManifest, ids: Collection[str], now_ms: int) -> IndexManifest:
    """The next generation, in which these retired runs are forgotten; the very manifest given if it has none of them."""
    retired = tuple(one for one in manifest.retired if one.run.id not in ids)
    if len(retired) == len(manifest.retired):
        return manifest
    return replace(manifest, generation=manifest.generation + 1, created_ms=now_ms, retired=retired)


def gaps(runs: Iterable[Run], start: int, end: int) -> list[tuple[int, int]]:
    """The parts of `[start, end)` that none of the runs covers, ascending.

    Args:
        runs: in any order, of any plans.
    """
    found: list[tuple[int, int]] = []
    at = start
    for run in sorted(runs, key=lambda run: run.first_offset):
        if run.first_offset >= end:
            break
        if run.first_offset > at:
            found.append((at, run.first_offset))
        at = max(at, run.end_offset)
    if at < end:
        found.append((at, end))
    return found


def covers(runs: Iterable[Run], covered: Run) -> bool:
    """Whether each record of `covered` is in one of the runs."""
    return not gaps(runs, covered.first_offset, covered.end_offset)


def encode(manifest: IndexManifest) -> bytes:
    """The object of a generation. Equal manifests give equal bytes."""
    return packed.encode(manifest)


def decode(data: bytes, source: str) -> IndexManifest:
    """The generation in an object.

    Args:
        data: what `encode` made.
        source: the object's key, for the error.

    Raises:
        Damaged: truncated, altered, of an unknown version, or it breaks a rule.
    """
    manifest = packed.decode(data, IndexManifest, source)
    if manifest.version != VERSION:
        raise Damaged(f"index manifest is of an unknown version: object={source} version={manifest.version}")
    check(manifest, source)
    return manifest


def check(manifest: IndexManifest, source: str) -> None:
    """Checks the rules of a generation.

    Raises:
        Damaged: it breaks one.
    """
    ids = [run.id for run in manifest.runs] + [retired.run.id for retired in manifest.retired]
    if len(set(ids)) != len(ids):
        raise Damaged(f"index manifest names a run twice: object={source}")
    for before, behind in pairwise(manifest.runs):
        if (before.first_offset, before.plan) > (behind.first_offset, behind.plan):
            raise Damaged(f"index manifest is out of order: object={source} runs={before.id},{behind.id}")
    ends: dict[str, int] = {}
    for run in manifest.runs:
        if not max(0, ends.get(run.plan, 0)) <= run.first_offset < run.end_offset:
            raise Damaged(f"index manifest has a run that overlaps or is empty: object={source} run={run.id}")
        ends[run.plan] = run.end_offset


def _of_plan(runs: Iterable[Run], plan: str) -> list[Run]:
    return [run for run in runs if run.plan == plan]


def _touches(one: Run, other: Run) -> bool:
    return one.first_offset < other.end_offset and other.first_offset < one.end_offset


def _lies_in(inner: Run, outer: Run) -> bool:
    return outer.first_offset <= inner.first_offset and inner.end_offset <= outer.end_offset
