"""A log's index manifest, as a value and as objects: the runs that are read, and the retired runs that some readers may
still use.

Rules of every generation (`check`): runs of one plan are disjoint, runs are in the order of their first offsets, no id
occurs twice, retired runs included. The commit point is the creation of generation N+1 on the condition that it is
absent: only the caller that creates it has published.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from headrace.clock import Bounded, Clock, moment
from headrace.errors import Damaged
from headrace.index.descriptors import Run
from headrace.manifest.store import KEPT_MS, NewestLook, load_from
from headrace.objects import ObjectMissing, Objects, keys, packed
from headrace.objects.packed import publish

VERSION = 1
PUBLISH_MS = 6 * 3600 * 1000  # after it was planned, a run is not published any more


class Retired(msgspec.Struct, frozen=True):
    """A run that is no longer read since generation `generation`, created at `at_ms`; its objects still exist."""

    run: Run
    generation: int
    at_ms: int


class IndexManifest(msgspec.Struct, frozen=True):
    """One generation of a log's index manifest.

    Attributes:
        generation: number from 1 on, without gaps; 0 means that nothing was published, and has no object.
        created_ms: when it was created, in epoch milliseconds.
        runs: the runs to read, ascending by first offset, then by plan.
        retired: the retired runs, oldest first.
    """

    version: int
    log_id: str
    generation: int
    created_ms: int
    runs: tuple[Run, ...] = ()
    retired: tuple[Retired, ...] = ()

    def of_plan(self, plan: str) -> tuple[Run, ...]:
        """Returns the runs of one plan, which are disjoint, in ascending order."""
        return tuple(run for run in self.runs if run.plan == plan)


def empty(log_id: str) -> IndexManifest:
    """Returns generation 0, which stands for a log without any index manifest."""
    return IndexManifest(VERSION, log_id, 0, 0)


def with_runs(manifest: IndexManifest, new: Sequence[Run], now_ms: int, *, plan: str) -> IndexManifest:
    """Returns the next generation with the new runs that fit. Returns `manifest` itself if none fits.

    A run fits if its id is new, if it is not empty, and if every run of its plan that it overlaps lies in it and has a
    lower level. A run of an older plan fits only if runs of the current plan don't cover all of it. Runs that a new run
    replaces are retired, and so are runs of other plans that runs of the current plan now cover.

    Args:
        manifest: the newest generation.
        new: runs whose descriptors exist; if two exclude each other, the first one is taken.
        now_ms: the server's clock.
        plan: the current plan.
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


def retired_over(manifest: IndexManifest, first: int, end: int, now_ms: int) -> IndexManifest:
    """Returns the next generation, in which the runs that overlap the records `[first, end)` are retired.

    It is a new generation even if there are no such runs: then a process that is about to publish one has to look again.
    """
    over = [run for run in manifest.runs if run.first_offset < end and first < run.end_offset]
    return with_retired(manifest, over, now_ms)


def with_retired(manifest: IndexManifest, runs: Collection[Run], now_ms: int) -> IndexManifest:
    """Returns the next generation, in which these of its runs are retired."""
    generation = manifest.generation + 1
    return replace(
        manifest,
        generation=generation,
        created_ms=now_ms,
        runs=tuple(run for run in manifest.runs if run not in runs),
        retired=(*manifest.retired, *(Retired(run, generation, now_ms) for run in runs)),
    )


def without(manifest: IndexManifest, ids: Collection[str], now_ms: int) -> IndexManifest:
    """Returns the next generation without these retired runs. Returns `manifest` itself if it has none of them."""
    retired = tuple(one for one in manifest.retired if one.run.id not in ids)
    if len(retired) == len(manifest.retired):
        return manifest
    return replace(manifest, generation=manifest.generation + 1, created_ms=now_ms, retired=retired)


def gaps(runs: Iterable[Run], start: int, end: int) -> list[tuple[int, int]]:
    """Returns the parts of `[start, end)` that none of the runs covers, ascending.

    Args:
        runs: runs in any order, of any plans.
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
    """Encodes a generation of an index manifest as the bytes of its object. Equal manifests give equal bytes."""
    return packed.encode(manifest)


def decode(data: bytes, source: str) -> IndexManifest:
    """Decodes a generation of an index manifest from the bytes of its object.

    Args:
        data: the bytes that `encode` returned.
        source: the object's key, for the error.

    Raises:
        Damaged: the object is truncated, altered, of an unknown version, or breaks a rule.
    """
    manifest = packed.decode(data, IndexManifest, source)
    check(manifest, source)
    return manifest


def check(manifest: IndexManifest, source: str) -> None:
    """Checks that runs of one plan are disjoint, runs are in the order of their first offsets, and no id occurs twice.

    Raises:
        Damaged: it breaks a rule.
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


_KEEP_BYTES = 32 * 1024 * 1024  # in memory, of generations


def weigh(manifest: IndexManifest) -> int:
    """Returns about how many bytes a generation takes in memory: a run takes 2 KB, and a generation names some dozens."""
    return 2048 * (1 + len(manifest.runs) + len(manifest.retired))


class IndexManifestStore:
    """The store of index manifests of all logs. Thread-safe. Every method may raise `StoreTimeout` or
    `StoreThrottled`.
    """

    def __init__(self, objects: Objects) -> None:
        """Creates a store over these objects."""
        self._objects = objects

    def load(self, log_id: str, generation: int) -> IndexManifest | None:
        """Loads one generation; None if its object does not exist.

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

        Costs one GET that finds nothing, and one for each generation after `known`. Without `known` and `at_least`,
        generations are listed if the first one exists. Indexes can be built again, so if generation `at_least` is gone
        (in a restored bucket), the newest existing one is returned.

        Args:
            known: a generation that the caller has, if any. It must have been the newest less than `KEPT_MS` ago, or
                `at_least` must come from the watermark: otherwise generations after it may have been removed.
            at_least: a generation that should exist; 0 if none is known.

        Raises:
            Damaged: the object of a generation is not that generation, or breaks a rule.
        """
        found = known
        if found is None or found.generation < at_least:
            found = load_from(log_id, at_least, self.load, self.standing)
            if known is not None and (found is None or found.generation < known.generation):
                found = known
        if found is None:
            return empty(log_id)
        while following := self.load(log_id, found.generation + 1):
            found = following
        return found

    def publish(self, manifest: IndexManifest, look: NewestLook | None = None) -> bool:
        """Creates the generation if it is absent. Returns whether it is `manifest`; False if another caller took its
        number. `look` is the one that found the generation before; None only in tests.

        If the store does not answer, the object is read to find out.

        Raises:
            Damaged: `manifest` breaks a rule; nothing was written.
            StoreTimeout: it is unknown whether it was published; look with `newest`.
            StoreThrottled: it was not published, perhaps because the look is too old.
        """
        key = keys.index_manifest(manifest.log_id, manifest.generation)
        if manifest.generation < 1:
            raise Damaged(f"index manifest has no generation: object={key}")
        check(manifest, key)
        return publish(self._objects, key, encode(manifest), look.check if look is not None else None)

    def standing(self, log_id: str) -> list[int]:
        """Returns the numbers of the generations that exist, ascending."""
        found = map(keys.index_generation, self._objects.list(keys.index_manifests(log_id)))
        return sorted(generation for generation in found if generation is not None)


class IndexManifests:
    """The process's cache of the newest index manifest of each log. Thread-safe."""

    def __init__(self, objects: Objects, clock: Clock) -> None:
        """Creates a cache of the generations in these objects."""
        self._store = IndexManifestStore(objects)
        self._clock = clock
        self._seen: Bounded[str, IndexManifest] = Bounded(_KEEP_BYTES, weigh=weigh, clock=clock)

    def forget(self) -> None:
        """Clears the cache."""
        self._seen.clear()

    def recent(self, log_id: str, max_age_s: float, at_least: int = 0) -> IndexManifest | None:
        """Returns the cached generation if it was the newest at most `max_age_s` seconds ago and is at least
        `at_least`; else None.
        """
        seen = self._seen.get(log_id, max_age_s=max_age_s)
        return seen if seen is not None and seen.generation >= at_least else None

    def look(self, log_id: str, at_least: int = 0, *, trusts: bool = False) -> IndexManifest:
        """Looks for the newest generation and returns it. Costs the GETs of `IndexManifestStore.newest`.

        Args:
            at_least: the generation that the watermark names; 0 if it names none, which costs a listing the first time.
            trusts: whether to take `at_least` as the newest if it is newer than the cached one; this costs one GET.

        Raises:
            Damaged: the object of a generation is not that generation, or breaks a rule.
            StoreTimeout, StoreThrottled: the store did not answer.
        """
        now = moment(self._clock)
        seen = self._seen.get(
            log_id, max_age_s=KEPT_MS / 2000
        )  # later generations of an older one may be removed already
        newest = None
        if trusts and at_least and (seen is None or seen.generation < at_least):
            newest = self._store.load(log_id, at_least)
        if newest is None:
            newest = self._store.newest(log_id, seen, at_least)
        self._seen.put(log_id, newest, read=now)
        return newest
