"""Finds where a time begins in a log. Append times never fall, so one search per log is enough."""

from __future__ import annotations

from collections.abc import Callable

from headrace.errors import SegmentMissing
from headrace.log import join
from headrace.log.requests import Head
from headrace.log.stores import Stores
from headrace.manifest.manifest import Manifest
from headrace.manifest.store import ManifestStore
from headrace.segment import reader
from headrace.wal.state import Entry


class TimeFinder:
    """A converter of times to positions in logs."""

    def __init__(
        self, stores: Stores, manifests: ManifestStore, refresh_manifest: Callable[[str], Manifest | None]
    ) -> None:
        self._stores = stores
        self._manifests = manifests
        self._refresh_manifest = refresh_manifest

    def position(self, head: Head, since_ms: int) -> int:
        """Returns the position of the stream's first record appended at or after `since_ms`; its end if there is
        none.
        """
        floor = 0
        for ancestor in head.config.lineage:
            if ancestor.through <= floor:
                continue  # nothing is read from it: it need not even stand
            found = self._in_log(ancestor.log_id, since_ms)
            if found is not None and found < ancestor.through:
                return max(found, floor)
            floor = ancestor.through
        found = self._in_log(head.log_id, since_ms)
        return head.state.next_offset if found is None else found

    def _in_log(self, log_id: str, since_ms: int) -> int | None:
        """Returns the position of the first such record among one log's own records; None if there is none."""
        manifest: Manifest | None = None
        for _ in join.looks(log_id, f"since={since_ms}"):
            before, manifest = manifest, self._refresh_manifest(log_id)
            segment = self._manifests.segment_for_time(manifest, since_ms) if manifest is not None else None
            if segment is not None:
                try:
                    return reader.find_time(self._stores.objects, segment, since_ms)
                except SegmentMissing:  # merged since we looked, or damage
                    assert manifest is not None, "it named the segment"
                    if before is not None and before.generation == manifest.generation:
                        raise
                    continue
            found: int | None = None
            oldest: Entry | None = None
            for entry in join.backward(self._stores.wal, log_id):
                oldest = entry
                if manifest is not None and entry.slot < manifest.end_slot:
                    return found  # joined: everything older is published, and older than the time
                if entry.count and entry.times[-1].time_ms < since_ms:
                    return found
                offset = entry.offset
                for run in entry.times:
                    if run.time_ms >= since_ms:
                        found = offset
                        break
                    offset += run.count
            if oldest is not None and join.continues(manifest, oldest):
                return found
            # Trimmed since the manifest in hand: look again.
        raise AssertionError("the last look raises")
