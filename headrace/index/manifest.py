"""A log's index manifest: which runs are read, and which no longer are but may still be in use. Values and their store.

Rules of every generation (`check`): runs of one plan are disjoint, runs are in the order of their first offsets, no id
occurs twice, retired runs included. Creating generation N+1 if it is absent is the commit point: the caller that creates
it has published, every other one has not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from headrace.bounded import Bounded
from headrace.clock import Clock, moment
from headrace.errors import Damaged
from headrace.index.descriptors import Run
from headrace.objects import ObjectMissing, Objects, keys, packed
from headrace.objects.publishing import publish

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
        """Returns the runs of one plan: disjoint, ascending."""
        return tuple(run for run in self.runs if run.plan == plan)


def empty(log_id: str) -> IndexManifest:
    """Returns what a log has before its first generation."""
    return IndexManifest(VERSION, log_id, 0, 0)


def with_runs(manifest: IndexManifest, new: Sequence[Run], now_ms: int, *, plan: str) -> IndexManifest:
    """Returns the next generation, with those of the new runs that fit; the very manifest given if none does.

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
    """Returns the next generation, in which these retired runs are forgotten; the very manifest given if it has none of
    them.
    """
    retired = tuple(one for one in manifest.retired if one.run.id not in ids)
    if len(retired) == len(manifest.retired):
        return manifest
    return replace(manifest, generation=manifest.generation + 1, created_ms=now_ms, retired=retired)


def gaps(runs: Iterable[Run], start: int, end: int) -> list[tuple[int, int]]:
    """Returns the parts of `[start, end)` that none of the runs covers, ascending.

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
    """Returns whether each record of `covered` is in one of the runs."""
    return not gaps(runs, covered.first_offset, covered.end_offset)


def encode(manifest: IndexManifest) -> bytes:
    """Returns the object of a generation. Equal manifests give equal bytes."""
    return packed.encode(manifest)


def decode(data: bytes, source: str) -> IndexManifest:
    """Returns the generation in an object.

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


_REMEMBERED = 1024  # logs; a run takes about 1 KB, and a generation names some dozens
KEPT_MS = 24 * 3600 * 1000  # a generation is at least so long after a newer one was made, the first one for ever


class IndexManifestStore:
    """Generations of any log. Thread-safe. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def __init__(self, objects: Objects) -> None:
        """Stores in `objects`."""
        self._objects = objects

    def load(self, log_id: str, generation: int) -> IndexManifest | None:
        """Loads one generation; None if it was never published.

        Raises:
            Damaged: the object is not that generation, or breaks a rule.
        """
        key = keys.index_manifest(log_id, generation)
        try:
            manifest = decode(self._objects.get(key), key)
        except ObjectMissing:
            return None
        if (manifest.log_id, manifest.generation) != (log_id, generation):
            found = keys.index_manifest(manifest.log_id, manifest.generation)
            raise Damaged(f"index manifest is in the wrong place: object={key} found={found}")
        return manifest

    def newest(self, log_id: str, known: IndexManifest | None = None, at_least: int = 0) -> IndexManifest:
        """Returns the newest generation; `manifest.empty` if nothing was published.

        Costs one GET that finds nothing, and one for each generation behind the one in hand. Without one, and without
        a number to begin at, the generations are listed if there is a first one. An index is no record: where `at_least`
        is gone (a bucket that was restored), what is left counts.

        Args:
            known: a generation in hand, if any. It was the newest less than `KEPT_MS` ago, or `at_least` is what the
                watermark names: else generations that follow it may be gone.
            at_least: a generation that should exist; 0 if none is known.

        Raises:
            Damaged: a generation does not hold what it should.
        """
        found = known
        if found is None or found.generation < at_least:
            found = (self.load(log_id, at_least) if at_least else None) or self._listed(log_id)
            if known is not None and (found is None or found.generation < known.generation):
                found = known
        if found is None:
            return empty(log_id)
        while following := self.load(log_id, found.generation + 1):
            found = following
        return found

    def publish(self, manifest: IndexManifest) -> bool:
        """Creates the generation: True if it is `manifest`, False if another one took its number.

        A lost answer is cleared up by reading what is there.

        Raises:
            Damaged: `manifest` breaks a rule; nothing was written.
            StoreTimeout: it is unknown whether it was published; look with `newest`.
            StoreThrottled: it was not published.
        """
        key = keys.index_manifest(manifest.log_id, manifest.generation)
        if manifest.generation < 1:
            raise Damaged(f"index manifest has no generation: object={key}")
        check(manifest, key)
        return publish(self._objects, key, encode(manifest))

    def standing(self, log_id: str) -> list[int]:
        """Returns the generations that a listing shows, ascending."""
        found = map(keys.index_generation, self._objects.list(keys.index_manifests(log_id)))
        return sorted(generation for generation in found if generation is not None)

    def _listed(self, log_id: str) -> IndexManifest | None:
        """Returns the newest generation that a listing shows; None, and nothing is listed, without a first one."""
        if self.load(log_id, 1) is None:
            return None
        return self.load(log_id, max(self.standing(log_id), default=0))


class IndexManifests:
    """The newest generations that a process has seen, by log: the one cache of them. Thread-safe."""

    def __init__(self, objects: Objects, clock: Clock) -> None:
        """Looks in `objects`."""
        self._store = IndexManifestStore(objects)
        self._clock = clock
        self._seen: Bounded[str, IndexManifest] = Bounded(_REMEMBERED, clock=clock)

    def recent(self, log_id: str, max_age_s: float, at_least: int = 0) -> IndexManifest | None:
        """Returns the newest generation of up to `max_age_s` ago; None if none was seen since, or one below `at_least`."""
        seen = self._seen.get(log_id, max_age_s=max_age_s)
        return seen if seen is not None and seen.generation >= at_least else None

    def look(self, log_id: str, at_least: int = 0, *, trusts: bool = False) -> IndexManifest:
        """Returns the newest generation. Costs GETs as `IndexManifestStore.newest`.

        Args:
            at_least: a generation that the watermark names; 0 if it names none, which costs a list at first.
            trusts: takes `at_least` for the newest if it is newer than what was seen: one GET.

        Raises:
            Damaged: a generation is not what it should be.
            StoreTimeout, StoreThrottled: the store did not answer.
        """
        now = moment(self._clock)
        seen = self._seen.get(log_id, max_age_s=KEPT_MS / 2000)  # generations that follow an older one may be gone
        newest = None
        if trusts and at_least and (seen is None or seen.generation < at_least):
            newest = self._store.load(log_id, at_least)
        if newest is None:
            newest = self._store.newest(log_id, seen, at_least)
        self._seen.put(log_id, newest, read=now)
        return newest
