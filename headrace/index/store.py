"""Loading and publishing index manifests through an `Objects` port.

Creating generation N+1 if it is absent is the commit point: whoever creates it has published, everyone else has not.
"""

from __future__ import annotations

from headrace.errors import Damaged
from headrace.index import manifest as manifests
from headrace.index.manifest import IndexManifest
from headrace.objects import ObjectMissing, Objects, keys
from headrace.objects.publishing import publish

KEPT_MS = 24 * 3600 * 1000  # a generation stands at least so long after a newer one was made, the first one for ever


class IndexManifestStore:
    """Generations of any log. Thread-safe. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def __init__(self, objects: Objects) -> None:
        """Stores in `objects`."""
        self._objects = objects

    def load(self, log_id: str, generation: int) -> IndexManifest | None:
        """One generation; None if it was never published.

        Raises:
            Damaged: the object is not that generation, or breaks a rule.
        """
        key = keys.index_manifest(log_id, generation)
        try:
            manifest = manifests.decode(self._objects.get(key), key)
        except ObjectMissing:
            return None
        if (manifest.log_id, manifest.generation) != (log_id, generation):
            found = keys.index_manifest(manifest.log_id, manifest.generation)
            raise Damaged(f"index manifest stands in the wrong place: object={key} found={found}")
        return manifest

    def newest(self, log_id: str, known: IndexManifest | None = None, at_least: int = 0) -> IndexManifest:
        """The newest generation; `manifest.empty` if nothing was published.

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
            return manifests.empty(log_id)
        while following := self.load(log_id, found.generation + 1):
            found = following
        return found

    def publish(self, manifest: IndexManifest) -> bool:
        """Creates the generation: True if it is `manifest`, False if another one took its number.

        A lost answer is cleared up by reading what stands there.

        Raises:
            Damaged: `manifest` breaks a rule; nothing was written.
            StoreTimeout: nobody knows whether it was published; look with `newest`.
            StoreThrottled: it was not published.
        """
        key = keys.index_manifest(manifest.log_id, manifest.generation)
        if manifest.generation < 1:
            raise Damaged(f"index manifest has no generation: object={key}")
        manifests.check(manifest, key)
        return publish(self._objects, key, manifests.encode(manifest))

    def standing(self, log_id: str) -> list[int]:
        """The generations that a listing shows, ascending."""
        found = map(keys.index_generation, self._objects.list(keys.index_manifests(log_id)))
        return sorted(generation for generation in found if generation is not None)

    def _listed(self, log_id: str) -> IndexManifest | None:
        """The newest generation that a listing shows; None, and nothing is listed, without a first one."""
        if self.load(log_id, 1) is None:
            return None
        return self.load(log_id, max(self.standing(log_id), default=0))
