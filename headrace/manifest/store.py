"""Loads and publishes manifests through an `Objects` port.

The commit point of sealing is the creation of generation N+1 on the condition that it is absent: only the caller that
creates it has published. Generations and sealed pages never change, so a few megabytes of each are cached.

Each generation is whole, so older ones are removed, except the first, once the watermark names a newer one that stood for
`KEPT_MS` (`outdated`). A caller that names the watermark's generation, or one that was the newest less than half as long
ago, finds the newest; any other would find a gap.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, takewhile
from typing import NamedTuple, TypeVar

from headrace.clock import Bounded, Clock, Moment, age_s, moment
from headrace.errors import Damaged, StoreThrottled
from headrace.manifest import invariants
from headrace.manifest.manifest import (
    Manifest,
    ManifestPage,
    Parts,
    decode,
    decode_page,
    encode,
    weigh,
    weigh_parts,
)
from headrace.objects import ObjectMissing, Objects, keys
from headrace.objects.packed import publish
from headrace.segment.descriptor import Segment

T = TypeVar("T")

KEPT_MS = 24 * 3600 * 1000  # a generation is kept at least so long after it was replaced, the first one forever
_KEEP_BYTES = 32 * 1024 * 1024  # in memory, of generations and of pages; one generation takes up to about 1 MB


class NewestLook(NamedTuple):
    """When a caller began to look for the newest generation. A publisher takes it before it reads the watermark."""

    clock: Clock
    since: Moment

    @classmethod
    def begin(cls, clock: Clock) -> NewestLook:
        """Returns a look that begins now."""
        return cls(clock, moment(clock))

    def check(self) -> None:
        """Raises StoreThrottled if the look is so old that its host was suspended, or if its age is unknown because the
        wall clock was set back: the number after the generation that it found may have been used, and be free again since
        the generation under it was removed.
        """
        if age_s(self.clock, self.since) * 1000 > KEPT_MS / 2:
            raise StoreThrottled(
                "the look for the newest generation is too old, or the clock was set back; look again"
            )


def remembered() -> Bounded[str, Manifest]:
    """Returns an empty cache of generations, bounded by what they take in memory."""
    return Bounded(_KEEP_BYTES, weigh=weigh)


def load_from(
    log_id: str, at_least: int, load: Callable[[str, int], T | None], standing: Callable[[str], list[int]]
) -> T | None:
    """Returns generation `at_least`, or the newest by listing if that one is 0 or gone; None if there is no first one."""
    if at_least and (found := load(log_id, at_least)) is not None:
        return found
    if load(log_id, 1) is None:
        return None
    newest = load(log_id, max(standing(log_id), default=1))
    if newest is None:
        raise StoreThrottled("the newest generation was removed while generations were listed; look again")
    return newest


class ManifestStore:
    """The store of manifests of all logs. Thread-safe. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def __init__(self, objects: Objects) -> None:
        """Creates a store over these objects."""
        self._objects = objects
        self._manifests = remembered()
        self._pages: Bounded[str, Parts] = Bounded(_KEEP_BYTES, weigh=weigh_parts)

    def load(self, log_id: str, generation: int) -> Manifest | None:
        """Loads one generation; None if its object does not exist.

        Raises:
            Damaged: the object is not that generation, or breaks a rule.
        """
        key = keys.manifest(log_id, generation)
        try:
            return self._manifests.load(key, lambda: self._fetch(key, log_id, generation))
        except ObjectMissing:
            return None

    def publish(self, manifest: Manifest, look: NewestLook | None = None) -> bool:
        """Creates the generation if it is absent. Returns whether it is `manifest`; False if another caller took its
        number.

        Args:
            look: the look that found the generation before; None only in tests.

        Checks the invariants against the generation before, which is cached if this store loaded it. If the object
        store does not answer, the object is read to find out.

        Raises:
            Damaged: `manifest` breaks a rule; nothing was written.
            StoreTimeout: it is unknown whether it was published; look with `newest`.
            StoreThrottled: it was not published, perhaps because the look is too old.
        """
        previous = self._previous(manifest, look)
        invariants.check(previous, manifest)
        key = keys.manifest(manifest.log_id, manifest.generation)
        return publish(self._objects, key, encode(manifest), look.check if look is not None else None)

    def newest(self, log_id: str, known: Manifest | None, at_least: int) -> Manifest | None:
        """Returns the newest generation; None if nothing was published.

        Costs one GET that finds nothing, and one for each generation that this store has not seen. Without `known` and
        `at_least`, and if generation `at_least` is gone (of tables that were restored), generations are listed.

        Args:
            known: a generation that the caller has, if any. It must have been the newest less than `KEPT_MS` ago, or
                `at_least` must come from the watermark.
            at_least: a generation that is known to exist (from the watermark); 0 if none is.

        Raises:
            Damaged: no generation from `at_least` on exists, or an object is not the generation that it should be.
        """
        found = known
        if known is None or known.generation < at_least:
            found = load_from(log_id, at_least, self.load, self.standing)
            if at_least > (found.generation if found else 0):
                raise Damaged(f"manifest is missing: object={keys.manifest(log_id, at_least)}")
        while following := self.load(log_id, (found.generation if found else 0) + 1):
            found = following
        return found

    def standing(self, log_id: str) -> list[int]:
        """Returns the numbers of the generations that exist, ascending."""
        numbers = map(keys.generation, self._objects.list(keys.manifests(log_id)))
        return list(takewhile(lambda number: number is not None, numbers))  # type: ignore[arg-type]  # pages come after

    def segments_from(self, manifest: Manifest, offset: int) -> Iterator[Segment]:
        """Yields the published segments that hold records at or after `offset`, ascending; loads sealed pages as
        needed.

        Raises:
            Damaged: a sealed page is missing or altered.
        """
        offset = max(offset, manifest.begin_offset)
        yield from self._from(manifest.pages, offset)
        yield from self._from(manifest.open_page, offset)

    def segments_before(self, manifest: Manifest, offset: int) -> Iterator[Segment]:
        """Yields the published segments that begin before `offset`, the newest first; loads sealed pages as needed.

        Raises:
            Damaged: a sealed page is missing or altered.
        """
        for found in chain(self._before(manifest.open_page, offset), self._before(manifest.pages, offset)):
            if found.first_offset < manifest.begin_offset:
                return
            yield found
            if found.first_offset == manifest.begin_offset:
                return  # a page of dropped segments, which may be gone, is not read

    def segment_for_time(self, manifest: Manifest, time_ms: int) -> Segment | None:
        """Returns the first published segment with a record appended at `time_ms` or later; None if there is none.

        Raises:
            Damaged: a sealed page is missing or altered.
        """
        parts: Parts = manifest.open_page
        if manifest.pages and manifest.pages[-1].max_time_ms >= time_ms:
            parts = manifest.pages
        while True:
            at = bisect.bisect_left(parts, time_ms, key=lambda part: part.max_time_ms)
            found = parts[at] if at < len(parts) else None
            if (
                found is not None and found.end_offset <= manifest.begin_offset
            ):  # it was dropped: the next one is later
                return next(self.segments_from(manifest, found.first_offset), None)
            if not isinstance(found, ManifestPage):
                return found
            parts = self.parts(found)

    def parts(self, page: ManifestPage) -> Parts:
        """Returns what a sealed page lists; costs one GET unless it is cached.

        Raises:
            Damaged: the page is missing or altered.
        """

        def fetch() -> Parts:
            try:
                return decode_page(self._objects.get(page.key), page)
            except ObjectMissing as exc:
                raise Damaged(f"manifest page is missing: object={page.key}") from exc

        return self._pages.load(page.key, fetch)

    def _from(self, parts: Parts, offset: int) -> Iterator[Segment]:
        for part in parts[bisect.bisect_right(parts, offset, key=lambda part: part.end_offset) :]:
            if isinstance(part, ManifestPage):
                yield from self._from(self.parts(part), offset)
            else:
                yield part

    def _before(self, parts: Parts, offset: int) -> Iterator[Segment]:
        for part in parts[: bisect.bisect_left(parts, offset, key=lambda part: part.first_offset)][::-1]:
            if isinstance(part, ManifestPage):
                yield from self._before(self.parts(part), offset)
            else:
                yield part

    def _previous(self, manifest: Manifest, look: NewestLook | None) -> Manifest | None:
        if manifest.generation <= 1:
            return None
        previous = self.load(manifest.log_id, manifest.generation - 1)
        if previous is None:
            if look is not None:
                look.check()
            missing = keys.manifest(manifest.log_id, manifest.generation - 1)
            raise Damaged(f"manifest would leave a gap: missing={missing}")
        return previous

    def _fetch(self, key: str, log_id: str, generation: int) -> Manifest:
        manifest = decode(self._objects.get(key), key)
        if (manifest.log_id, manifest.generation) != (log_id, generation):
            found = keys.manifest(manifest.log_id, manifest.generation)
            raise Damaged(f"manifest is in the wrong place: object={key} found={found}")
        invariants.check_whole(manifest)
        return manifest


def outdated(standing: Sequence[int], made_ms: Callable[[int], int], until_ms: int, watermark: int) -> list[int]:
    """Returns the generations, except the first, that a newer one replaced at `until_ms` or earlier, if the watermark names
    that one or a newer one.

    Args:
        standing: the existing generations, ascending.
        made_ms: returns when a generation was created; called for only a few.
    """
    named = standing[: bisect.bisect_right(standing, watermark)]
    older = bisect.bisect_right(named, until_ms, key=made_ms)
    return [generation for generation in named[: max(0, older - 1)] if generation != 1]
