"""The newest index manifests, as far as this process has looked."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from headrace.clock import Clock
from headrace.index.manifest import IndexManifest, IndexManifestStore
from headrace.objects import Objects

AGE_S = 0.25  # of what `recent` answers: those who wait for a change look this often at most
_REMEMBERED = 256  # a run takes about 1 KB, and a generation names some dozens


class _Looked(NamedTuple):
    manifest: IndexManifest
    monotonic: float


class IndexLook:
    """Index manifests by log. Thread-safe."""

    def __init__(self, objects: Objects, clock: Clock) -> None:
        self._store = IndexManifestStore(objects)
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Looked] = OrderedDict()

    def now(self, log_id: str, at_least: int) -> IndexManifest:
        """The newest generation. One GET that finds nothing, and one for each generation not seen.

        Args:
            at_least: a generation that the watermark names; 0 if it names none, which costs a list at first.

        Raises:
            Damaged: a generation is not what it should be.
        """
        began = self._clock.monotonic()
        known = self._of(log_id)
        found = self._store.newest(log_id, known.manifest if known is not None else None, at_least)
        with self._lock:
            self._known[log_id] = _Looked(found, began)
            self._known.move_to_end(log_id)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return found

    def recent(self, log_id: str, at_least: int) -> IndexManifest:
        """The newest generation of a moment ago, or one that the watermark names since."""
        known = self._of(log_id)
        is_young = known is not None and self._clock.monotonic() - known.monotonic < AGE_S
        if known is not None and is_young and known.manifest.generation >= at_least:
            return known.manifest
        return self.now(log_id, at_least)

    def _of(self, log_id: str) -> _Looked | None:
        with self._lock:
            return self._known.get(log_id)
