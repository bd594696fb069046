"""The routing keys of segments that no run covers, from their key pages: one small GET per segment, all at once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from headrace.errors import Damaged
from headrace.index.fetching import Ranges
from headrace.objects import ObjectMissing, Range, keys
from headrace.segment import keypage
from headrace.segment.descriptor import Segment

MAX_PAGE_BYTES = 64 * 1024 * 1024  # of an object; a page of 100,000 keys of 64 characters takes 5 MB
_KEEP_KEYS = 400_000  # of all segments together; one takes some 70 bytes


class KeyPages:
    """Reads key pages, and keeps the keys of those read last. Thread-safe."""

    def __init__(self) -> None:
        """Empty."""
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, keypage.KeyPage] = OrderedDict()
        self._count = 0

    def read(self, ranges: Ranges, segments: Sequence[Segment]) -> list[keypage.KeyPage]:
        """The key page of each segment. One round of parallel GETs for those that are not here.

        Raises:
            Damaged: a page is missing, or is not the one that was published.
        """
        found: dict[str, keypage.KeyPage] = {}
        with self._lock:
            for segment in segments:
                kept = self._kept.get(segment.key)
                if kept is not None:
                    self._kept.move_to_end(segment.key)
                    found[segment.key] = kept
        missing = [segment for segment in segments if segment.key not in found]
        for segment, page in zip(missing, self._fetch(ranges, missing), strict=True):
            found[segment.key] = page
            self._keep(segment.key, page)
        return [found[segment.key] for segment in segments]

    @staticmethod
    def _fetch(ranges: Ranges, segments: Sequence[Segment]) -> list[keypage.KeyPage]:
        if not segments:
            return []
        names = [keys.segment_keys(segment.key) for segment in segments]
        try:
            pages = ranges.get_ranges([Range(name, 0, MAX_PAGE_BYTES) for name in names])
        except ObjectMissing as exc:
            raise Damaged(f"key page is missing: object={exc}") from exc
        return [
            keypage.decode(data, sha256=segment.keys_sha256, count=segment.count, source=name)
            for segment, name, data in zip(segments, names, pages, strict=True)
        ]

    def _keep(self, key: str, page: keypage.KeyPage) -> None:
        with self._lock:
            if key not in self._kept:
                self._kept[key] = page
                self._count += len(page.keys)
            while self._count > _KEEP_KEYS and len(self._kept) > 1:
                _, oldest = self._kept.popitem(last=False)
                self._count -= len(oldest.keys)
