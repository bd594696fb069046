"""Loads and publishes manifests through an `Objects` port.

The commit point of sealing is the creation of generation N+1 on the condition that it is absent: only the caller that
creates it has published. Generations and sealed pages never change, so a few of each are cached.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator

from headrace.clock import Bounded
from headrace.errors import Damaged
from headrace.manifest import invariants
from headrace.manifest.manifest import Manifest, ManifestPage, decode, decode_page, encode
from headrace.objects import ObjectMissing, Objects, keys
from headrace.objects.packed import publish
from headrace.segment.descriptor import Segment

_KEEP_SEGMENTS = 2048  # descriptors of each kind; one of 16 MiB of data takes about 20 KB in memory


class ManifestStore:
    """The store of manifests of all logs. Thread-safe. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def __init__(self, objects: Objects) -> None:
        """Creates a store over these objects."""
        self._objects = objects
        self._manifests: Bounded[str, Manifest] = Bounded(_KEEP_SEGMENTS, weigh=lambda one: 1 + len(one.open_page))
        self._pages: Bounded[str, tuple[Segment, ...]] = Bounded(_KEEP_SEGMENTS, weigh=len)

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

    def publish(self, manifest: Manifest) -> bool:
        """Creates the generation if it is absent. Returns whether it is `manifest`; False if another caller took its
        number.

        Checks the invariants against the generation before, which is cached if this store loaded it. If the object
        store does not answer, the object is read to find out.

        Raises:
            Damaged: `manifest` breaks a rule; nothing was written.
            StoreTimeout: it is unknown whether it was published; look with `newest`.
            StoreThrottled: it was not published.
        """
        previous = self._previous(manifest)
        invariants.check(previous, manifest)
        key = keys.manifest(manifest.log_id, manifest.generation)
        return publish(self._objects, key, encode(manifest))

    def newest(self, log_id: str, known: Manifest | None, at_least: int) -> Manifest | None:
        """Returns the newest generation; None if nothing was published.

        Costs one GET that finds nothing, and one for each generation that this store has not seen.

        Args:
            known: a generation that the caller has, if any.
            at_least: a generation that is known to exist (from the watermark); 0 if none is.

        Raises:
            Damaged: generation `at_least` does not exist, or an object is not the generation that it should be.
        """
        found = known
        if known is None or known.generation < at_least:
            found = self.load(log_id, at_least) if at_least > 0 else None
            if at_least > 0 and found is None:
                raise Damaged(f"manifest is missing: object={keys.manifest(log_id, at_least)}")
        while following := self.load(log_id, (found.generation if found else 0) + 1):
            found = following
        return found

    def segments_from(self, manifest: Manifest, offset: int) -> Iterator[Segment]:
        """Yields the published segments that hold records at or after `offset`, ascending; loads sealed pages as
        needed.

        Raises:
            Damaged: a sealed page is missing or altered.
        """
        first_page = bisect.bisect_right(manifest.pages, offset, key=lambda page: page.end_offset)
        for page in manifest.pages[first_page:]:
            yield from _behind(self._page(page), offset)
        yield from _behind(manifest.open_page, offset)

    def segment_for_time(self, manifest: Manifest, time_ms: int) -> Segment | None:
        """Returns the first published segment with a record appended at `time_ms` or later; None if there is none.

        Raises:
            Damaged: a sealed page is missing or altered.
        """
        at = bisect.bisect_left(manifest.pages, time_ms, key=lambda page: page.max_time_ms)
        segments = self._page(manifest.pages[at]) if at < len(manifest.pages) else manifest.open_page
        number = bisect.bisect_left(segments, time_ms, key=lambda segment: segment.max_time_ms)
        return segments[number] if number < len(segments) else None

    def _previous(self, manifest: Manifest) -> Manifest | None:
        if manifest.generation <= 1:
            return None
        previous = self.load(manifest.log_id, manifest.generation - 1)
        if previous is None:
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

    def _page(self, page: ManifestPage) -> tuple[Segment, ...]:
        def fetch() -> tuple[Segment, ...]:
            try:
                return decode_page(self._objects.get(page.key), page)
            except ObjectMissing as exc:
                raise Damaged(f"manifest page is missing: object={page.key}") from exc

        return self._pages.load(page.key, fetch)


def _behind(segments: tuple[Segment, ...], offset: int) -> tuple[Segment, ...]:
    return segments[bisect.bisect_right(segments, offset, key=lambda segment: segment.end_offset) :]
